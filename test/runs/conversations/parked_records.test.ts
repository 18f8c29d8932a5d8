import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ScriptedTurn } from "../../../fixtures/scripted_provider.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import { PARKED_CALLS } from "../../../lib/runs/conversations/parked_records.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { ask, only, readAll, supervised } from "../../support/supervised.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
const clientTools = [{ name: "weather", description: "The weather", parameters: undefined }];
const tools = [{ name: "look" }];
const CLIENT: ScriptedTurn = { toolCalls: [{ name: "weather" }] };
const CLIENT_FIRST: ScriptedTurn = { toolCalls: [{ name: "weather" }, { name: "look" }] };
const OWN_FIRST: ScriptedTurn = { toolCalls: [{ name: "look" }, { name: "weather" }] };

interface Asked {
  readonly store: Store;
  readonly clock?: FakeClock;
  readonly durable: boolean;
  readonly seed?: number;
}

/** Plays one turn in a process of its own. @returns ids of the client's calls in it */
async function suspend(turn: ScriptedTurn, { store, clock, durable, seed }: Asked): Promise<readonly string[]> {
  const { runs } = supervised([turn], {
    store,
    tools,
    ...(clock === undefined ? {} : { clock }),
    ...(seed === undefined ? {} : { seed }),
  });
  const events = await readAll(await runs.start(ask("Go", { durable, clientTools })));
  return events.flatMap((event) => (event.type === "client_tool_call_delta" ? [event.call_id] : []));
}

const kept = async (store: Store) =>
  (await store.scan(PARKED_CALLS.name, { order: "created", limit: 100 })).map(({ key }) => key);

/** Returns the messages the model gets, beside the system prompt, when the next process gets the result of a client's call. */
async function afterRestart(id: string, store: Store, clock = createFakeClock()): Promise<readonly Message[]> {
  const { runs, provider } = supervised(["Sunny"], { store, clock, tools, seed: 99 });
  const messages: Message[] = [
    { role: "user", content: "Go" },
    { role: "tool", tool_call_id: id, content: "25 degrees" },
  ];
  await readAll(await runs.start(ask("", { messages, clientTools })));
  return provider.requests[0]?.messages.slice(1) ?? [];
}

describe("a turn that waits for the client's tools", () => {
  test("is kept for a durable run", async () => {
    // The client lacks the vendor's ids of a turn that has its own calls alone
    for (const [turn, results] of [[CLIENT_FIRST, 2], [OWN_FIRST, 2], [CLIENT, 1]] as const) {
      const store = createMemoryStore();
      const [id = ""] = await suspend(turn, { store, durable: true });
      assert.deepEqual(await kept(store), [id]);
      const roles = (await afterRestart(id, store)).map(({ role }) => role);
      assert.deepEqual(roles, ["user", "assistant", ...Array(results).fill("tool")]);
    }
  });

  test("under a vendor's own ids is kept apart from that of another conversation with the same ids", async () => {
    const store = createMemoryStore();
    const call = { id: "functions.weather:0", name: "weather" };
    const plain = { durable: true, agentTools: "none", clientTools } as const;
    for (const [i, said] of ["Alpha", "Beta", "Alpha"].entries()) {
      const { runs } = supervised([{ toolCalls: [call], opaque: `${said} ${i}` }], { store, seed: i + 1 });
      await readAll(await runs.start(ask(said, plain)));
    }
    assert.equal((await kept(store)).length, 2);
    const { runs, provider } = supervised(["Sunny", "Sunny"], { store, seed: 9 });
    for (const [i, said] of ["Beta", "Alpha"].entries()) {
      const messages: Message[] = [
        { role: "user", content: said },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: call.id, type: "function", function: { name: "weather", arguments: "{ }" } }],
        },
        { role: "tool", tool_call_id: call.id, content: "25 degrees" },
      ];
      await readAll(await runs.start(ask("", { ...plain, durable: false, messages })));
      const sent = provider.requests[i]?.messages.find(({ role }) => role === "assistant");
      assert.deepEqual(sent, { ...messages[1], opaque: { scripted: said === "Beta" ? "Beta 1" : "Alpha 2" } });
    }
  });

  test("of an attached run is noted where work of the agent would be lost", async () => {
    for (const [turn, isLost] of [[CLIENT_FIRST, true], [OWN_FIRST, true], [CLIENT, false]] as const) {
      const store = createMemoryStore();
      const [id = ""] = await suspend(turn, { store, durable: false });
      assert.deepEqual(await kept(store), isLost ? [id] : []);
      const last = (await afterRestart(id, store)).at(-1);
      assert.equal(/no longer keeps the rest of this turn/.test(String(last?.content)), isLost);
    }
  });

  test("leaves nothing behind when it was cut off before its first call", async () => {
    for (const durable of [true, false]) {
      const store = createMemoryStore();
      await suspend({ text: "Let me", finishReason: "length" }, { store, durable });
      assert.deepEqual(await kept(store), []);
    }
  });

  test("is kept for 24 hours, and forgotten with the next one after them", async () => {
    const store = createMemoryStore();
    const clock = createFakeClock();
    const [first = ""] = await suspend(CLIENT_FIRST, { store, clock, durable: true, seed: 1 });
    await clock.advance(DAY_MS);
    const [second = ""] = await suspend(CLIENT_FIRST, { store, clock, durable: true, seed: 2 });
    assert.deepEqual(await kept(store), [first, second]);
    assert.equal((await afterRestart(first, store, clock)).length, 4);
    await clock.advance(1);
    assert.equal((await afterRestart(first, store, clock)).length, 2);
    const [third = ""] = await suspend(CLIENT_FIRST, { store, clock, durable: true, seed: 3 });
    assert.deepEqual(await kept(store), [second, third]);
  });

  test("brings the outside content of its run to the run that goes on, over a restart too", async () => {
    const outside = [{ name: "look", access: "network" }] as const;
    const store = createMemoryStore();
    for (const durable of [false, true]) {
      const { runs } = supervised([OWN_FIRST, "Sunny", "Sunny"], { store, tools: outside, seed: durable ? 1 : 2 });
      const events = await readAll(await runs.start(ask("Go", { durable, clientTools })));
      const [id = ""] = events.flatMap((event) => (event.type === "client_tool_call_delta" ? [event.call_id] : []));
      const messages: Message[] = [
        { role: "user", content: "Go" },
        { role: "tool", tool_call_id: id, content: "25 degrees" },
      ];
      const next = durable ? supervised(["Sunny"], { store, tools: outside, seed: 3 }).runs : runs;
      const begun = only(await readAll(await next.start(ask("", { messages, clientTools }))), "run_start");
      assert.deepEqual(begun.taint, ["look", "client tool"], `durable ${durable}`);
    }
  });
});
