import { type Firing, type Schedule, SCHEDULE_STATES } from "../../lib/base/records/schedule.ts";
import { zonedTime } from "../../lib/base/zoned_time.ts";
import { type CommandContext, CommandError, defineCliCommand } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { toTable } from "../terminal/terminal_text.ts";

const ID = { type: "positional", required: true, description: "Id of the schedule, from postern cron list" } as const;
const MAX_SHOWN = 100;
const MAX_TEXT = 60;

/** Command `postern cron list`: schedules, their next firing and how the last one ended. */
export const cronListCommand = defineCliCommand({
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
  example: "postern cron list",
  run: (context, { state }) =>
    withCron(context, async (gateway) => {
      const only = state === undefined ? "" : `&state=${state}`;
      const { data, has_more } = await read<Schedule>(gateway, `/v1/schedules?limit=${MAX_SHOWN}${only}`);
      context.print(
        data,
        data.length === 0
          ? state === undefined ? "No schedule is active or paused" : "There is no such schedule"
          : toTable(["ID", "STATE", "SCHEDULE", "ZONE", "NEXT", "LAST", "WHAT"], data.map(toRow), context.io.columns),
      );
      if (has_more) context.say(`These are the newest ${MAX_SHOWN}; there are more.`);
    }),
});

/** Command `postern cron history <id>`: firings of a schedule, the newest first. */
export const cronHistoryCommand = defineCliCommand({
  args: { id: ID },
  example: "postern cron history report",
  run: (context, { id }) =>
    withCron(context, async (gateway) => {
      const { timezone } = await gateway.request({ method: "GET", path: pathOf(id) }) as Schedule;
      const { data } = await read<Firing>(gateway, `${pathOf(id)}/history?limit=${MAX_SHOWN}`);
      const rows = data.map((firing) => [
        shownIn(timezone, firing.time),
        firing.trigger,
        firing.status,
        firing.run_id ?? "",
        firing.run_status ?? "",
        outcomeOf(firing),
      ]);
      context.print(
        data,
        rows.length === 0
          ? "It has not fired yet"
          : toTable(["DUE", "BY", "FIRING", "RUN", "STATUS", "WHY"], rows, context.io.columns),
      );
    }),
});

/** Command `postern cron run <id>`: fires a schedule now, in the running gateway. */
export const cronRunCommand = defineCliCommand({
  args: { id: ID },
  example: "postern cron run report",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      if (gateway.running === undefined) {
        throw new CommandError(
          `Cannot run "${id}": no gateway is running on this data directory; start one with postern gateway`,
        );
      }
      const firing = await gateway.request({ method: "POST", path: `${pathOf(id)}/run` }) as Firing;
      context.print(firing, `${firing.run_id}: started`);
    }),
});

async function withCron(context: CommandContext, work: (gateway: ReachedGateway) => Promise<void>): Promise<number> {
  const { config } = await context.loadConfig();
  if (!config.cron.enabled) context.say("No schedule fires: [cron] enabled is false");
  return await withGateway(context, work);
}

async function read<T>(gateway: ReachedGateway, path: string) {
  return await gateway.request({ method: "GET", path }) as { readonly data: readonly T[]; readonly has_more: boolean };
}

function pathOf(id: string): string {
  return `/v1/schedules/${encodeURIComponent(id)}`;
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
