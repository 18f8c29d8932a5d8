import * as v from "valibot";
import {
  hasMoreThanClient,
  hasOwnWork,
  isOwnId,
  type ParkedClientCalls,
  turnKeys,
} from "../../agent/parked_client_calls.ts";
import type { Clock } from "../../base/clock.ts";
import { type Message, messageSchema } from "../../base/records/message.ts";
import { type Taint, taintField } from "../../base/taint.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";

const KEEP_MS = 24 * 60 * 60 * 1000;
/** Old records that are forgotten with each new record. */
const SWEEP = 20;

const recordSchema = v.object({
  v: v.literal(1),
  /** Milliseconds since the epoch */
  at: v.number(),
  /** Keys of the client's calls that wait for their results; the record's key is the first */
  call_ids: v.array(v.string()),
  /** Parked messages. Empty: they are in the memory of one gateway alone, so a restart loses them. */
  messages: v.array(messageSchema),
  /** Origins of outside content that the run had read. Absent: none */
  taint: v.optional(v.array(v.string())),
});

/** Collection of parked calls. The key is the first one of a turn that waits for its client (`turnKeys`). */
export const PARKED_CALLS = new Collection("suspended_turns", recordSchema, { replaced: "never changed" });

/**
 * Parked work of runs that ended with a call to the client's tools, for 24 hours: that of durable runs over a restart, and in a cluster that
 * of all runs for each gateway.
 */
export interface ParkedRecords {
  /**
   * Returns the writes that keep the messages that a run added to the history; none when the client has all of them. For an attached run
   * the writes only say that work of the agent was there. In a cluster they keep that work too, since its client may come back to another
   * gateway.
   * @param options.before the last message that the client sent
   * @param options.taint outside content that the run has read
   */
  writes(added: readonly Message[], options: ParkedOptions): Promise<readonly Write[]>;
  /** Writes the same for an attached run that writes nothing else. */
  note(added: readonly Message[], options: Omit<ParkedOptions, "durable">): Promise<void>;
  /** Reads the calls that belong to the results at the end of these messages back into memory, after a restart. */
  recall(messages: readonly Message[]): Promise<void>;
}

interface ParkedOptions {
  readonly durable: boolean;
  readonly before: Message | undefined;
  readonly taint: Taint;
}

/** Returns the records of parked calls over a store. */
export function createParkedRecords(options: {
  readonly store: Store;
  readonly clock: Pick<Clock, "now">;
  readonly parked: ParkedClientCalls;
  /** True: other gateways read the records too. Default false */
  readonly isShared?: boolean;
}): ParkedRecords {
  const { store, clock, parked, isShared = false } = options;
  const records: ParkedRecords = {
    async writes(added, { durable, before: asked, taint }) {
      const keys = openKeys(added, asked);
      const [key] = keys;
      const isKept = durable ? hasMoreThanClient(added) : isShared && hasOwnWork(added);
      if (key === undefined || !isKept && (durable || !hasOwnWork(added))) return [];
      const before = clock.now() - KEEP_MS;
      const deletes = await PARKED_CALLS.removeOldest(store, SWEEP, ({ at }) => at < before);
      const body = {
        v: 1 as const,
        at: clock.now(),
        call_ids: [...keys],
        messages: isKept ? [...added] : [],
        ...isKept ? taintField(taint) : {},
      };
      return [
        // A vendor may say the same in two conversations, with the same ids
        PARKED_CALLS.put(key, body),
        ...deletes,
      ];
    },
    async note(added, options) {
      const writes = await records.writes(added, { ...options, durable: false });
      if (writes.length > 0) await store.batch(writes);
    },
    async recall(messages) {
      for (const key of answeredKeys(messages)) {
        if (parked.has(key)) continue;
        const stored = await store.get(PARKED_CALLS.name, key);
        if (stored === undefined) continue;
        const found = PARKED_CALLS.parsed(store, stored);
        if (found === undefined) {
          // Messages of a record that cannot be read are lost, and the model is told so
          parked.noteGone([key]);
          continue;
        }
        const record = found.value;
        if (record.at < clock.now() - KEEP_MS) continue;
        if (record.messages.length === 0) parked.noteGone(record.call_ids);
        else parked.keep(record.call_ids, record.messages, record.taint);
      }
    },
  };
  return records;
}

/** Returns the keys of the calls of the last turn that have no result. */
function openKeys(added: readonly Message[], before: Message | undefined): readonly string[] {
  const from = added.findLastIndex((message) => message.role === "assistant");
  if (from === -1) return [];
  const done = added.slice(from).flatMap((message) => (message.role === "tool" ? [message.tool_call_id] : []));
  const said = before === undefined ? added : [before, ...added];
  return turnKeys(said, said.length - added.length + from).filter((key) => !done.includes(key));
}

/** Returns the keys of the calls whose results stand at the end. */
function answeredKeys(messages: readonly Message[]): ReadonlySet<string> {
  const from = messages.findLastIndex((message) => message.role !== "tool");
  const ids = messages.slice(from + 1).flatMap((message) => (message.role === "tool" ? [message.tool_call_id] : []));
  return new Set([...ids.filter(isOwnId), ...turnKeys(messages, from)]);
}
