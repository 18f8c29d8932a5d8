import assert from "node:assert/strict";
import { mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { PluginEvent } from "../../../lib/guard/audit/audit_event.ts";
import { PLUGIN_STATES } from "../../../lib/base/records/extension_views.ts";
import { nextState } from "../../../lib/extensions/plugins/plugin_record.ts";
import type { PluginAnswer } from "../../../lib/extensions/plugins/plugin_host.ts";
import type { ToolContext } from "../../../lib/tools/runtime/tool.ts";
import { BY, type PluginBench, withPlugins } from "../../support/plugin_bench.ts";
import {
  SAMPLE_MODULE,
  type SampleManifest,
  sampleManifest,
  samplePackage,
  sampleTool,
  sha256,
} from "../../support/plugin_package.ts";
import { configOf } from "../../support/running_gateway.ts";
import { until } from "../../support/until.ts";
import { answering, i32, wasmModule } from "../../support/wasm_modules.ts";

const eventsOf = (bench: PluginBench) => bench.audit.events.map((event) => (event as PluginEvent).action);
const filesOf = ({ dataDir }: PluginBench) => readdirSync(join(dataDir, "plugins")).sort();

/** Enables a plugin as it is now. */
async function enable({ plugins }: PluginBench, id = "words") {
  return await plugins.enable(id, { by: BY, digest: plugins.get(id)?.digest ?? "" });
}

/** Rows of the specification's table: state, command, next state. */
const TABLE = [
  ["installed", "enable", "enabled"],
  ["installed", "disable", "disabled"],
  ["enabled", "disable", "disabled"],
  ["disabled", "enable", "enabled"],
  ["installed", "remove", "removed"],
  ["enabled", "remove", "removed"],
  ["disabled", "remove", "removed"],
  ["enabled", "enable", "enabled"],
  ["disabled", "disable", "disabled"],
] as const;

describe("the states of an installed plugin", () => {
  for (const [state, command, next] of TABLE) {
    test(`${state} and ${command}: ${next}`, () =>
      withPlugins(async (bench) => {
        const { plugins } = bench;
        await plugins.install(samplePackage(), { by: BY });
        assert.equal(plugins.get("words")?.state, "installed", "it starts off");
        if (state === "enabled") await enable(bench);
        if (state === "disabled") await plugins.disable("words", { by: BY });
        const before = eventsOf(bench).length;
        if (command === "enable") await enable(bench);
        else await plugins[command]("words", { by: BY });
        assert.equal(plugins.get("words")?.state ?? "removed", next);
        assert.equal(plugins.get("words")?.on ?? false, next === "enabled");
        assert.deepEqual(eventsOf(bench).slice(before), state === next ? [] : [next]);
        const again = await bench.restart();
        assert.equal(again.get("words")?.state ?? "removed", next, "after a restart");
      }));
  }

  test("the table has every state and command", () => {
    const commands = ["enable", "disable", "remove"] as const;
    for (const state of PLUGIN_STATES) {
      for (const command of commands) {
        const row = TABLE.find((one) => one[0] === state && one[1] === command);
        assert.equal(nextState(state, command), row?.[2], `${state} ${command}`);
      }
    }
  });
});

test("the tools of a plugin are there with its state, and a call reaches its host", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    assert.deepEqual(plugins.tools(), []);
    await plugins.install(samplePackage(), { by: BY });
    const [off] = plugins.tools();
    assert.equal(off?.enabled !== "always" && off?.enabled(bench.config), false);
    assert.equal(off?.wayOn?.(bench.config), "run postern plugin enable words");
    assert.deepEqual([off?.name, off?.source, off?.origin, off?.outside, off?.access], [
      "count_words",
      "wasm",
      "plugin words 1.0.0",
      true,
      "read",
    ]);
    await assert.rejects(bench.call("count_words"), { code: "plugin_changed" });
    await enable(bench);
    assert.notEqual(plugins.tools(), [off], "the registry sees that they are others");
    assert.deepEqual(await bench.call("count_words"), { output: "1.0.0", isError: false });
    assert.equal(bench.open.size, 1);
    await bench.call("count_words");
    assert.equal(bench.open.size, 1, "its host is kept");
    await assert.rejects(bench.call("count_words", { text: 1 }), { code: "invalid_input" });
    await assert.rejects(bench.call("count_words", { text: "", more: 1 }), /"more" is not one of its fields/);
    await plugins.disable("words", { by: BY });
    await until(() => bench.open.size === 0, "its host is closed");
  }));

test("module_hash_policy decides about a module that has changed, and about nothing else", () =>
  withPlugins(async (bench) => {
    await bench.plugins.install(samplePackage(), { by: BY });
    const { digest } = await enable(bench);
    const folder = join(bench.dataDir, "plugins", digest ?? "");
    writeFileSync(join(folder, "words.wasm"), "other");
    await assert.rejects(bench.call("count_words"), { code: "plugin_changed" });
    bench.config = configOf({ runtime: { wasm: { security: { module_hash_policy: "warn" } } } });
    assert.deepEqual(await bench.call("count_words"), { output: "1.0.0", isError: false });
    assert.equal(Buffer.from([...bench.open][0]?.main ?? []).toString(), "other");
    await bench.restart();
    assert.equal((await bench.call("count_words")).isError, false);
    assert.equal(bench.logged.filter(({ message }) => /has changed/.test(message)).length, 3);
    writeFileSync(join(folder, "plugin.json"), JSON.stringify(sampleManifest({ version: "6.6.6" })));
    await bench.restart();
    assert.match(bench.plugins.get("words")?.reason ?? "", /digest/);
  }));

describe("what could not be loaded is refused when it is installed, served and enabled, and installs nothing", () => {
  const big = answering(undefined, { tail: [[0, [1, 0x78, ...new Uint8Array(1_100_000)]]] });
  const cases: readonly (readonly [what: string, module: Uint8Array, code: string, message: RegExp])[] = [
    [
      "a module over max_module_size_mb",
      big,
      "package_too_large",
      /^Cannot use the plugin "words": "words\.wasm": it has \d+ bytes, and \[runtime\.wasm\] max_module_size_mb is 1$/,
    ],
    [
      "a host function that it does not ask for",
      answering(undefined, { imports: [{ module: "extism:host/user", name: "workspace_read", type: "I:I" }] }),
      "package_invalid",
      /workspace_read.*"capabilities" in plugin\.json/,
    ],
    ["no entrypoint", wasmModule({ execute: () => [...i32(0)], entrypoint: "run" }), "package_invalid", /"execute"/],
    [
      "a module that no runtime takes",
      wasmModule({ execute: () => [0x6a] }),
      "package_invalid",
      /the runtime refuses it/,
    ],
    ["no module at all", Uint8Array.of(1, 2, 3), "package_invalid", /it is no WASM/],
  ];
  for (const [what, module, code, message] of cases) {
    test(what, () =>
      withPlugins(async (bench) => {
        const bytes = samplePackage({ wasm: { file: "words.wasm", sha256: sha256(module) } }, [
          { name: "words.wasm", bytes: module },
        ]);
        const { plugins } = bench;
        bench.config = configOf({ runtime: { wasm: { max_module_size_mb: 1 } } });
        await assert.rejects(plugins.install(bytes, { by: BY }), { code, message });
        await assert.rejects(plugins.serve(bytes, { by: BY }), { code, message });
        assert.deepEqual([plugins.list(), eventsOf(bench)], [[], []]);
        bench.write("plugins/words", { wasm: { file: "words.wasm", sha256: sha256(module) } }, module);
        await bench.restart();
        await assert.rejects(enable(bench), { code, message });
      }));
  }
});

test("enable() goes by the configuration of now, and by module_hash_policy as a call does", () =>
  withPlugins(async (bench) => {
    const module = answering(undefined, { tail: [[0, [1, 0x78, ...new Uint8Array(1_100_000)]]] });
    const fields = { wasm: { file: "words.wasm", sha256: sha256(module) } };
    await bench.plugins.install(samplePackage(fields, [{ name: "words.wasm", bytes: module }]), { by: BY });
    bench.config = configOf({ runtime: { wasm: { max_module_size_mb: 1 } } });
    await assert.rejects(enable(bench), { code: "package_too_large" });
    bench.config = configOf({});
    const { digest } = await enable(bench);
    await bench.plugins.disable("words", { by: BY });
    writeFileSync(join(bench.dataDir, "plugins", digest ?? "", "words.wasm"), SAMPLE_MODULE);
    await assert.rejects(enable(bench), { code: "plugin_changed" });
    await bench.restart();
    bench.config = configOf({ runtime: { wasm: { security: { module_hash_policy: "warn" } } } });
    await bench.plugins.look();
    assert.equal((await enable(bench)).on, true);
    assert.equal((await bench.call("count_words")).output, "1.0.0");
    assert.match(bench.logged.map(({ message }) => message).join(), /has changed, and module_hash_policy lets it run/);
    writeFileSync(join(bench.dataDir, "plugins", digest ?? "", "words.wasm"), "other");
    await bench.plugins.disable("words", { by: BY });
    await assert.rejects(enable(bench), { code: "package_invalid" }, "also then it must be one that loads");
  }));

test("enable() counts for exactly one content", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    await plugins.install(samplePackage(), { by: BY });
    await assert.rejects(plugins.enable("words", { by: BY, digest: "0".repeat(64) }), { code: "plugin_changed" });
    await assert.rejects(plugins.enable("other", { by: BY, digest: "0".repeat(64) }), { code: "plugin_not_found" });
    await assert.rejects(plugins.disable("other", { by: BY }), { code: "plugin_not_found" });
    await assert.rejects(plugins.remove("other", { by: BY }), { code: "plugin_not_found" });
    const { digest } = await enable(bench);
    const event = bench.audit.events.at(-1) as PluginEvent;
    assert.deepEqual([event.action, event.plugin_id, event.version, event.digest, event.by?.via], [
      "enabled",
      "words",
      "1.0.0",
      digest,
      "cli",
    ]);
    writeFileSync(join(bench.dataDir, "plugins", digest ?? "", "words.wasm"), "x");
    await assert.rejects(bench.call("count_words"), { code: "plugin_changed" }, "changed bytes do not run");
    const { dataDir } = bench;
    await bench.restart();
    assert.match(bench.plugins.get("words")?.reason ?? "", /SHA-256|digest/);
    await bench.plugins.install(samplePackage({ version: "1.0.1" }), { by: BY });
    assert.equal(bench.plugins.get("words")?.state, "enabled", "another version mends it");
    assert.deepEqual(readdirSync(join(dataDir, "plugins")), [bench.plugins.get("words")?.digest]);
  }));

test("an approval is bound to the digest, and a call that was prepared for another version is refused", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    await plugins.install(samplePackage(), { by: BY });
    const { digest } = await enable(bench);
    const prepared = plugins.tools()[0]?.prepare('{"text": "a"}');
    // The binding of a plugin looks at nothing of the context
    const bound = await prepared?.bind?.({} as Parameters<NonNullable<typeof prepared.bind>>[0]);
    assert.deepEqual(bound, { shown: [{ kind: "plugin", name: "words", sha256: digest }] });
    await plugins.install(samplePackage({ version: "1.0.1" }), { by: BY });
    assert.ok(plugins.get("words")?.on);
    const { workspaceRoot } = bench;
    const context = { workspaceRoot, signal: new AbortController().signal } as ToolContext;
    await assert.rejects(async () => await prepared?.run(context), { code: "plugin_changed" });
    assert.equal(bench.open.size, 0);
  }));

/** Changes of a new version, and whether it stays enabled. */
const UPDATES:
  readonly (readonly [change: string, before: SampleManifest, next: SampleManifest, more: readonly string[]])[] = [
    ["nothing but its version", {}, {}, []],
    ["another tool", {}, { tools: [sampleTool("count_words"), sampleTool("count_lines")] }, []],
    ["fewer capabilities", { capabilities: { workspace: "write", hosts: ["a.example"] } }, {}, []],
    ["the workspace", {}, { capabilities: { workspace: "read" } }, ["reads the workspace"]],
    [
      "writing",
      { capabilities: { workspace: "read" } },
      { capabilities: { workspace: "write" } },
      ["reads and writes the workspace"],
    ],
    [
      "another host",
      { capabilities: { hosts: ["a.example"] } },
      { capabilities: { hosts: ["b.example"] } },
      ["reaches the host b.example"],
    ],
    [
      "a host function",
      {},
      { capabilities: { host_functions: ["log"] } },
      ["calls the host function log"],
    ],
    [
      "another kind",
      {},
      { kind: "process", wasm: undefined, process: { command: "node" } },
      ["runs as a process plugin, and not as a wasm plugin"],
    ],
  ];

describe("an update of an enabled plugin", () => {
  for (const [change, before, next, more] of UPDATES) {
    test(`that asks for ${change} ${more.length === 0 ? "stays enabled" : "is off until it is enabled"}`, () =>
      withPlugins(async (bench) => {
        const { plugins } = bench;
        await plugins.install(samplePackage(before), { by: BY });
        await enable(bench);
        const info = await plugins.install(samplePackage({ version: "1.1.0", ...next }), { by: BY });
        assert.equal(info.version, "1.1.0");
        assert.equal(info.state, more.length === 0 ? "enabled" : "installed");
        assert.deepEqual(info.asks_more, more);
        const events = ["installed", "enabled", "updated", ...(more.length === 0 ? [] : ["turned_off"])];
        assert.deepEqual(eventsOf(bench), events);
        if (more.length > 0) assert.match(info.reason ?? "", /asks for more than the one before \(reason: widened\)/);
        assert.equal((await enable(bench)).state, "enabled");
        assert.equal(filesOf(bench).length, 1, "the old version's files are gone");
      }));
  }

  test("a disabled plugin stays disabled, and the same package changes nothing", () =>
    withPlugins(async (bench) => {
      const { plugins } = bench;
      await plugins.install(samplePackage(), { by: BY });
      await plugins.disable("words", { by: BY });
      await plugins.install(samplePackage(), { by: BY });
      assert.deepEqual(eventsOf(bench), ["installed", "disabled"]);
      assert.equal((await plugins.install(samplePackage({ version: "2.0.0" }), { by: BY })).state, "disabled");
    }));
});

test("a replaced plugin serves its running calls and then closes; new calls have the new version", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    await plugins.install(samplePackage(), { by: BY });
    await enable(bench);
    const gate = Promise.withResolvers<PluginAnswer>();
    bench.answer = ({ manifest }) =>
      manifest.version === "1.0.0" ? gate.promise : Promise.resolve({ output: "new", is_error: false });
    const old = bench.call("count_words");
    await until(() => bench.open.size === 1);
    await plugins.install(samplePackage({ version: "2.0.0" }), { by: BY });
    assert.equal((await bench.call("count_words")).output, "new");
    assert.equal(bench.open.size, 2);
    assert.equal(filesOf(bench).length, 2, "the files of the running call stay");
    gate.resolve({ output: "old", is_error: false });
    assert.equal((await old).output, "old");
    await until(() => bench.open.size === 1 && filesOf(bench).length === 1, "the old host and its files are gone");
  }));

test("a change of the configuration opens another host, and a host that does not open is tried again", () =>
  withPlugins(async (bench) => {
    await bench.plugins.install(samplePackage(), { by: BY });
    await enable(bench);
    await bench.call("count_words");
    const [first] = bench.open;
    const { runtime } = bench.config;
    bench.config = { ...bench.config, runtime: { wasm: { ...runtime.wasm, fuel_limit: 7 } } };
    await bench.call("count_words");
    await until(() => bench.open.size === 1);
    assert.ok(!bench.open.has(first as NonNullable<typeof first>));
    assert.equal([...bench.open][0]?.config.runtime.wasm.fuel_limit, 7);
  }));

test("what the configuration does not grant keeps a plugin off, and names the key", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    const wasm = (fields: object) => {
      bench.config = { ...bench.config, runtime: { wasm: { ...bench.config.runtime.wasm, ...fields } } };
    };
    const capabilities = { workspace: "write", hosts: ["api.a.example", "*.b.example"] };
    await plugins.install(samplePackage({ capabilities }), { by: BY });
    await enable(bench);
    const reason = () => plugins.get("words")?.reason ?? null;
    assert.equal(reason(), "it is off; set [runtime.wasm] allow_workspace_read = true");
    wasm({ allow_workspace_read: true });
    assert.equal(reason(), "it is off; set [runtime.wasm] allow_workspace_write = true");
    wasm({ allow_workspace_write: true });
    assert.equal(reason(), 'it is off; add "api.a.example" to [runtime.wasm] allowed_hosts');
    wasm({ allowed_hosts: ["*.a.example", "b.example"] });
    assert.equal(reason(), 'it is off; add "*.b.example" to [runtime.wasm] allowed_hosts');
    wasm({ allowed_hosts: ["*.a.example", "*.b.example"] });
    assert.equal(reason(), null);
    assert.equal(plugins.tools()[0]?.access, "network");
    const process = { kind: "process", wasm: undefined, process: { command: "node" } };
    await plugins.install(samplePackage({ id: "runs", tools: [sampleTool("run_it")], ...process }), { by: BY });
    await enable(bench, "runs");
    assert.equal(plugins.get("runs")?.reason, "it is off; set [plugins] allow_process = true");
    const run = () => plugins.tools().find(({ name }) => name === "run_it");
    assert.equal(run()?.access, "network", "a process can do everything");
    bench.config = { ...bench.config, tools: { run_it: { access: "read" } } };
    assert.equal(run()?.access, "read", "unless the operator says otherwise");
  }));

test("a kind that this version does not run is refused by its name", () =>
  withPlugins(async ({ plugins }) => {
    const process = { kind: "process", wasm: undefined, process: { command: "node" } };
    await assert.rejects(
      async () => await plugins.install(samplePackage(process), { by: BY }),
      /runs no process plugins/,
    );
    await assert.rejects(
      async () => await plugins.install(samplePackage({ runtime: { min: "99.0.0" } }), { by: BY }),
      /needs Postern 99\.0\.0/,
    );
  }, { kinds: ["wasm"] }));

test("two enabled plugins cannot have a tool of one name", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    await plugins.install(samplePackage(), { by: BY });
    await enable(bench);
    await plugins.install(samplePackage({ id: "other" }), { by: BY });
    await assert.rejects(enable(bench, "other"), {
      code: "plugin_conflict",
      message: /"words" has a tool "count_words"/,
    });
    assert.deepEqual(plugins.tools().map(({ origin }) => origin), ["plugin words 1.0.0"]);
    await plugins.disable("words", { by: BY });
    await enable(bench, "other");
    assert.deepEqual(plugins.tools().map(({ origin }) => origin), ["plugin other 1.0.0"]);
  }));

describe("plugins that are found in folders", () => {
  test("are off until enabled, and run from the data directory", () =>
    withPlugins(async (bench) => {
      const folder = bench.write("plugins/words");
      await bench.restart();
      const info = bench.plugins.get("words");
      assert.deepEqual([info?.state, info?.on, info?.source, info?.folder], ["installed", false, "workspace", folder]);
      const enabled = await enable(bench);
      assert.ok(enabled.on);
      assert.deepEqual(filesOf(bench), [enabled.digest]);
      await bench.call("count_words");
      assert.equal([...bench.open][0]?.folder, join(bench.dataDir, "plugins", enabled.digest ?? ""));
      await bench.restart();
      assert.ok(bench.plugins.get("words")?.on, "after a restart");
      await assert.rejects(bench.plugins.remove("words", { by: BY }), { code: "plugin_conflict" });
      rmSync(folder, { recursive: true });
      await bench.restart();
      assert.equal(bench.plugins.get("words"), undefined);
      bench.write("plugins/words");
      await bench.restart();
      assert.equal((await bench.call("count_words")).output, "1.0.0", "the same content at the same place");
    }));

  test("override by folder: package, user folder, .plugins, plugins", () =>
    withPlugins(async (bench) => {
      await bench.plugins.install(samplePackage({ version: "1.0.0" }), { by: BY });
      await enable(bench);
      const place = () => [bench.plugins.get("words")?.version, bench.plugins.get("words")?.on];
      bench.write("../data/plugins/words", { version: "2.0.0" });
      await bench.restart();
      assert.deepEqual(place(), ["2.0.0", false]);
      bench.write(".plugins/words", { version: "3.0.0" });
      await bench.restart();
      assert.deepEqual(place(), ["3.0.0", false]);
      bench.write("plugins/words", { version: "4.0.0" });
      await bench.restart();
      assert.deepEqual(place(), ["4.0.0", false]);
      assert.deepEqual(bench.plugins.get("words")?.overrides, ["package", "user_dir", "project"]);
      assert.match(
        bench.plugins.get("words")?.reason ?? "",
        /plugins\/words" and takes the place of the one from package, user_dir, project$/,
      );
      assert.equal(bench.plugins.list().length, 1);
      bench.write("mine/words", { version: "5.0.0" });
      bench.config = {
        ...bench.config,
        plugins: { ...bench.config.plugins, user_dir: join(bench.workspaceRoot, "mine") },
      };
      rmSync(join(bench.workspaceRoot, "plugins"), { recursive: true });
      rmSync(join(bench.workspaceRoot, ".plugins"), { recursive: true });
      await bench.restart();
      assert.deepEqual(place(), ["5.0.0", false]);
    }));

  test("in plugins: a change is noticed within a second and turns the plugin off", () =>
    withPlugins(async (bench) => {
      bench.write("plugins/words");
      await bench.restart();
      await enable(bench);
      const gate = Promise.withResolvers<PluginAnswer>();
      bench.answer = () => gate.promise;
      const running = bench.call("count_words");
      await until(() => bench.open.size === 1);
      bench.write("plugins/words", { version: "1.0.1" });
      await until(async () => {
        await bench.clock.advance(50);
        return bench.plugins.get("words")?.on === false;
      }, "it is noticed");
      const info = bench.plugins.get("words");
      assert.deepEqual([info?.state, info?.version], ["disabled", "1.0.1"]);
      assert.match(
        info?.reason ?? "",
        /run postern plugin enable words, since its content has changed \(reason: changed\)/,
      );
      assert.equal(eventsOf(bench).at(-1), "turned_off");
      gate.resolve({ output: "done", is_error: false });
      assert.equal((await running).output, "done", "the running call finishes");
      bench.write("plugins/words");
      await bench.restart();
      assert.equal(bench.plugins.get("words")?.on, false, "the old bytes do not turn it on again");
      assert.ok((await enable(bench)).on);
    }));

  test("in .plugins: a change counts when a person looks at the plugins, who can then enable what is there", () =>
    withPlugins(async (bench) => {
      bench.write(".plugins/words");
      const { plugins } = bench;
      await plugins.look();
      await enable(bench);
      bench.write(".plugins/words", { version: "2.0.0" });
      bench.write(".plugins/more", { id: "more", tools: [sampleTool("more_words")] });
      await bench.clock.advance(5_000);
      assert.deepEqual(
        plugins.list().map(({ version, on }) => [version, on]),
        [["1.0.0", true]],
        "nothing happens by itself",
      );
      await plugins.look();
      assert.deepEqual(plugins.list().map(({ id, version, on }) => [id, version, on]), [["more", "1.0.0", false], [
        "words",
        "2.0.0",
        false,
      ]]);
      assert.match(plugins.get("words")?.reason ?? "", /reason: changed/);
      await enable(bench);
      assert.equal((await bench.call("count_words")).output, "2.0.0");
    }));

  test("a new folder in plugins appears, one that goes disappears, and one that breaks says why", () =>
    withPlugins(async (bench) => {
      const noticed = (holds: () => boolean) =>
        until(async () => {
          await bench.clock.advance(50);
          return holds();
        });
      const folder = bench.write("plugins/words");
      await noticed(() => bench.plugins.get("words") !== undefined);
      await enable(bench);
      writeFileSync(join(folder, "plugin.json"), "{");
      await noticed(() => bench.plugins.get("words")?.on === false);
      assert.match(bench.plugins.get("words")?.reason ?? "", /mend it: Cannot use plugin\.json/);
      assert.equal(eventsOf(bench).at(-1), "turned_off");
      rmSync(folder, { recursive: true });
      await noticed(() => bench.plugins.get("words") === undefined);
    }));

  test("have a bound together: a project cannot make each look cost what a disk holds", () =>
    withPlugins(async (bench) => {
      for (const name of ["a", "b", "c", "d"]) {
        const fields = { id: name, kind: "process", wasm: undefined, process: { command: "node" } };
        const folder = bench.write(`plugins/${name}`, { ...fields, tools: [sampleTool(`${name}_tool`)] });
        for (let i = 0; i < 700; i++) writeFileSync(join(folder, `${i}.txt`), "");
      }
      const list = (await bench.restart()).list();
      assert.deepEqual(list.map(({ digest }) => digest !== null), [true, true, false, false]);
      assert.match(list[2]?.reason ?? "", /over \d+ files; the plugins before it have most of 2000 files/);
    }));

  test("links are refused: of the folder, of a plugin, of a file", () =>
    withPlugins(async (bench) => {
      bench.write("real/words");
      bench.write("real/lines", { id: "lines" });
      mkdirSync(join(bench.workspaceRoot, "plugins"));
      symlinkSync(join(bench.workspaceRoot, "real/words"), join(bench.workspaceRoot, "plugins/words"));
      symlinkSync(join(bench.workspaceRoot, "real"), join(bench.workspaceRoot, ".plugins"));
      const lines = bench.write("plugins/lines", { id: "lines" });
      rmSync(join(lines, "words.wasm"));
      symlinkSync(join(bench.workspaceRoot, "real/lines/words.wasm"), join(lines, "words.wasm"));
      await bench.restart();
      assert.deepEqual(bench.plugins.list().map(({ id, source, reason }) => [id, source, /link/.test(reason ?? "")]), [
        ["lines", "workspace", true],
        ["words", "workspace", true],
      ]);
    }));

  test("a name that others would see as something else is no plugin", () =>
    withPlugins(async (bench) => {
      for (const name of ["Words", "a b", ".hidden", "a".repeat(65)]) bench.write(`plugins/${name}`);
      mkdirSync(join(bench.workspaceRoot, "plugins/empty"));
      await bench.restart();
      assert.deepEqual(bench.plugins.list(), []);
    }));
});

test("serve() serves a package at once, in place of all others, and leaves nothing behind", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    await plugins.install(samplePackage(), { by: BY });
    const served = await plugins.serve(samplePackage({ version: "9.0.0" }), { by: BY });
    assert.deepEqual([served.on, served.source, served.overrides], [true, "dev", ["package"]]);
    assert.equal((await bench.call("count_words")).output, "9.0.0");
    await plugins.serve(samplePackage({ version: "9.0.1" }), { by: BY });
    assert.equal((await bench.call("count_words")).output, "9.0.1");
    await assert.rejects(plugins.serve(samplePackage({ version: "x" }), { by: BY }), { code: "manifest_invalid" });
    assert.equal((await bench.call("count_words")).output, "9.0.1", "a broken one keeps the old");
    await assert.rejects(enable(bench), { code: "plugin_conflict" });
    await plugins.endServing("words", { by: BY });
    assert.deepEqual(eventsOf(bench), ["installed", "served", "served", "serving_ended"], "each is in the audit");
    assert.equal(plugins.get("words")?.version, "1.0.0");
    await until(() => filesOf(bench).length === 1);
    await plugins.serve(samplePackage({ id: "other", tools: [sampleTool("other")] }), { by: BY });
    const again = await bench.restart();
    assert.deepEqual(again.list().map(({ id }) => id), ["words"], "a restart ends it");
  }));

test("its rights are told as they are on this machine", () =>
  withPlugins(async (bench) => {
    const process = { kind: "process", wasm: undefined, process: { command: "node" } };
    await bench.plugins.install(samplePackage(process), { by: BY });
    const rights = async () => {
      await bench.plugins.look();
      return bench.plugins.get("words")?.rights ?? "";
    };
    assert.match(bench.plugins.get("words")?.rights ?? "", /where bubblewrap works/, "nobody has looked yet");
    assert.match(await rights(), /bubblewrap contains it to its capabilities/);
    bench.containment = "uncontained";
    assert.match(await rights(), /nothing contains it here, so that it has your rights/);
    bench.containment = "refused";
    assert.match(await rights(), /it cannot run here/);
    const ffi = {
      kind: "ffi",
      wasm: undefined,
      ffi: { library: "words.wasm", sha256: sha256(SAMPLE_MODULE), symbol: "f" },
    };
    await bench.plugins.install(samplePackage({ ...ffi, version: "2.0.0" }), { by: BY });
    assert.match(await rights(), /library of machine code: it cannot run here/);
    bench.config = { ...bench.config, plugins: { ...bench.config.plugins, ffi: "in_process" } };
    assert.match(await rights(), /gives it all that the gateway may/);
  }));

test("the last call that failed is told with the plugin, until its content is another", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    await plugins.install(samplePackage(), { by: BY });
    await enable(bench);
    const lastError = () => plugins.get("words")?.last_error ?? null;
    assert.equal(lastError(), null);
    bench.answer = () => Promise.reject(new Error("x".repeat(5000)));
    await assert.rejects(bench.call("count_words"));
    assert.deepEqual(lastError(), { at: new Date(bench.clock.now()).toISOString(), message: "x".repeat(1000) });
    bench.answer = () => Promise.reject(new Error("again"));
    const signal = new AbortController().signal;
    const context = { workspace_root: "/", allow_sensitive_file_reads: false, allow_sensitive_file_writes: false };
    await assert.rejects(plugins.call("words", { tool: "count_words", input: {}, context }, signal));
    assert.equal(lastError()?.message, "again");
    await assert.rejects(bench.call("count_words", undefined, AbortSignal.abort()));
    assert.equal(lastError()?.message, "again", "a call that was cancelled has not failed");
    await plugins.install(samplePackage({ version: "1.0.1" }), { by: BY });
    assert.equal(lastError(), null);
  }));

test("an installed plugin whose files are gone can be disabled, removed, and mended by the same package", () =>
  withPlugins(async (bench) => {
    const { digest } = await bench.plugins.install(samplePackage(), { by: BY });
    await enable(bench);
    rmSync(join(bench.dataDir, "plugins", digest ?? ""), { recursive: true });
    await bench.restart();
    assert.deepEqual([bench.plugins.get("words")?.state, bench.plugins.get("words")?.on], ["enabled", false]);
    const mended = await bench.plugins.install(samplePackage(), { by: BY });
    assert.deepEqual([mended.state, mended.on, filesOf(bench)], ["enabled", true, [digest]]);
    assert.equal((await bench.call("count_words")).output, "1.0.0");
    assert.deepEqual(eventsOf(bench), ["installed", "enabled"], "its state has not changed");
    rmSync(join(bench.dataDir, "plugins", digest ?? ""), { recursive: true });
    await bench.restart();
    assert.equal((await bench.plugins.disable("words", { by: BY })).state, "disabled");
    await bench.plugins.remove("words", { by: BY });
    assert.deepEqual(bench.plugins.list(), []);
  }));

test("a new version cannot take the name of a tool from another enabled plugin", () =>
  withPlugins(async (bench) => {
    const { plugins } = bench;
    await plugins.install(samplePackage(), { by: BY });
    await enable(bench);
    const other = (version: string, name: string) => samplePackage({ id: "a", version, tools: [sampleTool(name)] });
    await plugins.install(other("1.0.0", "mine"), { by: BY });
    await enable(bench, "a");
    const message = /enabled plugin "words" has a tool "count_words"/;
    await assert.rejects(plugins.install(other("1.0.1", "count_words"), { by: BY }), {
      code: "plugin_conflict",
      message,
    });
    assert.deepEqual(plugins.tools().map(({ origin }) => origin), ["plugin a 1.0.0", "plugin words 1.0.0"]);
    await plugins.disable("a", { by: BY });
    assert.equal((await plugins.install(other("1.0.1", "count_words"), { by: BY })).version, "1.0.1", "it is off");
  }));

test("a damaged record is set aside, and the others count", () =>
  withPlugins(async (bench) => {
    await bench.plugins.install(samplePackage(), { by: BY });
    await bench.store.insertOnce("plugins", "installed zzz", { v: 1, id: 7 });
    await bench.restart();
    assert.deepEqual(bench.plugins.list().map(({ id }) => id), ["words"]);
    assert.equal(bench.store.unreadable.count(), 1);
  }));
