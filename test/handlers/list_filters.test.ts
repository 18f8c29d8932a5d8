import assert from "node:assert/strict";
import { test } from "node:test";
import { createAudit } from "../../lib/guard/audit/audit.ts";
import type { Store, Stored, Write } from "../../lib/storage/store.ts";
import { auditedCall } from "../support/audited_call.ts";
import { newApproval } from "../support/new_approval.ts";
import { createFakeServices } from "../support/fake_services.ts";
import { jsonOf } from "../support/json_of.ts";
import { createTestRouter } from "../support/test_router.ts";

const RECORDS = 400;
const TIME = "2026-01-01T00:00:00.000Z";

/** Counts the records that the store hands out. */
function countReads(store: Store): () => number {
  let count = 0;
  const { scan, get } = store;
  const counted = (found: readonly Stored[]) => {
    count += found.length;
    return found;
  };
  Object.assign(store, {
    scan: async (...words: Parameters<Store["scan"]>) => counted(await scan(...words)),
    get: async (...words: Parameters<Store["get"]>) => counted([await get(...words)].flatMap((one) => one ?? []))[0],
  });
  return () => count;
}

async function setUp() {
  const base = createFakeServices();
  const { store, clock } = base;
  const audit = await createAudit({
    store,
    clock,
    log: base.log,
    redact: String,
    enabled: () => true,
    retentionDays: () => 0,
  });
  const services = { ...base, audit };
  const run = {
    object: "run",
    kind: "chat",
    status: "completed",
    created_at: TIME,
    started_at: TIME,
    ended_at: TIME,
    model: "m",
    conversation_id: null,
    parent_id: null,
    result: "done",
    error: null,
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  };
  const writes: Write[] = [];
  for (let index = 0; index < RECORDS; index++) {
    writes.push(
      {
        op: "put",
        collection: "runs",
        key: `run_${index}`,
        body: { v: 1, run: { ...run, id: `run_${index}` }, seq: 1, records: 1 },
      },
      {
        op: "put",
        collection: "deliveries",
        key: `run_${index}`,
        body: {
          v: 1,
          run_id: `run_${index}`,
          channel: "alerts",
          sender: null,
          message_id: null,
          status: "delivered",
          accepted_at: TIME,
          attempts: 1,
          next_attempt_at: null,
          last_error: null,
          ended_at: TIME,
        },
      },
    );
    const approval = await services.approvals.ask(newApproval());
    if (approval !== undefined) {
      await services.approvals.answer(approval.id, { decision: "approve", by: { via: "http", tokenId: null } });
    }
    await audit.append(auditedCall("read_file", { run_id: "run_1" }));
  }
  await store.batch(writes);
  // The router takes the real audit as well as the fake one
  return { router: createTestRouter({ services: services as unknown as typeof base }), reads: countReads(store) };
}

test("a filter that no record passes reads none of the others", async () => {
  const { router, reads } = await setUp();
  for (
    const path of [
      "/v1/runs?status=failed",
      "/v1/approvals?status=pending",
      "/v1/approvals?status=denied",
      "/v1/approvals?status=expired",
      "/v1/deliveries?status=failed",
      "/v1/audit?type=retention",
      "/v1/audit?tool=write_file",
      "/v1/audit?run_id=run_2",
      "/v1/schedules?state=paused",
    ]
  ) {
    const before = reads();
    const reply = await jsonOf(await router.send("GET", path));
    assert.deepEqual([reply.data, reply.has_more], [[], false], path);
    assert.equal(reads() - before, 0, path);
    const whole = await jsonOf(await router.send("GET", path.split("?")[0] ?? ""));
    if (!path.includes("schedules")) assert.ok(whole.data.length > 0, `${path} has other records`);
  }
});
