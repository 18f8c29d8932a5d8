import type { InputRequiredResult, RequestStateCodec, ServerContext } from "@modelcontextprotocol/server";
import { CancelError } from "../../lib/base/cancel.ts";
import type { Clock } from "../../lib/base/clock.ts";
import type { Random } from "../../lib/base/random.ts";
import type { Config } from "../../lib/config/config.ts";
import type { CallState, HeldState } from "./call_state.ts";
import { AskingWork, type ClientWay, CLOSING, LiveWay } from "./asking_work.ts";
import { invalidParams, type McpSdk } from "./mcp_errors.ts";
import { requestOf } from "./mcp_request.ts";

/** Bounds of work that waits for its clients. */
export const HELD_LIMITS = {
  /** Requests of one token. The question of one more is answered by why it is not asked */
  perToken: 32,
  /** Requests of all tokens */
  all: 512,
} as const;

/** Options of HeldRequests. */
export interface HeldRequestsOptions {
  readonly sdk: McpSdk;
  readonly clock: Clock;
  readonly random: Random;
  readonly config: () => Config;
  /** Seals the states that clients keep */
  readonly states: RequestStateCodec<CallState>;
}

/** A request that may ask its client while it is worked on. */
export interface AskingRequest<R> {
  /** Digest of the request, which its repetition must have too */
  readonly call: string;
  readonly work: (way: ClientWay) => Promise<R>;
}

/** Answers that are kept for questions that were not asked yet. */
const MAX_AHEAD = 16;

function firstOf(given: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(given).slice(0, MAX_AHEAD));
}

/** Requests that ask their clients, in both eras of the protocol, and those whose work waits for an answer. */
export class HeldRequests {
  readonly #options: HeldRequestsOptions;
  readonly #held = new Map<string, AskingWork<unknown>>();
  readonly #closing = new AbortController();

  constructor(options: HeldRequestsOptions) {
    this.#options = options;
  }

  /** Tells how many requests wait for their clients. */
  count(): number {
    return this.#held.size;
  }

  /** Works on a request. @returns its result, or what the client is asked first */
  async begin<R>(context: ServerContext, { call, work }: AskingRequest<R>): Promise<R | InputRequiredResult> {
    const { clock, random } = this.#options;
    if (context.mcpReq.envelope === undefined) {
      const { signal: closing } = this.#closing;
      return await work(new LiveWay(context, { clock, timeoutMs: () => this.#timeoutMs(), closing }));
    }
    const { requestState, inputResponses } = context.mcpReq;
    const held = new AskingWork<R>({
      id: random.id("held_"),
      tokenId: requestOf(context).identity.tokenId,
      call,
      // Answers that belong to a state are answers to its question
      ahead: requestState() === undefined ? firstOf(inputResponses ?? {}) : {},
    });
    held.start(work);
    return await this.#attend(held, context);
  }

  /**
   * Goes on with the work that the client's state names.
   * @throws {ProtocolError} -32602 for the state of another request or of work that has ended, and for an answer that does not fit: then
   *   the question stays, and the client may answer again
   */
  async resume<R>(
    state: HeldState,
    { call, context }: { readonly call: string; readonly context: ServerContext },
  ): Promise<R | InputRequiredResult> {
    const { sdk } = this.#options;
    const held = this.#held.get(state.held);
    if (state.call !== call || (held !== undefined && held.tokenId !== requestOf(context).identity.tokenId)) {
      throw invalidParams(sdk, "Invalid or expired requestState", { reason: "invalid_request_state" });
    }
    if (held === undefined || held.round !== state.round) {
      throw invalidParams(
        sdk,
        "Cannot go on with this request: its questions were answered before or not in time, or it has ended; send it again, without requestState",
        { reason: "invalid_request_state" },
      );
    }
    const { inputResponses = {}, droppedInputResponseKeys = [] } = context.mcpReq;
    const unfit = held.take(inputResponses, droppedInputResponseKeys);
    if (unfit !== undefined) {
      const { key, reason } = unfit;
      throw invalidParams(sdk, `Cannot take the answer "${key}": ${reason}`, { reason: "invalid_input_response", key });
    }
    // The state is sealed with the method and bound to the request, so the work is of its kind
    return await this.#attend(held as AskingWork<R>, context);
  }

  /** Ends the work of a token that has ended. */
  endToken(tokenId: string): void {
    for (const held of [...this.#held.values()]) if (held.tokenId === tokenId) this.#end(held, "cancelled");
  }

  /** Ends all work that waits for a client, for the start of a shutdown: no client can come back with an answer. Nothing waits from then on. */
  endWaiting(): void {
    this.#closing.abort();
    for (const held of [...this.#held.values()]) if (held.context() === undefined) this.#end(held, "shutdown");
  }

  async #attend<R>(held: AskingWork<R>, context: ServerContext): Promise<R | InputRequiredResult> {
    const { sdk, clock, states } = this.#options;
    for (;;) {
      await held.attend(context);
      const { ending } = held;
      if (ending !== undefined) {
        held.close();
        this.#held.delete(held.id);
        if (ending.ok) return ending.value;
        throw ending.error;
      }
      const why = this.#keep(held);
      if (why === undefined) break;
      held.refuse(why);
    }
    held.hold({ clock, timeoutMs: this.#timeoutMs(), onExpired: () => this.#held.delete(held.id) });
    const state: HeldState = { held: held.id, round: held.round, call: held.call };
    return sdk.inputRequired({ inputRequests: held.requests(), requestState: await states.mint(state, context) });
  }

  /** @returns why the work may not wait; undefined when it may */
  #keep<R>(held: AskingWork<R>): string | undefined {
    if (this.#closing.signal.aborted) return CLOSING;
    if (this.#held.has(held.id)) return undefined;
    const own = [...this.#held.values()].filter(({ tokenId }) => tokenId === held.tokenId).length;
    if (own >= HELD_LIMITS.perToken) {
      return `${HELD_LIMITS.perToken} requests of this client wait for its answer already`;
    }
    if (this.#held.size >= HELD_LIMITS.all) return `${HELD_LIMITS.all} requests wait for their clients already`;
    this.#held.set(held.id, held);
    return undefined;
  }

  #end(held: AskingWork<unknown>, reason: "cancelled" | "shutdown"): void {
    this.#held.delete(held.id);
    held.cancel(new CancelError(reason));
  }

  #timeoutMs(): number {
    return this.#options.config().autonomy.approval_timeout_secs * 1000;
  }
}
