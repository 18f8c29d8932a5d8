import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { createDelegation } from "../../../lib/runs/sub_agents/delegation.ts";
import { SUB_AGENTS, type SubAgentRecord } from "../../../lib/runs/sub_agents/sub_agent_records.ts";
import { isStorageAway } from "../../../lib/storage/read_records.ts";
import type { CallContext } from "../../../lib/tools/runtime/tool_call.ts";
import { awayError, createSharedDatabase } from "../../support/clustered.ts";

const PLANNED = { id: "del_1", kind: "delegate", agent: "helper", parent_id: null, depth: 1, tools: [] };

/** Delegates to an agent that answers, while the database goes away after the first record of the delegation. */
async function delegate(closing: AbortSignal) {
  const database = createSharedDatabase();
  const { store } = database.link();
  const handle = {
    id: "run_1",
    cancel() {},
    async *events() {
      database.isAway = true;
      yield [{ type: "text_delta", delta: "yes" }];
    },
  };
  const { attached } = createDelegation({
    ...{ store, clock: database.clock, closing },
    // Nothing but the start of a run is asked for
    supervisor: () => ({ start: () => Promise.resolve(handle) }) as unknown as RunSupervisor,
    cluster: { own: () => undefined, isCurrent: () => Promise.reject(awayError()), isOutage: isStorageAway },
  });
  const by = {
    caller: { via: "http", tokenId: null, scopes: ["admin"] },
    taint: [],
    signal: new AbortController().signal,
    progress() {},
  } as unknown as CallContext; // The parts that a delegation reads
  const { answer } = await attached(PLANNED as unknown as SubAgentRecord, { prompt: "go", by });
  assert.equal(answer, "yes", "the answer does not wait for the database");
  const ended = async () =>
    ((await database.store.get(SUB_AGENTS.name, "del_1"))?.body as SubAgentRecord).ended?.status;
  return { database, ended };
}

test("the end of a delegation is kept once the database is back", async () => {
  const { database, ended } = await delegate(new AbortController().signal);
  await database.clock.advance(5_000);
  assert.equal(await ended(), undefined);
  database.isAway = false;
  await database.clock.advance(1_000);
  assert.equal(await ended(), "completed");
  assert.equal(database.clock.pending(), 0);
});

test("the end of a delegation that waits for the database is given up when the gateway closes", async () => {
  const closing = new AbortController();
  const { database, ended } = await delegate(closing.signal);
  await database.clock.advance(5_000);
  closing.abort(new CancelError("shutdown"));
  await database.clock.advance(5_000);
  assert.equal(database.clock.pending(), 0);
  assert.equal(await ended(), undefined);
});
