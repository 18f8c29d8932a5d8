import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createPluginRegistry, type PluginRegistry } from "../../../lib/extensions/plugins/plugin_registry.ts";
import type { GuardedFetch, GuardedRequest } from "../../../lib/system/net/guarded_fetch.ts";
import { BY, type PluginBench, withPlugins } from "../../support/plugin_bench.ts";
import { createPublisher, type Edition, writeRegistry } from "../../support/plugin_registry.ts";
import type { SampleManifest } from "../../support/plugin_package.ts";

const signal = new AbortController().signal;
const V1: SampleManifest = { version: "1.0.0" };
const V2: SampleManifest = { version: "2.0.0" };

interface RegistryBench extends PluginBench {
  readonly registry: PluginRegistry;
  readonly folder: string;
  /** Requests of the guarded fetch */
  readonly requests: GuardedRequest[];
  publish(edition: Edition): void;
  install(version?: string): ReturnType<PluginRegistry["install"]>;
}

/** Runs `use` with a registry in a folder, or over a fetch that serves that folder. */
function withRegistry(use: (bench: RegistryBench) => Promise<void>, url?: string): Promise<void> {
  return withPlugins(async (bench) => {
    const folder = join(bench.workspaceRoot, "../registry");
    const requests: GuardedRequest[] = [];
    bench.config = { ...bench.config, plugins: { ...bench.config.plugins, registry_url: url ?? folder } };
    const registry = createPluginRegistry({
      ...{ plugins: bench.plugins, store: bench.store, clock: bench.clock, audit: bench.audit.append },
      config: () => bench.config,
      guardedFetch: () => Promise.resolve(serve(folder, requests)),
    });
    await use({
      ...{ registry, folder, requests },
      ...{ plugins: bench.plugins, audit: bench.audit, clock: bench.clock, store: bench.store },
      publish: (edition) => writeRegistry(folder, edition),
      install: (version) => registry.install("words", { by: BY, version, signal }),
    } as RegistryBench);
  });
}

/** Serves the files of a folder as the guarded fetch would. */
function serve(folder: string, requests: GuardedRequest[]): GuardedFetch {
  return async (request) => {
    requests.push(request);
    const name = new URL(request.url).pathname.split("/").at(-1) ?? "";
    const bytes = readFileSync(join(folder, name)).subarray(0, request.maxBytes);
    const sink = await request.sink?.({ status: 200, headers: {} });
    await sink?.write(bytes);
    return {
      status: 200,
      headers: {},
      url: request.url,
      body: new Uint8Array(),
      bytes: bytes.length,
      truncated: false,
    };
  };
}

test("install() takes the newest version of a plugin from a folder, off; search() finds it by words", () =>
  withRegistry(async ({ registry, publish, install, plugins }) => {
    const other: SampleManifest = { id: "other", version: "0.1.0" };
    publish({ packages: [V1, V2, { version: "3.0.0-rc.1" }, { version: "10.0.0" }, other] });
    assert.deepEqual((await registry.search("", signal)).map(({ id, version }) => [id, version]), [
      ["other", "0.1.0"],
      ["words", "10.0.0"],
    ]);
    assert.deepEqual((await registry.search("PLUGIN wor", signal)).map(({ id }) => id), ["words"]);
    const { plugin, signature, changed } = await install();
    assert.deepEqual([plugin.version, plugin.state, plugin.source, signature, changed], [
      "10.0.0",
      "installed",
      "package",
      "unsigned",
      true,
    ]);
    assert.equal((await install()).changed, false, "the newest is there");
    assert.equal((await install("1.0.0")).plugin.version, "1.0.0", "an older one by its name");
    assert.equal((await install()).plugin.version, "10.0.0");
    assert.match(plugins.get("words")?.registry ?? "", /registry$/);
    await assert.rejects(registry.install("nobody", { by: BY, signal }), { code: "plugin_not_found" });
    await assert.rejects(install("7.0.0"), { code: "plugin_not_found" });
  }));

test("over http the index is the operator's, and what it leads to elsewhere is not", () =>
  withRegistry(async ({ publish, install, requests }) => {
    publish({ packages: [V1] });
    await install();
    assert.deepEqual(requests.map(({ url, guard: { fromConfig } }) => [url, fromConfig]), [
      ["http://127.0.0.1:9/plugins/index.json", true],
      ["http://127.0.0.1:9/plugins/words-1.0.0.tar", true],
    ]);
    publish({ packages: [V2], lies: { url: "http://elsewhere.example/words-2.0.0.tar" } });
    await install();
    assert.deepEqual([requests.at(-1)?.url, requests.at(-1)?.guard.fromConfig], [
      "http://elsewhere.example/words-2.0.0.tar",
      false,
    ]);
  }, "http://127.0.0.1:9/plugins/"));

/** Registries whose packages or indexes lie: what is wrong, the edition, the code. */
const WRONG: readonly (readonly [what: string, edition: Partial<Edition>, code: string])[] = [
  ["a size too small", { lies: { size: 512 } }, "registry_failed"],
  ["a size too large", { lies: { size: 60_000 } }, "hash_mismatch"],
  ["another hash", { lies: { sha256: "0".repeat(64) } }, "hash_mismatch"],
  ["fewer capabilities than the manifest", {
    packages: [{ ...V1, capabilities: { workspace: "write" } }],
    lies: { capabilities: {} },
  }, "package_invalid"],
  ["another version than the manifest", { lies: { version: "1.0.1" } }, "package_invalid"],
  ["another kind", { lies: { kind: "process" } }, "package_invalid"],
  ["a file outside of its folder", { lies: { url: "../data/x" } }, "registry_failed"],
  ["a file that is not there", { lies: { url: "none.tar" } }, "registry_failed"],
  ["an index that has expired", { expiresAt: "2020-01-01T00:00:00Z" }, "registry_failed"],
  ["another format", { change: (index) => ({ ...index, format: "x" }) }, "registry_failed"],
  ["an unknown field", { change: (index) => ({ ...index, more: 1 }) }, "registry_failed"],
  ["no serial", { change: (index) => ({ ...index, serial: 0 }) }, "registry_failed"],
  ["a plugin twice", {
    change: (index) => ({ ...index, plugins: [...index["plugins"] as unknown[], ...index["plugins"] as unknown[]] }),
  }, "registry_failed"],
  ["a size over the bound", { lies: { size: 67_108_865 } }, "registry_failed"],
  ["a key that is none", { lies: { signature: { key: "AAAA", value: "AAAA" } } }, "registry_failed"],
  ["a signature that is none", {
    lies: { signature: { key: Buffer.alloc(32, 1).toString("base64"), value: Buffer.alloc(64).toString("base64") } },
  }, "signature_invalid"],
];

describe("a registry that lies installs nothing", () => {
  for (const [what, edition, code] of WRONG) {
    test(what, () =>
      withRegistry(async ({ publish, install, plugins, audit }) => {
        publish({ packages: [V1], ...edition });
        await assert.rejects(install(edition.lies?.["version"] as string), { code });
        assert.deepEqual(plugins.list(), []);
        assert.deepEqual(audit.events, []);
      }));
  }

  test("no JSON, and no registry at all", () =>
    withRegistry(async ({ publish, install, folder }) => {
      await assert.rejects(install(), { code: "registry_failed" });
      publish({ packages: [V1] });
      writeFileSync(join(folder, "index.json"), "{");
      await assert.rejects(install(), { code: "registry_failed" });
    }));
});

describe("the key of a publisher", () => {
  const ann = createPublisher();
  const eve = createPublisher();

  test("is pinned on first use; then unsigned, another key and an older index are refused", () =>
    withRegistry(async ({ publish, install, registry, audit }) => {
      publish({ packages: [V1], publisher: ann, serial: 5 });
      assert.equal((await install()).signature, "pinned");
      publish({ packages: [V2], serial: 6 });
      await assert.rejects(install(), { code: "signature_invalid", message: /not signed/ });
      publish({ packages: [V2], publisher: eve, serial: 6 });
      await assert.rejects(install(), {
        code: "signature_invalid",
        message: /another key .* postern plugin trust-key words/,
      });
      publish({ packages: [V2], publisher: ann, serial: 4 });
      await assert.rejects(install(), { code: "signature_invalid", message: /older \(4\)/ });
      publish({ packages: [V2], publisher: ann, serial: 6 });
      assert.equal((await install()).signature, "signed");
      publish({ packages: [V2], publisher: ann, serial: 5 });
      await assert.rejects(install("2.0.0"), { code: "signature_invalid" }, "the newest serial counts");
      publish({ packages: [{ version: "3.0.0" }], publisher: eve, serial: 7 });
      await registry.trustKey("words", { key: eve.key, by: BY });
      assert.equal((await install()).plugin.version, "3.0.0");
      const keys = audit.events.filter((event) => event.type === "plugin" && event.action === "key_trusted");
      assert.equal(keys.length, 1);
      await registry.trustKey("words", { key: eve.key, by: BY });
      assert.equal(audit.events.length, 4, "the same key changes nothing");
    }));

  test("is told beforehand: then the first version must be signed by it", () =>
    withRegistry(async ({ publish, install, registry }) => {
      await registry.trustKey("words", { key: ann.key, by: BY });
      publish({ packages: [V1] });
      await assert.rejects(install(), { code: "signature_invalid" });
      publish({ packages: [V1], publisher: ann });
      assert.equal((await install()).signature, "signed");
      await assert.rejects(registry.trustKey("words", { key: "x", by: BY }), { code: "signature_invalid" });
      await assert.rejects(registry.trustKey("../x", { key: ann.key, by: BY }), { code: "signature_invalid" });
    }));

  test("signs version, hash, capabilities, serial and expiry: a change of any is refused", () =>
    withRegistry(async ({ publish, install }) => {
      const later = "2031-01-01T00:00:00Z";
      const changes: readonly Partial<Edition>[] = [
        { lies: { version: "1.0.1" } },
        { lies: { sha256: "1".repeat(64) } },
        { lies: { capabilities: { workspace: "write" } } },
        { change: (index) => ({ ...index, serial: 99 }) },
        { change: (index) => ({ ...index, expires_at: later }) },
        { change: (index) => ({ ...index, plugins: [{ ...(index["plugins"] as [object])[0], id: "words2" }] }) },
      ];
      for (const [at, change] of changes.entries()) {
        publish({ packages: [V1], publisher: ann, ...change });
        const code = at === 5 ? "plugin_not_found" : "signature_invalid";
        await assert.rejects(install(), { code }, JSON.stringify(change));
      }
    }));
});
