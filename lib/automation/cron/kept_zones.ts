import type { Logger } from "../../base/telemetry/log.ts";
import { readRecords } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import { zoneOf } from "./check_schedule.ts";
import { parseScheduleRecord, SCHEDULES } from "./schedule_record.ts";

/** Schedules that a line of the log names. */
const MAX_NAMED = 20;

/**
 * Logs which active and paused schedules keep another time zone than new ones get from now on. Those whose times are fixed already, as
 * those with one time, are left out.
 * @param options.timezone IANA name; empty: the machine's
 */
export async function nameKeptZones(
  { store, log, timezone }: { readonly store: Store; readonly log: Logger; readonly timezone: string },
): Promise<void> {
  const zone = zoneOf(timezone);
  const kept: string[] = [];
  for await (const { value: { id, timing, timezone: own } } of readRecords(store, SCHEDULES, parseScheduleRecord)) {
    if (timing.kind === "cron" && own !== zone) kept.push(`${id} (${own})`);
  }
  if (kept.length === 0) return;
  const more = kept.length > MAX_NAMED ? ` and ${kept.length - MAX_NAMED} others` : "";
  log.warn(
    `The time zone ${zone} of [cron] counts for new schedules; these keep theirs: ` +
      `${kept.slice(0, MAX_NAMED).join(", ")}${more}; cron_update with "timezone" changes it`,
    { timezone: zone, kept: kept.length },
  );
}
