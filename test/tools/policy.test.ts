import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../lib/base/errors.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { createLogger } from "../../lib/base/telemetry/log.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import { LEVELS } from "../../lib/guard/policy.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { createToolExecutor } from "../../lib/tools/runtime/create_tool_executor.ts";
import type { Tool, ToolServices } from "../../lib/tools/runtime/tool.ts";
import type { ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import { TOOLS } from "../contract/tools.ts";
import { applyEdit, type ConfigTable, toConfig } from "../support/config_edits.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { initRepository, isThere } from "../support/git_fixture.ts";
import { type ConfigChanges, createToolBench } from "../support/tool_bench.ts";
import { triesOf } from "../support/seeded_random.ts";
import { toolInputs } from "./tool_inputs.ts";
import { withWorkspace } from "../support/workspace.ts";
import { toToolCall } from "../support/tool_call.ts";

/** SPECIFICATION section 2.4, "Always enabled". */
const ALWAYS_ENABLED = new Set([
  ...["read_file", "shell", "glob_search", "content_search", "memory_store", "memory_recall", "memory_forget"],
  ...["image_info", "docx_read", "pdf_read", "screenshot", "task_plan", "process_tool", "subagent_spawn"],
  ...["subagent_list", "subagent_manage", "cli_discovery", "proxy_config", "delegate_coordination_status"],
  ...["sop_list", "sop_status", "sop_advance", "sop_approve", "sop_execute", "hardware_board_info"],
  ...["hardware_memory_map", "hardware_memory_read", "wasm_module", "wasm_tool_exec", "skill_read"],
]);
/** Off only when a setting says so. */
const ON_BY_DEFAULT = new Set([...ALWAYS_ENABLED, "agents_ipc", "ask_user", "tool_search"]);

/** Tables and inputs for each tool; every run of the tests has others */
const RUNS = { numRuns: triesOf(10) };

test("with the default configuration exactly the tools that are always on are on", () => {
  const executor = executorOf(BUILTIN_TOOLS, {});
  for (const { name, enabled } of executor.list()) assert.equal(enabled, ON_BY_DEFAULT.has(name), name);
  const config = defaultConfig();
  for (const tool of BUILTIN_TOOLS) {
    assert.equal(tool.enabled === "always" || tool.enabled(config), ON_BY_DEFAULT.has(tool.name), tool.name);
    assert.equal(tool.enabled === "always", ALWAYS_ENABLED.has(tool.name), tool.name);
  }
});

test("what a tool that is off says to set, is an edit that turns it on, and nothing else", () => {
  const on = (table: ConfigTable) =>
    executorOf(BUILTIN_TOOLS, table).list().filter(({ enabled }) => enabled).map(({ name }) => name);
  for (const { name, enabled, enabledBy } of BUILTIN_TOOLS) {
    if (enabled === "always" || enabledBy === undefined) continue;
    const off = ON_BY_DEFAULT.has(name)
      ? applyEdit({}, `set ${enabledBy.replace("true", "false").replace("auto", "off")}`)
      : {};
    const before = on(off);
    assert.ok(!before.includes(name), `${name} is on`);
    const after = on(applyEdit(off, `set ${enabledBy}`));
    assert.ok(after.includes(name), `${enabledBy} does not turn on ${name}`);
    const others = after.filter((other) => !before.includes(other));
    assert.deepEqual(
      others,
      BUILTIN_TOOLS.filter((tool) => tool.enabledBy === enabledBy).map((tool) => tool.name).sort(),
    );
  }
});

for (const tool of BUILTIN_TOOLS) {
  test(`${tool.name}: judge agrees with what call does, at every level and with every list`, async () => {
    await fc.assert(
      fc.asyncProperty(tables(tool), toolInputs(tool), async (table, input) => {
        const executor = executorOf([tool], table);
        const judged = executor.judge(tool.name, input);
        assert.ok(judged !== undefined);
        const seen = await callOf(executor, tool.name, input);
        if (judged.kind === "bad_input") {
          assert.ok(judged.error instanceof ToolError);
          assert.deepEqual(seen, { kind: "refused", output: judged.error.message });
          return;
        }
        const { kind, reason } = judged.decision;
        // A path that nobody can open is refused before anybody is asked
        if (kind !== "deny" && seen.kind === "refused") {
          assert.match(seen.output, /^Cannot (?:open|write) [^\n]*: [^\n]*\bpath\b/);
        } else if (kind === "allow") assert.deepEqual(seen, { kind: "allow" });
        else if (kind === "ask") assert.deepEqual(seen, { kind: "ask", reason });
        if (kind === "deny") assert.deepEqual(seen, { kind: "refused", output: reason });
        assert.match(reason, /^Can(not)? call "[a-z_]+"(: | with)[^\n]+[^.]$/);
        const info = executor.get(tool.name);
        if (info?.enabled === false && judged.decision.change.length > 0) {
          assert.ok(reason.includes(info.reason ?? "no reason"), "the list gives the denial's own words");
        }
      }),
      RUNS,
    );
  });

  test(`${tool.name}: the change a decision names flips it, and nothing less does`, () => {
    fc.assert(
      fc.property(tables(tool), toolInputs(tool), (table, input) => {
        const decide = (edits: readonly string[]) => {
          const judged = executorOf([tool], edits.reduce(applyEdit, table)).judge(tool.name, input);
          return judged?.kind === "judged" ? judged.decision : undefined;
        };
        const decision = decide([]);
        if (decision === undefined) return;
        const { kind, change, rule } = decision;
        if (change.length === 0) {
          assert.equal(kind, "deny");
          return;
        }
        const flipped = decide(change);
        // A tool that is off is judged by its input only once it is on
        if (flipped === undefined) return assert.equal(rule, "enabled");
        const goal = { allow: ["ask"], ask: ["allow"], deny: ["ask", "allow"] }[kind];
        assert.ok(goal.includes(flipped.kind), `${kind} -> ${flipped.kind} by ${change.join(", ")}`);
        for (const left of change) {
          assert.equal(decide(change.filter((edit) => edit !== left))?.kind, kind, `${left} is not needed`);
        }
      }),
      RUNS,
    );
  });
}

/** Turns on what the default configuration has off. */
const ON: ConfigChanges = { write_file: { enabled: true }, enable_git: true, cron: { enabled: true } };

const FILES = { "notes.txt": "the gate\n", "src/a.ts": "a\n", "secrets/x": "x\n" };

test("at read_only no input makes a tool change anything, whoever approves", () =>
  withWorkspace(FILES, async ({ root, outside }) => {
    if (isThere("git")) initRepository(root);
    const { call } = createToolBench({ root, config: { autonomy: { level: "read_only" }, ...ON } });
    const before = [snapshot(root), snapshot(outside)];
    const approver = () => Promise.resolve({ decision: "approve" as const, reason: "" });
    await eachInput(async (name, input) => {
      const { ran, access } = await call(name, input, { approver });
      assert.ok(!ran || access === "read", `${name} ran with ${access}`);
    });
    assert.deepEqual([snapshot(root), snapshot(outside)], before);
    const { result } = await call("memory_recall", { key: "colour", namespace: "facts" });
    assert.doesNotMatch(result.output, /green/, "nothing was stored");
  }));

test("at every level a call that only reads changes nothing: no file, no record of the agent, no process", async () => {
  for (const level of LEVELS) {
    await withWorkspace(FILES, async ({ root, outside }) => {
      if (isThere("git")) initRepository(root);
      const changes: ConfigChanges = { autonomy: { level }, ...ON };
      const { call, executor, processes } = createToolBench({ root, config: changes });
      const records = async () => [
        (await call("memory_recall", { limit: 100 })).result.data,
        (await call("task_plan", { op: "list" })).result.data,
        processes.list(),
      ];
      const before = [snapshot(root), snapshot(outside), await records()];
      await eachInput(async (name, input) => {
        if (executor.accessOf(name, input) !== "read") return;
        const { ran, access } = await call(name, input);
        assert.ok(!ran || access === "read", `${name} ran with ${access}`);
      });
      assert.deepEqual([snapshot(root), snapshot(outside), await records()], before);
    });
  }
});

test("at supervised nothing in the workspace changes until somebody approves", () =>
  withWorkspace(FILES, async ({ root, outside }) => {
    if (isThere("git")) initRepository(root);
    const { call } = createToolBench({ root, config: ON });
    const before = [snapshot(root), snapshot(outside)];
    await eachInput(async (name, input) => {
      const { ran, access } = await call(name, input);
      assert.ok(!ran || access === "read" || access === "state", `${name} ran with ${access}`);
    });
    assert.deepEqual([snapshot(root), snapshot(outside)], before);
  }));

async function eachInput(use: (name: string, input: string) => Promise<void>): Promise<void> {
  for (const tool of BUILTIN_TOOLS) {
    const sample = JSON.stringify(TOOLS[tool.name]?.sample ?? {});
    const property = fc.asyncProperty(toolInputs(tool), (input) => use(tool.name, input));
    await fc.assert(property, { numRuns: triesOf(4), examples: [[sample]] });
  }
}

/** Configuration files: every level, the tool on and off, in every list, with written rules and forbidden paths. */
function tables(tool: Tool): fc.Arbitrary<ConfigTable> {
  const rules = [
    { name: "here", tool: tool.name, path: "**", then: "allow" },
    { name: "web", tool: tool.name, host: "*", then: "allow" },
    { name: "list", tool: tool.name, command: "ls *", then: "allow" },
    { name: "notes", tool: "*", path: "notes.txt", then: "ask" },
    { name: "none", tool: tool.name, then: "deny" },
  ];
  const names = fc.subarray([...new Set([tool.name, "read_file", "shell", "glob", "search", "memory_read"])]);
  return fc.record({
    level: fc.constantFrom(...LEVELS),
    auto_approve: names,
    always_ask: names,
    rules: fc.subarray(rules),
    forbidden_paths: fc.subarray(["secrets", "secrets/x", "notes.txt", "."]),
    on: fc.boolean(),
  }).map(({ on, ...autonomy }) => {
    const table: ConfigTable = { autonomy };
    return on && tool.enabledBy !== undefined ? applyEdit(table, `set ${tool.enabledBy}`) : table;
  });
}

/** An executor whose tools are never run. */
function executorOf(tools: readonly Tool[], table: ConfigTable): ToolExecutor {
  const config = toConfig(table);
  return createToolExecutor({
    tools,
    // Nothing runs; the door looks at the files and programs that a call is about, and finds nothing to refuse
    services: {
      files: {
        open: () => Promise.resolve({ close: () => Promise.resolve() }),
        inspect: (path: string) => Promise.resolve({ path, file: undefined }),
      },
      environment: () => "set",
      redactor: createRedactor(),
      commands: { identify: () => Promise.resolve(undefined) },
      processes: {
        screen: () => Promise.resolve(),
        named: () => Promise.resolve([]),
        containment: () => Promise.resolve({ kind: "contained", text: "Commands are contained: this is a test" }),
      },
    } as unknown as ToolServices,
    config: () => config,
    workspaceRoot: "/home/me/work",
    home: "/home/me",
    ownPaths: ["/home/me/.local/share/postern"],
    clock: createFakeClock(),
    log: createLogger({ level: "error", now: () => 0, sink: () => {}, redact: (text) => text }),
    metrics: createMetrics(),
    redact: (text) => text,
    audit: () => Promise.resolve(true),
  });
}

type Seen =
  | { readonly kind: "allow" }
  | { readonly kind: "ask"; readonly reason: string }
  | { readonly kind: "refused"; readonly output: string };

/** Returns what the executor does with a call, stopped just before the tool would run. */
async function callOf(executor: ToolExecutor, name: string, input: string): Promise<Seen> {
  const stop = new Error("It would run now");
  let asked: string | undefined;
  try {
    const { result, ran } = await executor.call({
      ...toToolCall(name, input),
      approver: ({ reason }) => {
        asked = reason;
        return Promise.resolve({ decision: "deny", rule: "approval", reason });
      },
      onStart: () => Promise.reject(stop),
    });
    assert.deepEqual([ran, result.isError], [false, true]);
    if (asked === undefined) return { kind: "refused", output: result.output };
    assert.equal(result.output, asked);
    return { kind: "ask", reason: asked };
  } catch (error) {
    assert.equal(error, stop);
    return { kind: "allow" };
  }
}

/** Every file and folder with its content and mode. */
function snapshot(folder: string): unknown {
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).sort().map((name) => {
    const path = join(folder, name);
    const { mode, nlink } = statSync(path);
    return [name, mode, nlink, statSync(path).isFile() ? readFileSync(path, "utf8") : ""];
  });
}
