import { isRecord } from "../../base/json.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Documents } from "../../storage/documents.ts";
import type { Store } from "../../storage/store.ts";
import { zoneOf } from "./check_schedule.ts";
import { SCHEDULES } from "./schedule_record.ts";

/** Schedules that a line of the log names. */
const MAX_NAMED = 20;

const KEY = "zones/cron";

/**
 * Logs which active and paused schedules keep another time zone than new ones get from now on, where that is another one than at the last
 * look: the configuration was changed, or the machine's own zone, also while no gateway ran. Those whose times are fixed already, as those
 * with one time, are left out. A cluster has no zone of its own: there only a change of the configuration is told.
 * @param options.timezone IANA name; empty: the machine's
 * @param options.before what `[cron] timezone` was. Default: it was not changed
 */
export async function followZone(
  { store, log, timezone, before, documents }: {
    readonly store: Store;
    readonly log: Logger;
    readonly timezone: string;
    readonly before?: string;
    /** Keeps the zone of the last look. In a cluster it keeps none */
    readonly documents: Documents;
  },
): Promise<void> {
  const zone = zoneOf(timezone);
  const kept = before === undefined ? await documents.get(KEY) : { zone: zoneOf(before) };
  if (isRecord(kept) && kept["zone"] === zone) return;
  if (kept !== undefined) await nameKeptZones({ store, log, zone });
  await documents.set(KEY, { zone });
}

async function nameKeptZones(
  { store, log, zone }: { readonly store: Store; readonly log: Logger; readonly zone: string },
): Promise<void> {
  const kept: string[] = [];
  for await (const { value: { id, timing, timezone: own } } of SCHEDULES.all(store)) {
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
