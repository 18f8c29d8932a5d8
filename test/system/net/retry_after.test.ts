import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { retryAfterMs, withRetryAfter } from "../../../lib/system/net/retry_after.ts";
import type { GuardedFetch, GuardedRequest } from "../../../lib/system/net/guarded_fetch.ts";
import { LOCAL } from "../../support/fetch_bench.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";

const NOW = Date.parse("Mon, 23 Nov 2026 07:00:00 GMT");

test("retryAfterMs() reads seconds and the three forms of a date, and nothing else", () => {
  const wait = (text: string) => retryAfterMs({ "retry-after": text }, NOW);
  assert.deepEqual(["0", "120", " 7 "].map(wait), [0, 120_000, 7_000]);
  const dates = ["Mon, 23 Nov 2026 07:00:09 GMT", "Monday, 23-Nov-26 07:00:09 GMT", "Mon Nov 23 07:00:09 2026"];
  assert.deepEqual(dates.map(wait), [9_000, 9_000, 9_000]);
  assert.equal(wait("Sun, 22 Nov 2026 07:00:00 GMT"), 0);
  for (const text of ["", "-5", "1.5", "5s", "soon", "1e3", "9".repeat(11), "Mon", "Infinity"]) {
    assert.equal(wait(text), undefined, text);
  }
  assert.equal(retryAfterMs({}, NOW), undefined);
});

interface Answer {
  readonly status: number;
  readonly after?: string;
  /** Milliseconds that the reply takes. */
  readonly takesMs?: number;
}

function setUp(answers: readonly Answer[]) {
  const clock = createFakeClock(NOW);
  const sent: { readonly at: number; readonly timeoutMs: number; readonly opened: boolean }[] = [];
  const fetch: GuardedFetch = async (request) => {
    const { status, after, takesMs = 0 } = answers[sent.length] ?? { status: 200 };
    const at = clock.now() - NOW;
    const headers: Record<string, string> = after === undefined ? {} : { "retry-after": after };
    const opened = await request.sink?.({ status, headers }) !== undefined;
    sent.push({ at, timeoutMs: request.timeoutMs, opened });
    if (takesMs > 0) await clock.sleep(takesMs, request.signal);
    return { status, headers, body: new Uint8Array(), bytes: 0, truncated: false, url: request.url };
  };
  const get = (changes: Partial<GuardedRequest> = {}) =>
    withRetryAfter(fetch, { clock })({
      method: "GET",
      url: "http://busy.test/",
      guard: { rules: LOCAL },
      maxBytes: 1,
      timeoutMs: 60_000,
      signal: new AbortController().signal,
      ...changes,
    });
  return { clock, sent, get };
}

/** Lets a request go on until it waits for the clock, and moves the clock. */
async function advance(clock: FakeClock, ms: number) {
  await clock.advance(0);
  await clock.advance(ms);
}

test("GET and HEAD are sent again after the pause that 429 and 503 ask for, at most twice", async () => {
  const { clock, sent, get } = setUp([{ status: 429, after: "5" }, { status: 503, after: "10" }, {
    status: 503,
    after: "1",
  }]);
  const reply = get({ method: "HEAD" });
  await advance(clock, 4_999);
  assert.equal(sent.length, 1);
  await advance(clock, 1);
  await advance(clock, 10_000);
  assert.equal((await reply).status, 503);
  assert.deepEqual(sent.map(({ at, timeoutMs }) => [at, timeoutMs]), [[0, 60_000], [5_000, 55_000], [15_000, 45_000]]);
});

test("nothing else is sent again: other methods, other statuses, no header, a pause that is too long", async () => {
  const cases: readonly (readonly [Answer, Partial<GuardedRequest>])[] = [
    ...(["POST", "PUT", "PATCH", "DELETE"] as const).map((method) =>
      [{ status: 429, after: "1" }, { method }] as const
    ),
    ...[200, 404, 500, 502].map((status) => [{ status, after: "1" }, {}] as const),
    [{ status: 429 }, {}],
    [{ status: 429, after: "soon" }, {}],
    [{ status: 429, after: "31" }, {}],
    [{ status: 429, after: "5" }, { timeoutMs: 5_000 }],
    [{ status: 429, after: "Mon, 23 Nov 2026 08:00:00 GMT" }, {}],
  ];
  for (const [answer, changes] of cases) {
    const { get, sent } = setUp([answer]);
    assert.equal((await get(changes)).status, answer.status, JSON.stringify([answer, changes]));
    assert.equal(sent.length, 1);
  }
});

test("pauses and attempts share one time limit", async () => {
  const { clock, sent, get } = setUp([{ status: 429, after: "5", takesMs: 4_000 }, { status: 200 }]);
  const reply = get({ timeoutMs: 10_000 });
  await advance(clock, 4_000);
  await advance(clock, 5_000);
  assert.equal((await reply).status, 200);
  assert.deepEqual(sent.map(({ timeoutMs }) => timeoutMs), [10_000, 1_000]);
});

test("a pause ends with the signal", async () => {
  const { clock, get, sent } = setUp([{ status: 429, after: "5" }]);
  const controller = new AbortController();
  const reply = get({ signal: controller.signal });
  await advance(clock, 1_000);
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(reply, (error) => error instanceof CancelError && error.reason === "client_gone");
  assert.equal(sent.length, 1);
});

test("a sink is opened for the last reply alone", async () => {
  const { clock, get, sent } = setUp([{ status: 503, after: "0" }, { status: 200 }]);
  const reply = get({ sink: () => Promise.resolve({ write() {}, close() {} }) });
  await advance(clock, 0);
  assert.equal((await reply).status, 200);
  assert.deepEqual(sent.map(({ opened }) => opened), [false, true]);
});
