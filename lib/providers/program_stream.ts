import * as v from "valibot";
import { CancelError, cancelError } from "../base/cancel.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { ProviderError } from "../base/errors.ts";
import { finishReasonSchema } from "../base/records/agent_event.ts";
import type { ProviderEvent } from "../base/records/provider_event.ts";
import { usageSchema } from "../base/records/usage.ts";
import { Yielder } from "../base/tick.ts";

const delta = v.string();
const name = v.pipe(v.string(), v.minLength(1), v.maxLength(256));
/** Calls of one turn. */
const MAX_CALLS = 128;

/** Events that a provider of a program yields: ProgramProviderEvent says what they mean. */
export const programEventSchema = v.variant("type", [
  v.strictObject({ type: v.literal("text_delta"), delta }),
  v.strictObject({ type: v.literal("reasoning_delta"), delta }),
  v.strictObject({ type: v.literal("refusal_delta"), delta }),
  v.strictObject({
    type: v.literal("tool_call_delta"),
    index: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(MAX_CALLS - 1)),
    call_id: v.optional(name),
    name: v.optional(name),
    arguments_delta: delta,
  }),
  v.strictObject({ type: v.literal("notice"), code: name, message: v.pipe(v.string(), v.maxLength(1_000)) }),
  v.strictObject({
    type: v.literal("finish"),
    finish_reason: finishReasonSchema,
    usage: v.optional(v.strictObject({
      prompt_tokens: usageSchema.entries.prompt_tokens,
      completion_tokens: usageSchema.entries.completion_tokens,
      total_tokens: v.optional(usageSchema.entries.total_tokens),
      prompt_tokens_details: usageSchema.entries.prompt_tokens_details,
      completion_tokens_details: usageSchema.entries.completion_tokens_details,
    })),
    model: v.optional(name),
    opaque: v.optional(v.unknown()),
  }),
]);
type CheckedEvent = v.InferOutput<typeof programEventSchema>;

/** Turn that a provider of a program is asked for. */
export interface ProgramTurn {
  /** Name of the provider, for errors */
  readonly provider: string;
  /** Asks for the turn. Called once. `signal` aborts when the turn is given up, and never after a whole one whose provider ends */
  readonly open: (signal: AbortSignal) => unknown;
  /** Aborts when the run is cancelled */
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Milliseconds until the first event, and between two events */
  readonly timeoutMs: number;
  /** Receives an error of the provider after its turn was whole: it changes nothing for the reader */
  readonly onLateError: (error: unknown) => void;
}

/** UTF-16 units of one turn: text, reasoning and arguments together. */
const MAX_UNITS = 16 * 1024 * 1024;
const MAX_EVENTS = 1_000_000;
/** Arrays of one turn without an event. */
const MAX_EMPTY = 10_000;
const MAX_OPAQUE_UNITS = 1024 * 1024;
/** Longest time in which a turn says nothing though events come, as a multiple of `timeoutMs`: that of every provider. */
const SILENCE = 10;

/**
 * Asks a provider of a program for a turn, and checks what it yields: form and order of the events, their number and length, the time
 * between two of them, and the time without a word. A provider that ignores the abort of its signal is left behind.
 * @throws {ProviderError} `provider_error` for a reply that breaks the rules, `provider_timeout`; {CancelError} when `signal` aborts;
 *   what the provider throws, as it is
 */
export async function* streamTurn(turn: ProgramTurn): AsyncGenerator<readonly ProviderEvent[], void, undefined> {
  const { provider, clock, signal } = turn;
  const waiting = new BoundedWait(turn);
  const check = new TurnCheck(provider);
  const yielder = new Yielder({ clock, signal });
  const silenceMs = turn.timeoutMs * SILENCE;
  let quietMs = 0;
  let isWhole = false;
  let iterator: AsyncIterator<unknown> | undefined;
  try {
    if (signal.aborted) throw cancelError(signal);
    iterator = iteratorOf(turn.open(waiting.signal), provider);
    while (!check.isFinished) {
      const since = clock.monotonic();
      const step = toStep(await waiting.for<unknown>(iterator.next()), provider);
      if (step.done === true) throw broken(provider, 'it ended without a "finish" event');
      const events = check.take(step.value);
      isWhole = check.isFinished;
      quietMs = events.some(isSaid) ? 0 : quietMs + clock.monotonic() - since;
      if (quietMs >= silenceMs) throw saysNothing(provider, silenceMs);
      yield events;
      // A provider that never waits for anything would stop the whole process
      if (yielder.isDue()) await yielder.yield();
    }
  } finally {
    if (isWhole && iterator !== undefined) waiting.letEnd(iterator, turn.onLateError);
    else {
      waiting.abandon();
      leave(iterator);
    }
  }
}

/** Returns the error of a reply that breaks the contract. A second attempt would break it too. */
export function broken(provider: string, problem: string): ProviderError {
  return new ProviderError("provider_error", `Cannot use the reply of provider "${provider}": ${problem}`, {
    provider,
  });
}

/** Waits for a provider of a program: until it answers, its time is over, or the run is cancelled. */
export class BoundedWait {
  readonly #turn: Pick<ProgramTurn, "provider" | "signal" | "clock" | "timeoutMs">;
  /** Aborts with the run, and when the work is given up */
  readonly #own = new AbortController();
  #reject: ((error: Error) => void) | undefined = undefined;
  /** Start of the running wait, in monotonic milliseconds */
  #since = 0;
  /** Timer of all waits: looks how long the running one has lasted */
  #timer: Timer | undefined = undefined;

  constructor(turn: Pick<ProgramTurn, "provider" | "signal" | "clock" | "timeoutMs">) {
    this.#turn = turn;
    turn.signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  /** Signal for the provider: aborts when its work is given up. */
  get signal(): AbortSignal {
    return this.#own.signal;
  }

  /** @throws {ProviderError} `provider_timeout`; {CancelError}; the error of the work */
  async for<T>(work: T | PromiseLike<T>): Promise<T> {
    const { clock, signal, timeoutMs } = this.#turn;
    if (signal.aborted) throw cancelError(signal);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#reject = reject;
    this.#since = clock.monotonic();
    this.#timer ??= clock.after(timeoutMs, this.#look);
    Promise.resolve(work).then(resolve, reject);
    try {
      return await promise;
    } finally {
      this.#reject = undefined;
    }
  }

  /** Ends the wait after a success. The signal stays as it is. */
  end(): void {
    this.#timer?.clear();
    this.#turn.signal.removeEventListener("abort", this.#onAbort);
  }

  /** Ends the wait, and aborts the provider's signal: it must not keep a connection open for what nobody reads. */
  abandon(): void {
    this.end();
    this.#own.abort(new CancelError("client_gone", "Nobody waits for the provider any more"));
  }

  /** Lets a provider whose turn is whole run to its end, behind the back of the reader. One that takes longer than a wait may is left behind. */
  letEnd(iterator: AsyncIterator<unknown>, onLateError: (error: unknown) => void): void {
    this.end();
    const { clock, timeoutMs } = this.#turn;
    const giveUp = () => {
      this.abandon();
      leave(iterator);
    };
    this.#timer = clock.after(timeoutMs, giveUp);
    const stop = () => this.#timer?.clear();
    (async () => toStep(await iterator.next(), this.#turn.provider))().then(({ done }) => {
      if (done === true) return stop();
      giveUp();
      onLateError(broken(this.#turn.provider, 'an event follows the "finish" event'));
    }).catch((error: unknown) => {
      stop();
      if (!this.#own.signal.aborted) onLateError(error);
    });
  }

  readonly #look = (): void => {
    const { provider, clock, timeoutMs } = this.#turn;
    this.#timer = undefined;
    if (this.#reject === undefined) return;
    const left = this.#since + timeoutMs - clock.monotonic();
    if (left <= 0) this.#reject(tooLate(provider, timeoutMs));
    else this.#timer = clock.after(left, this.#look);
  };

  readonly #onAbort = (): void => {
    const error = cancelError(this.#turn.signal);
    this.#own.abort(error);
    this.#reject?.(error);
  };
}

function tooLate(provider: string, ms: number): ProviderError {
  return new ProviderError("provider_timeout", `Provider "${provider}" gave nothing for ${ms / 1000} s`, {
    provider,
    retryable: true,
  });
}

/** Events came, so that nobody asks again. */
function saysNothing(provider: string, ms: number): ProviderError {
  const message = `Gave up on provider "${provider}": its reply said nothing within ${ms / 1000} s`;
  return new ProviderError("provider_timeout", message, { provider });
}

function isSaid(event: ProviderEvent): boolean {
  if (event.type === "tool_call_delta") return event.name !== undefined || event.arguments_delta !== "";
  return "delta" in event ? event.delta !== "" : event.type === "finish";
}

/** Checks the events of one turn in their order. */
class TurnCheck {
  isFinished = false;
  readonly #provider: string;
  #units = 0;
  #events = 0;
  #empty = 0;
  #calls = 0;

  constructor(provider: string) {
    this.#provider = provider;
  }

  /** Returns the events of one step. @throws {ProviderError} `provider_error` */
  take(value: unknown): readonly ProviderEvent[] {
    const given: readonly unknown[] = Array.isArray(value) ? value : [value];
    this.#events += given.length;
    if (given.length === 0) this.#empty++;
    if (this.#events > MAX_EVENTS) throw this.#broken(`it has more than ${MAX_EVENTS} events`);
    if (this.#empty > MAX_EMPTY) throw this.#broken(`it has more than ${MAX_EMPTY} arrays without an event`);
    return given.map((one) => this.#check(one));
  }

  #check(value: unknown): ProviderEvent {
    if (this.isFinished) throw this.#broken('an event follows the "finish" event');
    const result = v.safeParse(programEventSchema, value, { abortEarly: true });
    if (!result.success) throw this.#broken(reasonOf(value, result.issues[0]));
    const event = result.output;
    switch (event.type) {
      case "text_delta":
      case "reasoning_delta":
      case "refusal_delta":
        this.#count(event.delta);
        return event;
      case "tool_call_delta":
        return this.#callPart(event);
      case "notice":
        return event;
      case "finish":
        return this.#finish(event);
    }
  }

  #callPart(event: Extract<CheckedEvent, { type: "tool_call_delta" }>): ProviderEvent {
    const { type, index, call_id, name, arguments_delta } = event;
    this.#count(arguments_delta);
    if (index > this.#calls) throw this.#broken(`the tool call ${index} comes before the tool call ${this.#calls}`);
    if (index < this.#calls) return { type, index, arguments_delta };
    if (call_id === undefined || name === undefined) {
      throw this.#broken(
        `the first part of the tool call ${index} lacks its ${name === undefined ? "name" : "call_id"}`,
      );
    }
    this.#calls++;
    return { type, index, call_id, name, arguments_delta };
  }

  #finish(event: Extract<CheckedEvent, { type: "finish" }>): ProviderEvent {
    const { type, finish_reason: given, usage, model, opaque } = event;
    if (given === "tool_calls" && this.#calls === 0) {
      throw this.#broken('it ends with "tool_calls", and has no tool call');
    }
    this.isFinished = true;
    return {
      type,
      finish_reason: given === "stop" && this.#calls > 0 ? "tool_calls" : given,
      usage: usage && { ...usage, total_tokens: usage.total_tokens ?? usage.prompt_tokens + usage.completion_tokens },
      ...(model === undefined ? {} : { model }),
      ...(opaque === undefined ? {} : { opaque: this.#opaque(opaque), provider: this.#provider }),
    };
  }

  /** Returns the value as JSON keeps it: it goes into the journal. */
  #opaque(value: unknown): unknown {
    const json = toJson(value);
    if (json === undefined) throw this.#broken('the "opaque" of its "finish" event is no JSON value');
    if (json.length > MAX_OPAQUE_UNITS) {
      throw this.#broken(`the "opaque" of its "finish" event is longer than ${MAX_OPAQUE_UNITS} characters`);
    }
    return JSON.parse(json);
  }

  #count(text: string): void {
    this.#units += text.length;
    if (this.#units > MAX_UNITS) throw this.#broken(`it is longer than ${MAX_UNITS} characters`);
  }

  #broken(problem: string): ProviderError {
    return broken(this.#provider, problem);
  }
}

function toJson(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

/** Names the field at fault, and never quotes a value. */
function reasonOf(value: unknown, issue: v.BaseIssue<unknown>): string {
  const type = typeof value === "object" && value !== null && "type" in value ? value.type : undefined;
  const path = (issue.path ?? []).map(({ key }) => String(key)).join(".").slice(0, 100);
  const types = programEventSchema.options.map(({ entries }) => entries.type.literal);
  if (path === "" || path === "type") return `it yields something that is no event; the types are ${types.join(", ")}`;
  const place = `"${path}" of a "${String(type)}" event`;
  if (issue.type === "strict_object") {
    return issue.expected === "never" ? `there is no ${place}` : `${place} is missing`;
  }
  return `${place} must be ${issue.expected ?? "another value"}`;
}

function iteratorOf(given: unknown, provider: string): AsyncIterator<unknown> {
  // A program hands in anything
  const iterable = given as Partial<AsyncIterable<unknown>> | null | undefined;
  const open = iterable?.[Symbol.asyncIterator];
  if (typeof open === "function") return open.call(iterable);
  throw broken(provider, "stream() must return an async iterable; an async function* does");
}

function toStep(result: unknown, provider: string): { readonly done?: unknown; readonly value?: unknown } {
  if (typeof result === "object" && result !== null) return result;
  throw broken(provider, "the next() of its iterator must give an object");
}

/** Ends the provider's iteration without waiting: one that ignores its signal would never end. */
function leave(iterator: AsyncIterator<unknown> | undefined): void {
  try {
    Promise.resolve(iterator?.return?.()).catch(() => {});
  } catch {
    // An iterator that fails to end changes nothing: the turn is over
  }
}
