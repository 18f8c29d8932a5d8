import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../../lib/base/telemetry/metrics.ts";
import { StoredApprovals } from "../../../lib/guard/stored_approvals.ts";
import type { Elicitation } from "../../../lib/guard/elicitation.ts";
import { createApprover } from "../../../lib/runs/supervisor/create_approver.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { ask, only, readAll, supervised, typesOf } from "../../support/supervised.ts";

const ATTACHED_MS = 120_000;
const DURABLE_MS = 86_400_000;
const BY = { via: "http", tokenId: "tok_person" } as const;
const ASKED: Elicitation = {
  server: "crm",
  message: "Who?",
  schema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  url: null,
};

/** A supervisor whose model calls a tool whose server asks who it shall be. */
function setUp(
  { store = createMemoryStore(), decision = "allow", wanted }: {
    store?: Store;
    decision?: "allow" | "ask";
    wanted?: AbortSignal;
  } = {},
) {
  const clock = createFakeClock();
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSeededRandom(7),
    log: SILENT,
    metrics: createMetrics(),
    audit: createFakeAudit(store).append,
  });
  const { runs } = supervised(
    (
      { messages },
    ) => (messages.at(-1)?.role === "tool" ? "Done" : { toolCalls: [{ name: "crm_add", arguments: { id: 1 } }] }),
    {
      tools: [{
        name: "crm_add",
        access: "network",
        decision,
        async run(input, { approver, callId, scope }) {
          const request = {
            elicitation: ASKED,
            tool: "crm_add",
            access: "network",
            input,
            inputDigest: "d",
            workspaceRoot: "/w",
            callId,
            scope,
          } as const;
          return JSON.stringify(await approver.elicit?.(request, wanted ?? scope.signal));
        },
      }],
      store,
      clock,
      approverOf: createApprover({ approvals, timeoutMs: () => ({ attached: ATTACHED_MS, durable: DURABLE_MS }) }),
    },
  );
  const pending = async () => (await approvals.list({ status: "pending", limit: 100 })).approvals;
  return { runs, approvals, clock, pending };
}

const outputOf = (events: readonly AgentEvent[]) =>
  JSON.parse(only(events, "tool_end").output) as Record<string, unknown>;

describe("a question of a server", () => {
  test("of a followed run is shown inside its call, and its answer goes to the server, not to the events", async () => {
    const { runs, approvals } = setUp();
    const events: AgentEvent[] = [];
    for await (const batch of (await runs.start(ask("go", { canApprove: true }))).events()) {
      events.push(...batch);
      for (const event of batch) {
        if (event.type !== "approval_needed") continue;
        await approvals.answer(event.approval_id, { decision: "approve", content: { name: "Ada" }, by: BY });
      }
    }
    assert.deepEqual(typesOf(events).filter((type) => /tool|approval/.test(type)), [
      "tool_start",
      "approval_needed",
      "approval_answered",
      "tool_end",
    ]);
    const { kind, server, message, schema, url, tool, input } = only(events, "approval_needed");
    assert.deepEqual([kind, server, message, schema, url, tool, input], [
      "elicitation",
      "crm",
      "Who?",
      ASKED.schema,
      null,
      "crm_add",
      { id: 1 },
    ]);
    assert.deepEqual(outputOf(events), { action: "accept", content: { name: "Ada" } });
    assert.doesNotMatch(JSON.stringify(events.filter(({ type }) => type.startsWith("approval"))), /Ada/);
  });

  test("is declined by a denial, and cancelled when nobody answers in time", async () => {
    const { runs, approvals, pending, clock } = setUp();
    const denied = readAll(await runs.start(ask("go", { canApprove: true })));
    await clock.advance(1);
    await approvals.answer((await pending())[0]?.id ?? "", { decision: "deny", by: BY });
    assert.deepEqual(outputOf(await denied), { action: "decline" });
    const late = readAll(await runs.start(ask("go", { canApprove: true })));
    await clock.advance(ATTACHED_MS + 1);
    const events = await late;
    assert.equal(outputOf(events)["action"], "cancel");
    assert.deepEqual([only(events, "approval_answered").decision, only(events, "notice").code], [
      "expired",
      "nobody_could_answer",
    ]);
  });

  test("of a run that nobody follows is cancelled at once, and every reader is told why", async () => {
    const { runs, pending, clock } = setUp();
    const events = await readAll(await runs.start(ask("go")));
    const { action, reason } = outputOf(events);
    assert.equal(action, "cancel");
    assert.match(String(reason), /^Denied \(nobody_could_answer\): nobody who may approve follows this run/);
    assert.deepEqual([only(events, "notice").code, await pending(), clock.pending()], ["nobody_could_answer", [], 0]);
  });

  test("of a durable run waits its longer time, and shows the run as waiting", async () => {
    const { runs, approvals, pending, clock } = setUp();
    const handle = await runs.start(ask("go", { durable: true }));
    const reading = readAll(handle);
    await clock.advance(DURABLE_MS - 1);
    assert.equal((await runs.get(handle.id))?.status, "waiting_for_approval");
    await approvals.answer((await pending())[0]?.id ?? "", { decision: "approve", content: { name: "Ada" }, by: BY });
    assert.deepEqual(outputOf(await reading), { action: "accept", content: { name: "Ada" } });
  });

  test("that the server takes back ends for its readers too, and the run goes on", async () => {
    const back = new AbortController();
    const { runs, approvals, clock } = setUp({ wanted: back.signal });
    const handle = await runs.start(ask("go", { canApprove: true }));
    const reading = readAll(handle);
    await clock.advance(1);
    back.abort(new Error("cancelled by the server"));
    const events = await reading;
    assert.equal(only(events, "approval_answered").decision, "cancelled");
    assert.equal((await approvals.list({ limit: 1 })).approvals[0]?.status, "cancelled");
  });
});

test("an answer to a server does not let the call itself through when a crash makes the run ask again", async () => {
  const store = createMemoryStore();
  const { runs, approvals, clock, pending } = setUp({ store, decision: "ask" });
  const handle = await runs.start(ask("go", { durable: true }));
  void readAll(handle).catch(() => {});
  await clock.advance(1);
  const [call] = await pending();
  await approvals.answer(call?.id ?? "", { decision: "approve", by: BY });
  await clock.advance(1);
  const [question] = await pending();
  assert.equal(question?.kind, "elicitation");
  await approvals.answer(question.id, { decision: "approve", content: { name: "Ada" }, by: BY });
  const { approvals: all } = await approvals.list({ limit: 10 });
  // The question and the call have the same run and call: only the approval of the call is of use to it
  assert.deepEqual(all.map(({ kind, used_at }) => [kind, used_at === null]), [["elicitation", true], ["call", false]]);
  assert.ok(!(await approvals.use(question.id, question.digest)).ok);
});
