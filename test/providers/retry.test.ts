import assert from "node:assert/strict";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { createScriptedProvider, type ScriptedTurn } from "../../fixtures/scripted_provider.ts";
import { startOpenAiUpstream, type UpstreamReply } from "../../fixtures/upstream/openai_upstream.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import { ProviderError } from "../../lib/base/errors.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { withRetries } from "../../lib/providers/retry.ts";
import { createFakeClock, type FakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { collect, noticesOf, settings, setUp, textOf } from "./support/provider_setup.ts";

const FAILED = new ProviderError("provider_error", "It failed", { provider: "scripted", status: 503, retryable: true });
const REFUSED = new ProviderError("provider_rejected", "It is wrong", { provider: "scripted", status: 400 });
const limited = (retryAfterSeconds: number) =>
  new ProviderError("provider_rate_limited", "Slow down", {
    provider: "scripted",
    status: 429,
    retryAfterSeconds,
    retryable: true,
  });

function setUpRetries(
  maxRetries: number,
  main: readonly (ScriptedTurn | string)[],
  second?: readonly (ScriptedTurn | string)[],
  secondRetries = 0,
) {
  const clock = createFakeClock();
  const first = createScriptedProvider(main, { clock });
  const fallback = createScriptedProvider(second ?? [], { name: "second", clock });
  const ends: string[] = [];
  const attempt = { provider: first, model: undefined, maxRetries };
  const others = second === undefined ? [] : [{ provider: fallback, model: "other-model", maxRetries: secondRetries }];
  const provider = withRetries([attempt, ...others], {
    clock,
    random: createSeededRandom(),
    log: SILENT,
    observer: {
      onFirstEvents: () => {},
      onEnd: (name, { finish, error }) => ends.push(`${name}:${finish?.finish_reason ?? error?.code ?? "left"}`),
    },
  });
  return { clock, first, fallback, provider, ends };
}

/** Moves the clock on until the work has settled. */
async function drive<T>(clock: FakeClock, work: Promise<T>, maxSeconds = 100): Promise<T> {
  let open = true;
  work.then(() => open = false, () => open = false);
  for (let i = 0; i < maxSeconds * 4 && open; i++) await clock.advance(250);
  return await work;
}

test("tools are free for a provider with fallbacks only where they are free for each of them", () => {
  const attempt = (toolsAreFree?: boolean) => ({
    provider: { ...createScriptedProvider([]), toolsAreFree },
    model: undefined,
    maxRetries: 0,
  });
  const observer = { onFirstEvents: () => {}, onEnd: () => {} };
  const options = { clock: createFakeClock(), random: createSeededRandom(), log: SILENT, observer };
  assert.equal(withRetries([attempt(true)], options).toolsAreFree, true);
  assert.equal(withRetries([attempt(true), attempt()], options).toolsAreFree, false);
  assert.equal(withRetries([attempt(), attempt(true)], options).toolsAreFree, false);
});

test("a failure before the first event is tried again, and said in a notice", async () => {
  const { clock, first, provider, ends } = setUpRetries(2, [{ errorBefore: FAILED }, { errorBefore: FAILED }, "Hello"]);
  const events = await drive(clock, collect(provider));
  assert.equal(textOf(events), "Hello");
  assert.deepEqual(noticesOf(events), ["provider_retry", "provider_retry"]);
  assert.equal(first.requests.length, 3);
  assert.deepEqual(ends, ["scripted:provider_error", "scripted:provider_error", "scripted:stop"]);
  assert.equal(clock.pending(), 0);
});

test("after max_retries the last error is told", async () => {
  const { clock, first, provider } = setUpRetries(1, [{ errorBefore: FAILED }, { errorBefore: FAILED }, "never"]);
  await assert.rejects(drive(clock, collect(provider)), FAILED);
  assert.equal(first.requests.length, 2);
});

test("pauses grow, and Retry-After is kept", async () => {
  const { clock, first, provider } = setUpRetries(2, [{ errorBefore: limited(20) }, { errorBefore: FAILED }, "Hello"]);
  const work = collect(provider);
  await clock.advance(19_999);
  assert.equal(first.requests.length, 1);
  await clock.advance(1);
  assert.equal(first.requests.length, 2);
  await clock.advance(499);
  assert.equal(first.requests.length, 2);
  await clock.advance(501);
  assert.equal(textOf(await work), "Hello");
});

test("a Retry-After of exactly 30 s is waited for", async () => {
  const { clock, first, provider } = setUpRetries(1, [{ errorBefore: limited(30) }, "Hello"]);
  const work = collect(provider);
  await clock.advance(29_999);
  assert.equal(first.requests.length, 1);
  await clock.advance(1);
  assert.equal(textOf(await work), "Hello");
});

test("a Retry-After above 30 s is told to the client at once", async () => {
  const { provider, first } = setUpRetries(2, [{ errorBefore: limited(31) }, "never"]);
  await assert.rejects(collect(provider), (error) => error instanceof ProviderError && error.retryAfterSeconds === 31);
  assert.equal(first.requests.length, 1);
});

test("a failure after the first event is never tried again", async () => {
  const { provider, first, fallback } = setUpRetries(2, [{ text: "Hal", errorAfter: FAILED }, "never"], ["never"]);
  await assert.rejects(collect(provider), FAILED);
  assert.deepEqual([first.requests.length, fallback.requests.length], [1, 0]);
});

test("what lies in the request is neither tried again nor sent elsewhere", async () => {
  const { provider, first, fallback } = setUpRetries(2, [{ errorBefore: REFUSED }], ["never"]);
  await assert.rejects(collect(provider), REFUSED);
  assert.deepEqual([first.requests.length, fallback.requests.length], [1, 0]);
});

test("the fallback answers with its own model, and a notice says so", async () => {
  const { clock, provider, fallback } = setUpRetries(1, [{ errorBefore: FAILED }, { errorBefore: FAILED }], [
    "From the second",
  ]);
  const events = await drive(clock, collect(provider));
  assert.equal(textOf(events), "From the second");
  const [retry, change] = events.filter(({ type }) => type === "notice");
  assert.deepEqual(Object.keys(retry ?? {}), ["type", "code", "message"], "a retry names no other model");
  assert.deepEqual(change, {
    type: "notice",
    code: "provider_fallback",
    message: 'It failed; asking provider "second" instead',
    model: "second/other-model",
  });
  assert.equal(fallback.requests[0]?.model, "other-model");
});

test("a fallback has retries of its own, with pauses that start over", async () => {
  const failures = [{ errorBefore: FAILED }, { errorBefore: FAILED }];
  const { clock, provider, first, fallback } = setUpRetries(1, failures, [...failures, "From the second"], 2);
  const work = collect(provider);
  await clock.advance(500);
  assert.deepEqual([first.requests.length, fallback.requests.length], [2, 1]);
  await clock.advance(500);
  assert.equal(fallback.requests.length, 2);
  const events = await drive(clock, work);
  assert.equal(textOf(events), "From the second");
  assert.deepEqual(noticesOf(events), ["provider_retry", "provider_fallback", "provider_retry", "provider_retry"]);
  const none = setUpRetries(1, failures, failures, 1);
  await assert.rejects(drive(none.clock, collect(none.provider)), FAILED);
  assert.deepEqual([none.first.requests.length, none.fallback.requests.length], [2, 2]);
});

test("a fallback without a model of its own is asked for the first that it lists, or for none where it lists nothing", async () => {
  const clock = createFakeClock();
  const options = { clock, random: createSeededRandom(), log: SILENT, observer: { onFirstEvents() {}, onEnd() {} } };
  const entry = (id: string) => ({ id, object: "model", created: 0, owned_by: "scripted" }) as const;
  const lists = {
    "first": () => Promise.resolve([entry("first"), entry("other")]),
    "": () => Promise.reject(FAILED),
  };
  for (const [model, listModels] of Object.entries(lists)) {
    const main = createScriptedProvider([{ errorBefore: FAILED }], { clock });
    const fallback = createScriptedProvider(["Hello"], { name: "second", clock });
    const attempts = [{ provider: main, model: undefined, maxRetries: 0 }, {
      provider: { ...fallback, listModels },
      model: "",
      maxRetries: 0,
    }] as const;
    assert.equal(textOf(await collect(withRetries(attempts, options))), "Hello");
    assert.equal(fallback.requests[0]?.model, model);
  }
});

test("an abort during a pause ends it at once", async () => {
  const { clock, provider, first } = setUpRetries(2, [{ errorBefore: limited(20) }, "never"]);
  const controller = new AbortController();
  const work = collect(provider, {}, controller.signal);
  await clock.advance(100);
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(work, (error) => error instanceof CancelError && error.reason === "client_gone");
  assert.equal(first.requests.length, 1);
  assert.equal(clock.pending(), 0);
});

test("a stream that is left early counts as one request and ends the provider's stream", async () => {
  const { provider, first, ends } = setUpRetries(2, [{ text: ["a", "b"], hang: "after" }]);
  for await (
    const _ of provider.stream({ model: "m", messages: [], tools: [], parameters: {} }, {
      signal: new AbortController().signal,
    })
  ) break;
  assert.deepEqual(ends, ["scripted:left"]);
  assert.deepEqual([first.active, first.aborted], [0, 1]);
});

test("what may have been served and paid for is counted before anybody is asked again", async () => {
  const silent = new ProviderError("provider_timeout", "It said nothing", { provider: "scripted", retryable: true });
  const script = [{ errorBefore: silent }, { errorBefore: FAILED }, { errorBefore: silent }];
  const { clock, first, fallback, provider } = setUpRetries(2, script, ["From the second"]);
  const asked: string[] = [];
  const read = async (beforeAgain: () => Promise<void>) => {
    const signal = new AbortController().signal;
    const request = { model: "m", messages: [], tools: [], parameters: {} };
    for await (const _ of provider.stream(request, { signal, beforeAgain })) asked.push("answer");
  };
  const count = () => Promise.resolve(void asked.push(`${first.requests.length} ${fallback.requests.length}`));
  await drive(clock, read(count));
  assert.deepEqual(asked, ["1 0", "3 0", "answer", "answer"]);
  const none = setUpRetries(2, script, ["never"]);
  const refused = new ProviderError("provider_rejected", "The budget is used", { provider: "scripted" });
  const call = { signal: new AbortController().signal, beforeAgain: () => Promise.reject(refused) };
  const stream = none.provider.stream({ model: "m", messages: [], tools: [], parameters: {} }, call);
  await assert.rejects(drive(none.clock, stream[Symbol.asyncIterator]().next()), refused);
  assert.deepEqual([none.first.requests.length, none.fallback.requests.length], [1, 0]);
});

async function upstreamOf(t: TestContext, ...replies: UpstreamReply[]) {
  const upstream = await startOpenAiUpstream(...replies);
  t.after(() => upstream.close());
  return upstream;
}

test("over HTTP: a dead provider falls back to a configured one", async (t) => {
  const dead = await upstreamOf(t, { kind: "reset" });
  const alive = await upstreamOf(t);
  const { providers, metrics } = await setUp(t, { base_url: dead.baseUrl, fallback: ["spare/tiny"] }, {
    providers: { spare: settings({ base_url: alive.baseUrl }) },
  });
  const { provider } = providers.resolve(undefined);
  assert.equal(textOf(await collect(provider)), "Hello from upstream");
  assert.match(alive.requests[0]?.text ?? "", /"model":"tiny"/);
  const text = metrics.render();
  assert.match(text, /postern_provider_requests_total\{provider="openai_compatible",status="provider_error"\} 1/);
  assert.match(text, /postern_provider_requests_total\{provider="spare",status="200"\} 1/);
  assert.match(text, /postern_provider_tokens_total\{provider="spare",kind="completion"\} 3/);
  assert.match(text, /postern_provider_time_to_first_token_seconds_count\{provider="spare"\} 1/);
});

test("over HTTP: the offline provider may be the last resort", async (t) => {
  const dead = await upstreamOf(t, { kind: "status", status: 401 });
  const { providers } = await setUp(t, { base_url: dead.baseUrl, fallback: ["offline"] });
  assert.equal(textOf(await collect(providers.resolve("").provider)), "offline says hello");
});
