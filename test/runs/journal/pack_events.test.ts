import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { AgentEvent, AgentEventBody } from "../../../lib/base/records/agent_event.ts";
import { applyEvent, createRunState } from "../../../lib/runs/journal/apply_event.ts";
import { EventPacker, joinedEvents, ownJoinedEvents, unpackEvents } from "../../../lib/runs/journal/pack_events.ts";
import { anyCharacter } from "../../support/any_character.ts";

const text = fc.string({ unit: anyCharacter, maxLength: 8 });
const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };
const body: fc.Arbitrary<AgentEventBody> = fc.oneof(
  { weight: 4, arbitrary: text.map((delta): AgentEventBody => ({ type: "text_delta", delta })) },
  text.map((delta): AgentEventBody => ({ type: "reasoning_delta", delta })),
  text.map((delta): AgentEventBody => ({ type: "refusal_delta", delta })),
  fc.record({ index: fc.nat(1), delta: text, first: fc.boolean() }).map(({ index, delta, first }): AgentEventBody => ({
    type: "client_tool_call_delta",
    index,
    call_id: `call_${index}`,
    ...(first ? { name: "weather" } : {}),
    arguments_delta: delta,
  })),
  fc.jsonValue().map((input): AgentEventBody => ({ type: "tool_start", call_id: "call_1", tool: "look", input })),
  fc.nat(5).map((turn): AgentEventBody => ({ type: "turn_end", turn, usage })),
  fc.constant<AgentEventBody>({ type: "notice", code: "c", message: "m" }),
);

/** Events of a run whose clock moves on, stands still or is set back. */
const journal = fc.array(fc.tuple(body, fc.integer({ min: -5, max: 5000 })), { maxLength: 40 }).map((steps) => {
  let now = Date.UTC(2026, 0, 1);
  return steps.map(([event, ms], i) => {
    now += ms;
    return { seq: i + 1, time: new Date(now).toISOString(), ...event } as AgentEvent; // a body was given its stamp
  });
});

describe("packed events", () => {
  test("give every suffix back as it was, through JSON", () => {
    fc.assert(
      fc.property(journal, fc.nat(45), (events, afterSeq) => {
        const packer = new EventPacker();
        packer.add(events);
        const packed = JSON.parse(JSON.stringify(packer.take()));
        const kept = JSON.parse(JSON.stringify(events)) as AgentEvent[];
        assert.deepEqual(unpackEvents(packed, afterSeq), kept.filter((event) => event.seq > afterSeq));
      }),
      { numRuns: 200 },
    );
  });

  test("fold to the same run joined or one by one", () => {
    const start = createRunState({
      id: "run_1",
      kind: "chat",
      created_at: "2026-01-01T00:00:00.000Z",
      model: "m",
      conversation_id: null,
      parent_id: null,
    });
    fc.assert(
      fc.property(journal, (events) => {
        const packer = new EventPacker();
        packer.add(events);
        const packed = packer.take();
        const folded = events.reduce(applyEvent, start);
        assert.deepEqual(joinedEvents(packed).reduce(applyEvent, start), folded);
        assert.deepEqual(ownJoinedEvents(packed).reduce(applyEvent, start), folded);
      }),
      { numRuns: 200 },
    );
  });

  test("are one block for a turn of text, however many deltas it came in", () => {
    const packer = new EventPacker();
    const time = "2026-01-01T00:00:00.000Z";
    for (let seq = 1; seq <= 1000; seq++) packer.add([{ seq, time, type: "text_delta", delta: "word " }]);
    assert.equal(packer.peek().events.length, 1);
    assert.equal(packer.count(), 1000);
  });
});
