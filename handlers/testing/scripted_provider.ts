import { cancelError } from "../../lib/base/cancel.ts";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import type {
  ProgramProvider,
  ProgramProviderEvent,
  ProgramProviderRequest,
} from "../../lib/providers/program_provider.ts";
import type { ProgramUsage } from "../../lib/runs/program_run.ts";

/** A call of a tool in a scripted turn. */
export interface ScriptedToolCall {
  /** Default `call_<turn>_<index>`, both from 0 */
  readonly id?: string;
  /** Name of the tool */
  readonly name: string;
  /** An object is sent as JSON, a string as it is (so broken JSON too), an array in these pieces. Default `{}` */
  readonly arguments?: Readonly<Record<string, unknown>> | string | readonly string[];
}

/** A model turn as data. What is given plays in the order of the fields; a bare string is a turn of that text. */
export interface ScriptedTurn {
  /** Waits this long by the clock before the first event */
  readonly delayMs?: number;
  /** Error to throw before the first event */
  readonly errorBefore?: Error;
  /** Says by an empty array that the reply has begun */
  readonly begins?: boolean;
  /** Waits for the abort before the first event (`before`) or after the last, in place of `finish` (`after`) */
  readonly hang?: "before" | "after";
  /** Thoughts of the model, which come before its text. Each string of an array is one network read */
  readonly reasoning?: string | readonly string[];
  /** Each string of an array is one network read */
  readonly text?: string | readonly string[];
  /** Waits this long by the clock between two reads */
  readonly chunkDelayMs?: number;
  /** Waits for it after the first read */
  readonly holdUntil?: Promise<void>;
  /** Words by which the model refuses */
  readonly refusal?: string;
  /** Calls of tools, in one turn. Default: none */
  readonly toolCalls?: readonly ScriptedToolCall[];
  /** Sentences for the reader of the run. Default: none */
  readonly notices?: readonly { readonly code: string; readonly message: string }[];
  /** Error to throw in place of `finish` */
  readonly errorAfter?: Error;
  /** Default `tool_calls` with tool calls, else `stop` */
  readonly finishReason?: "stop" | "length" | "tool_calls" | "content_filter";
  /** Default 10 prompt and 5 completion tokens; null: the provider reports none */
  readonly usage?: ProgramUsage | null;
  /** Model that the reply names. Default: none, and the one that was asked for counts */
  readonly model?: string;
  /** JSON value that the provider gets back with later requests. Default: none */
  readonly opaque?: unknown;
}

/** The script to play: turns in order, or a function of the request and its number (from 0). */
export type Script<Request = ProgramProviderRequest> =
  | readonly (ScriptedTurn | string)[]
  | ((request: Request, turn: number) => ScriptedTurn | string);

/** Options of `scriptedProvider`. */
export interface ScriptedProviderOptions {
  /** Clock of `delayMs` and `chunkDelayMs`. Default: the system's */
  readonly clock?: Clock;
  /** Names of the models. Default `scripted-model` alone */
  readonly models?: readonly string[];
  /** True when the model is shown pictures of tool results. Default false */
  readonly sees?: boolean | undefined;
}

/** A provider that plays a script and records what it was asked. */
export interface PlayedScript<Request = ProgramProviderRequest> {
  /** Every request, in order, as it was when the call was made */
  readonly requests: readonly Request[];
  /** Streams that were left or aborted before their end */
  readonly aborted: number;
  /** Streams running now */
  readonly active: number;
}

/** A provider for the option `providers` of createGateway, with what it was asked. */
export type ScriptedProgramProvider = ProgramProvider & PlayedScript;

/**
 * Makes a provider that plays turns given as data: text in chunks, tool calls, errors before or after the first event, delays by the clock,
 * or silence until aborted. Every array of events is one network read. A request past the end of the script throws an Error that says so.
 */
export function scriptedProvider(script: Script, options: ScriptedProviderOptions = {}): ScriptedProgramProvider {
  const { stream, played } = playScript(script, options.clock);
  const provider: ProgramProvider = {
    models: options.models ?? ["scripted-model"],
    stream,
    sees: options.sees === true,
    maxRetries: 0,
  };
  // The script and its requests are not enumerable, since createGateway refuses options that it does not know
  const facts = Object.getOwnPropertyDescriptors(played);
  for (const fact of Object.values(facts)) fact.enumerable = false;
  return Object.defineProperties(provider, facts) as ScriptedProgramProvider; // its facts were just added
}

/** Plays a script, whatever the form of its requests. On abort the stream throws CancelError. */
export function playScript<Request>(script: Script<Request>, clock: Clock = systemClock) {
  const requests: Request[] = [];
  let aborted = 0;
  let active = 0;
  const turnOf = (request: Request, index: number): ScriptedTurn => {
    const turn = typeof script === "function" ? script(request, index) : script[index];
    if (turn === undefined) throw new Error(`Cannot play turn ${index + 1}: the script has ended`);
    return typeof turn === "string" ? { text: turn } : turn;
  };
  const played: PlayedScript<Request> = {
    requests,
    get aborted() {
      return aborted;
    },
    get active() {
      return active;
    },
  };
  async function* stream(
    request: Request,
    { signal }: { readonly signal: AbortSignal },
  ): AsyncGenerator<readonly ProgramProviderEvent[], void, unknown> {
    const index = requests.length;
    requests.push(structuredClone(request));
    const turn = turnOf(request, index);
    let ended = false;
    active++;
    try {
      for await (const events of play(turn, index, { clock, signal })) {
        // Nothing follows a finish, so a reader need not ask for more
        ended = events.at(-1)?.type === "finish";
        yield events;
      }
      ended = true;
    } catch (error) {
      ended = !signal.aborted;
      throw error;
    } finally {
      active--;
      if (!ended) aborted++;
    }
  }
  return { played, stream };
}

async function* play(
  turn: ScriptedTurn,
  index: number,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): AsyncGenerator<readonly ProgramProviderEvent[]> {
  if (signal.aborted) throw cancelError(signal);
  if (turn.delayMs !== undefined) await clock.sleep(turn.delayMs, signal);
  if (turn.errorBefore !== undefined) throw turn.errorBefore;
  if (turn.begins) yield [];
  if (turn.hang === "before") await untilAborted(signal);
  let first = true;
  for (const events of readsOf(turn, index)) {
    if (!first && turn.chunkDelayMs !== undefined) await clock.sleep(turn.chunkDelayMs, signal);
    if (!first && turn.holdUntil !== undefined) await Promise.race([turn.holdUntil, untilAborted(signal)]);
    if (signal.aborted) throw cancelError(signal);
    first = false;
    yield events;
  }
  if (signal.aborted) throw cancelError(signal);
  if (turn.errorAfter !== undefined) throw turn.errorAfter;
  if (turn.hang === "after") await untilAborted(signal);
  yield [finishOf(turn)];
}

function* readsOf(turn: ScriptedTurn, index: number): Generator<readonly ProgramProviderEvent[]> {
  for (const delta of toPieces(turn.reasoning)) yield [{ type: "reasoning_delta", delta }];
  for (const delta of toPieces(turn.text)) yield [{ type: "text_delta", delta }];
  if (turn.refusal !== undefined) yield [{ type: "refusal_delta", delta: turn.refusal }];
  for (const [i, call] of (turn.toolCalls ?? []).entries()) {
    yield [{
      type: "tool_call_delta",
      index: i,
      call_id: call.id ?? `call_${index}_${i}`,
      name: call.name,
      arguments_delta: "",
    }];
    const { arguments: given = {} } = call;
    const pieces = typeof given === "string" ? [given] : isList(given) ? given : [JSON.stringify(given)];
    for (const piece of pieces) yield [{ type: "tool_call_delta", index: i, arguments_delta: piece }];
  }
  for (const notice of turn.notices ?? []) yield [{ type: "notice", ...notice }];
}

function finishOf(turn: ScriptedTurn): ProgramProviderEvent {
  const { usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 } } = turn;
  return {
    type: "finish",
    finish_reason: turn.finishReason ?? ((turn.toolCalls?.length ?? 0) > 0 ? "tool_calls" : "stop"),
    usage: usage ?? undefined,
    ...(turn.model === undefined ? {} : { model: turn.model }),
    ...(turn.opaque === undefined ? {} : { opaque: turn.opaque }),
  };
}

function toPieces(text: string | readonly string[] | undefined): readonly string[] {
  if (text === undefined) return [];
  return typeof text === "string" ? [text] : text;
}

function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) return reject(cancelError(signal));
    signal.addEventListener("abort", () => reject(cancelError(signal)), { once: true });
  });
}

/** Array.isArray does not narrow to readonly lists. */
function isList(given: unknown): given is readonly string[] {
  return Array.isArray(given);
}
