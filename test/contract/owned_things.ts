import type { OwnedKind } from "../../lib/tools/runtime/owned_things.ts";
import type { ServiceName } from "../../lib/tools/runtime/tool.ts";

/**
 * Tells for each service of tools whether it keeps things that go on after the call that began them and belong to the token of that
 * call. Each tool that needs such a service has a row in OWNED_CALLS.
 */
export const KEEPS_OWNED: Readonly<Record<ServiceName, boolean>> = {
  files: false,
  // Shared by all conversations of the gateway
  memory: false,
  // Each conversation has its own, which checks the owner
  plans: false,
  mailbox: false,
  // Each conversation has its own
  commandFolders: false,
  cookieJars: false,
  // The operator names those that runs get
  browserLogins: false,
  commands: false,
  processes: true,
  workers: false,
  git: false,
  desktop: false,
  urls: false,
  // Each run has its own, which ends with it
  browsers: false,
  guardedFetch: false,
  proxyOf: false,
  environment: false,
  secrets: false,
  redactor: false,
  documents: false,
  schedules: true,
  sops: true,
  subAgents: true,
  boards: false,
  catalogue: false,
  // Shared by all conversations of the gateway; a call has no effect but its answer
  wasmModules: false,
  // Shared by all conversations of the gateway; a call has no effect but its answer
  mcpReader: false,
  // Shared by all conversations of the gateway
  skills: false,
};

/** Call of a tool that reaches things that were begun before. */
export interface OwnedCall {
  readonly kind: OwnedKind;
  /** `one`: the call names the thing. `list`: it shows all that the caller may reach */
  readonly reaches: "one" | "list";
  readonly input: (id: string) => Readonly<Record<string, unknown>>;
  /** Text that a caller gets who may reach the thing. Of a list, the thing's id is looked for */
  readonly reached?: RegExp;
}

const one = (kind: OwnedKind, reached: RegExp, input: OwnedCall["input"]): OwnedCall => ({
  kind,
  reaches: "one",
  input,
  reached,
});
const list = (kind: OwnedKind, input: Readonly<Record<string, unknown>> = {}): OwnedCall => ({
  kind,
  reaches: "list",
  input: () => input,
});

/** The calls of every tool that could reach a thing of another token; none: the tool only begins things. */
export const OWNED_CALLS: Readonly<Record<string, readonly OwnedCall[]>> = {
  cron_add: [one("schedule", /there is one with this id/, (id) => ({ id, schedule: "hourly", prompt: "Look" }))],
  schedule: [one("schedule", /there is one with this id/, (id) => ({ id, in: "1h", prompt: "Look" }))],
  cron_list: [list("schedule")],
  cron_update: [one("schedule", /^Updated/, (id) => ({ id, prompt: "Look elsewhere" }))],
  cron_pause: [one("schedule", /^Paused/, (id) => ({ id }))],
  cron_resume: [one("schedule", /^Resumed/, (id) => ({ id }))],
  cron_remove: [one("schedule", /^Removed/, (id) => ({ id }))],
  shell: [],
  process_tool: [
    list("process", { op: "list" }),
    one("process", /offset=0/, (id) => ({ op: "output", id })),
    one("process", /status=killed/, (id) => ({ op: "kill", id })),
  ],
  sop_list: [list("execution")],
  sop_execute: [],
  sop_status: [one("execution", /^Execution/, (execution_id) => ({ execution_id }))],
  sop_advance: [
    one("execution", /^Execution/, (execution_id) => ({ execution_id })),
    one("execution", /^Execution/, (execution_id) => ({ execution_id, cancel: true })),
  ],
  sop_approve: [one("execution", /it waits for no approval/, (execution_id) => ({ execution_id }))],
  subagent_spawn: [],
  delegate: [],
  subagent_list: [list("sub_agent")],
  delegate_coordination_status: [list("sub_agent")],
  subagent_manage: [
    one("sub_agent", /status=/, (id) => ({ op: "status", id })),
    one("sub_agent", /go on with other work/, (id) => ({ op: "result", id })),
    one("sub_agent", /^Sent/, (id) => ({ op: "message", id, text: "More" })),
    one("sub_agent", /^Cancelled/, (id) => ({ op: "cancel", id })),
  ],
};
