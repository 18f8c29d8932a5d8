import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createFfiOpener } from "../../../lib/extensions/plugins/ffi/ffi_plugin.ts";
import { readPluginFolder } from "../../../lib/extensions/plugins/plugin_files.ts";
import { openPlugin, type PluginOpeners } from "../../../lib/extensions/plugins/plugin_openers.ts";
import { createProcessOpener } from "../../../lib/extensions/plugins/process/program_plugin.ts";
import {
  fillTemplate,
  SCAFFOLD_KINDS,
  type ScaffoldKind,
  writeScaffold,
} from "../../../lib/extensions/plugins/write_scaffold.ts";
import { inspectModule } from "../../../lib/extensions/plugins/wasm/inspect_module.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { buildAssemblyScript, cannotRun, NO_BUILD_TEST } from "../../support/built_plugins.ts";
import { configOf } from "../../support/running_gateway.ts";
import { PLAIN_LIMITS } from "../../support/wasm_modules.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { NO_SECRETS } from "../../support/plugin_bench.ts";

/** Writes a plugin, builds it, and calls its tool. @param build the command of its README that builds it, if there is one */
async function callScaffold(root: string, kind: ScaffoldKind, build?: readonly [string, ...string[]]) {
  const folder = join(root, "made-by-me");
  await writeScaffold({ id: "made-by-me", kind, folder });
  if (build !== undefined) execFileSync(build[0], build.slice(1), { cwd: folder, stdio: "pipe" });
  const { manifest, digest } = await readPluginFolder(folder, { fillDigest: "always" });
  const { processes } = createToolBench({ root });
  const services = { processes, clock: systemClock, secrets: NO_SECRETS };
  const openers: PluginOpeners = { process: createProcessOpener(services), ffi: createFfiOpener(services) };
  const config = configOf({ plugins: { allow_process: true, allow_ffi: true } });
  const host = await openPlugin(openers, { manifest, folder, digest, main: undefined, config });
  try {
    const [tool] = manifest.tools;
    const context = { workspace_root: root, allow_sensitive_file_reads: false, allow_sensitive_file_writes: false };
    const call = { tool: tool?.name ?? "", input: { text: 'hello "you"\n' }, context };
    return await host.call(call, new AbortController().signal);
  } finally {
    await host.close();
    await processes.close();
  }
}

const lacks = async (...names: readonly string[]) => {
  for (const name of names) {
    if (await createCommandLookup().find(name) === undefined) return `there is no ${name}`;
  }
  return false;
};

test(
  "a new plugin for Node answers",
  { skip: "Deno" in globalThis ? await lacks("node") : false },
  () =>
    withTemporaryFolder(async (root) => {
      assert.equal((await callScaffold(root, "process-node")).output, 'HELLO "YOU"\n');
    }),
);

test("a new plugin for Python answers", { skip: await lacks("python3") }, () =>
  withTemporaryFolder(async (root) => {
    assert.equal((await callScaffold(root, "process-python")).output, 'HELLO "YOU"\n');
  }));

test("a new plugin in C answers", { skip: await lacks("make", "cc") }, () =>
  withTemporaryFolder(async (root) => {
    assert.equal((await callScaffold(root, "ffi-c", ["make"])).output, 'HELLO "YOU"\n');
  }));

/** Returns what a module imports beside Extism's own functions. */
function foreignImports(folder: string): readonly string[] {
  const { imports } = inspectModule(readFileSync(join(folder, "plugin.wasm")), PLAIN_LIMITS);
  return imports.filter(({ granted }) => !granted).map(({ module, name }) => `${module} ${name}`);
}

test("a new plugin in AssemblyScript is built, and imports nothing of the workspace before it is used", () =>
  withTemporaryFolder(async (root) => {
    const folder = join(root, "made-by-me");
    await writeScaffold({ id: "made-by-me", kind: "wasm-assemblyscript", folder });
    buildAssemblyScript(folder);
    assert.deepEqual(foreignImports(folder), []);
  }));

test("a new plugin in Go is built, and imports of WASI nothing that opens files", {
  skip: NO_BUILD_TEST || cannotRun("go", "version"),
}, () =>
  withTemporaryFolder(async (root) => {
    const folder = join(root, "made-by-me");
    await writeScaffold({ id: "made-by-me", kind: "wasm-go", folder });
    const [command = "", ...args] = ["go", "build", "-buildmode=c-shared", "-o", "plugin.wasm", "."];
    execFileSync(command, args, {
      cwd: folder,
      stdio: "pipe",
      env: { ...process.env, GOOS: "wasip1", GOARCH: "wasm" },
    });
    const imports = foreignImports(folder);
    assert.ok(imports.includes("wasi_snapshot_preview1 fd_write"));
    assert.deepEqual(imports.filter((name) => /path_|sock_|extism/.test(name)), []);
  }));

for (const kind of SCAFFOLD_KINDS) {
  test(`a new plugin of the kind ${kind} has a manifest that counts and a README with its commands`, () =>
    withTemporaryFolder(async (root) => {
      const folder = join(root, "3d");
      await writeScaffold({ id: "3d", kind, folder });
      const names = readdirSync(folder);
      assert.ok(names.includes("plugin.json") && names.includes("README.md"), names.join(" "));
      assert.match(
        readFileSync(join(folder, "README.md"), "utf8"),
        /^# 3d\n\n.*`tool_3d`.*\n[^]*postern plugin enable 3d\n/,
      );
      await assert.rejects(writeScaffold({ id: "3d", kind, folder }), {
        code: "plugin_conflict",
        message: /3d": it is there already/,
      });
    }));
}

test("each folder of templates is of a kind that can be written, and holds templates alone", () => {
  const folder = new URL("../../../lib/extensions/plugins/scaffolds/", import.meta.url);
  assert.deepEqual(readdirSync(folder).sort(), [...SCAFFOLD_KINDS].sort());
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const others = entries.filter((entry) => entry.isFile() && !entry.name.endsWith(".template"));
  assert.deepEqual(others.map(({ name }) => name), []);
});

test("a template gets each of its values, and a name without one is refused", () => {
  const values = { id: "a-b", tool: "a$&b" };
  assert.equal(fillTemplate('{{id}} {{tool}} {{id}} {"a": {"b"}}', values), 'a-b a$&b a-b {"a": {"b"}}');
  for (const name of ["ID", "toString", "id ", ""]) {
    assert.throws(() => fillTemplate(`{{${name}}}`, values), {
      message: `Cannot fill a template: no value is named {{${name}}}; known are id, tool`,
    });
  }
});

test("an id that no plugin can have makes no folder", () =>
  withTemporaryFolder(async (root) => {
    for (
      const [id, code] of [["Upper", "manifest_invalid"], ["../x", "manifest_invalid"], ["shell", "tool_name_taken"], [
        "read-file",
        "tool_name_taken",
      ]] as const
    ) {
      await assert.rejects(writeScaffold({ id, kind: "process-node", folder: join(root, "made") }), { code });
    }
    assert.deepEqual(readdirSync(root), []);
  }));

test("a folder that is there stays as it is", () =>
  withTemporaryFolder(async (root) => {
    const folder = join(root, "mine");
    mkdirSync(folder);
    writeFileSync(join(folder, "work.txt"), "work");
    await assert.rejects(writeScaffold({ id: "mine", kind: "ffi-c", folder }), { code: "plugin_conflict" });
    assert.deepEqual(readdirSync(folder), ["work.txt"]);
  }));
