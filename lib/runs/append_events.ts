import { EventStamp } from "../agent/event_recorder.ts";
import type { AgentEventBody } from "../base/records/agent_event.ts";
import { createEventPacker } from "./pack_events.ts";
import { shownUpTo } from "./run_recorder.ts";
import type { AppendOptions, RunStore } from "./run_store.ts";

/**
 * Writes events at the end of the journal of a run that is not at work, as one record. They are numbered past all that may have been
 * shown of it before.
 * @param expectedSeq the last seq the journal has, 0 for an empty one
 * @throws {JournalError} when the journal is elsewhere, or cannot be written
 */
export async function appendEvents(
  runId: string,
  expectedSeq: number,
  bodies: readonly AgentEventBody[],
  { runs, time, ...append }: { readonly runs: RunStore; readonly time: () => string } & AppendOptions,
): Promise<void> {
  const stamp = new EventStamp(time, shownUpTo(expectedSeq));
  const packer = createEventPacker();
  packer.add(stamp.stamp(bodies));
  await runs.append(runId, expectedSeq, packer.take(), append);
}
