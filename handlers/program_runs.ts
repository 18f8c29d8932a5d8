import { CancelError } from "../lib/base/cancel.ts";
import { HttpError, isErrorCode, refuse } from "../lib/base/errors.ts";
import type { AgentEvent } from "../lib/base/records/agent_event.ts";
import { type Caller, SCOPES } from "../lib/base/records/caller.ts";
import type { Services } from "../lib/services.ts";
import { createRunState } from "../lib/runs/journal/apply_event.ts";
import type { StoredRuns } from "../lib/runs/journal/stored_runs.ts";
import type {
  GatewayRuns,
  GatewayTools,
  ProgramMessageInput,
  ProgramRun,
  ProgramRunEvent,
  ProgramRunInput,
  ProgramRunOptions,
  ProgramStartedRun,
} from "../lib/runs/program_run.ts";
import type { EventFollowers } from "./connections.ts";
import { checkScope, type Door } from "./door.ts";
import { tooLarge } from "./request_context.ts";
import { runEventsRoute } from "./routes/run_events.ts";
import { callToolRoute } from "./routes/tools.ts";
import { cancelRunRoute, runRoute, startRunRoute } from "./routes/runs.ts";
import { openRunEvents, requireAgent } from "./wire/agent_runs.ts";
import { checkBody } from "./wire/check_body.ts";
import { toHttpError } from "./wire/http_errors.ts";
import { positionOf } from "./wire/lists.ts";
import { toInputText } from "./wire/make_call.ts";
import { parseJsonBytes } from "./wire/read_json.ts";
import { cancelRun, findRun, startRun, startRunSchema } from "./wire/run_work.ts";

/** Caller of what the program asks for: it made the gateway, so it has every scope. */
const PROGRAM: Caller = { via: "program", tokenId: null, scopes: SCOPES };

/** Runs and tool calls of a gateway for the program that mounts it. Doors, checks and bounds are those of the routes; only the windows of requests are not. */
export class ProgramRuns implements GatewayRuns {
  readonly #services: Services;
  readonly #followers: EventFollowers;
  readonly #closing = new AbortController();

  constructor({ services, followers }: { readonly services: Services; readonly followers: EventFollowers }) {
    this.#services = services;
    this.#followers = followers;
  }

  readonly start: GatewayRuns["start"] = async (input, options = {}) => {
    checkOptions(options, ["signal"]);
    const { signal } = options;
    signal?.throwIfAborted();
    return await this.#enter(startRunRoute, async () => {
      const { config, random } = this.#services;
      const { runs } = requireAgent(this.#services);
      const body = toBody(input, config().gateway.max_request_bytes);
      const run = await startRun(runs, body, { by: { caller: PROGRAM, requestId: random.id("req_") } });
      if (signal !== undefined) this.#cancelWith(signal, run.id);
      return createRunState(run).run;
    });
  };

  readonly follow: GatewayRuns["follow"] = (id, options = {}) => {
    checkOptions(options, ["after", "signal"]);
    const reading = new AbortController();
    const leave = () => reading.abort(new CancelError("client_gone"));
    const events = this.#read(id, { ...options, reading, leave });
    return {
      [Symbol.asyncIterator]: () => ({
        next: () => events.next(),
        // The abort comes first: the generator's own return would wait for the next event
        return() {
          leave();
          return events.return();
        },
      }),
    };
  };

  readonly get: GatewayRuns["get"] = (id) => this.#enter(runRoute, () => findRun(this.#toRead(), id));

  readonly cancel: GatewayRuns["cancel"] = (id) =>
    this.#enter(cancelRunRoute, () => cancelRun(requireAgent(this.#services).runs, id, this.#services.clock));

  /** Starts a run, and gives it at once: it is read as its reader likes. */
  run(message: ProgramMessageInput, options: ProgramRunOptions = {}): ProgramStartedRun {
    const { signal, ...input } = options;
    const started = this.start({ ...input, ...(typeof message === "string" ? { message } : { messages: message }) }, {
      signal,
    });
    return new StartedRun(this, started);
  }

  readonly call: GatewayTools["call"] = async (name, input = {}, options = {}) => {
    checkOptions(options, ["approved", "approvalId", "signal"]);
    const { approved = false, approvalId: given, signal = new AbortController().signal } = options;
    return await this.#enter(callToolRoute, async () => {
      const { calls, random, tools } = this.#services;
      if (tools.get(name) === undefined) {
        throw refuse(
          "not_found",
          `Cannot find the tool ${JSON.stringify(name)}: GET /v1/tools lists those that exist`,
          {
            param: "name",
          },
        );
      }
      const requestId = random.id("req_");
      const text = typeof input === "string" ? input : toInputText(JSON.parse(toJson(input)));
      const call = { name, input: text, caller: PROGRAM, requestId, signal };
      const outcome = await (await calls()).callOrAsk(call, { approved, approvalId: given });
      if ("error" in outcome) throw outcome.error;
      const { result: { output, isError, data }, approvalId } = outcome;
      return {
        output,
        is_error: isError,
        ...(data === undefined ? {} : { data: structuredClone(data) }),
        ...(approvalId === undefined ? {} : { approval_id: approvalId }),
      };
    });
  };

  /** Lets nothing in any more. The open event streams are ended with those of other readers. */
  close(): void {
    this.#closing.abort(new CancelError("shutdown"));
  }

  async *#read(
    id: string,
    { after = 0, signal, reading, leave }: NonNullable<Parameters<GatewayRuns["follow"]>[1]> & {
      readonly reading: AbortController;
      readonly leave: () => void;
    },
  ): AsyncGenerator<AgentEvent, void, undefined> {
    let remove = () => {};
    signal?.addEventListener("abort", leave, { once: true });
    try {
      if (signal?.aborted || reading.signal.aborted) return;
      const { events } = await this.#enter(runEventsRoute, () => {
        const place = { name: "after", seq: positionOf("after", String(after)) };
        return openRunEvents(this.#toRead(), id, { after: place, signal: reading.signal, caller: PROGRAM });
      });
      remove = this.#followers.add({ tokenId: null, close: leave });
      for await (const batch of events) {
        for (const event of batch) {
          if (reading.signal.aborted) return;
          // A copy: other readers and the journal have the event too
          yield structuredClone(event);
        }
      }
    } catch (error) {
      throw this.#toError(error);
    } finally {
      signal?.removeEventListener("abort", leave);
      remove();
    }
  }

  #toRead(): StoredRuns {
    return this.#services.agent?.runs ?? this.#services.storedRuns;
  }

  /** Goes through a door of the table. @throws {HttpError} */
  async #enter<T>(door: Door, work: () => Promise<T>): Promise<T> {
    try {
      if (this.#closing.signal.aborted) throw this.#closing.signal.reason;
      checkScope(door, PROGRAM, "use the runs of this gateway");
      return await work();
    } catch (error) {
      throw this.#toError(error);
    }
  }

  #toError(error: unknown): Error {
    const { log, random } = this.#services;
    return toHttpError(error, { log, requestId: random.id("req_") });
  }

  /** Cancels a run when the signal aborts before the run is over. */
  #cancelWith(signal: AbortSignal, id: string): void {
    const { log } = this.#services;
    const { runs } = requireAgent(this.#services);
    const cancel = () => {
      runs.cancel(id, "cancelled").catch((error: unknown) => {
        log.error("A run could not be cancelled", { run_id: id, error });
      });
    };
    if (signal.aborted) return cancel();
    signal.addEventListener("abort", cancel, { once: true });
    const stop = () => signal.removeEventListener("abort", cancel);
    runs.ended(id, this.#closing.signal).then(stop, stop);
  }
}

/** A run that was started for the program, in the ways that the program reads it. */
class StartedRun implements ProgramStartedRun {
  readonly id: Promise<string>;
  readonly #runs: Pick<GatewayRuns, "follow" | "get">;
  #result: Promise<ProgramRun> | undefined = undefined;

  constructor(runs: Pick<GatewayRuns, "follow" | "get">, started: Promise<ProgramRun>) {
    this.#runs = runs;
    this.id = started.then(({ id }) => id);
    // A refusal is told to each reader, also to one that comes later
    this.id.catch(() => {});
  }

  get textStream(): AsyncIterable<string> {
    return this.#text();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ProgramRunEvent, void, undefined> {
    yield* this.#runs.follow(await this.id);
  }

  then<Fulfilled = ProgramRun, Rejected = never>(
    onFulfilled?: ((run: ProgramRun) => Fulfilled | PromiseLike<Fulfilled>) | null,
    onRejected?: ((reason: unknown) => Rejected | PromiseLike<Rejected>) | null,
  ): Promise<Fulfilled | Rejected> {
    this.#result ??= this.#end();
    return this.#result.then(onFulfilled, onRejected);
  }

  async *#text(): AsyncGenerator<string, void, undefined> {
    for await (const event of this) {
      if (event.type === "text_delta") yield event.delta;
      if (event.type === "error") throw toRunError(event);
    }
  }

  async #end(): Promise<ProgramRun> {
    const id = await this.id;
    for await (const event of this) if (event.type === "error") throw toRunError(event);
    return await this.#runs.get(id);
  }
}

/** Returns the error that a run ended with. */
function toRunError({ code, message }: { readonly code: string; readonly message: string }): HttpError {
  return isErrorCode(code) ? refuse(code, message) : new HttpError(code, message, { status: 500, type: "api_error" });
}

/** Refuses unknown options, and a signal that is none. @throws {TypeError} */
function checkOptions(options: object, known: readonly string[]): void {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new TypeError(
      `Cannot take the option ${JSON.stringify(unknown.slice(0, 100))}: the options are ${known.join(", ")}`,
    );
  }
  const { signal }: { readonly signal?: unknown } = options;
  if (signal === undefined || signal instanceof AbortSignal) return;
  throw new TypeError('Cannot take the option "signal": it must be an AbortSignal');
}

/** Returns the input as the route gets it: JSON within the bounds of a request's body. @throws {HttpError} 400 invalid_request, 413 payload_too_large */
function toBody(input: ProgramRunInput, maxBytes: number) {
  const bytes = new TextEncoder().encode(toJson(input));
  if (bytes.length > maxBytes) throw tooLarge(maxBytes);
  const ignored: string[] = [];
  const body = checkBody(startRunSchema, parseJsonBytes(bytes), ignored);
  const [unknown] = ignored;
  if (unknown === undefined) return body;
  const known = Object.keys(startRunSchema.entries).join(", ");
  throw refuse("invalid_request", `Cannot accept "${unknown}": there is no such field; the fields are ${known}`, {
    param: unknown,
  });
}

function toJson(input: unknown): string {
  try {
    // JSON leaves out functions and symbols in silence; a clone refuses them
    return JSON.stringify(structuredClone(input)) ?? "";
  } catch (cause) {
    throw refuse("invalid_request", "Cannot accept the input of the run: it is no plain JSON value", { cause });
  }
}
