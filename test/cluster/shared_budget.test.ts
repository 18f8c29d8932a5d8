import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { type ClusteredGateway, createSharedDatabase, joinGateway, type SharedDatabase } from "../support/clustered.ts";
import { ask, readAll } from "../support/supervised.ts";

const LIMIT = 100_000;
const PARAMETERS = { max_tokens: 100 };

async function budgetOf({ clock, store }: SharedDatabase) {
  const day = new Date(clock.now()).toISOString().slice(0, 10);
  return (await store.get("budget_days", day))?.body as { tokens: number; leased: number } | undefined;
}

/** Asks the model once, without tools and without a record. */
async function completion({ runs }: ClusteredGateway): Promise<{ readonly tokens: number; readonly last: AgentEvent }> {
  const events = await readAll(await runs.start(ask("go", { agentTools: "none", parameters: PARAMETERS })));
  const last = events.at(-1) ?? assert.fail();
  return { tokens: last.type === "done" ? last.usage.total_tokens : 0, last };
}

test("completions within a slice ask the database for nothing, and a drain gives back what they did not use", async () => {
  const database = createSharedDatabase();
  const options = { tokensPerDay: LIMIT };
  const a = await joinGateway(database, () => "answer", { seed: 1, ...options });
  const b = await joinGateway(database, () => "answer", { seed: 2, ...options });
  let { tokens } = await completion(a);
  assert.deepEqual(await budgetOf(database), { v: 1, tokens: LIMIT / 20, leased: LIMIT / 20 });
  const operations: string[] = [];
  database.onResult = async (operation, first) => void operations.push(`${operation} ${String(first)}`);
  for (let call = 0; call < 5; call++) tokens += (await completion(a)).tokens;
  assert.deepEqual(operations, []);
  assert.ok(tokens > 0);
  await a.runs.drain(0);
  assert.deepEqual(await budgetOf(database), { v: 1, tokens, leased: 0 });
  assert.equal((await completion(b)).last.type, "done");
  await b.runs.drain(0);
  await Promise.all([a.close(), b.close()]);
});

test("the slice of a gateway that died stays spent, and the refusal of another says who has it and when it opens", async () => {
  const database = createSharedDatabase();
  const options = { tokensPerDay: 400 };
  const a = await joinGateway(database, () => "answer", { seed: 1, ...options });
  const b = await joinGateway(database, () => "answer", { seed: 2, ...options });
  await completion(a);
  a.link.isCut = true;
  let last: AgentEvent | undefined;
  for (let call = 0; last?.type !== "error"; call++) {
    assert.ok(call < 400, "the budget has no end");
    const asked = completion(b);
    let isOver = false;
    void asked.then(() => isOver = true, () => isOver = true);
    for (let passed = 0; !isOver; passed += 100) await database.clock.advance(100);
    last =
      (await asked.catch((error: Error) => ({ last: { type: "error", message: error.message } as AgentEvent }))).last;
  }
  assert.match(
    last.message,
    /\d+ more are leased to other gateways, which use them for calls at work or are gone; .*try again in 5 s/,
  );
  assert.ok(((await budgetOf(database))?.tokens ?? 0) <= 400);
  assert.match(last.message, /raise tokens_per_day in \[budget\], or wait \d+ h for the next day \(UTC\)/);
  await b.runs.drain(0);
  a.link.isCut = false;
  await Promise.all([a.close(), b.close()]);
});
