import type { Access } from "../../lib/guard/policy.ts";

/** A row of the tool tables of docs/design/tools.md "The contract of a tool". */
export interface ToolRow {
  readonly access: Access;
  /** Access of the sample input, where access depends on the input; `access` is then the widest */
  readonly sampleAccess?: Access;
  readonly enabled: "always" | "by default" | "when configured";
  /** Input fields in the order of the table; a name with `?` is optional */
  readonly fields: readonly string[];
  /** The field that a plain text is, where the tool has a text form */
  readonly textField?: string;
  /** Where not any text will do, one that will */
  readonly textSample?: string;
  /** An input that is fine by its schema */
  readonly sample: Readonly<Record<string, unknown>>;
}

export const TOOLS: Readonly<Record<string, ToolRow>> = {
  read_file: {
    access: "read",
    enabled: "always",
    fields: ["path", "start_line?", "start_byte?", "line_count?"],
    textField: "path",
    sample: { path: "notes.txt", start_line: 1, start_byte: 1, line_count: 2 },
  },
  glob_search: {
    access: "read",
    enabled: "always",
    fields: ["pattern", "path?", "limit?"],
    textField: "pattern",
    sample: { pattern: "**/*.ts", path: "src", limit: 5 },
  },
  content_search: {
    access: "read",
    enabled: "always",
    fields: ["pattern", "path?", "glob?", "case_insensitive?", "limit?"],
    textField: "pattern",
    sample: { pattern: "gate", path: "src", glob: "*.ts", case_insensitive: true, limit: 5 },
  },
  docx_read: {
    access: "read",
    enabled: "always",
    fields: ["path"],
    textField: "path",
    sample: { path: "notes.docx" },
  },
  pdf_read: {
    access: "read",
    enabled: "always",
    fields: ["path", "page_start?", "page_end?"],
    textField: "path",
    sample: { path: "notes.pdf", page_start: 1, page_end: 2 },
  },
  image_info: {
    access: "read",
    enabled: "always",
    fields: ["path"],
    textField: "path",
    sample: { path: "gate.png" },
  },
  write_file: {
    access: "write",
    enabled: "when configured",
    fields: ["path", "content", "overwrite?", "dry_run?"],
    sample: { path: "notes.txt", content: "text", overwrite: true, dry_run: true },
  },
  file_edit: {
    access: "write",
    enabled: "when configured",
    fields: ["path", "edits", "dry_run?"],
    sample: { path: "notes.txt", edits: [{ old_text: "one", new_text: "two" }], dry_run: true },
  },
  apply_patch: {
    access: "write",
    enabled: "when configured",
    fields: ["patch", "dry_run?"],
    textField: "patch",
    textSample: "*** Begin Patch\n*** Delete File: notes.txt\n*** End Patch",
    sample: { patch: "*** Begin Patch\n*** Delete File: notes.txt\n*** End Patch", dry_run: true },
  },
  memory_store: {
    access: "state",
    enabled: "always",
    fields: ["key", "value", "namespace?", "tags?"],
    sample: { key: "colour", value: "green", namespace: "facts", tags: ["door"] },
  },
  memory_recall: {
    access: "read",
    enabled: "always",
    fields: ["query?", "key?", "namespace?", "limit?"],
    textField: "query",
    sample: { query: "door", namespace: "facts", limit: 5 },
  },
  memory_forget: {
    access: "state",
    enabled: "always",
    fields: ["key", "namespace?"],
    textField: "key",
    sample: { key: "colour", namespace: "facts" },
  },
  task_plan: {
    access: "state",
    enabled: "always",
    fields: ["op", "tasks?", "title?", "id?", "status?"],
    sample: { op: "create", tasks: ["Open the gate"] },
  },
  cli_discovery: {
    access: "read",
    enabled: "always",
    fields: ["op", "command?"],
    sample: { op: "check_command", command: "ls" },
  },
  shell: {
    access: "write",
    enabled: "always",
    fields: ["command"],
    textField: "command",
    sample: { command: "ls -l src" },
  },
  process_tool: {
    access: "write",
    enabled: "always",
    fields: ["op", "command?", "id?", "offset?"],
    sample: { op: "start", command: "ls -l src" },
  },
  cron_add: {
    access: "state",
    enabled: "when configured",
    fields: ["id", "schedule", "prompt?", "tool?", "input?", "timezone?"],
    sample: { id: "report", schedule: "weekdays at 9:00", prompt: "Write the report", timezone: "Europe/Zurich" },
  },
  cron_update: {
    access: "state",
    enabled: "when configured",
    fields: ["id", "schedule?", "prompt?", "tool?", "input?", "timezone?"],
    sample: { id: "report", schedule: "hourly" },
  },
  cron_list: { access: "read", enabled: "when configured", fields: ["state?"], sample: { state: "active" } },
  cron_remove: {
    access: "state",
    enabled: "when configured",
    fields: ["id"],
    textField: "id",
    sample: { id: "report" },
  },
  cron_pause: {
    access: "state",
    enabled: "when configured",
    fields: ["id"],
    textField: "id",
    sample: { id: "report" },
  },
  cron_resume: {
    access: "state",
    enabled: "when configured",
    fields: ["id"],
    textField: "id",
    sample: { id: "report" },
  },
  schedule: {
    access: "state",
    enabled: "when configured",
    fields: ["id?", "at?", "in?", "prompt?", "tool?", "input?"],
    sample: { id: "call", in: "10 minutes", tool: "read_file", input: { path: "notes.txt" } },
  },
  git_operations: {
    access: "network",
    sampleAccess: "read",
    enabled: "when configured",
    fields: ["op", "path?", "paths?", "staged?", "limit?", "rev?", "message?", "branch?", "remote?"],
    sample: { op: "diff", path: "src", paths: ["a.ts"], staged: true, rev: "HEAD" },
  },
  subagent_spawn: {
    access: "state",
    enabled: "always",
    fields: ["task", "agent?", "tools?"],
    textField: "task",
    sample: { task: "Count the files", agent: "helper", tools: ["glob_search"] },
  },
  subagent_list: { access: "read", enabled: "always", fields: ["status?"], sample: { status: "running" } },
  subagent_manage: {
    access: "state",
    enabled: "always",
    fields: ["op", "id", "text?"],
    sample: { op: "message", id: "sub_1", text: "Go on" },
  },
  delegate: {
    access: "state",
    enabled: "when configured",
    fields: ["agent", "prompt"],
    sample: { agent: "helper", prompt: "Count the files" },
  },
  delegate_coordination_status: { access: "read", enabled: "always", fields: [], sample: {} },
  agents_ipc: {
    access: "state",
    enabled: "by default",
    fields: ["op", "from?", "to?", "payload?", "limit?"],
    sample: { op: "send", from: "planner", to: "writer", payload: "Begin" },
  },
  model_routing_config: {
    access: "read",
    enabled: "when configured",
    fields: ["op", "hint?", "query?"],
    sample: { op: "resolve_hint", hint: "fast" },
  },
  sop_list: { access: "read", enabled: "always", fields: [], sample: {} },
  sop_execute: {
    access: "state",
    enabled: "always",
    fields: ["sop", "inputs?"],
    textField: "sop",
    sample: { sop: "release", inputs: { version: "1.2.0" } },
  },
  sop_status: {
    access: "read",
    enabled: "always",
    fields: ["execution_id"],
    textField: "execution_id",
    sample: { execution_id: "sop_1" },
  },
  sop_advance: {
    access: "state",
    enabled: "always",
    fields: ["execution_id", "cancel?"],
    textField: "execution_id",
    sample: { execution_id: "sop_1", cancel: true },
  },
  sop_approve: {
    access: "state",
    enabled: "always",
    fields: ["execution_id"],
    textField: "execution_id",
    sample: { execution_id: "sop_1" },
  },
  hardware_board_info: {
    access: "read",
    enabled: "always",
    fields: ["board?"],
    textField: "board",
    sample: { board: "bench" },
  },
  hardware_memory_map: {
    access: "read",
    enabled: "always",
    fields: ["board"],
    textField: "board",
    sample: { board: "bench" },
  },
  hardware_memory_read: {
    access: "read",
    enabled: "always",
    fields: ["board", "address", "length?"],
    sample: { board: "bench", address: "0x20000000", length: 64 },
  },
};
