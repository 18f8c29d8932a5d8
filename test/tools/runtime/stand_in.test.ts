import assert from "node:assert/strict";
import { test } from "node:test";
import type { Access, Tool } from "../../../lib/tools/runtime/tool.ts";
import type { ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { foreignTool } from "../../support/foreign_tools.ts";
import { type ConfigChanges, createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

/** Tool of a plugin, which answers with its input. */
function pluginTool(access: Access, more: Partial<Tool> = {}): Tool {
  const tool = foreignTool("count_words");
  return {
    ...tool,
    ...{ access, source: "wasm", origin: "plugin words 1.0.0" },
    prepare: (text) => ({ ...tool.prepare(text), access }),
    ...more,
  };
}

const CALL = { plugin: "words", tool: "count_words", input: { channel: "a" } };

/** Calls `wasm_tool_exec` beside a tool of a plugin. Who is asked says yes. */
async function callBy(
  { tool = pluginTool("read"), autonomy = {}, allowed, input = CALL }: {
    readonly tool?: Tool;
    readonly autonomy?: ConfigChanges["autonomy"];
    readonly allowed?: readonly string[];
    readonly input?: object;
  } = {},
) {
  let outcome: Awaited<ReturnType<ReturnType<typeof createToolBench>["call"]>> | undefined;
  const asked: ApprovalRequest[] = [];
  let audit: unknown[] = [];
  let access: Access | undefined;
  let started: unknown;
  await withWorkspace({}, async ({ root }) => {
    const bench = createToolBench({ root, foreign: () => [tool], config: { autonomy } });
    access = bench.executor.accessOf("wasm_tool_exec", JSON.stringify(input));
    outcome = await bench.call("wasm_tool_exec", input, {
      ...(allowed === undefined ? {} : { allowed }),
      onStart: ({ input, access: width }) => Promise.resolve(void (started = { input, access: width })),
      approver: (request) => {
        asked.push(request);
        return Promise.resolve({ decision: "approve", reason: "" });
      },
    });
    audit = bench.audit.events.map((event) => "tool" in event ? event.tool : "");
  });
  return { output: outcome?.result.output, ran: outcome?.ran, access, asked, audit, started };
}

test("a call by wasm_tool_exec is the call of the plugin's tool, under its name, access and audit", async () => {
  const { output, access, asked, audit } = await callBy();
  assert.deepEqual([output, access, asked], ['{"channel":"a"}', "read", []]);
  assert.deepEqual([...new Set(audit)], ["count_words"]);
});

test("a tool that writes or reaches hosts is asked about as itself", async () => {
  for (const access of ["write", "network"] as const) {
    const { asked, ran, access: known } = await callBy({ tool: pluginTool(access) });
    assert.deepEqual([asked.map(({ tool }) => tool), ran, known], [["count_words"], true, access]);
    assert.deepEqual(asked[0]?.input, { channel: "a" });
  }
});

test("the events of a run show the call as the model made it, with the access of what runs", async () => {
  const { started } = await callBy({ tool: pluginTool("write") });
  assert.deepEqual(started, { input: { ...CALL }, access: "write" });
});

test("a list shows the widest access, so that nobody takes a failed call for one without effect", () =>
  withWorkspace({}, ({ root }) => {
    assert.equal(createToolBench({ root }).executor.get("wasm_tool_exec")?.access, "network");
  }));

test("a rule about either name holds", async () => {
  for (const name of ["count_words", "wasm_tool_exec"]) {
    assert.equal((await callBy({ autonomy: { always_ask: [name] } })).asked.length, 1, name);
  }
  const writes = pluginTool("write");
  assert.equal((await callBy({ tool: writes, autonomy: { auto_approve: ["wasm_tool_exec"] } })).asked.length, 1);
  assert.equal((await callBy({ tool: writes, autonomy: { auto_approve: ["count_words"] } })).asked.length, 0);
  const denied = await callBy({ tool: writes, autonomy: { level: "read_only" } });
  assert.deepEqual([denied.ran, denied.asked.length], [false, 0]);
});

test("both tools must exist for the caller", async () => {
  for (const allowed of [["wasm_tool_exec"], ["count_words"]]) {
    const { ran, output } = await callBy({ allowed });
    assert.equal(ran, false);
    assert.match(output ?? "", /^Cannot call "(count_words|wasm_tool_exec)": \[agent\] tools does not name it/);
  }
  assert.equal((await callBy({ allowed: ["wasm_tool_exec", "count_words"] })).ran, true);
});

test("a tool that is off, of another plugin, of another kind, or built in, is not called", async () => {
  const off = pluginTool("read", { enabled: () => false, wayOn: () => "enable the plugin" });
  assert.match((await callBy({ tool: off })).output ?? "", /"count_words".*off; enable the plugin/);
  for (
    const more of [{ origin: "plugin other 1.0.0" }, { origin: "plugin words2 1.0.0" }, { source: "process" }] as const
  ) {
    const { ran, output } = await callBy({ tool: pluginTool("read", more) });
    assert.deepEqual([ran, output], [
      false,
      'Cannot call "count_words" by wasm_tool_exec: it is no tool of the wasm plugin words',
    ]);
  }
  const shell = { plugin: "words", tool: "read_file", input: { path: "x" } };
  assert.match((await callBy({ input: shell })).output ?? "", /no tool of the wasm plugin words/);
  const itself = { plugin: "words", tool: "wasm_tool_exec", input: shell };
  assert.match((await callBy({ input: itself })).output ?? "", /no tool of the wasm plugin words/);
  assert.match((await callBy({ input: { ...CALL, tool: "absent" } })).output ?? "", /there is no such tool/);
});

test("a call that names both or neither is refused by the tool itself", async () => {
  for (const more of [{ module: "words.wasm" }, { plugin: undefined }]) {
    const { ran, output } = await callBy({ input: { ...CALL, ...more } });
    assert.deepEqual([ran, /^Cannot call "wasm_tool_exec": /.test(output ?? "")], [false, true]);
  }
});
