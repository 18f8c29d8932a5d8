import * as v from "valibot";
import { type AgentEvent, agentEventSchema } from "../../base/records/agent_event.ts";

/**
 * Schemas of events in the journal. Neighbouring deltas of one kind are joined, with the cuts between them. The seq is left out, since it
 * follows from the place. Unpacking gives the same events back, so that any suffix by seq can be replayed.
 */
const count = v.pipe(v.number(), v.integer(), v.minValue(0));
const joined = {
  time: v.string(),
  delta: v.string(),
  /** Two numbers for each delta: its length, and the milliseconds since the delta before. */
  cuts: v.array(v.pipe(v.number(), v.integer())),
};

const packedEventSchema = v.variant("type", [
  v.object({ type: v.picklist(["text_delta", "reasoning_delta", "refusal_delta"]), ...joined }),
  v.object({
    type: v.literal("client_tool_call_delta"),
    index: v.number(),
    call_id: v.string(),
    name: v.optional(v.string()),
    ...joined,
  }),
  /** Any other event, unchanged. */
  v.looseObject({ type: v.literal("event"), event: v.looseObject({ type: v.string() }) }),
]);
type PackedEvent = v.InferOutput<typeof packedEventSchema>;
type PackedDelta = Exclude<PackedEvent, { type: "event" }>;
type DeltaEvent = Extract<AgentEvent, { type: PackedDelta["type"] }>;

/** Schema of packed events. */
export const packedEventsSchema = v.object({
  /** Seq of the first event. */
  seq: v.pipe(v.number(), v.integer(), v.minValue(1)),
  /** Number of events. */
  count,
  events: v.array(packedEventSchema),
});
/** Consecutive events of one run in packed form. */
export type PackedEvents = v.InferOutput<typeof packedEventsSchema>;

/** Returns the seq of the last event. */
export function lastSeqOf({ seq, count }: PackedEvents): number {
  return seq + count - 1;
}

/** Collects events of one run in packed form. */
export class EventPacker {
  #blocks: OpenBlock[] = [];
  #seq = 0;
  #total = 0;

  /** Adds events, which follow those already there. */
  add(events: readonly AgentEvent[]): void {
    for (const event of events) {
      if (this.#total === 0) this.#seq = event.seq;
      this.#total++;
      if (!isDelta(event)) {
        this.#blocks.push({ packed: { type: "event", event }, last: "" });
        continue;
      }
      const open = this.#blocks.at(-1);
      if (open !== undefined && open.packed.type !== "event" && continues(open.packed, event)) {
        const after = event.time === open.last ? 0 : Date.parse(event.time) - Date.parse(open.last);
        const delta = deltaOf(event);
        open.packed.delta += delta;
        open.packed.cuts.push(delta.length, after);
        open.last = event.time;
      } else {
        this.#blocks.push({ packed: openDelta(event), last: event.time });
      }
    }
  }

  count(): number {
    return this.#total;
  }

  /** Returns the collected events and keeps them. */
  peek(): PackedEvents {
    return { seq: this.#seq, count: this.#total, events: this.#blocks.map((block) => block.packed) };
  }

  /** Returns the collected events and starts over. */
  take(): PackedEvents {
    const taken = this.peek();
    this.#blocks = [];
    this.#total = 0;
    return taken;
  }
}

/** Returns the events after `afterSeq`, each with its own seq and time, `limit` at most. Default: all. */
export function unpackEvents(packed: PackedEvents, afterSeq = 0, limit = Infinity): AgentEvent[] {
  const events: AgentEvent[] = [];
  let seq = packed.seq;
  for (const block of packed.events) {
    if (events.length >= limit) break;
    if (block.type === "event") {
      if (seq > afterSeq) events.push(v.parse(agentEventSchema, { ...block.event, seq }));
      seq++;
      continue;
    }
    let at = 0;
    let time = Date.parse(block.time);
    for (let i = 0; i < block.cuts.length && events.length < limit; i += 2) {
      // Cuts come in pairs
      const length = block.cuts[i] as number;
      time += block.cuts[i + 1] as number; // the second of the pair
      if (seq > afterSeq) {
        const stamped = { seq, time: new Date(time).toISOString() };
        events.push(closeDelta(block, stamped, { delta: block.delta.slice(at, at + length), first: i === 0 }));
      }
      at += length;
      seq++;
    }
  }
  return events;
}

/** Returns one event for each block of a stored record, with joined deltas: enough for the fold, and cheap when there are few blocks. */
export function joinedEvents(packed: PackedEvents): AgentEvent[] {
  return joinBlocks(packed, (event) => v.parse(agentEventSchema, { ...event, seq: packed.seq }));
}

/** As `joinedEvents`, for events that this process has packed: they need no check. */
export function ownJoinedEvents(packed: PackedEvents): AgentEvent[] {
  return joinBlocks(packed, (event) => event as AgentEvent); // a packer takes nothing else
}

function joinBlocks(
  { seq, events }: PackedEvents,
  toEvent: (event: Extract<PackedEvent, { type: "event" }>["event"]) => AgentEvent,
): AgentEvent[] {
  return events.map((block) =>
    block.type === "event"
      ? toEvent(block.event)
      : closeDelta(block, { seq, time: block.time }, { delta: block.delta, first: true })
  );
}

interface OpenBlock {
  readonly packed: PackedEvent;
  /** Time of the block's last event. */
  last: string;
}

function isDelta(event: AgentEvent): event is DeltaEvent {
  return event.type === "text_delta" || event.type === "reasoning_delta" || event.type === "refusal_delta" ||
    (event.type === "client_tool_call_delta" && event.extra === undefined);
}

function deltaOf(event: DeltaEvent): string {
  return event.type === "client_tool_call_delta" ? event.arguments_delta : event.delta;
}

function continues(block: PackedDelta, event: DeltaEvent): boolean {
  if (event.type === "client_tool_call_delta") {
    return block.type === event.type && block.call_id === event.call_id && block.index === event.index &&
      event.name === undefined;
  }
  return block.type === event.type;
}

function openDelta(event: DeltaEvent): PackedDelta {
  const delta = deltaOf(event);
  const base = { time: event.time, delta, cuts: [delta.length, 0] };
  if (event.type !== "client_tool_call_delta") return { type: event.type, ...base };
  const { type, index, call_id, name } = event;
  return { type, index, call_id, ...(name === undefined ? {} : { name }), ...base };
}

function closeDelta(
  block: PackedDelta,
  stamp: { readonly seq: number; readonly time: string },
  part: { readonly delta: string; readonly first: boolean },
): AgentEvent {
  if (block.type !== "client_tool_call_delta") return { ...stamp, type: block.type, delta: part.delta };
  const name = part.first && block.name !== undefined ? { name: block.name } : {};
  return {
    ...stamp,
    type: block.type,
    index: block.index,
    call_id: block.call_id,
    ...name,
    arguments_delta: part.delta,
  };
}
