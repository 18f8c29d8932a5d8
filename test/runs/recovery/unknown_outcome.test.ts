import assert from "node:assert/strict";
import { test } from "node:test";
import { ToolError } from "../../../lib/base/errors.ts";
import { isAtWork } from "../../../lib/base/records/run.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import type { FakeTool } from "../../support/fake_tool_executor.ts";
import { ask, only, readAll, supervised, typesOf } from "../../support/supervised.ts";
import { until } from "../../support/until.ts";

const BY = { via: "http", tokenId: "tok_person" } as const;

/** A supervisor whose model calls a tool once, which is cut off the first time. */
function setUp() {
  const store = createMemoryStore();
  let made = 0;
  const pay: FakeTool = {
    name: "pay",
    access: "network",
    run() {
      if (made++ === 0) throw new ToolError("outcome_unknown", "Cannot tell what became of it");
      return "paid";
    },
  };
  let halted: string | undefined;
  const { runs } = supervised(
    ({ messages }) => (messages.at(-1)?.role === "tool" ? "Done" : { toolCalls: [{ name: "pay" }] }),
    { tools: [pay], store, halted: () => halted },
  );
  const journal = async (id: string) => (await Array.fromAsync(new RunStore(store).replay(id, 0))).flat();
  return { runs, journal, made: () => made, halt: (reason: string | undefined) => void (halted = reason) };
}

test("a durable run waits for a review when nobody knows what became of a call, and a person decides", async () => {
  for (const [outcome, made, output] of [["done", 1, /was made to its end/], ["not_done", 2, /^paid$/]] as const) {
    const { runs, journal, made: count } = setUp();
    const { id } = await runs.start(ask("Pay", { durable: true, conversationId: "new" }));
    await until(async () => (await runs.get(id))?.status === "needs_review");
    const before = await journal(id);
    assert.deepEqual(typesOf(before).slice(-2), ["tool_start", "error"]);
    const { code, message } = only(before, "error");
    assert.deepEqual([code, message], ["needs_review", "Cannot tell what became of it"]);
    await runs.resolve(id, { action: "resume", outcome, by: BY });
    await until(async () => !isAtWork((await runs.get(id))?.status ?? "queued"));
    assert.equal((await runs.get(id))?.result, "Done");
    assert.equal(count(), made);
    assert.match(only(await journal(id), "tool_end").output, output);
  }
});

test("a run that waits for a review is not resumed while a person has halted it, and goes on waiting", async () => {
  const { runs, halt } = setUp();
  const { id } = await runs.start(ask("Pay", { durable: true, conversationId: "new" }));
  await until(async () => (await runs.get(id))?.status === "needs_review");
  halt("a person has halted all work");
  await assert.rejects(runs.resolve(id, { action: "resume", outcome: "not_done", by: BY }), { code: "halted" });
  assert.equal((await runs.get(id))?.status, "needs_review");
  halt(undefined);
  await runs.resolve(id, { action: "resume", outcome: "not_done", by: BY });
  await until(async () => !isAtWork((await runs.get(id))?.status ?? "queued"));
  assert.equal((await runs.get(id))?.result, "Done");
});

test("an attached run tells its model, which goes on", async () => {
  const { runs, made } = setUp();
  const events = await readAll(await runs.start(ask("Pay")));
  const { output, is_error } = only(events, "tool_end");
  assert.deepEqual([output, is_error, made()], ["Cannot tell what became of it", true, 1]);
  assert.equal(events.at(-1)?.type, "done");
});
