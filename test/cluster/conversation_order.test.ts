import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { Script } from "../../fixtures/scripted_provider.ts";
import { CONVERSATION_HOLDS, RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import { CONVERSATIONS } from "../../lib/runs/conversations/conversation_records.ts";
import { createStoredConversations } from "../../lib/runs/conversations/stored_conversations.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";
import {
  type ClusteredGateway,
  createSharedDatabase,
  joinGateway,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import { ask, type AskOptions, readAll } from "../support/supervised.ts";
import { until } from "../support/until.ts";

/** The order in which runs of one conversation reach the model, and a way to let each of them end. */
function scene() {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const script: Script = ({ messages }) => {
    const text = String(messages.at(-1)?.content);
    begun.push(text);
    const held = Promise.withResolvers<void>();
    ends.set(text, held.resolve);
    return { text: ["answer ", "to ", text], holdUntil: held.promise };
  };
  return { begun, script, end: (text: string) => ends.get(text)?.() };
}

async function newConversation({ runs }: ClusteredGateway, end: (text: string) => void): Promise<string> {
  const first = await runs.start(ask("first", { conversationId: "new" }));
  let isOver = false;
  void readAll(first).then(() => isOver = true);
  await until(() => (end("first"), isOver));
  return first.conversationId ?? assert.fail();
}

function attached(gateway: ClusteredGateway, text: string, conversationId: string): Promise<RunHandle> {
  return gateway.runs.start(ask(text, { conversationId }));
}

const durable: AskOptions = { durable: true };

async function pass({ clock }: SharedDatabase, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 50) await clock.advance(50);
}

test("attached and durable runs of one conversation begin in the order of their acceptance, at any gateways", async () => {
  const database = createSharedDatabase();
  const { begun, script, end } = scene();
  const a = await joinGateway(database, script, { seed: 1 });
  const b = await joinGateway(database, script, { seed: 2 });
  await pass(database, 2 * LEASE_MS);
  const conversationId = await newConversation(a, end);
  const reads: Promise<unknown>[] = [];
  const order = ["one", "two", "three", "four", "five"];
  for (const [index, text] of order.entries()) {
    const gateway = index % 2 === 0 ? a : b;
    if (index === 1 || index === 3) await gateway.runs.start(ask(text, { ...durable, conversationId }));
    else reads.push(readAll(await attached(gateway, text, conversationId)));
    await pass(database, 50);
  }
  for (const text of order) {
    for (let passed = 0; !begun.includes(text); passed += 50) {
      assert.ok(passed < 10_000, `${text} does not begin: ${begun.join()}`);
      await database.clock.advance(50);
    }
    await pass(database, 1_500);
    assert.equal(begun.at(-1), text);
    end(text);
  }
  await Promise.all(reads);
  assert.deepEqual(begun, ["first", ...order]);
  await pass(database, 100);
  assert.equal(await database.store.count(RUN_CLAIMS.name), 0);
  assert.equal(await database.store.count(CONVERSATION_HOLDS.name), 0);
  await Promise.all([a.close(), b.close()]);
});

test("an attached run goes on waiting for an earlier one of its conversation while the database is down", async () => {
  const database = createSharedDatabase();
  const { begun, script, end } = scene();
  const a = await joinGateway(database, script, { seed: 1 });
  await pass(database, LEASE_MS);
  const conversationId = await newConversation(a, end);
  const one = readAll(await attached(a, "one", conversationId));
  await until(() => begun.includes("one"));
  const two = readAll(await attached(a, "two", conversationId));
  await pass(database, 500);
  database.isAway = true;
  await pass(database, 5 * LEASE_MS);
  database.isAway = false;
  await pass(database, LEASE_MS);
  end("one");
  await until(async () => (await pass(database, 50), begun.includes("two")));
  end("two");
  for (const events of await Promise.all([one, two])) assert.equal(events.at(-1)?.type, "done");
  await a.close();
});

test("an attached run that waits for a durable one lends it the only slot", async () => {
  const database = createSharedDatabase();
  const { begun, script, end } = scene();
  const a = await joinGateway(database, script, { seed: 1, limits: { maxConcurrent: 1 } });
  await pass(database, LEASE_MS);
  const conversationId = await newConversation(a, end);
  const [one, two] = await Promise.all([
    a.runs.start(ask("one", { ...durable, conversationId })),
    attached(a, "two", conversationId),
  ]);
  const reading = readAll(two);
  await pass(database, 200);
  assert.equal(begun.at(-1), "one");
  end("one");
  await pass(database, 1_500);
  assert.equal((await a.runs.get(one.id))?.status, "completed");
  end("two");
  await reading;
  await a.close();
});

test("whoever leaves the line, or dies in it, holds nobody up", async () => {
  const database = createSharedDatabase();
  const { begun, script, end } = scene();
  const a = await joinGateway(database, script, { seed: 1 });
  const b = await joinGateway(database, script, { seed: 2 });
  await pass(database, 2 * LEASE_MS);
  const conversationId = await newConversation(a, end);
  const working = readAll(await attached(b, "one", conversationId));
  await until(() => begun.at(-1) === "one");
  const leaves = await attached(a, "leaves", conversationId);
  const left = readAll(leaves).catch(() => {});
  await pass(database, 50);
  const dies = readAll(await attached(a, "dies", conversationId)).catch(() => {});
  await pass(database, 50);
  const next = await b.runs.start(ask("next", { ...durable, conversationId }));
  assert.equal(await database.store.count(RUN_CLAIMS.name), 4);
  leaves.cancel("cancelled");
  await left;
  await pass(database, 50);
  assert.equal(await database.store.count(RUN_CLAIMS.name), 3);
  a.link.isCut = true;
  a.cluster.lease.abandon();
  end("one");
  await working;
  await pass(database, 2 * LEASE_MS + 2_000);
  assert.equal(begun.at(-1), "next");
  end("next");
  await until(async () => (await b.runs.get(next.id))?.status === "completed");
  await pass(database, 1_500);
  assert.equal(await database.store.count(RUN_CLAIMS.name), 0);
  assert.equal(await database.store.count(CONVERSATION_HOLDS.name), 0);
  await b.close();
  await pass(database, 100);
  await dies;
});

test("runs of gateways that are gone leave the line in their order, as does the claim of a run that has ended", async () => {
  const database = createSharedDatabase();
  const { begun, script, end } = scene();
  const a = await joinGateway(database, script, { seed: 1 });
  const b = await joinGateway(database, script, { seed: 2 });
  const c = await joinGateway(database, script, { seed: 3 });
  await pass(database, 2 * LEASE_MS);
  const conversationId = await newConversation(a, end);
  const working = readAll(await attached(b, "one", conversationId));
  await until(() => begun.at(-1) === "one");
  // In turns, so that neither gateway has all of those before the other's
  const die: Promise<unknown>[] = [];
  for (const [text, gateway] of [["two", a], ["three", c], ["four", a], ["five", c]] as const) {
    die.push(readAll(await attached(gateway, text, conversationId)).catch(() => {}));
    await pass(database, 50);
  }
  // As a gateway wrote it that did not know that the run had ended
  const own = a.cluster.lease.own() ?? assert.fail();
  const ended = (await a.runs.list({ limit: 10 })).runs.find(({ status }) => status === "completed") ?? assert.fail();
  const body = { v: 1, gateway: own.id, fence: own.fence, conversation_id: conversationId, parent_id: null };
  await database.store.batch([{ op: "insert", collection: RUN_CLAIMS.name, key: ended.id, body }]);
  const next = await b.runs.start(ask("next", { ...durable, conversationId }));
  for (const gateway of [a, c]) {
    gateway.link.isCut = true;
    gateway.cluster.lease.abandon();
  }
  end("one");
  await working;
  await pass(database, 2 * LEASE_MS + 10_000);
  assert.equal(begun.at(-1), "next");
  end("next");
  await until(async () => (await b.runs.get(next.id))?.status === "completed");
  await pass(database, 1_500);
  assert.equal(await database.store.count(RUN_CLAIMS.name), 0);
  assert.equal(await database.store.count(CONVERSATION_HOLDS.name), 0);
  const { runs } = await b.runs.list({ limit: 10 });
  assert.equal(runs.find(({ id }) => id === ended.id)?.status, "completed");
  await b.close();
  await pass(database, 100);
  await Promise.all(die);
});

test("a conversation is neither deleted nor forgotten at one gateway while a run at another works in it", async () => {
  const database = createSharedDatabase();
  const { begun, script, end } = scene();
  const a = await joinGateway(database, script, { seed: 1 });
  const b = await joinGateway(database, script, { seed: 2 });
  await pass(database, LEASE_MS);
  const conversationId = await newConversation(a, end);
  const { ownership } = b.cluster;
  const conversations = createStoredConversations({
    store: b.store,
    runIn: (id) => ownership.lines.runIn(id),
    unheld: (id) => ownership.lines.unheld(id),
  });
  const reading = readAll(await attached(a, "one", conversationId));
  await until(() => begun.at(-1) === "one");
  assert.equal(await conversations.delete(conversationId), "at_work");
  assert.equal(await conversations.rename(conversationId, "New"), "at_work");
  assert.equal(await conversations.forgetBefore("2100"), 0);
  // The run begins between the look and the removal
  const blind = createStoredConversations({
    store: b.store,
    runIn: () => undefined,
    unheld: (id) => ownership.lines.unheld(id),
  });
  assert.equal(await blind.delete(conversationId), "at_work");
  assert.equal(await blind.forgetBefore("2100"), 0);
  end("one");
  await reading;
  await pass(database, 100);
  assert.equal(await conversations.delete(conversationId), "deleted");
  await Promise.all([a.close(), b.close()]);
});

test("a line is bounded by max_per_conversation in the whole cluster, whichever gateways its runs came to", async () => {
  for (const maxConcurrent of [8, 1]) {
    const database = createSharedDatabase();
    const { begun, script, end } = scene();
    const limits = { maxPerConversation: 2, maxConcurrent };
    const a = await joinGateway(database, script, { seed: 1, limits });
    const b = await joinGateway(database, script, { seed: 2, limits });
    await pass(database, LEASE_MS);
    const conversationId = await newConversation(a, end);
    const reads = [readAll(await attached(a, "one", conversationId))];
    await until(() => begun.at(-1) === "one");
    reads.push(readAll(await attached(a, "two", conversationId)));
    reads.push(readAll(await attached(b, "three", conversationId)));
    await pass(database, 100);
    let last: AgentEvent | undefined;
    void readAll(await attached(b, "four", conversationId)).then((events) => last = events.at(-1));
    await pass(database, 100);
    assert.ok(last?.type === "error" && last.code === "overloaded", JSON.stringify(last));
    for (const text of ["one", "two", "three"]) {
      await pass(database, 1_500);
      end(text);
    }
    await pass(database, 1_500);
    await Promise.all(reads);
    assert.equal(await database.store.count("run_claims"), 0);
    assert.ok(!begun.includes("four"));
    await Promise.all([a.close(), b.close()]);
  }
});

test("a line is bounded by max_per_conversation, and an attached run in a free conversation asks no more than before", async () => {
  const database = createSharedDatabase();
  const { begun, script, end } = scene();
  const a = await joinGateway(database, script, { seed: 1, limits: { maxPerConversation: 2 } });
  await pass(database, LEASE_MS);
  const conversationId = await newConversation(a, end);
  const operations: string[] = [];
  database.onResult = async (operation, first) =>
    void operations.push(`${operation} ${typeof first === "string" ? first : ""}`);
  const reads = [readAll(await attached(a, "one", conversationId))];
  await until(() => begun.at(-1) === "one");
  database.onResult = async () => {};
  assert.deepEqual(
    operations.filter((one) => !/^(get conversations|read|scan conversation|get runs)/.test(one)).slice(0, 3),
    [
      "get conversation_holds",
      "scan run_claims",
      "batch ",
    ],
  );
  for (const text of ["two", "three"]) reads.push(readAll(await attached(a, text, conversationId)));
  await assert.rejects(attached(a, "four", conversationId), { code: "overloaded" });
  for (const text of ["one", "two", "three"]) {
    await pass(database, 1_500);
    end(text);
  }
  await pass(database, 1_500);
  await Promise.all(reads);
  await a.close();
});

test("a run that goes on behind a response keeps its place however long it waits for a slot, at any gateway", async () => {
  const database = createSharedDatabase();
  const { begun, script, end } = scene();
  const a = await joinGateway(database, script, { seed: 1, limits: { maxConcurrent: 1 } });
  const b = await joinGateway(database, script, { seed: 2 });
  await pass(database, 2 * LEASE_MS);
  const first = await a.runs.start(ask("first", { conversationId: "new" }));
  const reading = readAll(first);
  await until(() => begun.includes("first"));
  end("first");
  await reading;
  const after = { conversationId: first.conversationId ?? assert.fail(), runId: first.id };
  const working = readAll(await a.runs.start(ask("other")));
  await until(() => begun.includes("other"));
  const waits = await a.runs.start(ask("waits", { after }));
  const waiting = readAll(waits);
  await pass(database, 100);
  const { version, value } = await CONVERSATIONS.read(database.store, after.conversationId) ?? assert.fail();
  const long = { run_id: waits.id, at: new Date(database.clock.now() - 601_000).toISOString() };
  await database.store.batch([
    CONVERSATIONS.putOver(after.conversationId, version, { ...value, continued_by: long }),
  ]);
  const next = await b.runs.start(ask("next", { after }));
  const told = readAll(next);
  assert.deepEqual([waits.conversationId, next.conversationId === waits.conversationId], [after.conversationId, false]);
  for (const text of ["next", "other", "waits"]) {
    await until(async () => (await pass(database, 50), begun.includes(text)));
    end(text);
  }
  await Promise.all([working, waiting, told]);
  await Promise.all([a.close(), b.close()]);
});
