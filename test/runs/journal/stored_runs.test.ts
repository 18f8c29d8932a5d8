import assert from "node:assert/strict";
import { test } from "node:test";
import { cancelRunsOf } from "../../../lib/runs/journal/stored_runs.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { supervised } from "../../support/supervised.ts";

async function startOf(runs: RunSupervisor, tokenId: string): Promise<string> {
  const { id } = await runs.start({
    kind: "chat",
    by: { caller: { via: "http", tokenId, scopes: ["runs"] } },
    messages: [{ role: "user", content: "Hello" }],
    durable: true,
    agentTools: "configured",
  });
  return id;
}

test("the runs of a token are cancelled, and no other's", async () => {
  const { runs, store } = supervised(() => ({ hang: "before" }));
  const mine = await startOf(runs, "tok_a");
  const other = await startOf(runs, "tok_b");
  assert.equal(await cancelRunsOf("tok_a", { store, supervisor: () => runs }), 1);
  assert.equal((await runs.ended(mine, new AbortController().signal))?.status, "cancelled");
  assert.notEqual((await runs.get(other))?.status, "cancelled");
  assert.equal(await cancelRunsOf("tok_a", { store, supervisor: () => runs }), 0);
});

test("where nothing is at work they do not go on at the next start", async () => {
  const before = supervised(() => ({ hang: "before" }));
  const mine = await startOf(before.runs, "tok_a");
  const { store } = before;
  assert.equal(await cancelRunsOf("tok_a", { store, supervisor: () => undefined }), 1);
  const { runs } = supervised(["It went on"], { store, seed: 2 });
  await runs.recover();
  assert.equal((await runs.get(mine))?.status, "cancelled");
});
