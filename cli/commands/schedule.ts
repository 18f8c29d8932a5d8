import { type Firing, type Schedule, SCHEDULE_STATES } from "../../lib/base/records/schedule.ts";
import { zonedTime } from "../../lib/base/zoned_time.ts";
import { describeSchedule } from "../../lib/tools/schedule/schedules.ts";
import { type CommandContext, CommandError, defineCliCommand, UsageError } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { MAX_PRINTED, printPage } from "../terminal/print_page.ts";
import { printable } from "../terminal/terminal_text.ts";
import { INPUT_ARG, readInput, toInput, useTool } from "./tools.ts";

const ID = {
  type: "positional",
  required: true,
  description: "Id of the schedule, from postern schedule list",
} as const;
const MAX_TEXT = 60;
const MAX_ID_WORDS = 4;

/** Command `postern schedule list`: schedules, their next firing and how the last one ended. */
export const scheduleListCommand = defineCliCommand({
  args: {
    state: {
      type: "enum",
      options: [...SCHEDULE_STATES],
      valueHint: "state",
      description: `Only those that are ${
        SCHEDULE_STATES.join(", ")
      }; done are schedules with one time that have fired (default: active and paused)`,
    },
  },
  example: "postern schedule list",
  run: (context, { state }) =>
    withSchedules(context, async (gateway) => {
      await printPage(context, gateway.call("GET /v1/schedules", { query: { state, limit: MAX_PRINTED } }), {
        heads: ["ID", "STATE", "SCHEDULE", "ZONE", "NEXT", "LAST", "WHAT"],
        toRow,
        none: state === undefined ? "No schedule is active or paused" : "There is no such schedule",
      });
    }),
});

/** Command `postern schedule show <id>`: one schedule. */
export const scheduleShowCommand = defineCliCommand({
  args: { id: ID },
  example: "postern schedule show report",
  run: (context, { id }) =>
    withSchedules(context, async (gateway) => {
      const schedule = await gateway.call("GET /v1/schedules/:id", { params: { id } });
      const { prompt, tool, input, precheck } = schedule;
      const work = tool === null ? prompt ?? "" : `${tool} ${JSON.stringify(input)}`;
      const check = precheck === undefined ? "" : `\n\nPrecheck: ${precheck.tool} ${JSON.stringify(precheck.input)}`;
      context.print(schedule, printable(`${describeSchedule(schedule)}\n\n${work}${check}`));
    }),
});

/** Command `postern schedule add <when> <what>`: tells the agent a prompt, or calls a tool, at the times of the words or cron fields. */
export const scheduleAddCommand = defineCliCommand({
  args: {
    when: {
      type: "positional",
      required: true,
      description: 'Times, such as "every day at 9:00", "in 2 hours", "at 2026-12-24T18:00" or five cron fields',
    },
    "...what": { type: "positional", required: false, description: "What the agent is told each time" },
    id: { type: "string", valueHint: "id", description: "Id of the schedule (default: its first words)" },
    timezone: {
      type: "string",
      valueHint: "zone",
      description: "Time zone, such as Europe/Zurich (default: the configured one)",
    },
    tool: { type: "string", valueHint: "name", description: "Tool to call in place of telling the agent something" },
    input: INPUT_ARG,
    check: {
      type: "string",
      valueHint: "command",
      description: "Command that comes first, without the model: only where it prints something is the agent told",
    },
    "check-tool": { type: "string", valueHint: "name", description: "Tool to call first in place of a command" },
    "check-input": { ...INPUT_ARG, description: "Input of --check-tool, given as --input is" },
    "only-when-changed": { type: "boolean", description: "Tell the agent only what the check did not print before" },
    jitter: { type: "string", valueHint: "seconds", description: "Put each time off by up to this many seconds" },
  },
  example: 'postern schedule add "every day at 9:00" "Tidy up my notes"',
  run: async (context, { when, timezone, tool, input, _: words, ...given }) => {
    const prompt = words.slice(1).join(" ");
    if ((prompt === "") === (tool === undefined)) {
      throw new UsageError("Cannot add a schedule: give either what the agent is told, or --tool");
    }
    const parsed = input === undefined ? undefined : toInput(await readInput(input, context.io));
    const work = tool === undefined ? { prompt } : { tool, input: parsed };
    const id = given.id ?? idOf(tool ?? prompt);
    const jitter = given.jitter === undefined ? {} : { jitter_secs: toSeconds(given.jitter) };
    const check = await toCheck(context, given);
    return await callFor(context, "cron_add", { id, schedule: when, timezone, ...work, ...check, ...jitter });
  },
});

/** Options that name the call which comes before the prompt. */
interface CheckOptions {
  readonly check?: string | undefined;
  readonly "check-tool"?: string | undefined;
  readonly "check-input"?: string | undefined;
  readonly "only-when-changed"?: boolean | undefined;
}

async function toCheck({ io }: CommandContext, options: CheckOptions): Promise<Readonly<Record<string, unknown>>> {
  const { check: command, "check-tool": tool, "check-input": input, "only-when-changed": onlyChanged } = options;
  if (command !== undefined && tool !== undefined) {
    throw new UsageError("Cannot add a schedule: give either --check or --check-tool");
  }
  if (tool === undefined && input !== undefined) throw new UsageError("Cannot use --check-input without --check-tool");
  const changed = onlyChanged === true ? { only_when_changed: true } : {};
  if (command !== undefined) return { precheck: { tool: "shell", input: { command }, ...changed } };
  if (tool === undefined) return onlyChanged === true ? { precheck: changed } : {};
  return { precheck: { tool, input: input === undefined ? {} : toInput(await readInput(input, io)), ...changed } };
}

function toSeconds(text: string): number {
  if (/^\d{1,4}$/.test(text)) return Number(text);
  throw new UsageError("Cannot use --jitter: it must be a number of seconds, such as 300");
}

/** Returns an id that says what the schedule does, such as `tidy-up-my-notes`. */
function idOf(what: string): string {
  const words = what.toLowerCase().match(/[a-z0-9_]+/g) ?? [];
  return words.slice(0, MAX_ID_WORDS).join("-").slice(0, 64) || "task";
}

/** Command `postern schedule remove <id>`: removes a schedule with its history. */
export const scheduleRemoveCommand = changeCommand("remove", "cron_remove");

/** Command `postern schedule enable <id>`: lets a paused schedule fire again. */
export const scheduleEnableCommand = changeCommand("enable", "cron_resume");

/** Command `postern schedule disable <id>`: pauses a schedule. */
export const scheduleDisableCommand = changeCommand("disable", "cron_pause");

function changeCommand(verb: string, tool: string) {
  return defineCliCommand({
    args: { id: ID },
    example: `postern schedule ${verb} report`,
    run: (context, { id }) => callFor(context, tool, { id }),
  });
}

/** Calls one of the schedule tools, which know the rules. */
function callFor(context: CommandContext, tool: string, input: Readonly<Record<string, unknown>>): Promise<number> {
  return withGateway(context, (gateway) => useTool(context, gateway, { tool, input }));
}

/** Command `postern schedule history <id>`: firings of a schedule, the newest first. */
export const scheduleHistoryCommand = defineCliCommand({
  args: { id: ID },
  example: "postern schedule history report",
  run: (context, { id }) =>
    withSchedules(context, async (gateway) => {
      const { timezone } = await gateway.call("GET /v1/schedules/:id", { params: { id } });
      const history = gateway.call("GET /v1/schedules/:id/history", { params: { id }, query: { limit: MAX_PRINTED } });
      await printPage(context, history, {
        heads: ["DUE", "BY", "FIRING", "RUN", "STATUS", "WHY"],
        toRow: (firing) => [
          shownIn(timezone, firing.time),
          firing.trigger,
          firing.status,
          firing.run_id ?? firing.check_run_id ?? "",
          firing.run_status ?? "",
          outcomeOf(firing),
        ],
        none: "It has not fired yet",
      });
    }),
});

/** Command `postern schedule run <id>`: fires a schedule now, in the running gateway. */
export const scheduleRunCommand = defineCliCommand({
  args: { id: ID },
  example: "postern schedule run report",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      if (gateway.running === undefined) {
        throw new CommandError(
          `Cannot run "${id}": no gateway is running on this data directory; start one with postern gateway`,
        );
      }
      const firing = await gateway.call("POST /v1/schedules/:id/run", { params: { id } });
      context.print(firing, `${firing.run_id ?? firing.check_run_id}: started`);
    }),
});

async function withSchedules(
  context: CommandContext,
  work: (gateway: ReachedGateway) => Promise<void>,
): Promise<number> {
  const { config } = await context.loadConfig();
  if (!config.cron.enabled) context.say("No schedule fires: [cron] enabled is false");
  return await withGateway(context, work);
}

function toRow({ id, state, schedule, timezone, next_at, last, prompt, tool, input }: Schedule): readonly string[] {
  const ran = last === null
    ? ""
    : `${last.status === "started" ? last.run_status ?? "started" : last.status} ${shownIn(timezone, last.at)}`;
  const what = tool === null ? prompt ?? "" : `${tool} ${JSON.stringify(input)}`;
  return [
    id,
    state,
    schedule,
    timezone,
    next_at === null ? "" : shownIn(timezone, next_at),
    ran,
    what.slice(0, MAX_TEXT),
  ];
}

function shownIn(timezone: string, time: string): string {
  return zonedTime(Date.parse(time), timezone);
}

function outcomeOf({ reason, run_error, missed_count, missed_until }: Firing): string {
  if (missed_until !== null && missed_count !== 1) return `${missed_count ?? "many"} up to ${missed_until}: ${reason}`;
  return reason ?? run_error?.message.slice(0, MAX_TEXT) ?? "";
}
