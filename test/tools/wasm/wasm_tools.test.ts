import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { linkSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import type { InspectedModule, ModuleList } from "../../../lib/tools/wasm/wasm_modules.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { answering, forever, HOSTILE_MODULES, i32, i64, wasmModule } from "../../support/wasm_modules.ts";
import { withWorkspace } from "../../support/workspace.ts";

type Wasm = NonNullable<ConfigChanges["wasm"]>;

/** Runs `use` with a workspace and its tools. @param modules files below `tools/wasm` */
function withModules(
  modules: Readonly<Record<string, Uint8Array | string>>,
  use: (bench: ToolBench, root: string, outside: string) => Promise<void>,
  wasm: Wasm = {},
): Promise<void> {
  return withWorkspace({}, async ({ root, outside }) => {
    for (const [path, bytes] of Object.entries(modules)) put(join(root, "tools/wasm", path), bytes);
    const bench = createToolBench({ root, config: { wasm } });
    try {
      await use(bench, root, outside);
    } finally {
      await bench.wasmModules.close();
    }
  });
}

function put(path: string, bytes: Uint8Array | string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, bytes);
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const look = async ({ call }: ToolBench, op: string, path?: string) =>
  (await call("wasm_module", { op, ...path === undefined ? {} : { path } })).result;
const exec = async ({ call }: ToolBench, module: string, input: object = {}) =>
  (await call("wasm_tool_exec", { module, tool: "any", input })).result;

test("a workspace without the folder has no modules, and says which folder that is", () =>
  withModules({}, async (bench) => {
    assert.deepEqual(await look(bench, "list"), {
      output: 'There are no modules in "tools/wasm" ([runtime.wasm] tools_dir)',
      isError: false,
      data: { folder: "tools/wasm", modules: [], truncated: false },
    });
    assert.match((await look(bench, "inspect", "words.wasm")).output, /tools_dir "tools\/wasm" is no folder/);
  }));

test("modules are listed, inspected without running, loaded and called", () => {
  const words = answering('{"output":"two words","data":{"count":2}}');
  const endless = answering(undefined, { start: forever([]) });
  return withModules({ "words.wasm": words, "more/endless.wasm": endless, "notes.txt": "no module" }, async (bench) => {
    assert.equal(
      (await look(bench, "list")).output,
      `more/endless.wasm: ${endless.length} bytes\nwords.wasm: ${words.length} bytes`,
    );
    const inspected = await look(bench, "inspect", "more/endless.wasm");
    assert.match(inspected.output, /^more\/endless\.wasm: \d+ bytes, SHA-256 [0-9a-f]{64}\nIt can be loaded\n/);
    assert.match(inspected.output, /\nImports of extism:host\/env: alloc \(i64\) -> i64, /);
    assert.match(
      inspected.output,
      /\nFunctions: 2, one of which runs at the start\nMemory: 1 or more pages of 64 KiB\n/,
    );
    const loaded = await look(bench, "load", "words");
    assert.match(loaded.output, /^Loaded words\.wasm: /);
    assert.equal((loaded.data as InspectedModule).sha256, sha256(words));
    const { modules } = (await look(bench, "list")).data as ModuleList;
    assert.deepEqual(modules.map(({ path, loaded }) => [path, loaded]), [
      ["more/endless.wasm", false],
      ["words.wasm", true],
    ]);
    assert.deepEqual(await exec(bench, "words.wasm"), { output: "two words", isError: false, data: { count: 2 } });
    assert.deepEqual(await exec(bench, "words"), { output: "two words", isError: false, data: { count: 2 } });
    const stopped = await exec(bench, "more/endless.wasm");
    assert.match(stopped.output, /^Cannot call the module "more\/endless\.wasm": .*fuel_limit/);
  }, { fuel_limit: 10_000 });
});

test("a module of others, without the function execute, is called by the function that the tool names", () => {
  const echo = wasmModule({
    imports: ["input_length", "input_load_u8", "alloc", "store_u8", "output_set"],
    entrypoint: "echo",
    execute: (call) => [
      ...[...call("input_length"), 0x22, 1, ...call("alloc"), 0x21, 0, 0x03, 0x40],
      ...[0x20, 0, 0x20, 2, 0x7c, 0x20, 2, ...call("input_load_u8"), ...call("store_u8")],
      ...[0x20, 2, ...i64(1), 0x7c, 0x22, 2, 0x20, 1, 0x54, 0x0d, 0, 0x0b],
      ...[0x20, 0, 0x20, 1, ...call("output_set"), ...i32(0)],
    ],
  });
  return withModules({ "echo.wasm": echo }, async (bench) => {
    const say = async (tool: string, input: object) =>
      (await bench.call("wasm_tool_exec", { module: "echo", tool, input })).result.output;
    assert.equal(await say("echo", { text: "hä" }), "hä");
    assert.equal(await say("echo", { text: "a", more: 1 }), '{"text":"a","more":1}');
    assert.equal(
      await say("shout", {}),
      'Cannot call the module "echo.wasm": it exports neither "execute" nor "shout", but the functions echo',
    );
  });
});

test("a module that asks for the workspace, a host or a host function is refused, whatever the configuration grants", () => {
  const imports = [{ module: "extism:host/user", name: "workspace_read", type: "I:I" }] as const;
  const modules = {
    "reads.wasm": answering(undefined, { imports }),
    "fetches.wasm": wasmModule({ imports: ["http_request"], execute: () => i32(0) }),
  };
  return withModules(modules, async (bench) => {
    for (const path of Object.keys(modules)) {
      const { output, isError } = await look(bench, "load", path);
      assert.ok(isError);
      assert.match(
        output,
        /imports what it was not granted: .*capability_escalation_mode = "deny".*make a plugin of it/,
      );
      assert.match((await exec(bench, path)).output, /imports what it was not granted/);
      assert.match((await look(bench, "inspect", path)).output, /\(not granted\)/);
    }
  }, { allow_workspace_read: true, allow_workspace_write: true, allowed_hosts: ["*"] });
});

test("hostile modules are refused or stopped, and a good one answers afterwards", () => {
  const names = [
    ...["a truncated module", "the import of a function that nobody grants", "a loop without end", "calls without end"],
    ...["memory that grows without end", "a table that grows without end", "an answer that nests deep"],
  ];
  const modules = HOSTILE_MODULES.filter(({ name }) => names.includes(name));
  assert.equal(modules.length, names.length);
  const files = Object.fromEntries(modules.map(({ make }, index) => [`${index}.wasm`, make()]));
  return withModules({ ...files, "good.wasm": answering() }, async (bench) => {
    for (const [index, { name }] of modules.entries()) {
      const { isError, output } = await exec(bench, `${index}.wasm`);
      assert.ok(isError, name);
      assert.match(output, /^Cannot [^]*[^.]$/, name);
    }
    assert.equal((await exec(bench, "good")).output, "ready");
  }, { fuel_limit: 300_000, timeout_secs: 20 });
});

test("a module above max_module_size_mb is not read", () =>
  withModules({ "large.wasm": new Uint8Array(1_100_000) }, async (bench) => {
    assert.match(
      (await look(bench, "inspect", "large.wasm")).output,
      /it has 1100000 bytes, and \[runtime\.wasm\] max_module_size_mb is 1$/,
    );
  }, { max_module_size_mb: 1 }));

test("paths out of the folder, hard links and folders are refused", () =>
  withModules({ "good.wasm": answering() }, async (bench, root) => {
    linkSync(join(root, "tools/wasm/good.wasm"), join(root, "tools/wasm/second.wasm"));
    mkdirSync(join(root, "tools/wasm/folder.wasm"));
    put(join(root, "tools/above.wasm"), answering());
    put(join(root, "tools/wasm/other.wasm"), answering());
    const { modules } = (await look(bench, "list")).data as ModuleList;
    assert.deepEqual(modules.map(({ path }) => path), ["other.wasm"], "what cannot be opened is left out");
    for (const path of ["../above.wasm", "/etc/passwd", "a\0.wasm", "second.wasm", "folder.wasm", "absent", "."]) {
      for (const result of [await look(bench, "load", path), await exec(bench, path)]) {
        assert.deepEqual(
          [result.isError, /^Cannot open /.test(result.output)],
          [true, true],
          `${path} ${result.output}`,
        );
      }
    }
  }));

test("a module that is a link is refused, unless reject_symlink_modules says otherwise, and then inside the folder only", async () => {
  for (const reject_symlink_modules of [true, false]) {
    await withModules({ "good.wasm": answering() }, async (bench, root, outside) => {
      const folder = join(root, "tools/wasm");
      put(join(outside, "far.wasm"), answering());
      symlinkSync("good.wasm", join(folder, "link.wasm"));
      symlinkSync(join(outside, "far.wasm"), join(folder, "far.wasm"));
      symlinkSync(outside, join(folder, "away"));
      const near = await exec(bench, "link.wasm");
      if (reject_symlink_modules) assert.match(near.output, /is a link.*reject_symlink_modules = false allows it/);
      else assert.equal(near.output, "ready");
      for (const path of ["far.wasm", "away/far.wasm"]) assert.ok((await exec(bench, path)).isError, path);
    }, { security: { reject_symlink_modules } });
  }
});

test("a folder that is a link, or lies in one, is refused, unless reject_symlink_tools_dir says otherwise", async () => {
  for (const reject_symlink_tools_dir of [true, false]) {
    await withModules({ "good.wasm": answering() }, async (bench, root) => {
      renameSync(join(root, "tools"), join(root, "other"));
      symlinkSync("other", join(root, "tools"));
      const { output } = await exec(bench, "good.wasm");
      if (reject_symlink_tools_dir) {
        assert.match(output, /tools_dir.*it is a link.*reject_symlink_tools_dir = false allows it/);
      } else assert.equal(output, "ready");
    }, { security: { reject_symlink_tools_dir } });
  }
});

test("a folder outside of the workspace is refused, unless require_workspace_relative_tools_dir says otherwise", async () => {
  for (const require_workspace_relative_tools_dir of [true, false]) {
    await withModules({}, async (bench, _root, outside) => {
      put(join(outside, "modules/good.wasm"), answering());
      for (const tools_dir of ["../outside/modules", join(outside, "modules")]) {
        bench.configure({ wasm: { tools_dir, security: { require_workspace_relative_tools_dir } } });
        const { output } = await exec(bench, "good.wasm");
        if (require_workspace_relative_tools_dir) {
          assert.match(output, /not relative to the workspace.*require_workspace_relative_tools_dir = false allows it/);
        } else assert.equal(output, "ready");
      }
    });
  }
});

test("a link in the workspace does not lead the folder out of it, even where links are allowed", () =>
  withModules({}, async (bench, root, outside) => {
    put(join(outside, "good.wasm"), answering());
    mkdirSync(join(root, "tools"));
    symlinkSync(outside, join(root, "tools/wasm"));
    assert.match((await exec(bench, "good.wasm")).output, /leads out of the workspace/);
  }, { security: { reject_symlink_tools_dir: false } }));

test("tools_dir names the folder", () =>
  withModules({}, async (bench, root) => {
    put(join(root, "modules/good.wasm"), answering());
    assert.equal((await exec(bench, "good.wasm")).output, "ready");
  }, { tools_dir: "modules" }));

test("a module that changed after it was loaded is refused until it is loaded again, or with warn logged", async () => {
  for (const module_hash_policy of ["enforce", "warn"] as const) {
    await withModules({ "words.wasm": answering() }, async (bench, root) => {
      assert.equal((await exec(bench, "words")).output, "ready");
      const changed = answering('{"output":"changed"}');
      put(join(root, "tools/wasm/words.wasm"), changed);
      const { output } = await exec(bench, "words");
      if (module_hash_policy === "warn") {
        assert.equal(output, "changed");
        const warned = bench.logged.find(({ message }) => message === "A WASM module has changed");
        assert.equal(warned?.fields?.["sha256"], sha256(changed));
        return;
      }
      assert.match(output, /its SHA-256 is [0-9a-f]{64}, not [0-9a-f]{64} as when it was loaded; load it again/);
      assert.equal((await look(bench, "load", "words")).isError, false);
      assert.equal((await exec(bench, "words")).output, "changed");
    }, { security: { module_hash_policy } });
  }
});

test("a file with a SHA-256 beside a module fixes its content, for load too", () => {
  const module = answering();
  return withModules(
    { "words.wasm": module, "words.wasm.sha256": `${sha256(module)}  words.wasm\n` },
    async (bench, root) => {
      assert.equal((await exec(bench, "words")).output, "ready");
      put(join(root, "tools/wasm/words.wasm"), answering('{"output":"changed"}'));
      for (const result of [await look(bench, "load", "words"), await exec(bench, "words")]) {
        assert.match(result.output, /not [0-9a-f]{64} as "words\.wasm\.sha256" has it; correct the one or the other$/);
      }
      assert.equal((await look(bench, "inspect", "words")).isError, false);
      put(join(root, "tools/wasm/words.wasm.sha256"), "none\n");
      assert.match((await exec(bench, "words")).output, /does not begin with a SHA-256/);
      rmSync(join(root, "tools/wasm/words.wasm.sha256"));
      assert.match((await exec(bench, "words")).output, /as when it was loaded/);
    },
  );
});

test("what a module says is content from outside", () =>
  withModules({ "words.wasm": answering() }, async (bench) => {
    const { taint } = await bench.call("wasm_tool_exec", { module: "words.wasm", tool: "any", input: {} });
    assert.ok((taint ?? []).length > 0);
  }));

test("a call that is cancelled ends", () =>
  withModules({ "endless.wasm": wasmModule({ execute: () => [...forever([]), ...i32(0)] }) }, async (bench) => {
    const stop = new AbortController();
    const request = { module: "endless.wasm", tool: "any", input: {} };
    const called = bench.call("wasm_tool_exec", request, {
      signal: stop.signal,
      onStart: () => Promise.resolve(stop.abort()),
    });
    await assert.rejects(called, { name: "CancelError" });
  }, { fuel_limit: 0 }));
