import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createPluginFiles, readPluginFolder, stampOfFolder } from "../../../lib/extensions/plugins/plugin_files.ts";
import { readPackage } from "../../../lib/extensions/plugins/plugin_package.ts";
import { BY, withPlugins } from "../../support/plugin_bench.ts";
import { SAMPLE_MODULE, sampleManifest, samplePackage, sampleTool, sha256 } from "../../support/plugin_package.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

test("a package that is written is read back, and damage at any byte is seen", () =>
  withTemporaryFolder(async (folder) => {
    const root = join(folder, "plugins");
    const files = createPluginFiles({ root, random: createSeededRandom() });
    const plugin = readPackage(samplePackage());
    await files.write(plugin);
    assert.deepEqual(readdirSync(root), [plugin.digest]);
    assert.equal((await files.read(plugin.digest)).digest, plugin.digest);
    const place = join(root, plugin.digest);
    const damages: readonly (() => void)[] = [
      () => truncateSync(join(place, "words.wasm"), 3),
      () => writeFileSync(join(place, "extra"), "x"),
      () => chmodSync(join(place, "words.wasm"), 0o700),
      () => writeFileSync(join(place, "plugin.json"), "{}"),
      () => symlinkSync("/etc/passwd", join(place, "link")),
    ];
    for (const damage of damages) {
      damage();
      await assert.rejects(files.read(plugin.digest), { code: "plugin_changed" });
      await files.write(plugin);
      assert.equal((await files.read(plugin.digest)).digest, plugin.digest, "writing it again mends it");
    }
  }));

test("an installation that a crash cut off at any moment leaves nothing that counts", () =>
  withPlugins(async (bench) => {
    const root = join(bench.dataDir, "plugins");
    const plugin = readPackage(samplePackage());
    // After any number of files, each of them of any length, and after the rename but before the record
    for (let count = 0; count <= plugin.files.length; count++) {
      for (const part of [0, 0.5, 1]) {
        const unfinished = join(root, `.new-${count}-${part}`);
        mkdirSync(unfinished, { recursive: true });
        for (const { path, bytes } of plugin.files.slice(0, count)) {
          writeFileSync(join(unfinished, path), bytes.subarray(0, Math.floor(bytes.length * part)));
        }
      }
    }
    mkdirSync(join(root, plugin.digest));
    for (const { path, bytes } of plugin.files) writeFileSync(join(root, plugin.digest, path), bytes);
    await bench.restart();
    assert.deepEqual(bench.plugins.list(), []);
    assert.deepEqual(readdirSync(root), []);
    await bench.plugins.install(samplePackage(), { by: BY });
    assert.deepEqual(readdirSync(root), [plugin.digest]);
  }));

test("an installation whose record cannot be written is none", () =>
  withPlugins(async (bench) => {
    bench.audit.fail(new Error("disk full"));
    await assert.rejects(bench.plugins.install(samplePackage(), { by: BY }), /disk full/);
    assert.deepEqual(bench.plugins.list(), []);
    await bench.restart();
    assert.deepEqual(bench.plugins.list(), []);
    assert.deepEqual(readdirSync(join(bench.dataDir, "plugins")), []);
  }));

test("a change whose record cannot be written changes nothing, now and after a restart", () =>
  withPlugins(async (bench) => {
    const { digest } = await bench.plugins.install(samplePackage(), { by: BY });
    await bench.plugins.enable("words", { by: BY, digest: digest ?? "" });
    await bench.plugins.install(samplePackage({ id: "other", tools: [sampleTool("other")] }), { by: BY });
    const other = bench.plugins.get("other")?.digest ?? "";
    const seen = () => bench.plugins.list().map(({ id, version, state, on }) => [id, version, state, on]);
    const before = seen();
    bench.audit.fail(new Error("disk full"));
    const changes = [
      () => bench.plugins.install(samplePackage({ version: "2.0.0" }), { by: BY }),
      () => bench.plugins.enable("other", { by: BY, digest: other }),
      () => bench.plugins.disable("words", { by: BY }),
      () => bench.plugins.remove("words", { by: BY }),
    ];
    for (const change of changes) {
      await assert.rejects(change(), /disk full/);
      assert.deepEqual(seen(), before);
      assert.equal((await bench.call("count_words")).output, "1.0.0");
      await bench.restart();
      assert.deepEqual(seen(), before);
    }
    assert.deepEqual(readdirSync(join(bench.dataDir, "plugins")).sort(), [digest, other].sort());
  }));

test("a hostile package writes nothing at all", () =>
  withPlugins(async (bench) => {
    const traversal = samplePackage({}, [
      { name: "words.wasm", bytes: SAMPLE_MODULE },
      { name: "../../evil", bytes: SAMPLE_MODULE },
    ]);
    await assert.rejects(bench.plugins.install(traversal, { by: BY }), { code: "package_invalid" });
    assert.equal(existsSync(join(bench.dataDir, "plugins")), false);
    assert.deepEqual(bench.audit.events, []);
  }));

test("readPluginFolder() takes what belongs to a package: for WASM the module and texts, for a process all but hidden files", () =>
  withTemporaryFolder(async (folder) => {
    const write = (path: string, content: string | Uint8Array) => writeFileSync(join(folder, path), content);
    const names = async () => (await readPluginFolder(folder)).files.map(({ path }) => path);
    for (const name of ["src", "target", ".git", "__pycache__"]) {
      mkdirSync(join(folder, name));
      write(`${name}/x`, "x");
    }
    write("README.md", "x");
    write("words-1.0.0.tar", "x");
    write("words.wasm", SAMPLE_MODULE);
    write("plugin.json", JSON.stringify(sampleManifest()));
    assert.deepEqual(await names(), ["README.md", "plugin.json", "words.wasm"]);
    const process = { kind: "process", wasm: undefined, process: { command: "node", args: ["src/x"] } };
    write("plugin.json", JSON.stringify(sampleManifest(process)));
    assert.deepEqual(await names(), ["README.md", "plugin.json", "src/x", "words.wasm"]);
    symlinkSync("/etc/passwd", join(folder, "passwd"));
    await assert.rejects(names(), { code: "package_invalid", message: /"passwd" .* is a link/ });
  }));

test("stampOfFolder() sees each change of a plugin, and is not hindered by a folder of sources with many files", () =>
  withTemporaryFolder(async (folder) => {
    const write = (path: string, content: string | Uint8Array) => writeFileSync(join(folder, path), content);
    write("plugin.json", JSON.stringify(sampleManifest()));
    mkdirSync(join(folder, "node_modules"));
    for (let at = 0; at < 1_100; at++) write(`node_modules/${at}`, "");
    const stamps = [await stampOfFolder(folder)];
    const changed = async (what: string) => {
      const stamp = await stampOfFolder(folder);
      assert.ok(!stamps.includes(stamp), what);
      stamps.push(stamp);
    };
    write("words.wasm", SAMPLE_MODULE);
    await changed("a module that comes");
    write("words.wasm", new Uint8Array([...SAMPLE_MODULE, 0]));
    await changed("a module that changes");
    write("plugin.json", JSON.stringify(sampleManifest({ version: "1.0.1" })));
    await changed("a manifest that changes");
    write("plugin.json", "{");
    await changed("a manifest that breaks");
    write("node_modules/0", "x");
    assert.equal(await stampOfFolder(folder), stamps.at(-1), "what is not in the package does not count");
  }));

test("readPluginFolder() puts the digest of a module into the manifest when it is asked to", () =>
  withTemporaryFolder(async (folder) => {
    const module = new Uint8Array([...SAMPLE_MODULE, 0]);
    writeFileSync(join(folder, "words.wasm"), module);
    writeFileSync(join(folder, "plugin.json"), JSON.stringify(sampleManifest()));
    await assert.rejects(readPluginFolder(folder), { code: "hash_mismatch" });
    const filled = await readPluginFolder(folder, { fillDigest: "always" });
    assert.equal(filled.manifest.kind === "wasm" && filled.manifest.wasm.sha256, sha256(module));
    const other = await readPluginFolder(folder, { module: SAMPLE_MODULE });
    assert.equal(other.manifest.kind === "wasm" && other.manifest.wasm.sha256, sha256(SAMPLE_MODULE));
    assert.deepEqual(other.files.at(-1)?.bytes, SAMPLE_MODULE);
  }));
