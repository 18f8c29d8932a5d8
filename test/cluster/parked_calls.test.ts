import assert from "node:assert/strict";
import { test } from "node:test";
import type { ScriptedTurn } from "../../fixtures/scripted_provider.ts";
import type { Message } from "../../lib/base/records/message.ts";
import { PARKED_CALLS } from "../../lib/runs/conversations/parked_records.ts";
import { createSharedDatabase, joinGateway } from "../support/clustered.ts";
import { ask, readAll } from "../support/supervised.ts";

const clientTools = [{ name: "weather", description: "The weather", parameters: undefined }];
const tools = [{ name: "look", run: () => "seen" }];
const OWN_FIRST: ScriptedTurn = { toolCalls: [{ name: "look" }, { name: "weather" }] };

for (const durable of [false, true]) {
  const kind = durable ? "a durable" : "an attached";
  test(`the work of ${kind} run that waits for its client's tool is there at every gateway`, async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [OWN_FIRST], { seed: 1, tools });
    const b = await joinGateway(database, ["Sunny"], { seed: 2, tools });
    const events = await readAll(await a.runs.start(ask("Go", { durable, clientTools })));
    const id = events.find((event) => event.type === "client_tool_call_delta")?.call_id ?? "";
    const messages: Message[] = [
      { role: "user", content: "Go" },
      { role: "tool", tool_call_id: id, content: "25 degrees" },
    ];
    await readAll(await b.runs.start(ask("", { messages, clientTools })));
    const sent = b.provider.requests[0]?.messages.slice(1) ?? [];
    assert.deepEqual(sent.map(({ role }) => role), ["user", "assistant", "tool", "tool"]);
    assert.match(JSON.stringify(sent), /seen/);
    await Promise.all([a.close(), b.close()]);
  });
}

test("a plain completion that waits for its client's tool writes nothing in a cluster", async () => {
  const database = createSharedDatabase();
  const a = await joinGateway(database, [{ toolCalls: [{ name: "weather" }] }], { seed: 1 });
  let asked = 0;
  database.onResult = async () => void asked++;
  await readAll(await a.runs.start(ask("Go", { agentTools: "none", clientTools })));
  assert.equal(asked, 0);
  assert.equal(await database.store.count(PARKED_CALLS.name), 0);
  await a.close();
});
