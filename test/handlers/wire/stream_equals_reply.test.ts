import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { chatCompletions } from "../../../handlers/handlers.ts";
import type { AgentEventBody } from "../../../lib/base/records/agent_event.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { jsonOf } from "../../support/json_of.ts";
import { createScriptedRuns } from "../../support/scripted_runs.ts";
import { readSse } from "../../support/sse.ts";

const count = fc.nat(1000);
const usage = fc.record({ prompt_tokens: count, completion_tokens: count, total_tokens: count });
// Any code unit, halves of pairs too: a delta may end in the middle of an emoji
const delta = fc.array(fc.oneof(fc.integer({ min: 0, max: 0xffff }), fc.integer({ min: 0x20, max: 0x7e })), {
  maxLength: 8,
}).map((units) => String.fromCharCode(...units));
const said = fc.constantFrom("text_delta" as const, "reasoning_delta" as const, "refusal_delta" as const);
const event: fc.Arbitrary<AgentEventBody> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ type: said, delta }) },
  { weight: 1, arbitrary: fc.constant({ type: "tool_start" as const, call_id: "t", tool: "read_file", input: {} }) },
  { weight: 1, arbitrary: fc.constant({ type: "notice" as const, code: "retry", message: "again" }) },
  { weight: 1, arbitrary: usage.map((used) => ({ type: "turn_end" as const, turn: 1, usage: used })) },
  { weight: 1, arbitrary: count.map((turn) => ({ type: "turn_start" as const, turn })) },
);

/** The client's calls of a turn: `index` from 0, `call_id` and `name` first, arguments in pieces that may interleave. */
const calls = fc.array(
  fc.record({ name: fc.stringMatching(/^[a-z_]{1,8}$/), pieces: fc.array(delta, { maxLength: 4 }) }),
  { maxLength: 3 },
).map(
  (list) => {
    const open = list.map(({ name }, index): AgentEventBody => ({
      type: "client_tool_call_delta",
      index,
      call_id: `call_${index}`,
      name,
      arguments_delta: "",
    }));
    const pieces = Array.from(
      { length: 4 },
      (_, at) =>
        list.flatMap(({ pieces }, index): AgentEventBody[] =>
          pieces[at] === undefined
            ? []
            : [{ type: "client_tool_call_delta", index, call_id: `call_${index}`, arguments_delta: pieces[at] }]
        ),
    );
    return [...open, ...pieces.flat()];
  },
);

const run = fc.record({
  events: fc.array(event, { maxLength: 20 }),
  calls,
  done: fc.record({
    type: fc.constant("done" as const),
    finish_reason: fc.constantFrom(
      "stop" as const,
      "length" as const,
      "tool_calls" as const,
      "content_filter" as const,
    ),
    usage,
  }),
  /** Where the network happened to cut */
  cuts: fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 8 }),
}).map(({ events, calls, done, cuts }) => {
  const all = [...events, ...calls, done];
  const arrays: AgentEventBody[][] = [];
  for (let at = 0, cut = 0; at < all.length; cut++) {
    const size = cuts[cut % cuts.length] ?? 1;
    arrays.push(all.slice(at, at + size));
    at += size;
  }
  return arrays;
});

async function ask(script: AgentEventBody[][], stream: boolean): Promise<Response> {
  const clock = createFakeClock();
  const request = new Request("http://gateway.test/v1/chat/completions", {
    method: "POST",
    body: JSON.stringify({
      messages: [{ role: "user", content: "x" }],
      stream,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
    }),
    headers: { "content-type": "application/json" },
  });
  const complete = chatCompletions({
    agent: { runs: createScriptedRuns({ clock, script: () => script }) },
    tools: {},
    identify: () => ({ identity: { tokenId: "tok_1", scopes: ["chat"] } }),
    kit: { clock },
  });
  return await complete(request);
}

/** Assembles the chunks as a client does. */
function assemble(text: string) {
  const { data } = readSse(text);
  assert.equal(data.at(-1), "[DONE]");
  const message = {
    text: "",
    reasoning: "",
    refusal: "",
    calls: [] as { id: string; type: string; function: { name: string; arguments: string } }[],
  };
  let finishReason: string | null = null;
  let usage: unknown;
  for (const chunk of data.slice(0, -1).map((line) => JSON.parse(line))) {
    usage = chunk.usage ?? usage;
    const [choice] = chunk.choices;
    if (choice === undefined) continue;
    assert.equal(finishReason, null, "a delta after the reason");
    finishReason = choice.finish_reason;
    message.text += choice.delta.content ?? "";
    message.reasoning += choice.delta.reasoning_content ?? "";
    message.refusal += choice.delta.refusal ?? "";
    for (const { index, ...call } of choice.delta.tool_calls ?? []) {
      const known = message.calls[index];
      if (known === undefined) message.calls[index] = call;
      else known.function.arguments += call.function.arguments;
    }
  }
  return { ...message, finishReason, usage };
}

test("stream and JSON reply of the same events are equal in text, tool calls, usage and finish reason", async () => {
  await fc.assert(
    fc.asyncProperty(run, async (script) => {
      const { choices: [{ message, finish_reason }], usage } = await jsonOf(ask(script, false));
      const reply = {
        text: message.content ?? "",
        reasoning: message.reasoning_content ?? "",
        refusal: message.refusal ?? "",
        calls: message.tool_calls ?? [],
        finishReason: finish_reason,
        usage,
      };
      assert.deepEqual(assemble(await (await ask(script, true)).text()), reply);
    }),
    { numRuns: 100 },
  );
});
