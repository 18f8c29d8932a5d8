import assert from "node:assert/strict";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../../../lib/base/clock.ts";
import { createSystemRandom } from "../../../../lib/base/random.ts";
import { installPackage } from "../../../../lib/extensions/mcp/install/installed_package.ts";
import { openInstallers } from "../../../../lib/extensions/mcp/install/installer_program.ts";
import { installFromNpm } from "../../../../lib/extensions/mcp/install/npm_package.ts";
import { type FakePackage, type FakeRegistries, startRegistries } from "../../../support/fake_registries.ts";
import { withTemporaryFolder } from "../../../support/temporary_folder.ts";

const has = (name: string) =>
  (process.env["PATH"] ?? "").split(delimiter).some((folder) => existsSync(join(folder, name)));
const skip = has("npm") ? false : "there is no npm";

interface TarEntry {
  readonly path: string;
  /** Type of the header. Default: a file */
  readonly type?: string;
  readonly mode?: number;
  readonly link?: string;
  readonly text?: string;
}

/** Returns an entry of a tar, whatever its name and kind. */
function tarEntry({ path, type = "0", mode = 0o644, link = "", text = "" }: TarEntry): Uint8Array {
  const content = Buffer.from(text);
  const block = Buffer.alloc(512);
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, "0")}\0`;
  block.write(path, 0);
  block.write(`${octal(mode, 7)}${octal(0, 7)}${octal(0, 7)}${octal(content.length, 11)}${octal(0, 11)}`, 100);
  block.write(`        ${type}${link}`, 148);
  block.write("ustar\x0000", 257);
  block.write(`${octal(block.reduce((sum, byte) => sum + byte, 0), 6)} `, 148);
  return Buffer.concat([block, content, Buffer.alloc((512 - (content.length % 512)) % 512)]);
}

const RAN = "require('fs').writeFileSync(process.env.HOME + '/ran', '')";
const HOSTILE: FakePackage = {
  name: "hostile",
  version: "1.0.0",
  manifest: { bin: { hostile: "index.js" } },
  files: { "index.js": "#!/usr/bin/env node\n" },
  entries: [
    // The registry's metadata name no script: the package itself does
    tarEntry({
      path: "package/package.json",
      text: JSON.stringify({
        ...{ name: "hostile", version: "1.0.0", bin: { hostile: "index.js" } },
        scripts: Object.fromEntries(
          ["preinstall", "install", "postinstall", "prepare"].map((name) => [name, `node -e "${RAN}"`]),
        ),
      }),
    }),
    tarEntry({ path: "package/binding.gyp", text: "{'targets': []}" }),
    tarEntry({ path: "package/.npmrc", text: "ignore-scripts=false\n" }),
    tarEntry({ path: "package/index.js", mode: 0o6755, text: "#!/usr/bin/env node\n// the second one\n" }),
    tarEntry({ path: "package/suid", mode: 0o6755, text: "#!/bin/sh\n" }),
    tarEntry({ path: "/escaped-absolute.txt", text: "x" }),
    tarEntry({ path: "package/../../../../escaped-up.txt", text: "x" }),
    tarEntry({ path: "package/out", type: "2", link: "../../../.." }),
    tarEntry({ path: "package/out/escaped-link.txt", text: "x" }),
    tarEntry({ path: "package/link.js", type: "2", link: "../../../../secret" }),
    tarEntry({ path: "package/hard.js", type: "1", link: "../../../../secret" }),
    tarEntry({ path: "package/fifo", type: "6" }),
    tarEntry({ path: "package/device", type: "3" }),
    tarEntry({ path: "package/Name.js", text: "upper" }),
    tarEntry({ path: "package/name.js", text: "lower" }),
    tarEntry({ path: "package/caf\u00e9.js", text: "composed" }),
    tarEntry({ path: "package/cafe\u0301.js", text: "decomposed" }),
    tarEntry({ path: "package/node_modules/.bin/node", mode: 0o755, text: "#!/bin/sh\ntouch $HOME/ran\n" }),
  ],
};

/** Installs a package of npm into the data directory in a folder. */
async function install(
  folder: string,
  registries: FakeRegistries,
  spec: { readonly name: string; readonly maxBytes?: number },
) {
  const [dataDir, home, workspace] = ["data", "home", "work"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  for (const place of [dataDir, home, workspace]) mkdirSync(place, { recursive: true });
  const signal = new AbortController().signal;
  const programs = openInstallers({ env: registries.env(home), home, workspace, clock: systemClock, signal });
  const place = {
    dataDir,
    clock: systemClock,
    random: createSystemRandom(),
    ...spec.maxBytes && { maxBytes: spec.maxBytes },
  };
  return await installPackage(
    place,
    (staged) =>
      installFromNpm({ name: spec.name, version: undefined, program: undefined }, { folder: staged, programs }),
  );
}

const everything = (folder: string) => readdirSync(folder, { recursive: true, encoding: "utf8" });

test(
  "nothing of a hostile tarball leaves its folder, runs, leads elsewhere or has the rights of its owner",
  { skip },
  () =>
    withTemporaryFolder(async (made) => {
      const folder = realpathSync(made);
      writeFileSync(join(folder, "secret"), "canary");
      await using registries = await startRegistries({ packages: [HOSTILE] });
      const installed = await install(folder, registries, { name: "hostile" });
      assert.ok(!existsSync(join(folder, "home/ran")), "a script ran");
      const escaped = everything(folder).filter((path) =>
        /escaped/.test(path) && !path.includes("node_modules/hostile/")
      );
      assert.deepEqual(escaped, []);
      assert.ok(!existsSync("/escaped-absolute.txt"));
      const own = join(installed.folder, "node_modules/hostile");
      for (const name of everything(installed.folder)) {
        const path = join(installed.folder, name);
        const found = lstatSync(path);
        assert.equal(found.mode & 0o7000, 0, name);
        assert.ok(found.isFile() || found.isDirectory() || found.isSymbolicLink(), `${name} is something else`);
        if (found.isSymbolicLink()) assert.ok(realpathSync(path).startsWith(installed.folder), name);
        if (found.isFile()) assert.ok(found.nlink === 1 && !readFileSync(path, "utf8").includes("canary"), name);
      }
      assert.match(readFileSync(join(own, "index.js"), "utf8"), /the second one/);
      // The installed package stays as it is, and is seen as unchanged
      writeFileSync(join(own, "mark"), "");
      rmSync(join(own, "mark"));
      const again = await install(folder, registries, { name: "hostile" });
      assert.deepEqual(again, installed);
    }),
);

test(
  "what has more bytes than a package may have is not installed, however small its tarball is",
  { skip },
  () =>
    withTemporaryFolder(async (made) => {
      const folder = realpathSync(made);
      const bomb = { ...HOSTILE, entries: [tarEntry({ path: "package/zeros", text: "\0".repeat(4_000_000) })] };
      await using registries = await startRegistries({ packages: [bomb] });
      await assert.rejects(install(folder, registries, { name: "hostile", maxBytes: 3_000_000 }), {
        code: "package_refused",
        message: /^Cannot use "hostile": it has more than 3000000 bytes/,
      });
      assert.deepEqual(everything(join(folder, "data/mcp/packages")), []);
    }),
);

test(
  "bytes that change between the look at the registry and the installation are not installed",
  { skip },
  () =>
    withTemporaryFolder(async (made) => {
      const folder = realpathSync(made);
      // A package with others in its tarball is read at the look already
      const bundling = {
        ...HOSTILE,
        entries: [],
        manifest: { ...HOSTILE.manifest, bundleDependencies: ["inner"], dependencies: { inner: "1" } },
      };
      const inner = { "node_modules/inner/package.json": '{"name":"inner","version":"1.0.0"}' };
      await using first = await startRegistries({ packages: [{ ...bundling, files: { ...HOSTILE.files, ...inner } }] });
      let asked = 0;
      const others: FakePackage = { ...bundling, files: { ...HOSTILE.files, ...inner, "evil.js": "" } };
      await using second = await startRegistries({ packages: [others] });
      await using changing = await startRegistries({
        onAsk: (path, response) => {
          const from = path.endsWith(".tgz") && ++asked > 1 ? second.url : first.url;
          void fetch(`${from}${path}`).then(async (reply) => {
            const body = Buffer.from(await reply.arrayBuffer());
            const text = body.toString("latin1").replaceAll(first.url, changing.url);
            response.writeHead(reply.status, { "content-type": reply.headers.get("content-type") ?? "" });
            response.end(Buffer.from(text, "latin1"));
          });
          return true;
        },
      });
      const installed = await install(folder, changing, { name: "hostile" });
      assert.ok(asked > 0);
      const own = readdirSync(join(installed.folder, "node_modules/hostile"));
      assert.deepEqual(own.sort(), ["index.js", "node_modules", "package.json"]);
      // The same without what npm has kept: what comes now is not what the lock file names
      rmSync(join(folder, "home"), { recursive: true });
      rmSync(installed.folder, { recursive: true });
      asked = 1;
      await assert.rejects(install(folder, changing, { name: "hostile" }), { code: "package_tampered" });
      assert.deepEqual(everything(join(folder, "data/mcp/packages")), []);
    }),
);
