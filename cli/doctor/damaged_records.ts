import { COLLECTIONS, STREAMS } from "../../handlers/stored_records.ts";
import { systemClock } from "../../lib/base/clock.ts";
import type { UnreadableRecord } from "../../lib/storage/store.ts";
import { askRoute } from "../reach_gateway.ts";
import { clientOf } from "./ask_gateway.ts";
import { failure, type Finding, type RunningFacts } from "./finding.ts";

/** Parsers of everything that a database of Postern holds. */
export const PARSERS = {
  collections: Object.fromEntries(Object.values(COLLECTIONS).map(({ name, parse }) => [name, parse])),
  streams: STREAMS,
} as const;

/** Number of damaged records that the finding names by their keys; of the others it names the collections. */
const SHOWN = 5;
/** Reply of `POST /v1/storage/check`. */
interface CheckedRecords {
  readonly unreadable: readonly UnreadableRecord[];
  readonly complete: boolean;
}

/** Time for looking through the records, in ms. */
const LOOK_MS = 3_000;

/** Begins a look through the records. @returns a function that tells whether its time is over */
export function lookIsOver(): () => boolean {
  const deadline = systemClock.monotonic() + LOOK_MS;
  return () => systemClock.monotonic() > deadline;
}

/** Has the running gateway look at its records. One of an older version names those that it came across. */
export async function askForDamage(running: RunningFacts | undefined): Promise<CheckedRecords> {
  const client = clientOf({ running });
  const checked = client && await askRoute(client, "POST /v1/storage/check").catch(() => undefined);
  return checked ?? { unreadable: running?.status?.unreadable_records ?? [], complete: false };
}

/** Names the first damaged records with their reasons, and the collections of all. */
export function damagedRecords(name: string, records: readonly UnreadableRecord[], what: string): Finding {
  const shown = records.slice(0, SHOWN).map(({ collection, key, reason }) => `${collection} ${key} (${reason})`).join(
    ", ",
  );
  const collections = new Set(records.slice(SHOWN).map(({ collection }) => collection));
  const more = collections.size > 0 ? `, and ${records.length - SHOWN} more of ${[...collections].join(", ")}` : "";
  const message = `${records.length} damaged records that ${what}: ${shown}${more}`;
  return failure(name, message, "stop every gateway, then postern doctor --repair, which backs up first");
}
