import type { ElicitRequest, InputRequest, ServerContext } from "@modelcontextprotocol/server";
import { CancelError, cancelError } from "../../lib/base/cancel.ts";
import type { Clock, Timer } from "../../lib/base/clock.ts";
import { nextTick } from "../../lib/base/tick.ts";
import { labelOf } from "../../lib/tools/runtime/tool_content.ts";
import { type PosedQuestion, type QuestionWay, type ReadAnswer, UnansweredError } from "./client_questions.ts";

/** Work of a request, as far as the work reaches its client. */
export interface ClientWay extends QuestionWay {
  /** Aborts when the work shall end */
  readonly signal: AbortSignal;
  /** Returns the request that waits for the work now. undefined: none does, since the client is to answer first */
  context(): ServerContext | undefined;
}

/** Says why nobody is asked while the gateway closes. */
export const CLOSING = "the gateway is shutting down";

/** Longest time of a timer, in milliseconds. The clock of the gateway ends the wait before. */
const MAX_TIMER_MS = 2_147_483_647;

/** Way to a client of a revision with sessions: each question is a request on the stream of the client's own request. */
export class LiveWay implements ClientWay {
  readonly isLive = true;
  readonly signal: AbortSignal;
  readonly #context: ServerContext;
  readonly #clock: Clock;
  readonly #timeoutMs: () => number;
  readonly #closing: AbortSignal;

  /** @param closing aborts when no answer of a client can arrive any more */
  constructor(
    context: ServerContext,
    { clock, timeoutMs, closing }: {
      readonly clock: Clock;
      readonly timeoutMs: () => number;
      readonly closing: AbortSignal;
    },
  ) {
    this.signal = context.mcpReq.signal;
    this.#context = context;
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#closing = closing;
  }

  context(): ServerContext {
    return this.#context;
  }

  async put<T>(
    { request, read }: PosedQuestion<T>,
    { signal, audited }: { readonly signal: AbortSignal; readonly audited: Promise<void> },
  ): Promise<T> {
    await audited;
    if (signal.aborted) throw cancelError(signal);
    const limit = this.#clock.timeoutSignal(this.#timeoutMs());
    try {
      // Each kind of question is a request of its own, and "read" checks the answer
      const given: unknown = await this.#context.mcpReq.send(request as ElicitRequest, {
        signal: AbortSignal.any([signal, limit.signal, this.#closing]),
        timeout: MAX_TIMER_MS,
      });
      const answer = read(given);
      if (answer.ok) return answer.value;
      throw new UnansweredError(`its answer does not fit: ${answer.reason}`);
    } catch (error) {
      if (error instanceof UnansweredError) throw error;
      if (signal.aborted) throw cancelError(signal);
      if (this.#closing.aborted) throw new UnansweredError(CLOSING, { cause: error });
      if (limit.signal.aborted) throw new UnansweredError("nobody answered in time", { cause: error });
      const why = error instanceof Error ? labelOf(error.message) : "it failed";
      throw new UnansweredError(`the client gave no answer: ${why}`, { cause: error });
    } finally {
      limit.clear();
    }
  }
}

/** Question that waits for the client's answer. */
interface OpenQuestion {
  readonly request: InputRequest;
  /** True once the audit has the question */
  isRecorded: boolean;
  /** Reads an answer. @returns a function that gives it to the work, or why it does not fit */
  take(
    given: unknown,
  ): { readonly ok: true; readonly give: () => void } | { readonly ok: false; readonly reason: string };
  fail(error: Error): void;
}

/** Answer that does not fit, as the client is told. */
export interface UnfitAnswer {
  readonly key: string;
  readonly reason: string;
}

/** How some work ended. */
export type WorkEnding<R> = { readonly ok: true; readonly value: R } | { readonly ok: false; readonly error: unknown };

/**
 * Work of a request of a revision without sessions. Where the work asks its client, the reply has the questions, and the work goes on here
 * until the client repeats its request with the answers: it never runs twice. Only the newest request of the client reaches the work.
 */
export class AskingWork<R> implements ClientWay {
  readonly isLive = false;
  readonly id: string;
  /** Token of the client; null while pairing is off */
  readonly tokenId: string | null;
  /** Digest of the request that the work is for */
  readonly call: string;
  readonly #stop = new AbortController();
  readonly #open = new Map<string, OpenQuestion>();
  /** Answers that came with the first request, before a question. */
  #ahead: Readonly<Record<string, unknown>>;
  #context: ServerContext | undefined = undefined;
  #ending: WorkEnding<R> | undefined = undefined;
  #round = 1;
  #asked = 0;
  #expiry: Timer | undefined = undefined;
  /** Round that the client was last shown, and the monotonic time until which it may answer. */
  #shown = { round: 0, until: 0 };
  #isNews = false;
  #wake = () => {};

  constructor(
    { id, tokenId, call, ahead }: {
      readonly id: string;
      readonly tokenId: string | null;
      readonly call: string;
      readonly ahead: Readonly<Record<string, unknown>>;
    },
  ) {
    this.id = id;
    this.tokenId = tokenId;
    this.call = call;
    this.#ahead = ahead;
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** How the work ended; undefined while it goes on. */
  get ending(): WorkEnding<R> | undefined {
    return this.#ending;
  }

  /** Number of the questions that the client is shown now: it grows when an answer was taken. */
  get round(): number {
    return this.#round;
  }

  context(): ServerContext | undefined {
    return this.#context;
  }

  start(work: (way: ClientWay) => Promise<R>): void {
    void work(this).then(
      (value): WorkEnding<R> => ({ ok: true, value }),
      (error: unknown): WorkEnding<R> => ({ ok: false, error }),
    ).then((ending) => {
      this.#ending = ending;
      this.#tellNews();
    });
  }

  /** Waits as a request of the client until the work has ended or asks. The work is cancelled when the request goes away meanwhile. */
  async attend(context: ServerContext): Promise<void> {
    const { signal } = context.mcpReq;
    const leave = () => this.cancel(cancelError(signal));
    this.#expiry?.clear();
    this.#context = context;
    if (signal.aborted) leave();
    signal.addEventListener("abort", leave, { once: true });
    try {
      for (;;) {
        this.#isNews = false;
        if (this.#ending !== undefined || await this.#isAsking()) return;
        // News may have come while the questions were looked at
        if (!this.#isNews) await new Promise<void>((resolve) => this.#wake = resolve);
      }
    } finally {
      signal.removeEventListener("abort", leave);
      this.#context = undefined;
    }
  }

  /** Lets the work wait for the client without a request. @param onExpired called when the client did not come back in time */
  hold({ clock, timeoutMs, onExpired }: {
    readonly clock: Clock;
    readonly timeoutMs: number;
    readonly onExpired: () => void;
  }): void {
    this.#ahead = {};
    this.#expiry?.clear();
    const now = clock.monotonic();
    // A client that asks again without an answer gets no more time
    if (this.#shown.round !== this.#round) this.#shown = { round: this.#round, until: now + timeoutMs };
    this.#expiry = clock.after(Math.max(0, this.#shown.until - now), () => {
      this.cancel(new CancelError("timeout"));
      onExpired();
    });
  }

  /** Returns the questions for the client, by their keys. */
  requests(): Record<string, InputRequest> {
    return Object.fromEntries([...this.#open].map(([key, { request }]) => [key, request]));
  }

  /**
   * Gives the work the answers that the client brings. Answers to nothing are left out. Where one does not fit, none is given.
   * @param dropped keys of answers that are no object
   */
  take(given: Readonly<Record<string, unknown>>, dropped: readonly string[]): UnfitAnswer | undefined {
    const gifts: (() => void)[] = [];
    for (const [key, question] of this.#open) {
      if (dropped.includes(key)) return { key, reason: "it must be an object" };
      if (!Object.hasOwn(given, key)) continue;
      const taken = question.take(given[key]);
      if (!taken.ok) return { key, reason: taken.reason };
      gifts.push(taken.give);
    }
    if (gifts.length > 0) this.#round++;
    for (const give of gifts) give();
    return undefined;
  }

  /** Answers all open questions by why the client is not asked. */
  refuse(reason: string): void {
    for (const question of [...this.#open.values()]) question.fail(new UnansweredError(reason));
  }

  /** Ends the work. Does nothing once it has ended. */
  cancel(error: CancelError): void {
    this.#expiry?.clear();
    this.#stop.abort(error);
  }

  /** Forgets the timer of work whose result was delivered. */
  close(): void {
    this.#expiry?.clear();
  }

  async put<T>(
    question: PosedQuestion<T>,
    { signal, audited }: { readonly signal: AbortSignal; readonly audited: Promise<void> },
  ): Promise<T> {
    if (signal.aborted) throw cancelError(signal);
    const key = this.#freeKey(question.key);
    const known = this.#takeAhead(key, question.read);
    if (known?.ok) {
      await audited;
      return known.value;
    }
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const settle = () => {
      signal.removeEventListener("abort", withdraw);
      this.#open.delete(key);
      this.#tellNews();
    };
    const fail = (error: Error) => {
      settle();
      reject(error);
    };
    const withdraw = () => fail(cancelError(signal));
    signal.addEventListener("abort", withdraw, { once: true });
    const open: OpenQuestion = {
      request: question.request,
      isRecorded: false,
      fail,
      take: (given) => {
        const answer = question.read(given);
        if (!answer.ok) return answer;
        return { ok: true, give: () => (settle(), resolve(answer.value)) };
      },
    };
    this.#open.set(key, open);
    audited.then(() => {
      open.isRecorded = true;
      this.#tellNews();
    }, fail);
    this.#tellNews();
    return await promise;
  }

  /** Tells whether questions are ready for the client. Those of one tick go out together. */
  async #isAsking(): Promise<boolean> {
    if (this.#open.size === 0) return false;
    await nextTick();
    return this.#ending === undefined && this.#open.size > 0 &&
      [...this.#open.values()].every(({ isRecorded }) => isRecorded);
  }

  #tellNews(): void {
    this.#isNews = true;
    this.#wake();
  }

  #freeKey(wanted: string | undefined): string {
    const key = wanted ?? `question_${++this.#asked}`;
    if (!this.#open.has(key)) return key;
    let number = 2;
    while (this.#open.has(`${key}_${number}`)) number++;
    return `${key}_${number}`;
  }

  #takeAhead<T>(key: string, read: (given: unknown) => ReadAnswer<T>): ReadAnswer<T> | undefined {
    if (!Object.hasOwn(this.#ahead, key)) return undefined;
    const { [key]: given, ...rest } = this.#ahead;
    this.#ahead = rest;
    return read(given);
  }
}
