import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { messages } from "../../../../handlers/handlers.ts";
import type { AgentEventBody } from "../../../../lib/base/records/agent_event.ts";
import { createFakeClock } from "../../../support/fake_clock.ts";
import { jsonOf } from "../../../support/json_of.ts";
import { createScriptedRuns } from "../../../support/scripted_runs.ts";
import { readSse } from "../../../support/sse.ts";

const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
const said = fc.record({
  type: fc.constantFrom("text_delta" as const, "reasoning_delta" as const, "refusal_delta" as const),
  delta: fc.string({ minLength: 1, maxLength: 6 }),
});
const other = fc.constantFrom<AgentEventBody>(
  { type: "turn_end", turn: 1, usage: USAGE },
  { type: "notice", code: "retry", message: "again" },
  { type: "tool_start", call_id: "t", tool: "read_file", input: {} },
);

/** The client's calls of a turn, whose pieces may come among each other's. */
const calls = fc.array(
  fc.dictionary(fc.stringMatching(/^[a-z]{1,4}$/), fc.integer(), { maxKeys: 3, noNullPrototype: true }),
  {
    maxLength: 3,
  },
)
  .chain((inputs) => {
    const pieces = inputs.flatMap((input, index) =>
      [...JSON.stringify(input)].map((part): AgentEventBody => ({
        type: "client_tool_call_delta",
        index,
        call_id: `call_${index}`,
        arguments_delta: part,
      }))
    );
    const open = inputs.map((_, index): AgentEventBody => ({
      type: "client_tool_call_delta",
      index,
      call_id: `call_${index}`,
      name: `tool_${index}`,
      arguments_delta: "",
    }));
    // The pieces of one call stay in their order
    const order = fc.array(fc.nat(), { minLength: pieces.length, maxLength: pieces.length });
    return order.map((ranks) => {
      const rank = new Map<number, number[]>();
      pieces.forEach((piece, i) => {
        const index = piece.type === "client_tool_call_delta" ? piece.index : 0;
        rank.set(index, [...rank.get(index) ?? [], ranks[i] ?? 0].toSorted((a, b) => a - b));
      });
      const taken = new Map<number, number>();
      const placed = pieces.map((piece) => {
        const index = piece.type === "client_tool_call_delta" ? piece.index : 0;
        const at = taken.get(index) ?? 0;
        taken.set(index, at + 1);
        return { piece, place: rank.get(index)?.[at] ?? 0 };
      });
      return { inputs, events: [...open, ...placed.toSorted((a, b) => a.place - b.place).map(({ piece }) => piece)] };
    });
  });

async function ask(script: AgentEventBody[][], stream: boolean): Promise<Response> {
  const clock = createFakeClock();
  const request = new Request("http://gateway.test/v1/messages", {
    method: "POST",
    body: JSON.stringify({ max_tokens: 5, messages: [{ role: "user", content: "x" }], stream }),
    headers: { "content-type": "application/json" },
  });
  const runs = createScriptedRuns({ clock, script: () => script });
  const identify = () => ({ identity: { tokenId: "tok_1", scopes: ["chat"] as const } });
  return await messages({ agent: { runs }, tools: {}, identify, kit: { clock } })(request);
}

/** Puts a stream together as a client does, and holds it to one open block at a time. */
function assemble(text: string) {
  const events = readSse(text).data.map((line) => JSON.parse(line));
  const [{ message }] = events;
  const inputs = new Map<number, string>();
  let open = -1;
  for (const event of events.slice(1)) {
    const block = message.content[event.index];
    switch (event.type) {
      case "content_block_start":
        assert.equal(open, -1, "another block is open");
        open = event.index;
        assert.equal(open, message.content.length);
        message.content.push({ ...event.content_block });
        break;
      case "content_block_delta": {
        assert.equal(event.index, open);
        const { type, ...delta } = event.delta;
        if (type === "input_json_delta") inputs.set(open, (inputs.get(open) ?? "") + delta.partial_json);
        else for (const [name, value] of Object.entries(delta)) block[name] += value;
        break;
      }
      case "content_block_stop":
        assert.equal(event.index, open);
        if (inputs.has(open)) block.input = JSON.parse(inputs.get(open) ?? "");
        open = -1;
        break;
      case "message_delta":
        Object.assign(message, event.delta, { usage: event.usage });
    }
  }
  assert.equal(open, -1);
  assert.equal(events.at(-1).type, "message_stop");
  return message;
}

test("stream and JSON reply of the same events are equal, and no argument of a call is lost", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.oneof(said, other), { maxLength: 10 }), calls, async (spoken, called) => {
      const done: AgentEventBody = { type: "done", finish_reason: "stop", usage: USAGE };
      // Text comes among the pieces of the calls too
      const half = spoken.length >> 1;
      const among = called.events.flatMap((event, i) => [...spoken.slice(half + i, half + i + 1), event]);
      const rest = spoken.slice(half + called.events.length);
      const script = [...spoken.slice(0, half), ...among, ...rest, done].map((event) => [event]);
      const whole = await jsonOf(ask(script, false));
      assert.deepEqual(assemble(await (await ask(script, true)).text()), whole);
      const uses = whole.content.filter(({ type }: { type: string }) => type === "tool_use");
      assert.deepEqual(uses.map(({ input }: { input: unknown }) => input), called.inputs);
    }),
    { numRuns: 100 },
  );
});
