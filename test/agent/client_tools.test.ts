import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { Message } from "../../lib/base/records/message.ts";
import { ask, only, readAll, supervised, typesOf } from "../support/supervised.ts";

const WEATHER = { name: "weather", description: "The weather", parameters: undefined };
const LOOK = { name: "look", run: () => "a file" };

/** The reply as an OpenAI client would send it back, with a result for each of its calls. */
function answered(events: readonly AgentEvent[], results: readonly string[]): readonly Message[] {
  const calls: { id: string; type: "function"; function: { name: string; arguments: string } }[] = [];
  for (const event of events) {
    if (event.type !== "client_tool_call_delta") continue;
    const call = calls[event.index] ??= {
      id: event.call_id,
      type: "function",
      function: { name: event.name ?? "", arguments: "" },
    };
    call.function.arguments += event.arguments_delta;
  }
  return [
    { role: "user", content: "Go" },
    { role: "assistant", content: null, tool_calls: calls },
    ...calls.map((call, i): Message => ({ role: "tool", tool_call_id: call.id, content: results[i] ?? "" })),
  ];
}

test("a call to a tool of the client is streamed and ends the reply with tool_calls", async () => {
  const { runs, provider } = supervised([{ toolCalls: [{ name: "weather", arguments: ['{"city":', '"Rome"}'] }] }]);
  const events = await readAll(await runs.start(ask("Go", { agentTools: "none", clientTools: [WEATHER] })));
  const deltas = events.filter((event) => event.type === "client_tool_call_delta");
  assert.deepEqual(deltas.map((delta) => delta.arguments_delta), ["", '{"city":', '"Rome"}']);
  assert.deepEqual(deltas.map((delta) => delta.name), ["weather", undefined, undefined]);
  assert.match(deltas[0]?.call_id ?? "", /^call_/);
  assert.equal(only(events, "done").finish_reason, "tool_calls");
  assert.deepEqual(provider.requests[0]?.tools, [WEATHER]);
});

test("without tools of the agent even an undeclared call is the client's", async () => {
  const { runs, executor } = supervised([{ toolCalls: [{ name: "unheard_of" }] }], { tools: [LOOK] });
  const events = await readAll(await runs.start(ask("Go", { agentTools: "none", clientTools: [WEATHER] })));
  assert.equal(only(events, "done").finish_reason, "tool_calls");
  assert.equal(executor.calls.length, 0);
});

test("a tool of the client hides one of the agent with the same name", async () => {
  const { runs, provider, executor } = supervised([{ toolCalls: [{ name: "look" }] }], { tools: [LOOK] });
  const mine = { ...WEATHER, name: "look" };
  const events = await readAll(await runs.start(ask("Go", { clientTools: [mine] })));
  assert.equal(only(events, "done").finish_reason, "tool_calls");
  assert.deepEqual(provider.requests[0]?.tools, [mine]);
  assert.equal(executor.calls.length, 0);
});

test("when one turn has both, the agent's calls are finished first and the turn is spliced in later", async () => {
  const turn = { text: "Let me see.", toolCalls: [{ name: "weather" }, { name: "look" }], opaque: { signature: "s" } };
  const { runs, provider } = supervised([turn, "Sunny"], { tools: [LOOK] });
  const first = await readAll(await runs.start(ask("Go", { clientTools: [WEATHER] })));
  assert.ok(typesOf(first).includes("tool_end"));
  assert.equal(only(first, "done").finish_reason, "tool_calls");

  const messages = answered(first, ["25 degrees"]);
  const second = await readAll(await runs.start(ask("", { messages, clientTools: [WEATHER] })));
  assert.equal(only(second, "done").finish_reason, "stop");
  const sent = provider.requests[1]?.messages.slice(1) ?? [];
  assert.deepEqual(sent.map((message) => message.role), ["user", "assistant", "tool", "tool"]);
  const [, assistant, look, weather] = sent;
  assert.deepEqual(
    assistant?.role === "assistant" && [assistant.tool_calls?.map((call) => call.function.name), assistant.opaque],
    [["weather", "look"], { scripted: { signature: "s" } }],
  );
  assert.equal(look?.content, "a file");
  assert.equal(weather?.content, "25 degrees");
});

test("turns of the agent before a call of the client are kept with it", async () => {
  const { runs, provider } = supervised(
    [{ toolCalls: [{ name: "look" }] }, { toolCalls: [{ name: "weather" }] }, "Sunny"],
    { tools: [LOOK] },
  );
  const first = await readAll(await runs.start(ask("Go", { clientTools: [WEATHER] })));
  await readAll(await runs.start(ask("", { messages: answered(first, ["25 degrees"]), clientTools: [WEATHER] })));
  const roles = provider.requests[2]?.messages.slice(1).map((message) => message.role);
  assert.deepEqual(roles, ["user", "assistant", "tool", "assistant", "tool"]);
});

test("after 15 minutes the suspended turn is gone, and the model is told so", async () => {
  const { runs, provider, clock } = supervised(
    [{ toolCalls: [{ name: "weather" }, { name: "look" }] }, "Sunny"],
    { tools: [LOOK] },
  );
  const first = await readAll(await runs.start(ask("Go", { clientTools: [WEATHER] })));
  await clock.advance(15 * 60 * 1000 + 1);
  const messages = answered(first, ["25 degrees"]);
  await readAll(await runs.start(ask("", { messages, clientTools: [WEATHER] })));
  const last = provider.requests[1]?.messages.at(-1);
  assert.match(String(last?.content), /^25 degrees\n\n\[Postern\] The gateway no longer keeps/);
});

const OWN_ROUNDS = {
  "the agent's call comes first": [{ name: "look" }, { name: "weather" }],
  "the client's call comes first": [{ name: "weather" }, { name: "look" }],
};
for (const [what, toolCalls] of Object.entries(OWN_ROUNDS)) {
  test(`a restart loses the agent's part of an attached run, and the model is told so: ${what}`, async () => {
    const before = supervised([{ toolCalls }], { tools: [LOOK] });
    const first = await readAll(await before.runs.start(ask("Go", { clientTools: [WEATHER] })));
    const { runs, provider } = supervised(["Sunny"], { tools: [LOOK], store: before.store });
    const messages = answered(first, ["25 degrees"]);
    await readAll(await runs.start(ask("", { messages, clientTools: [WEATHER] })));
    assert.match(String(provider.requests[0]?.messages.at(-1)?.content), /^25 degrees\n\n\[Postern\]/);
  });
}

test("a history with ids like those of a gateway gets no notice when nothing was lost", async () => {
  for (const id of ["call_pst_0123456789abcdefghijklmn", "call_pst_x", "call_0123456789abcdefghijklmn"]) {
    const { runs, provider } = supervised(["Sunny"], { tools: [LOOK] });
    const call = { id, type: "function", function: { name: "weather", arguments: "{}" } } as const;
    const messages: readonly Message[] = [
      { role: "user", content: "Go" },
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: id, content: "25 degrees" },
    ];
    await readAll(await runs.start(ask("", { messages, clientTools: [WEATHER] })));
    assert.equal(provider.requests[0]?.messages.at(-1)?.content, "25 degrees");
  }
});

test("a call of a kept turn that the client leaves unanswered gets a result that says so", async () => {
  const { runs, provider } = supervised(
    [{ toolCalls: [{ name: "weather" }, { name: "weather" }, { name: "look" }] }, "Sunny"],
    { tools: [LOOK] },
  );
  const first = await readAll(await runs.start(ask("Go", { clientTools: [WEATHER] })));
  const messages = answered(first, ["25 degrees"]).slice(0, -1);
  await readAll(await runs.start(ask("", { messages, clientTools: [WEATHER] })));
  assert.match(String(provider.requests[1]?.messages.at(-1)?.content), /No result was given/);
});

test("a call that was cut off by the token limit keeps finish_reason length", async () => {
  const { runs } = supervised([{ toolCalls: [{ name: "weather", arguments: '{"ci' }], finishReason: "length" }]);
  const events = await readAll(await runs.start(ask("Go", { agentTools: "none", clientTools: [WEATHER] })));
  assert.equal(only(events, "done").finish_reason, "length");
});
