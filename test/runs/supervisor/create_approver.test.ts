import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../../lib/base/telemetry/metrics.ts";
import { APPROVALS, OPEN_APPROVALS } from "../../../lib/guard/approval_records.ts";
import { APPROVAL_LIMITS, type Approvals } from "../../../lib/guard/approvals.ts";
import { StoredApprovals } from "../../../lib/guard/stored_approvals.ts";
import { createApprover } from "../../../lib/runs/supervisor/create_approver.ts";
import type { RunHandle } from "../../../lib/runs/run_request.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { ask, only, readAll, supervised, type SupervisedOptions, typesOf } from "../../support/supervised.ts";

const ATTACHED_MS = 120_000;
const DURABLE_MS = 86_400_000;
const BY = { via: "http", tokenId: "tok_person" } as const;
const FOLLOWED = { canApprove: true } as const;
const CALL = { toolCalls: [{ name: "write_file", arguments: { path: "a" } }] } as const;

/** A supervisor whose model calls a tool that is asked about, then says "Done". */
function setUp(more: SupervisedOptions = {}, { looks = false } = {}) {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const ran: unknown[] = [];
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSeededRandom(7),
    log: SILENT,
    metrics: createMetrics(),
    audit: createFakeAudit(store).append,
  });
  const { runs } = supervised(
    ({ messages }) => (messages.at(-1)?.role === "tool" ? "Done" : CALL),
    {
      tools: [{ name: "write_file", access: "write", decision: "ask", run: (input) => (ran.push(input), "written") }],
      store,
      clock,
      approverOf: createApprover({
        approvals,
        askers: looks ? approvals.askers : undefined,
        timeoutMs: () => ({ attached: ATTACHED_MS, durable: DURABLE_MS }),
      }),
      ...more,
    },
  );
  const pending = async () => (await approvals.list({ status: "pending", limit: 100 })).approvals;
  return { runs, store, approvals, clock, ran, pending };
}

/** Reads a run and answers its question. */
async function readAnswering(handle: RunHandle, approvals: Approvals, decision: "approve" | "deny", note?: string) {
  const events: AgentEvent[] = [];
  for await (const batch of handle.events()) {
    events.push(...batch);
    for (const event of batch) {
      if (event.type === "approval_needed") await approvals.answer(event.approval_id, { decision, by: BY, note });
    }
  }
  return events;
}

describe("a run that outlives its reader", () => {
  const GO_ON = { whenReaderLeaves: "go_on" } as const;
  const talk = (options: Parameters<typeof ask>[1] = {}) => ask("write", { conversationId: "talk", ...options });

  test("keeps its question open for its time when the reader leaves: an answer counts, and without one it is denied", async () => {
    for (const decision of ["approve", undefined] as const) {
      const { runs, clock, ran, approvals, pending } = setUp(GO_ON);
      const handle = await runs.start(talk(FOLLOWED));
      const reading = readAll(handle);
      await clock.advance(1);
      handle.leave("client_gone");
      await assert.rejects(reading, { reason: "client_gone" });
      await clock.advance(DURABLE_MS - 10);
      const [asked] = await pending();
      assert.equal(asked?.status, "pending");
      if (decision === undefined) await clock.advance(10);
      else await approvals.answer(asked?.id ?? "", { decision, by: BY });
      await clock.advance(1);
      assert.equal((await runs.get(handle.id))?.result, "Done");
      assert.deepEqual(ran, decision === undefined ? [] : [{ path: "a" }]);
    }
  });

  test("asks nobody where its reader may not approve, as an attached one", async () => {
    const { runs, ran, pending } = setUp(GO_ON);
    const events = await readAll(await runs.start(talk()));
    assert.match(only(events, "tool_end").output, /^Denied \(nobody_could_answer\)/);
    assert.deepEqual([ran, await pending()], [[], []]);
  });
});

describe("ways to a person", () => {
  const chat = { via: "http", tokenId: "tok_1", scopes: ["chat"] } as const;
  const cron = { via: "cron", tokenId: "tok_1", scopes: ["admin"] } as const;
  const person = { ...cron, via: "cli" } as const;
  const withAskers = () => setUp({}, { looks: true });

  for (
    const [work, caller, options, waits] of [
      ["a run of a token that may not approve", chat, { durable: true }, DURABLE_MS],
      ["a firing of a schedule", cron, { durable: true }, DURABLE_MS],
      ["a stateless reply", chat, {}, ATTACHED_MS],
    ] as const
  ) {
    test(`without any, ${work} is denied at once and told what would have helped; with one it asks and waits`, async () => {
      const { runs, approvals: { askers }, pending, clock, ran } = withAskers();
      const close = askers.add({ name: "a rule of [[notify]]", isOpen: () => false });
      const denied = await readAll(await runs.start(ask("write", { ...options, caller })));
      const { output } = only(denied, "tool_end");
      assert.match(output, /^Denied \(nobody_could_answer\)/);
      assert.match(output, /would have helped: .*an open dashboard.*, a rule of \[\[notify\]\];/);
      assert.deepEqual([ran, await pending()], [[], []]);
      close();
      for (const open of [() => askers.looked(), () => void askers.add({ name: "a link", isOpen: () => true })]) {
        open();
        const reading = readAll(await runs.start(ask("write", { ...options, caller })));
        await clock.advance(waits - 1);
        assert.equal((await pending()).length, 1);
        await clock.advance(1);
        assert.equal(only(await reading, "approval_answered").decision, "expired");
      }
    });
  }

  test("a look counts for ten minutes, and whoever began the work and may approve is asked without", async () => {
    const { runs, approvals: { askers }, pending, clock } = withAskers();
    askers.looked();
    await clock.advance(10 * 60_000 - 1);
    assert.equal(askers.canAsk(), true);
    await clock.advance(1);
    assert.equal(askers.canAsk(), false);
    void readAll(await runs.start(ask("write", { durable: true, caller: person })));
    await clock.advance(1);
    assert.equal((await pending()).length, 1);
  });
});

describe("an attached run", () => {
  test("that nobody follows who may approve is denied at once, with what allows the call, and files nothing", async () => {
    const { runs, ran, pending, clock } = setUp();
    const events = await readAll(await runs.start(ask("write")));
    assert.match(
      only(events, "tool_end").output,
      /^Denied \(nobody_could_answer\): nobody who may approve follows this run, so nobody was asked: asked/,
    );
    assert.deepEqual([ran, await pending(), clock.pending()], [[], [], 0]);
  });

  test("asks who follows it: approved it runs, and both events are seen", async () => {
    const { runs, approvals, ran } = setUp();
    const events = await readAnswering(await runs.start(ask("write", FOLLOWED)), approvals, "approve");
    assert.deepEqual(typesOf(events).filter((type) => /tool|approval/.test(type)), [
      "approval_needed",
      "approval_answered",
      "tool_start",
      "tool_end",
    ]);
    const needed = only(events, "approval_needed");
    assert.deepEqual([needed.tool, needed.input, needed.expires_at], [
      "write_file",
      { path: "a" },
      "2026-01-01T00:02:00.000Z",
    ]);
    assert.deepEqual(only(events, "approval_answered"), {
      seq: needed.seq + 1,
      time: "2026-01-01T00:00:00.000Z",
      type: "approval_answered",
      approval_id: needed.approval_id,
      decision: "approve",
      by: "tok_person",
    });
    assert.deepEqual(ran, [{ path: "a" }]);
    assert.equal((await approvals.get(needed.approval_id))?.used_at, "2026-01-01T00:00:00.000Z");
  });

  test("denied it does not run, and the model is told so with the note", async () => {
    const { runs, approvals, ran } = setUp();
    const events = await readAnswering(await runs.start(ask("write", FOLLOWED)), approvals, "deny", "not in July");
    assert.equal(only(events, "tool_end").output, 'Cannot call "write_file": a person denied it: not in July');
    assert.deepEqual([ran, only(events, "done").finish_reason], [[], "stop"]);
  });

  test("that nobody answers is denied when its time is over", async () => {
    const { runs, clock, ran, pending } = setUp();
    const reading = readAll(await runs.start(ask("write", FOLLOWED)));
    await clock.advance(ATTACHED_MS - 1);
    assert.equal((await pending()).length, 1);
    await clock.advance(1);
    const events = await reading;
    assert.equal(only(events, "approval_answered").decision, "expired");
    assert.match(only(events, "tool_end").output, /nobody answered in time/);
    assert.deepEqual([ran, await pending(), clock.pending()], [[], [], 0]);
  });

  test("that is cancelled takes its question along", async () => {
    const { runs, clock, ran, approvals } = setUp();
    const handle = await runs.start(ask("write", FOLLOWED));
    const reading = readAll(handle);
    await clock.advance(1);
    handle.cancel("client_gone");
    assert.equal(only(await reading, "error").code, "client_gone");
    const { approvals: [approval] } = await approvals.list({ limit: 1 });
    assert.deepEqual([ran, approval?.status, clock.pending()], [[], "cancelled", 0]);
  });

  test("whose question is taken back is told that, and not that a person denied it", async () => {
    const { runs, clock, ran, approvals, pending } = setUp();
    const reading = readAll(await runs.start(ask("write", FOLLOWED)));
    await clock.advance(1);
    await approvals.cancel((await pending())[0]?.id ?? "");
    const events = await reading;
    assert.equal(only(events, "approval_answered").decision, "cancelled");
    const { output } = only(events, "tool_end");
    assert.match(output, /the approval was taken back, so nobody answered/);
    assert.deepEqual(ran, []);
  });

  test("lends its slot while it waits, so that others go on", async () => {
    const { runs, clock, approvals, pending } = setUp({ limits: { maxConcurrent: 1 } });
    const waiting = readAll(await runs.start(ask("write", FOLLOWED)));
    await clock.advance(1);
    const other = await readAll(await runs.start(ask("write")));
    assert.equal(other.at(-1)?.type, "done");
    await approvals.answer((await pending())[0]?.id ?? "", { decision: "approve", by: BY });
    assert.equal((await waiting).at(-1)?.type, "done");
  });

  test("is denied when as many approvals wait as may", async () => {
    const { runs, approvals, clock, store } = setUp();
    const reading = readAll(await runs.start(ask("write", FOLLOWED)));
    await clock.advance(1);
    const { approvals: [first] } = await approvals.list({ limit: 1 });
    assert.ok(first !== undefined);
    const body = (await store.get(APPROVALS.name, first.id))?.body as object;
    // No token may fill the room alone. Each question reads those that wait, so all but the last stand in the store at once
    await store.batch(
      Array.from({ length: APPROVAL_LIMITS.pending - 2 }, (_, index) => {
        const id = `apr_filled${index}`;
        const filled = { ...body, id, requested_by: `tok_${index % 2}` };
        return [
          { op: "insert", collection: APPROVALS.name, key: id, body: filled },
          { op: "insert", collection: OPEN_APPROVALS.name, key: id, body: { v: 1 } },
        ] as const;
      }).flat(),
    );
    const { run_id: runId, call_id: callId, ...rest } = first;
    const question = { ...rest, runId, callId, inputDigest: "", timeoutMs: DURABLE_MS };
    const last = await approvals.ask({ ...question, requestedBy: { via: "http", tokenId: "tok_2" } });
    assert.ok(last !== undefined, "there is room for one");
    const events = await readAll(await runs.start(ask("write", FOLLOWED)));
    assert.match(
      only(events, "tool_end").output,
      /^Denied \(nobody_could_answer\): as many approvals wait for a person/,
    );
    assert.equal(only(events, "notice").code, "nobody_could_answer");
    await approvals.cancel(first.id);
    await reading;
  });
});

describe("a durable run", () => {
  const durable = { durable: true } as const;

  test("asks though nobody follows it, and waits for its own, longer time", async () => {
    const { runs, approvals, clock, pending, ran } = setUp();
    const reading = readAll(await runs.start(ask("write", durable)));
    await clock.advance(DURABLE_MS - 1);
    await approvals.answer((await pending())[0]?.id ?? "", { decision: "approve", by: BY });
    assert.equal((await reading).at(-1)?.type, "done");
    assert.deepEqual(ran, [{ path: "a" }]);
  });

  test("is shown as waiting_for_approval, and is denied at its expiry", async () => {
    const { runs, clock } = setUp();
    const handle = await runs.start(ask("write", durable));
    const reading = readAll(handle);
    await clock.advance(1);
    assert.equal((await runs.get(handle.id))?.status, "waiting_for_approval");
    await clock.advance(DURABLE_MS);
    assert.equal(only(await reading, "approval_answered").decision, "expired");
  });

  test("that waits holds up no shutdown, and its question stays answerable", async () => {
    const { runs, clock, approvals, pending } = setUp();
    void readAll(await runs.start(ask("write", durable)));
    await clock.advance(1);
    const before = clock.now();
    await runs.drain(30_000);
    assert.equal(clock.now(), before, "it did not wait for the grace");
    const [question] = await pending();
    assert.equal(
      (await approvals.answer(question?.id ?? "", { decision: "approve", by: BY })).approval.status,
      "approved",
    );
  });
});
