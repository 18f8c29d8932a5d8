import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import type * as v from "valibot";
import { CancelError } from "../../lib/base/cancel.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { ConfigError, ProviderError } from "../../lib/base/errors.ts";
import type { Message } from "../../lib/base/records/message.ts";
import { createLogger, type LogRecord } from "../../lib/base/telemetry/log.ts";
import { toOwnProviders } from "../../lib/providers/own_providers.ts";
import type {
  ProgramProvider,
  ProgramProviderCall,
  ProgramProviderEvent,
  ProgramProviderRequest,
} from "../../lib/providers/program_provider.ts";
import type { programEventSchema } from "../../lib/providers/program_stream.ts";
import type { ProviderRequest } from "../../lib/providers/provider.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { callsOf, collect, NEVER, noticesOf, REQUEST, setUp, textOf } from "./support/provider_setup.ts";

const FINISH = { type: "finish", finish_reason: "stop" } as const;
const say = (delta: string) => ({ type: "text_delta", delta }) as const;
const USAGE = { prompt_tokens: 3, completion_tokens: 2 };

type Stream = (request: ProgramProviderRequest, call: ProgramProviderCall) => unknown;

/** Opens one provider `own` with the model `small`. What a test's stream gives may break every rule. */
async function open(
  t: TestContext,
  stream: Stream,
  { clock = createFakeClock(), ...more }: Partial<ProgramProvider> & { clock?: ReturnType<typeof createFakeClock> } =
    {},
) {
  const own = toOwnProviders({ own: { models: ["small"], stream, maxRetries: 0, ...more } }, []);
  const lines: LogRecord[] = [];
  const log = createLogger({
    now: clock.now,
    level: "debug",
    redact: (text) => text,
    sink: (line) => void lines.push(line),
  });
  const { providers } = await setUp(t, { kind: "auto", model: "" }, { own, clock, log });
  const resolved = providers.resolve("own/small");
  return {
    providers,
    lines,
    clock,
    ask: (request: Partial<ProviderRequest> = {}, signal = NEVER) =>
      collect(resolved.provider, { model: resolved.model, ...request }, signal),
  };
}

async function failure(work: Promise<unknown>): Promise<ProviderError> {
  const error = await work.then(() => assert.fail("it must fail"), (reason: unknown) => reason);
  assert.ok(error instanceof ProviderError, String(error));
  return error;
}

test("auto takes the first provider of the program, before keys; its models are listed, also those of a function", async (t) => {
  const stream = async function* () {
    yield FINISH;
  };
  const own = toOwnProviders({
    first: { models: ["small", { id: "wide", context_length: 9 }], stream },
    second: { models: () => Promise.resolve(["late"]), stream },
  }, []);
  const { providers } = await setUp(t, { kind: "auto", model: "" }, { own, env: { OPENAI_API_KEY: "sk-1" } });
  assert.deepEqual(providers.inUse, { name: "first", model: "small", reason: "the program gives it" });
  const listed = await providers.listModels(NEVER);
  assert.deepEqual(listed.map(({ id, owned_by, context_length }) => [id, owned_by, context_length]), [
    ["small", "first", undefined],
    ["wide", "first", 9],
    ["second/late", "second", undefined],
  ]);
  assert.equal(providers.resolve("first/wide").model, "wide");
  const error = await failure(collect(providers.resolve("first/other").provider, { model: "other" }));
  assert.deepEqual([error.code, error.status], ["model_not_found", 404]);
  assert.match(error.message, /"small"/);
});

test("an explicit kind stays the default, and names a provider of the program as its fallback", async (t) => {
  const own = toOwnProviders({
    own: {
      models: ["small"],
      stream: async function* () {
        yield say("from the program");
        yield FINISH;
      },
    },
  }, []);
  const { providers } = await setUp(t, {
    kind: "openai_compatible",
    base_url: "http://127.0.0.1:9/v1",
    model: "m",
    fallback: ["own"],
  }, { own });
  assert.equal(providers.inUse.name, "openai_compatible");
  const events = await collect(providers.resolve("").provider);
  assert.deepEqual([textOf(events), noticesOf(events)], ["from the program", ["provider_fallback"]]);
});

test("events and arrays of events go on one by one; usage and opaque parts are completed", async (t) => {
  const { ask } = await open(t, async function* () {
    yield say("a");
    yield [say("b"), { type: "tool_call_delta", index: 0, call_id: "c1", name: "t", arguments_delta: "{" }];
    yield [];
    yield { type: "tool_call_delta", index: 0, arguments_delta: "}" };
    yield { type: "finish", finish_reason: "stop", usage: USAGE, opaque: { signature: "s" } };
    assert.fail("nothing is asked for after the end");
  });
  const events = await ask();
  assert.equal(textOf(events), "ab");
  assert.deepEqual(callsOf(events), [{ id: "c1", name: "t", arguments: "{}" }]);
  assert.deepEqual(events.at(-1), {
    type: "finish",
    finish_reason: "tool_calls",
    usage: { ...USAGE, total_tokens: 5 },
    opaque: { signature: "s" },
    provider: "own",
  });
});

test("a provider of the program gets the ids of its calls back", async (t) => {
  const seen: unknown[] = [];
  const { ask } = await open(t, async function* ({ messages }: { readonly messages: readonly unknown[] }) {
    seen.push(...messages);
    yield FINISH;
  });
  const call = { id: "call_of_the_run", type: "function", function: { name: "t", arguments: "{}" } } as const;
  await ask({
    messages: [
      { role: "assistant", content: null, tool_calls: [call], vendor_ids: { own: ["c1"], other: ["x"] } },
      { role: "tool", tool_call_id: call.id, content: "done" },
    ],
  });
  assert.deepEqual(seen, [
    { role: "assistant", content: null, tool_calls: [{ ...call, id: "c1" }] },
    { role: "tool", tool_call_id: "c1", content: "done" },
  ]);
});

const circle: Record<string, unknown> = {};
circle["self"] = circle;
const part = (index: number, more: object = {}) => ({ type: "tool_call_delta", index, arguments_delta: "", ...more });

for (
  const [name, yields, message] of [
    ["nothing", [], /ended without a "finish" event/],
    ["text alone", [say("a")], /ended without a "finish" event/],
    ["null", [null], /no event; the types are text_delta, .*finish$/],
    ["a text", ["hello"], /no event/],
    ["an array in an array", [[[say("a")]]], /no event/],
    ["an unknown type", [{ type: "text", text: "secret-1" }], /no event/],
    ["a number as text", [{ type: "text_delta", delta: 1 }], /"delta" of a "text_delta" event must be string/],
    ["a missing field", [{ type: "text_delta" }], /"delta" of a "text_delta" event is missing/],
    ["an unknown field", [{ ...FINISH, finishReason: "stop" }], /there is no "finishReason" of a "finish" event/],
    ["an unknown reason", [{ type: "finish", finish_reason: "secret-1" }], /"finish_reason" of a "finish" event/],
    ["broken usage", [{ ...FINISH, usage: { prompt_tokens: Number.NaN } }], /"usage\.prompt_tokens" of a "finish"/],
    ["negative usage", [{ ...FINISH, usage: { ...USAGE, total_tokens: -1 } }], /"usage\.total_tokens"/],
    ["a circle to keep", [{ ...FINISH, opaque: circle }], /"opaque".*no JSON value/],
    ["a function to keep", [{ ...FINISH, opaque: () => 1 }], /"opaque".*no JSON value/],
    ["much to keep", [{ ...FINISH, opaque: "x".repeat(2_000_000) }], /"opaque".*longer than/],
    ["an event after the end", [[FINISH, say("a")]], /follows the "finish" event/],
    ["a call without an id", [part(0, { name: "t" })], /tool call 0 lacks its call_id/],
    ["a call without a name", [part(0, { call_id: "c" })], /tool call 0 lacks its name/],
    ["calls out of order", [part(1, { call_id: "c", name: "t" })], /tool call 1 comes before the tool call 0/],
    ["too many calls", [part(128, { call_id: "c", name: "t" })], /"index"/],
    ["calls announced and not made", [{ type: "finish", finish_reason: "tool_calls" }], /has no tool call/],
    ["too many empty arrays", Array.from({ length: 10_001 }, () => []), /more than 10000 arrays without an event/],
    ["too many events", Array.from({ length: 11 }, () => new Array(100_000).fill(say(""))), /more than 1000000 events/],
    ["more text than fits", Array.from({ length: 17 }, () => say("x".repeat(1024 * 1024))), /longer than 16777216/],
  ] as readonly (readonly [string, readonly unknown[], RegExp])[]
) {
  test(`a provider that yields ${name} is refused with what is wrong`, async (t) => {
    const { ask } = await open(t, async function* () {
      yield* yields;
    });
    const error = await failure(ask());
    assert.deepEqual([error.code, error.provider, error.retryable], ["provider_error", "own", false]);
    assert.match(error.message, message);
    assert.doesNotMatch(error.message, /secret-1/);
  });
}

for (
  const [name, stream] of [
    ["undefined", () => undefined],
    ["a promise", () => Promise.resolve()],
    ["an iterator that gives no object", () => ({ [Symbol.asyncIterator]: () => ({ next: () => 1 }) })],
  ] as readonly (readonly [string, Stream])[]
) {
  test(`a stream() that returns ${name} is refused`, async (t) => {
    const { ask } = await open(t, stream);
    assert.match((await failure(ask())).message, /async iterable|must give an object/);
  });
}

test("a provider that never waits for anything can be cancelled, and the event loop goes on", async (t) => {
  const clock = systemClock as ReturnType<typeof createFakeClock>;
  const { ask } = await open(t, async function* () {
    for (;;) yield say("");
  }, { clock });
  const controller = new AbortController();
  setTimeout(() => controller.abort(new CancelError("cancelled")), 20);
  await assert.rejects(ask({}, controller.signal), CancelError);
});

test("what a provider throws: its own ProviderError decides, any other error is logged and not shown", async (t) => {
  const given = new ProviderError("provider_rate_limited", "Slow down", {
    provider: "somebody else",
    status: 429,
    retryAfterSeconds: 40,
    retryable: true,
  });
  const limited = await failure((await open(t, () => {
    throw given;
  })).ask());
  assert.deepEqual(
    [limited.code, limited.provider, limited.status, limited.retryAfterSeconds, limited.message],
    ["provider_rate_limited", "own", 429, 40, "Slow down"],
  );
  const odd = await failure((await open(t, () => {
    throw Object.assign(given, { status: 7, retryAfterSeconds: -1, retryable: "yes" });
  })).ask());
  assert.deepEqual([odd.status, odd.retryAfterSeconds, odd.retryable], [undefined, undefined, false]);
  for (const thrown of [new Error("password=secret-1"), "secret-1", undefined]) {
    const { ask, lines } = await open(t, async function* () {
      yield say("half a");
      throw thrown;
    });
    const error = await failure(ask());
    assert.match(error.message, /Provider "own" failed: the log/);
    assert.ok(lines.some(({ message, fields }) => /provider of the program failed/.test(message) && "error" in fields));
  }
});

test("a ProviderError that may pass is asked again, with the pauses of every provider", async (t) => {
  let asked = 0;
  const { ask, clock } = await open(t, async function* () {
    if (++asked < 3) {
      throw new ProviderError("provider_error", "Busy", { provider: "own", status: 503, retryable: true });
    }
    yield say("at last");
    yield FINISH;
  }, { maxRetries: 2 });
  const asking = ask();
  await clock.advance(500);
  await clock.advance(1000);
  const events = await asking;
  assert.deepEqual([textOf(events), noticesOf(events)], ["at last", ["provider_retry", "provider_retry"]]);
});

test("a provider that ignores its signal is left behind at the abort, and one that is silent at its time limit", async (t) => {
  let seen: AbortSignal | undefined;
  const hang: Stream = async function* (_request, { signal }) {
    seen = signal;
    yield say("a");
    await new Promise(() => {});
  };
  const cancelled = await open(t, hang);
  const controller = new AbortController();
  const asking = cancelled.ask({}, controller.signal);
  await cancelled.clock.advance(1);
  controller.abort(new CancelError("cancelled"));
  await assert.rejects(asking, CancelError);
  assert.equal(seen?.aborted, true);
  assert.equal(cancelled.clock.pending(), 0);

  const silent = await open(t, hang, { timeoutMs: 50 });
  const failing = failure(silent.ask());
  await silent.clock.advance(49);
  await silent.clock.advance(2);
  const error = await failing;
  assert.deepEqual([error.code, error.message], ["provider_timeout", 'Provider "own" gave nothing for 0.05 s']);
  assert.equal(seen?.aborted, true);
  assert.equal(silent.clock.pending(), 0);
});

for (
  const [what, event] of Object.entries(
    {
      notices: { type: "notice", code: "busy", message: "Still at work" },
      "empty texts": { type: "text_delta", delta: "" },
      "arrays without an event": [],
    } as const,
  )
) {
  test(`a provider that yields ${what} for ever ends after ten times its timeoutMs`, async (t) => {
    let asked = 0;
    const clock = createFakeClock();
    const stream = async function* () {
      asked++;
      for (;;) {
        await clock.sleep(30);
        yield event;
      }
    };
    const { ask } = await open(t, stream, { clock, timeoutMs: 50 });
    const failing = failure(ask());
    let ms = 0;
    for (let isOver = false; !isOver && ms < 2_000; ms += 30) {
      void failing.then(() => isOver = true);
      await clock.advance(30);
    }
    const { code, message } = await failing;
    assert.deepEqual([code, message], [
      "provider_timeout",
      'Gave up on provider "own": its reply said nothing within 0.5 s',
    ]);
    assert.ok(ms >= 500, `${ms} ms`);
    assert.equal(asked, 1);
    assert.equal(clock.pending(), 0);
  });
}

test("a reader that leaves ends the provider's iteration", async (t) => {
  let ended = 0;
  let seen: AbortSignal | undefined;
  const { providers } = await open(t, async function* (_request, { signal }) {
    seen = signal;
    try {
      for (;;) yield say("a");
    } finally {
      ended++;
    }
  });
  for await (
    const _ of providers.resolve("own/small").provider.stream({ ...REQUEST, model: "small" }, { signal: NEVER })
  ) {
    break;
  }
  assert.deepEqual([ended, seen?.aborted], [1, true]);
});

test("after a whole turn the provider runs on to its end, and its signal does not abort", async (t) => {
  const ended = Promise.withResolvers<boolean>();
  const { ask, clock } = await open(t, async function* (_request, { signal }) {
    try {
      yield say("a");
      yield FINISH;
      await clock.sleep(10, signal);
      ended.resolve(signal.aborted);
    } finally {
      ended.reject(new Error("it was cut off"));
    }
  });
  await ask();
  await clock.advance(10);
  assert.equal(await ended.promise, false);
  await clock.advance(0);
  assert.equal(clock.pending(), 0);
});

test("a provider that goes on after its turn is left behind after its time, and a late error is logged", async (t) => {
  let seen: AbortSignal | undefined;
  const { ask, clock } = await open(t, async function* (_request, { signal }) {
    seen = signal;
    yield FINISH;
    await new Promise(() => {});
  }, { timeoutMs: 1_000 });
  await ask();
  await clock.advance(999);
  assert.equal(seen?.aborted, false);
  await clock.advance(1);
  assert.equal(seen?.aborted, true);
  const late = await open(t, async function* () {
    yield FINISH;
    throw new Error("secret-1");
  });
  await late.ask();
  await late.clock.advance(0);
  assert.deepEqual(late.lines.map(({ message }) => message), ["A provider of the program failed after its turn"]);
  assert.equal(late.clock.pending(), 0);
});

test("a request is a copy, and a blind provider gets no pictures", async (t) => {
  const messages = [{ role: "user", content: "Hello" }] as const;
  let pictures: unknown = "not asked";
  const { ask } = await open(t, async function* (request) {
    pictures = request.pictures;
    (request.messages as unknown[]).length = 0;
    yield FINISH;
  });
  await ask({ messages, pictures: new Map([["a", "b"]]) });
  assert.deepEqual([messages.length, pictures], [1, undefined]);
});

test("a program is not told who denied a call and how files are called, which are the gateway's own notes", async (t) => {
  const seen: unknown[] = [];
  const stream = async function* ({ messages }: ProgramProviderRequest) {
    seen.push(...messages.slice(-2));
    yield FINISH;
  };
  const { ask } = await open(t, stream);
  const call = { id: "call_1", type: "function", function: { name: "look", arguments: "{}" } } as const;
  const sent = { role: "user", content: "And this", files: ["image.png"] } satisfies Message;
  const denied = { role: "tool", tool_call_id: "call_1", content: "No", is_error: true, denied_by: "person" } as const;
  await ask({ messages: [{ role: "assistant", content: null, tool_calls: [call] }, denied, sent] });
  assert.deepEqual(seen, [
    { role: "tool", tool_call_id: "call_1", content: "No", is_error: true },
    { role: "user", content: "And this" },
  ]);
});

test("a list of models that is rubbish, throws or never comes leaves the provider usable", async (t) => {
  const stream = async function* () {
    yield say("here");
    yield FINISH;
  };
  for (
    const models of [
      () => [1],
      () => [],
      () => {
        throw new Error("no list");
      },
      () => new Promise(() => {}),
    ] as unknown as readonly ProgramProvider["models"][]
  ) {
    const clock = createFakeClock();
    const opening = open(t, stream, { models, clock });
    await clock.advance(10_000);
    await clock.advance(10_000);
    const { providers } = await opening;
    const listing = providers.listModels(NEVER);
    await clock.advance(10_000);
    assert.deepEqual(await listing, []);
    assert.equal(textOf(await collect(providers.resolve("own/any").provider, { model: "any" })), "here");
  }
});

test("embed() gives one vector a text, all of one length, or an error", async (t) => {
  const stream = async function* () {
    yield FINISH;
  };
  const texts = ["a", "b"];
  const embedded = async (embed: unknown) => {
    const { providers } = await open(t, stream, { embed: embed as NonNullable<ProgramProvider["embed"]> });
    const { provider } = providers.resolve("own/small");
    return (await provider.embed?.({ model: "small", input: texts }, NEVER))?.vectors;
  };
  assert.deepEqual(await embedded(() => [[1, 2], Float32Array.of(3, 4)]), [
    Float32Array.of(1, 2),
    Float32Array.of(3, 4),
  ]);
  for (const given of [undefined, [[1]], [[1], []], [[1], [Number.NaN]], [[1], [1, 2]], [[1], "ab"]]) {
    assert.match((await failure(embedded(() => given))).message, /embed\(\)/);
  }
});

test("wrong providers, names that are taken and unknown options are refused by name", () => {
  const fine = { models: ["m"], stream: () => [] };
  const cases: readonly (readonly [unknown, RegExp])[] = [
    [[fine], /must be an object/],
    [{ "Not Fine": fine }, /name must match/],
    [{ openai: fine }, /a built-in provider has it/],
    [{ plain: fine }, /a built-in provider has it/],
    [{ auto: fine }, /a built-in provider has it/],
    [{ work: fine }, /\[providers\.work\] of the configuration has it/],
    [{ a: null }, /"a": it must be an object/],
    [{ a: { ...fine, modles: ["m"] } }, /no option "modles"/],
    [{ a: { ...fine, models: undefined } }, /models must be a function, or a list/],
    [{ a: { ...fine, models: [] } }, /models must be 1 to 1000/],
    [{ a: { ...fine, models: ["m", "m"] } }, /models has a name twice/],
    [{ a: { ...fine, models: [{ id: "m", contextLength: 1 }] } }, /models must be a function, or a list/],
    [{ a: { ...fine, stream: undefined } }, /stream must be a function/],
    [{ a: { ...fine, embed: 1 } }, /embed must be a function/],
    [{ a: { ...fine, sees: "yes" } }, /sees must be true or false/],
    [{ a: { ...fine, timeoutMs: 0 } }, /timeoutMs/],
    [{ a: { ...fine, maxRetries: 11 } }, /maxRetries/],
  ];
  for (const [given, message] of cases) {
    assert.throws(() => toOwnProviders(given, ["work"]), (error) => {
      assert.ok(error instanceof ConfigError, String(error));
      assert.match(error.message, message);
      return true;
    });
  }
});

test("types: what a provider yields and takes", () => {
  // Both ways: the hand-written types say what the schemas check
  const yields: (event: ProgramProviderEvent) => v.InferInput<typeof programEventSchema> = (event) => event;
  const checked: (event: v.InferInput<typeof programEventSchema>) => ProgramProviderEvent = (event) => event;
  const given: (request: ProviderRequest) => ProgramProviderRequest = (request) => request;
  assert.equal([yields, checked, given].length, 3);
  const provider: ProgramProvider = {
    models: ["m", { id: "n", context_length: 1 }],
    async *stream({ model, messages }, { signal }) {
      const count: number = messages.length;
      if (!signal.aborted) yield { type: "text_delta", delta: `${model}${count}` };
      yield [{ type: "finish", finish_reason: "stop", usage: USAGE }];
    },
  };
  assert.ok(provider);
  // @ts-expect-error text has no such field
  const event: ProgramProviderEvent = { type: "text_delta", text: "a" };
  // @ts-expect-error stream is required
  const lacking: ProgramProvider = { models: ["m"] };
  assert.ok(event && lacking);
});
