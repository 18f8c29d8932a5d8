import * as v from "valibot";
import { joinTaints } from "../../base/taint.ts";
import type { Config } from "../../config/config.ts";
import { boundLines } from "../../system/process/bounds.ts";
import type { ProcessInfo } from "../../system/process/process_table.ts";
import { type ContextWith, defineTool } from "../runtime/define_tool.ts";
import { checkOwner, hiddenLines, onlyReached } from "../runtime/owned_things.ts";
import { requireOpFields } from "../runtime/parse_input.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { withFolder } from "./command_folder.ts";
import {
  admitCommand,
  aftermathData,
  aftermathLines,
  type AllowedCommands,
  boundFiles,
  callCommand,
  commandAccess,
  commandEffects,
  lineOf,
  lineTextOf,
  noNetworkLines,
  relayData,
  relayLines,
  uncoveredLines,
  wallLines,
  writtenTaint,
} from "./command_rules.ts";

/** Bytes of output in one answer. The rest is read from `next_offset` on */
const MAX_ANSWER_BYTES = 65_536;

/** `process_tool`: runs allowed commands while the agent goes on working (docs/design/paths_and_commands.md "Commands"). */
export const processTool = defineTool({
  name: "process_tool",
  description:
    "Starts an allowed command that goes on in the background, lists such processes, reads their output, kills them. All end with the gateway",
  access: "write",
  // A process of an earlier start of the gateway has ended with it
  repeatable: ({ op }) => op !== "start",
  accessUnder: commandAccess,
  enabled: "always",
  needs: ["processes", "commands", "commandFolders"],
  input: v.strictObject({
    op: v.pipe(v.picklist(["start", "list", "output", "kill"]), v.description("What to do")),
    command: v.optional(
      v.pipe(
        v.string(),
        v.minLength(1),
        v.maxLength(1_048_576),
        v.description("start: command and arguments, as for shell"),
      ),
    ),
    id: v.optional(
      v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("output, kill: id from start")),
    ),
    offset: v.optional(
      v.pipe(
        v.number(),
        v.integer(),
        v.minValue(0),
        v.maxValue(Number.MAX_SAFE_INTEGER),
        v.description("output: first byte, the last answer's next_offset. Default 0"),
      ),
    ),
  }),
  check: (input) => requireOpFields("process_tool", input, { start: ["command"], output: ["id"], kill: ["id"] }),
  admit: ({ op, command = "" }, config) => {
    if (op === "start") admitCommand(command, config, rulesOf(config));
  },
  async screen({ op, command = "" }, context) {
    if (op === "start") await context.services.processes.screen(callCommand(command, context, rulesOf));
  },
  bind: async ({ op, command = "" }, context) => op === "start" ? await boundFiles(command, context) : { shown: [] },
  effectsUnder: ({ op, command = "" }, config) => op === "start" ? commandEffects(command, config) : {},
  fill: async (input, context) =>
    input.op === "start" ? { ...input, command: await withFolder(input.command ?? "", context) } : input,
  async run({ op, command = "", id = "", offset = 0 }, context) {
    const { processes } = context.services;
    switch (op) {
      case "start":
        return await start(command, context);
      case "list": {
        const { reached, hidden } = onlyReached(processes.list(), context.caller, ({ owner }) => owner);
        const lines = [reached.map(describe).join("\n") || "no processes", ...hiddenLines("process", hidden)];
        const taint = joinTaints(...reached.map((info) => info.taint));
        return { output: lines.join("\n"), isError: false, data: reached.map(toData), taint };
      }
      case "output": {
        const info = ownProcess(id, "read", context);
        const part = processes.output(id, { offset, maxBytes: MAX_ANSWER_BYTES });
        const dropped = part.offset > offset ? [`[The first ${part.offset} bytes are no longer kept]`] : [];
        const { nextOffset, total } = part;
        const head = `${describe(info)} offset=${part.offset} next_offset=${nextOffset} total=${total}`;
        const text = part.text === "" ? [] : [part.text];
        const { contained, bounds, network, refused } = info;
        const status = statusOf(info);
        const isFailure = status !== "0";
        const hints = [
          ...boundLines(status, bounds),
          ...noNetworkLines({ contained, network, isTimeout: false, isFailure, texts: text }),
          ...wallLines({ contained, isFailure, command: commandOf(info), texts: text }, context.config),
          ...relayLines(refused),
        ];
        return {
          output: [head, ...dropped, ...text, ...hints].join("\n"),
          isError: false,
          data: { ...toData(info), offset: part.offset, next_offset: nextOffset, total },
          // The network that the process was started with counts, whatever the settings are now
          taint: info.taint,
          command: info.words,
          line: lineOf(info.words),
        };
      }
      case "kill": {
        ownProcess(id, "kill", context);
        const info = await processes.kill(id);
        return { output: describe(info), isError: false, data: toData(info), taint: info.taint };
      }
    }
  },
});

async function start(command: string, context: ContextWith<"processes">): Promise<ToolResult> {
  const { shell, process: limits } = context.config.security;
  const info = await context.services.processes.start({
    ...callCommand(command, context, rulesOf),
    localSockets: shell.local_sockets,
    owner: context.caller.tokenId,
    startedBy: { tool: "process_tool", runId: context.runId },
    taint: writtenTaint("process_tool", context),
    maxProcesses: limits.max_processes,
    maxOutputBytes: limits.max_output_bytes,
    signal: context.signal,
  });
  return { output: describe(info), isError: false, data: toData(info) };
}

/** @throws {ToolError} `process_not_found`; `insufficient_scope` for a process of another token */
function ownProcess(id: string, action: string, { services, caller }: ContextWith<"processes">): ProcessInfo {
  const info = services.processes.get(id);
  checkOwner("process", { action, id }, { owner: info.owner, caller });
  return info;
}

function rulesOf({ security }: Config): AllowedCommands {
  const { allowed_commands: allowed, process: { allowed_commands: more } } = security;
  return { allowed: [...allowed, ...more], list: "[security] or [security.process] allowed_commands" };
}

function commandOf({ words }: ProcessInfo): string {
  return lineTextOf(words) ?? words.join(" ");
}

function describe(info: ProcessInfo): string {
  const line = `id=${info.id} status=${statusOf(info)} command=${JSON.stringify(commandOf(info))}`;
  return [line, ...uncoveredLines(info.state), ...info.after === undefined ? [] : aftermathLines(info.after)].join(
    "\n",
  );
}

/** `running`, `killed`, `uncovered`, the exit code, or `signal:<name>`. */
function statusOf({ state }: ProcessInfo): string {
  switch (state.kind) {
    case "exit":
      return String(state.code);
    case "signal":
      return `signal:${state.name}`;
    default:
      return state.kind;
  }
}

function toData(info: ProcessInfo): Readonly<Record<string, unknown>> {
  const { id, words, contained, startedAt, after, refused } = info;
  return {
    id,
    status: statusOf(info),
    words,
    contained,
    started_at: new Date(startedAt).toISOString(),
    ...relayData(refused),
    ...(after === undefined ? {} : aftermathData(after)),
  };
}
