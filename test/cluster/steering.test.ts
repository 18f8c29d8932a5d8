import assert from "node:assert/strict";
import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import { cancelError } from "../../lib/base/cancel.ts";
import { textOf } from "../../lib/base/records/message.ts";
import type { MessageMode } from "../../lib/base/records/run.ts";
import { createStoredConversations } from "../../lib/runs/conversations/stored_conversations.ts";
import type { FakeTool } from "../support/fake_tool_executor.ts";
import {
  type ClusteredGateway,
  createSharedDatabase,
  joinGateway,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import { ask, readAll } from "../support/supervised.ts";

/** Two calls, then an answer to whatever was said last. */
const SCRIPT: Script = ({ messages }) => {
  const at = messages.findLastIndex(({ role }) => role === "user");
  const said = textOf(messages[at]?.content ?? "");
  if (said !== "Work" || messages.length - at > 1) return { text: `To ${said}` };
  return { toolCalls: [1, 2].map((by) => ({ name: "hold", arguments: { by } })) };
};

/** A database, and gateways whose calls wait until they are let go. */
async function scene() {
  const database = createSharedDatabase();
  const held: (() => void)[] = [];
  const hold: FakeTool = {
    name: "hold",
    run: (_input, { signal }) =>
      new Promise((resolve, reject) => {
        held.push(() => resolve("done"));
        signal.addEventListener("abort", () => reject(cancelError(signal)), { once: true });
      }),
  };
  const join = (seed: number) =>
    joinGateway(database, SCRIPT, { seed, tools: [hold], agent: { parallelTools: false }, whenReaderLeaves: "go_on" });
  const a = await join(1);
  const b = await join(2);
  await pass(database, 2 * LEASE_MS);
  const history = async () =>
    (await createStoredConversations({ store: database.store, runIn: () => undefined })
      .messages("talk", { afterSeq: 0, limit: 100 })).map(({ message }) =>
        message.content === null ? "" : textOf(message.content)
      );
  return { database, held, a, b, history };
}

async function pass({ clock }: SharedDatabase, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 50) await clock.advance(50);
}

async function passUntil(database: SharedDatabase, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (let passed = 0; !await isTrue(); passed += 50) {
    assert.ok(passed < 60_000, "it does not come about");
    await database.clock.advance(50);
  }
}

const say = ({ runs }: ClusteredGateway, mode: MessageMode) =>
  runs.start({
    ...ask("Use b", { conversationId: "talk", durable: true }),
    by: { ...ask("").by, steers: { mode } },
  });

const workers = async (gateways: readonly ClusteredGateway[]) => {
  const { runs } = gateways[0] ?? assert.fail();
  return (await runs.list({ limit: 10 })).runs;
};

for (const isMute of [false, true]) {
  test(`a message at another gateway reaches the one that works on the run${isMute ? ", though its note is lost" : ""}`, async () => {
    const { database, held, a, b, history } = await scene();
    const first = await a.runs.start(ask("Work", { conversationId: "talk" }));
    await passUntil(database, () => held.length === 1);
    const [worker] = [a, b].filter(({ runs }) => runs.active() > 0);
    const other = worker === a ? b : a;
    database.isMute = isMute;
    const message = await say(other, "steer");
    assert.deepEqual(message.steers, { run_id: first.id, mode: "steer" });
    await pass(database, 2_500);
    held[0]?.();
    await passUntil(database, async () => (await a.runs.get(first.id))?.status === "completed");
    await passUntil(database, async () => (await b.runs.get(message.id))?.error?.code === "taken_in");
    assert.equal(held.length, 1);
    assert.deepEqual((await history()).filter((text) => text.includes("Use b")), ["Use b", "To Use b"]);
    await Promise.all([a.close(), b.close()]);
  });
}

test("an interrupting message at another gateway ends the run, and its turn comes next", async () => {
  const { database, held, a, b, history } = await scene();
  const first = await a.runs.start(ask("Work", { conversationId: "talk" }));
  await passUntil(database, () => held.length === 1);
  const other = a.runs.active() > 0 ? b : a;
  const message = await say(other, "interrupt");
  const reply = readAll(message);
  await passUntil(database, async () => (await a.runs.get(message.id))?.status === "completed");
  const ended = await a.runs.get(first.id);
  assert.deepEqual([ended?.status, ended?.error?.message], [
    "cancelled",
    "A person interrupted the reply with another message",
  ]);
  await pass(database, 1_000);
  assert.equal((await reply).at(-1)?.type, "done");
  assert.equal((await history()).at(-1), "To Use b");
  await Promise.all([a.close(), b.close()]);
});

test("a run that another gateway takes over takes the message in, once", async () => {
  const { database, held, a, b, history } = await scene();
  const first = await a.runs.start(ask("Work", { conversationId: "talk" }));
  await passUntil(database, () => held.length === 1);
  const worker = a.runs.active() > 0 ? a : b;
  const other = worker === a ? b : a;
  worker.link.isCut = true;
  const message = await say(other, "steer");
  await pass(database, 5 * LEASE_MS);
  for (const end of held) end();
  await passUntil(database, async () => (await other.runs.get(first.id))?.status === "completed");
  await passUntil(database, async () => (await other.runs.get(message.id))?.error?.code === "taken_in");
  assert.deepEqual((await history()).filter((text) => text.includes("Use b")), ["Use b", "To Use b"]);
  assert.equal((await workers([other])).length, 2);
  worker.link.isCut = false;
  await pass(database, 2 * LEASE_MS);
  await Promise.all([a.close(), b.close()]);
});
