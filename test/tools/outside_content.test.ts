import assert from "node:assert/strict";
import { test } from "node:test";
import { RunTaint } from "../../lib/base/taint.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { createToolPolicy } from "../../lib/tools/runtime/tool_policy.ts";
import { TOOLS } from "../contract/tools.ts";
import { toConfig } from "../support/config_edits.ts";

/** Calls of each access that do what every call of the access does. */
const READS = "it only reads";
const WRITES = "it can change files or run programs";
const SENDS = "it can send anything to anybody";
const LASTS = "a later run would obey what it keeps, or miss what it takes away";

interface Row {
  readonly asks: boolean;
  readonly why: string;
  /** Input, where the one of the contract's table is not it */
  readonly input?: Readonly<Record<string, unknown>>;
}

const asks = (why: string, input?: Row["input"]): Row => ({ asks: true, why, ...input === undefined ? {} : { input } });
const passes = (why: string, input?: Row["input"]): Row => ({
  asks: false,
  why,
  ...input === undefined ? {} : { input },
});

/** Answer of each built-in tool in a run that has read content from outside, with its reason. A tool with operations of both kinds has a row for each. */
const ROWS: Readonly<Record<string, Row | readonly Row[]>> = {
  read_file: passes(READS),
  glob_search: passes(READS),
  content_search: passes(READS),
  docx_read: passes(READS),
  pdf_read: passes(READS),
  image_info: passes(READS),
  memory_recall: passes(READS),
  cli_discovery: passes(READS),
  proxy_config: passes(READS),
  cron_list: passes(READS),
  subagent_list: passes(READS),
  ask_user: passes(READS),
  delegate_coordination_status: passes(READS),
  model_routing_config: passes(READS),
  tool_search: passes(READS),
  sop_list: passes(READS),
  sop_status: passes(READS),
  hardware_board_info: passes(READS),
  hardware_memory_map: passes(READS),
  hardware_memory_read: passes(READS),
  skill_read: passes(READS),
  wasm_module: passes(READS),
  wasm_tool_exec: passes("a module computes; a call of a plugin's tool is asked about as that tool's own"),

  mcp: passes("a call of a server's tool is asked about as that tool's own"),
  mcp_prompt: asks(SENDS),
  mcp_resource: asks(SENDS),

  write_file: asks(WRITES),
  file_edit: asks(WRITES),
  apply_patch: asks(WRITES),
  shell: asks(WRITES),
  process_tool: asks(WRITES),
  screenshot: asks(WRITES),
  git_operations: [
    passes(READS),
    asks(WRITES, { op: "commit", message: "One" }),
    asks(SENDS, { op: "push" }),
  ],
  browser: [asks(SENDS), passes(READS, { op: "snapshot" }), passes("it ends the browser", { op: "close" })],

  http_request: asks(SENDS),
  composio: asks(SENDS),
  pushover: asks(SENDS),
  browser_open: asks(SENDS),
  url_validation: [
    asks(SENDS, { url: "https://example.com/", follow_redirects: true }),
    passes("it tells what the rules say, and looks up no name", { url: "https://example.com/" }),
  ],
  web_search: passes("the operator's search service gets the query, and nobody else"),
  web_fetch: asks("an address that nothing names could carry anything"),

  memory_store: asks(LASTS),
  memory_forget: asks(LASTS),
  cron_add: asks(LASTS),
  cron_update: asks(LASTS),
  cron_pause: asks(LASTS),
  cron_resume: asks(LASTS),
  cron_remove: asks(LASTS),
  schedule: asks(LASTS),
  sop_advance: asks("a procedure of a person goes on, or ends"),
  agents_ipc: [
    passes("mail carries the taint"),
    passes("mail carries the taint", { op: "recv", to: "writer" }),
    passes(READS, { op: "list" }),
    asks(LASTS, { op: "clear" }),
  ],
  task_plan: [
    passes("the plan carries the taint"),
    passes("the plan carries the taint", { op: "add", title: "One" }),
    passes("a status says nothing", { op: "update", id: "1", status: "completed" }),
    passes(READS, { op: "list" }),
    passes("it is this conversation's own plan", { op: "delete" }),
  ],
  subagent_spawn: passes("the sub-agent begins with the taint"),
  delegate: passes("the sub-agent begins with the taint"),
  subagent_manage: [
    passes("the sub-agent gets the taint"),
    passes(READS, { op: "status", id: "sub_1" }),
    passes(READS, { op: "result", id: "sub_1" }),
    passes("it ends work that the caller may end", { op: "cancel", id: "sub_1" }),
  ],
  sop_execute: passes("each step begins with the taint"),
  sop_approve: passes("a person is asked by it"),
};

/** A policy under which nothing asks but content from outside. */
const policy = createToolPolicy({
  config: () => toConfig({ autonomy: { auto_approve: BUILTIN_TOOLS.map(({ name }) => name) } }),
  workspaceRoot: "/home/me/work",
  home: "/home/me",
  ownPaths: [],
});

for (const tool of BUILTIN_TOOLS) {
  test(`after content from outside ${tool.name} asks, or there is a reason why not`, () => {
    const { [tool.name]: rows } = ROWS;
    assert.ok(rows !== undefined, "say here what the tool does in a run that has read content from outside");
    for (const { asks, why, input = TOOLS[tool.name]?.sample } of [rows].flat()) {
      const on = { ...tool, enabled: "always" as const };
      // The test asks about outside content, and not whether the configuration lets the call run
      const { admit: _admit, ...prepared } = tool.prepare(JSON.stringify(input));
      const { rule, kind } = policy.decide(on, prepared, new RunTaint(["web_fetch example.com"]));
      const said = `${why}: ${JSON.stringify(input)}`;
      assert.deepEqual([kind, rule === "outside_content"], asks ? ["ask", true] : ["allow", false], said);
      assert.equal(policy.decide(on, prepared, undefined).kind, "allow", said);
    }
  });
}

test("the table names no tool that is not there", () => {
  const names = new Set(BUILTIN_TOOLS.map(({ name }) => name));
  assert.deepEqual(Object.keys(ROWS).filter((name) => !names.has(name)), []);
});
