import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DeliveryService } from "../../../lib/automation/channels/delivery_service.ts";
import { changeOf, type DeliveryRecord } from "../../../lib/automation/channels/delivery_record.ts";
import { bodyHmac } from "../../../lib/base/body_hmac.ts";
import { cancelError } from "../../../lib/base/cancel.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import type { Run } from "../../../lib/base/records/run.ts";
import { NO_USAGE } from "../../../lib/base/records/usage.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../../lib/base/telemetry/metrics.ts";
import { Halts } from "../../../lib/guard/halts.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import type { GuardedFetch, GuardedRequest } from "../../../lib/system/net/guarded_fetch.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";

const HOUR_MS = 3_600_000;
const SECRET = "a shared secret";

/** Answer of the receiver to a request: a status, a failure, silence until it is broken off, or 204 at `release()`. */
type Answer = number | "refused" | "silent" | "held" | { readonly status: number; readonly retryAfter: string };

interface SetUp {
  readonly answers?: readonly Answer[];
  readonly store?: Store;
  readonly clock?: FakeClock;
  readonly secretEnv?: string;
  /** True: the module that sends fails to load the first time */
  readonly loadsLate?: boolean;
  readonly retentionDays?: number;
  readonly halts?: Halts;
  /** Ends at once; undefined: the run is unknown */
  readonly runs?: Readonly<Record<string, Partial<Run> | undefined>>;
}

function setUp(options: SetUp = {}) {
  const clock = options.clock ?? createFakeClock();
  const store = options.store ?? createMemoryStore();
  const metrics = createMetrics();
  const sent: {
    readonly request: GuardedRequest;
    readonly headers: Readonly<Record<string, string>>;
    readonly at: number;
  }[] = [];
  const channels = new Map([["alerts", { url: "http://127.0.0.1:9/in", secretEnv: options.secretEnv ?? "" }]]);
  let tries = 0;
  let inside = 0;
  let most = 0;
  const answers = options.answers ?? [204];
  const { promise: held, resolve: release } = Promise.withResolvers<void>();
  const fetch: GuardedFetch = async (request) => {
    const answer = answers[Math.min(sent.length, answers.length - 1)];
    sent.push({ request, headers: request.headers?.(new URL(request.url)) ?? {}, at: clock.now() });
    most = Math.max(most, ++inside);
    try {
      if (answer === "refused") throw new ToolError("fetch_failed", "Cannot fetch: the connection was refused");
      if (answer === "silent" || answer === undefined) {
        await new Promise((_, reject) =>
          request.signal.addEventListener("abort", () => reject(cancelError(request.signal)))
        );
      }
      if (answer === "held") await held;
      await clock.sleep(0);
      const { status, retryAfter } = typeof answer === "object"
        ? answer
        : { status: answer === "held" ? 204 : answer as number, retryAfter: "" };
      const headers: Record<string, string> = retryAfter === "" ? {} : { "retry-after": retryAfter };
      return { status, headers, body: new Uint8Array(), bytes: 0, truncated: false, url: request.url };
    } finally {
      inside--;
    }
  };
  const runs = new Map(Object.entries(options.runs ?? { run_1: {} }));
  const deliveries = new DeliveryService({
    store,
    clock,
    random: createSeededRandom(),
    log: SILENT,
    metrics,
    // Nothing but the end of a run is asked for
    runs: () =>
      ({ ended: (id: string) => Promise.resolve(toRun(id, runs.get(id), clock)) }) as unknown as RunSupervisor,
    fetch: () =>
      tries++ === 0 && options.loadsLate === true ? Promise.reject(new Error("No file")) : Promise.resolve(fetch),
    targetOf: (name) => channels.get(name),
    rules: () => ({
      block_private_ip: true,
      allow_loopback: false,
      public_ranges: [],
      enforce_domain_allowlist: false,
      domain_allowlist: [],
      domain_blocklist: [],
    }),
    environment: (name) => (name === "HOOK_SECRET" ? SECRET : undefined),
    halts: options.halts,
    retentionDays: () => options.retentionDays ?? 0,
  });
  const accept = async (runId = "run_1", messageId?: string) => {
    const promise = await deliveries.promise({ channel: "alerts", sender: "ann", messageId });
    assert.ok(promise !== undefined && await store.batch(promise(runId)));
    await deliveries.watch(runId);
  };
  const find = async (runId = "run_1"): Promise<DeliveryRecord | undefined> =>
    (await deliveries.page({ limit: 1000 })).deliveries.find((record) => record.run_id === runId);
  return { clock, store, metrics, sent, runs, channels, deliveries, accept, find, most: () => most, release };
}

function toRun(id: string, changes: Partial<Run> | undefined, clock: FakeClock): Run | undefined {
  if (changes === undefined) return undefined;
  const time = new Date(clock.now()).toISOString();
  return {
    id,
    object: "run",
    kind: "channel",
    status: "completed",
    created_at: time,
    started_at: time,
    ended_at: "2026-01-01T00:00:00.000Z",
    model: "m",
    conversation_id: "alerts:ann",
    parent_id: null,
    result: "The answer",
    error: null,
    usage: NO_USAGE,
    ...changes,
  };
}

describe("a promised reply", () => {
  test("is sent once the run is over, with an id that stays the same", async () => {
    const { accept, sent, clock, find, metrics } = setUp();
    await accept("run_1", "msg-7");
    await clock.advance(0);
    assert.equal(sent.length, 1);
    const { request, headers } = sent[0] ?? {};
    assert.deepEqual([request?.method, request?.url, request?.guard.fromConfig, request?.redirects], [
      "POST",
      "http://127.0.0.1:9/in",
      true,
      "keep_method",
    ]);
    assert.deepEqual(JSON.parse(String(request?.body)), {
      channel: "alerts",
      run_id: "run_1",
      message_id: "msg-7",
      sender: "ann",
      conversation_id: "alerts:ann",
      status: "completed",
      reply: "The answer",
      error: null,
    });
    assert.deepEqual([headers?.["idempotency-key"], headers?.["x-postern-attempt"]], ["run_1", "1"]);
    assert.equal(headers?.["x-postern-signature"], undefined);
    const record = await find();
    assert.deepEqual([record?.status, record?.attempts, record?.last_error], ["delivered", 1, null]);
    assert.match(metrics.render(), /postern_deliveries_total\{status="delivered"\} 1/);
    // Others stand at 0 from the start, so that a rate sees the first
    assert.match(metrics.render(), /postern_deliveries_total\{status="failed"\} 0\n/);
    assert.match(metrics.render(), /postern_deliveries_total\{status="dropped"\} 0\n/);
  });

  test("is signed with the channel's secret, once more at each attempt, and never sent without it", async () => {
    const { accept, sent, clock } = setUp({ secretEnv: "HOOK_SECRET", answers: [500, 200] });
    await accept();
    await clock.advance(10_000);
    assert.equal(sent.length, 2);
    for (const { request, headers } of sent) {
      const [, time = "", hex] = /^t=(\d+),sha256=([0-9a-f]{64})$/.exec(headers["x-postern-signature"] ?? "") ?? [];
      assert.equal(hex, Buffer.from(bodyHmac(SECRET, time, String(request.body))).toString("hex"));
    }
    assert.notEqual(sent[0]?.headers["x-postern-signature"], sent[1]?.headers["x-postern-signature"]);
    const unset = setUp({ secretEnv: "MISSING" });
    await unset.accept();
    await unset.clock.advance(0);
    assert.equal(unset.sent.length, 0);
    assert.match((await unset.find())?.last_error ?? "", /MISSING is not set/);
  });

  test("is sent also when what sends could not be loaded for the one before", async () => {
    const { accept, sent, clock } = setUp({ loadsLate: true, runs: { run_1: {}, run_2: {} } });
    for (const id of ["run_1", "run_2"]) {
      await accept(id);
      await clock.advance(0);
    }
    assert.deepEqual(sent.map(({ request }) => JSON.parse(String(request.body)).run_id), ["run_2"]);
  });

  test("tells of a run that failed", async () => {
    const { accept, sent, clock } = setUp({
      runs: { run_1: { status: "failed", result: null, error: { code: "provider_error", message: "It is down" } } },
    });
    await accept();
    await clock.advance(0);
    const body = JSON.parse(String(sent[0]?.request.body));
    assert.deepEqual([body.status, body.reply, body.error.code], ["failed", null, "provider_error"]);
  });

  test("is tried ten times, ever later, with every failure on record, and then given up", async () => {
    const { accept, sent, clock, find, metrics } = setUp({ answers: ["refused", 500, 404, 302] });
    await accept();
    await clock.advance(0);
    const first = await find();
    assert.deepEqual([first?.status, first?.attempts], ["waiting", 1]);
    assert.match(first?.last_error ?? "", /refused/);
    const wait = Date.parse(first?.next_attempt_at ?? "") - clock.now();
    assert.ok(wait >= 4000 && wait <= 6000, String(wait));
    await clock.advance(24 * HOUR_MS);
    const last = await find();
    assert.deepEqual([last?.status, last?.attempts, last?.next_attempt_at], ["failed", 10, null]);
    assert.match(last?.last_error ?? "", /answered 302/);
    assert.equal(new Set(sent.map(({ headers }) => headers["idempotency-key"])).size, 1);
    const waits = sent.slice(1).map(({ at }, i) => at - (sent[i]?.at ?? 0));
    assert.ok(waits.every((ms, i) => i === 0 || ms > (waits[i - 1] ?? 0)), waits.join());
    assert.match(metrics.render(), /postern_deliveries_total\{status="failed"\} 1/);
  });

  test("ends with 410, and waits as long as the receiver asks", async () => {
    const gone = setUp({ answers: [410] });
    await gone.accept();
    await gone.clock.advance(0);
    assert.deepEqual([(await gone.find())?.status, gone.sent.length], ["failed", 1]);
    const busy = setUp({ answers: [{ status: 429, retryAfter: "120" }, 200] });
    await busy.accept();
    await busy.clock.advance(119_000);
    assert.equal(busy.sent.length, 1);
    await busy.clock.advance(2000);
    assert.equal((await busy.find())?.status, "delivered");
    const date = new Date(busy.clock.now() + 600_000).toUTCString();
    const dated = setUp({ answers: [{ status: 503, retryAfter: date }, 200], clock: busy.clock });
    await dated.accept();
    await dated.clock.advance(598_000);
    assert.equal(dated.sent.length, 1);
    await dated.clock.advance(3000);
    assert.equal(dated.sent.length, 2);
  });

  test("outlives the process: the next start goes on where it was, at the time it said", async () => {
    const first = setUp({ answers: [503] });
    await first.accept();
    await first.clock.advance(0);
    await first.deliveries.stop();
    const { store, clock } = first;
    const second = setUp({ store, clock, answers: [200] });
    await second.deliveries.start();
    await clock.advance(1000);
    assert.equal(second.sent.length, 0);
    await clock.advance(6000);
    assert.deepEqual([first.sent.length, second.sent.length], [1, 1]);
    assert.equal(second.sent[0]?.headers["x-postern-attempt"], "2");
    assert.equal((await second.find())?.status, "delivered");
    const third = setUp({ store, clock });
    await third.deliveries.start();
    await clock.advance(HOUR_MS);
    assert.equal(third.sent.length, 0);
  });

  test("is not sent by a gateway that was down until a day after the run's end, and its record says why", async () => {
    const startAfter = async (ms: number) => {
      const first = setUp({ answers: [503] });
      await first.accept();
      await first.clock.advance(0);
      await first.deliveries.stop();
      const { store, clock } = first;
      await clock.advance(ms);
      const second = setUp({ store, clock });
      await second.deliveries.start();
      await clock.advance(0);
      return { sent: second.sent.length, record: await second.find(), metrics: second.metrics.render() };
    };
    const late = await startAfter(25 * HOUR_MS);
    assert.deepEqual([late.sent, late.record?.status, late.record?.attempts], [0, "failed", 1]);
    assert.match(late.record?.last_error ?? "", /later than a day after the run's end.*; the last attempt: .*503/);
    assert.match(late.metrics, /postern_deliveries_total\{status="failed"\} 1/);
    const justLate = await startAfter(24 * HOUR_MS + 1);
    assert.deepEqual([justLate.sent, justLate.record?.status], [0, "failed"]);
    const inTime = await startAfter(24 * HOUR_MS);
    assert.deepEqual([inTime.sent, inTime.record?.status, inTime.record?.attempts], [1, "delivered", 2]);
  });

  test("is not sent either when those before it took so long", async () => {
    const ids = ["run_1", "run_2", "run_3", "run_4", "run_5"];
    const { accept, sent, clock, find, release } = setUp({
      answers: ["held"],
      runs: Object.fromEntries(ids.map((id) => [id, {}])),
    });
    for (const id of ids) await accept(id);
    await clock.advance(25 * HOUR_MS);
    assert.equal(sent.length, 4);
    release();
    await clock.advance(0);
    const records = await Promise.all(ids.map((id) => find(id)));
    assert.deepEqual(records.map((record) => record?.status), [...new Array(4).fill("delivered"), "failed"]);
    assert.deepEqual([sent.length, records[4]?.attempts], [4, 0]);
  });

  test("that was being sent at a shutdown is sent again, under the same id", async () => {
    const first = setUp({ answers: ["silent"] });
    await first.accept();
    await first.clock.advance(0);
    const stopping = first.deliveries.stop();
    await first.clock.advance(2000);
    await stopping;
    const second = setUp({ store: first.store, clock: first.clock });
    await second.deliveries.start();
    await first.clock.advance(0);
    assert.equal(second.sent[0]?.headers["idempotency-key"], first.sent[0]?.headers["idempotency-key"]);
    assert.equal((await second.find())?.status, "delivered");
  });

  test("waits while its run waits for a person's review", async () => {
    const { accept, sent, clock, runs } = setUp({ runs: { run_1: { status: "needs_review", result: null } } });
    await accept();
    await clock.advance(HOUR_MS);
    assert.equal(sent.length, 0);
    runs.set("run_1", { status: "completed" });
    await clock.advance(60_000);
    assert.equal(sent.length, 1);
  });

  test("fails where its channel or its run is gone", async () => {
    const { accept, find, clock, channels } = setUp({ runs: { run_1: {}, run_2: undefined }, answers: [503] });
    await accept("run_2");
    await accept("run_1");
    await clock.advance(0);
    channels.delete("alerts");
    await clock.advance(10_000);
    assert.match((await find("run_1"))?.last_error ?? "", /no reply_url any more/);
    assert.match((await find("run_2"))?.last_error ?? "", /nothing is known of the run/);
  });
});

describe("deliveries", () => {
  test("go to one channel four at a time", async () => {
    const ids = Array.from({ length: 20 }, (_, i) => `run_${i}`);
    const { accept, sent, clock, most } = setUp({ runs: Object.fromEntries(ids.map((id) => [id, {}])) });
    for (const id of ids) await accept(id);
    await clock.advance(100);
    assert.deepEqual([sent.length, most()], [20, 4]);
  });

  test("are listed newest first, by status, page by page", async () => {
    const { accept, deliveries, clock } = setUp({
      runs: { run_1: {}, run_2: {}, run_3: {} },
      answers: [200, 410, 200],
    });
    for (const id of ["run_1", "run_2", "run_3"]) {
      await accept(id);
      await clock.advance(0);
    }
    const ids = async (query: Parameters<typeof deliveries.page>[0]) => {
      const { deliveries: found, hasMore } = await deliveries.page(query);
      return [...found.map((record) => record.run_id), hasMore];
    };
    assert.deepEqual(await ids({ limit: 2 }), ["run_3", "run_2", true]);
    assert.deepEqual(await ids({ limit: 2, after: "run_2" }), ["run_1", false]);
    assert.deepEqual(await ids({ limit: 10, status: "failed" }), ["run_2", false]);
  });

  test("that ended are forgotten after the days that runs are kept", async () => {
    const { accept, deliveries, clock } = setUp({ runs: { run_1: {}, run_2: {} }, retentionDays: 1 });
    await accept("run_1");
    await clock.advance(25 * HOUR_MS);
    await accept("run_2");
    const { deliveries: left } = await deliveries.page({ limit: 10 });
    assert.deepEqual(left.map((record) => record.run_id), ["run_2"]);
  });

  test("are promised for channels with a reply_url alone", async () => {
    const { deliveries, store } = setUp();
    assert.equal(await deliveries.promise({ channel: "other", sender: undefined, messageId: undefined }), undefined);
    assert.equal(await store.count("deliveries"), 0);
  });
});

describe("a person's decision about a delivery", () => {
  /** As a restore leaves what was open. */
  const hold = async ({ store, find, deliveries }: ReturnType<typeof setUp>) => {
    const promise = await deliveries.promise({ channel: "alerts", sender: "ann", messageId: undefined });
    assert.ok(promise !== undefined && await store.batch(promise("run_1")));
    const record = await find();
    assert.ok(record !== undefined);
    await store.batch(changeOf({ ...record, status: "held", ended_at: "2026-01-02T00:00:00.000Z" }));
    // The gateway that starts on the restored records
    return setUp({ store, clock: createFakeClock(Date.parse("2026-03-01T00:00:00.000Z")) });
  };

  test("releases a held one, however long ago its run ended, and once", async () => {
    const { deliveries, sent, clock, find } = await hold(setUp());
    await deliveries.start();
    await clock.advance(HOUR_MS);
    assert.equal(sent.length, 0, "nothing goes by itself");
    assert.equal((await deliveries.resolve("run_1", "release")).status, "waiting");
    await clock.advance(0);
    assert.equal(sent.length, 1);
    const { status, attempts, released_at } = await find() ?? {};
    assert.deepEqual([status, attempts, released_at], ["delivered", 1, "2026-03-01T01:00:00.000Z"]);
    await assert.rejects(deliveries.resolve("run_1", "release"), { code: "conflict", status: 409 });
    assert.equal(sent.length, 1);
  });

  test("is kept: a released one goes on at the next start, for a day from its release", async () => {
    const { deliveries, store, clock, find, sent } = await hold(setUp());
    assert.equal((await find())?.status, "held");
    await deliveries.stop();
    await deliveries.resolve("run_1", "release");
    await clock.advance(HOUR_MS);
    assert.equal(sent.length, 0);
    const next = setUp({ store, clock, answers: [500] });
    await next.deliveries.start();
    await clock.advance(1000);
    assert.equal(next.sent.length, 1);
    await clock.advance(30 * HOUR_MS);
    assert.equal((await next.find())?.status, "failed");
    assert.ok((next.sent.at(-1)?.at ?? 0) <= Date.parse("2026-03-02T00:00:00.000Z"));
  });

  test("sends a failed one again, with all its attempts", async () => {
    const { deliveries, accept, sent, clock, find } = setUp({ answers: [410, 500, 204] });
    await accept();
    await clock.advance(0);
    assert.equal((await find())?.status, "failed");
    await assert.rejects(deliveries.resolve("run_1", "drop"), { code: "conflict" });
    await deliveries.resolve("run_1", "release");
    await clock.advance(60_000);
    assert.equal(sent.length, 3);
    assert.equal((await find())?.status, "delivered");
  });

  test("drops a held one for good", async () => {
    const { deliveries, sent, clock, find } = await hold(setUp());
    assert.equal((await deliveries.resolve("run_1", "drop")).status, "dropped");
    for (const action of ["release", "drop"] as const) {
      await assert.rejects(deliveries.resolve("run_1", action), { code: "conflict", status: 409 });
    }
    await deliveries.start();
    await clock.advance(HOUR_MS);
    assert.deepEqual([sent.length, (await find())?.status], [0, "dropped"]);
  });

  test("is refused where nothing can come of it", async () => {
    const { deliveries, channels } = await hold(setUp());
    await assert.rejects(deliveries.resolve("run_2", "release"), { code: "not_found", status: 404 });
    channels.clear();
    await assert.rejects(deliveries.resolve("run_1", "release"), { code: "conflict", message: /has no reply_url/ });
  });

  test("is made once, of two that come at the same time", async () => {
    const { deliveries, sent, clock } = await hold(setUp());
    const both = await Promise.allSettled([
      deliveries.resolve("run_1", "release"),
      deliveries.resolve("run_1", "release"),
    ]);
    assert.deepEqual(both.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
    await clock.advance(0);
    assert.equal(sent.length, 1);
  });
});

test("while the network is halted no reply is delivered, one under way is broken off, and both go on afterwards", async () => {
  const store = createMemoryStore();
  const by = { via: "cli", tokenId: null } as const;
  const halts = new Halts({
    ...{ store, clock: createFakeClock(), log: SILENT, audit: createFakeAudit(store).append },
    tell: () => {},
  });
  const { accept, sent, find, clock } = setUp({ store, halts, answers: ["silent", 204] });
  await accept();
  await clock.advance(0);
  assert.equal(sent.length, 1);
  await halts.halt({ kind: "network", name: null }, by);
  await clock.advance(HOUR_MS);
  assert.equal(sent.length, 1);
  assert.equal((await find())?.attempts, 0, "an attempt that was broken off counts for nothing");
  await halts.resume(undefined, by);
  await clock.advance(HOUR_MS);
  assert.deepEqual([sent.length, (await find())?.status], [2, "delivered"]);
});
