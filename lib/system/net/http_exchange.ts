import type { Dispatcher } from "undici";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import type { ProviderError } from "../../base/errors.ts";
import { batchPerTick } from "../../base/tick.ts";
import { failedConnection, nothingSaid, refusedHead, silentReply } from "./network_error.ts";

/** Request to a provider. */
export interface ProviderHttpRequest {
  readonly method: "GET" | "POST";
  /** Path and query, such as `/v1/chat/completions` */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** Ends the request at once, in whatever state it is; the reply then throws CancelError */
  readonly signal: AbortSignal;
  /** Longest silence: until the reply's head, then between two reads that are waited for. Milliseconds */
  readonly timeoutMs: number;
  /** Longest time that is waited, over all reads, for something that `said` tells of. Milliseconds. Default: no bound */
  readonly silenceMs?: number | undefined;
  /** A good reply that is no event stream is given once all of it is there, or more than so many bytes. Default: with its head */
  readonly wholeBytes?: number | undefined;
}

/** A reply whose head has arrived; its body is read in the pieces the network delivers. */
export interface HttpExchange {
  readonly status: number;
  header(name: string): string | undefined;
  /**
   * All bytes that have arrived since the last call, waiting for the first; undefined at the end.
   * @throws {ProviderError} broken off or silent for too long; {CancelError} on abort
   */
  read(): Promise<Uint8Array | undefined>;
  /** The rest of the body as text, cut after `maxBytes` (the connection is then given up). Broken UTF-8 becomes U+FFFD */
  text(maxBytes: number): Promise<{ readonly text: string; readonly cut: boolean }>;
  /**
   * All of the body that was not read yet, once it has ended; undefined (and broken off) when it is longer. A promise only while it
   * is on its way. Errors as in `read`
   */
  whole(maxBytes: number): Uint8Array | undefined | Promise<Uint8Array | undefined>;
  /** The reader has found something said in what it read: `silenceMs` begins again. Never throws */
  said(): void;
  /** All that is needed was said: from now on the reply ends when it breaks off, and after `ms` at the latest. Never throws */
  hurry(ms: number): void;
  /** Breaks the reply off at once, unless it has ended. Never throws */
  release(): void;
  /** Nothing of worth follows: lets the body end within a second, so that its connection is kept, else breaks it off. Never throws */
  drain(): void;
}

/** Hands on what arrived for the exchanges of one gateway, a few in each tick, so that its new clients are accepted meanwhile. */
export interface ExchangeQueues {
  /** Queues a reply whose head has arrived. */
  readonly give: (exchange: Exchange) => void;
  /** Queues a reply with new bytes for its reader. */
  readonly deliver: (exchange: Exchange) => void;
}

/** Creates the queues of one gateway. An exchange is about 50 us of work. Pieces arrive far more often than heads, so fewer are taken. */
export function createExchangeQueues(): ExchangeQueues {
  return {
    give: batchPerTick<Exchange>(16, (exchange) => exchange.give()),
    deliver: batchPerTick<Exchange>(4, (exchange) => exchange.deliver()),
  };
}

/** The facts about an upstream that its exchanges share. */
export interface ExchangeContext {
  /** Name of the provider, for errors. */
  readonly provider: string;
  readonly origin: string;
  readonly clock: Clock;
  readonly queues: ExchangeQueues;
}

/** Above this many unread bytes the socket is paused; it goes on once they are read. */
const MAX_QUEUED_BYTES = 262_144;
/** How long and how far a reply is followed after its last useful byte. */
const DRAIN_MS = 1_000;
const MAX_DRAINED_BYTES = 65_536;

/** Sends one request; resolves and throws as `ProviderClient.send`. */
export function startExchange(
  dispatcher: Dispatcher,
  request: ProviderHttpRequest,
  context: ExchangeContext,
): Promise<HttpExchange> {
  if (request.signal.aborted) return Promise.reject(cancelError(request.signal));
  return new Promise((resolve, reject) => {
    const exchange = new Exchange(request, context, { resolve, reject });
    const { origin } = context;
    const { method, path, headers, body } = request;
    dispatcher.dispatch({ origin, method, path, headers, body: body ?? null }, exchange);
  });
}

interface Waiter<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
}

class Exchange implements Dispatcher.DispatchHandler, HttpExchange {
  status = 0;
  #headers: Record<string, string | string[] | undefined> = {};
  #controller: Dispatcher.DispatchController | undefined;
  #head: Waiter<HttpExchange> | undefined;
  #reader: Waiter<Uint8Array | undefined> | undefined;
  #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  /** Waits for its turn to hand on what has come */
  #isDue = false;
  /** Longest body that is wanted in one piece; -1 while it is read in pieces */
  #maxWhole = -1;
  #failure: Error | undefined;
  #ended = false;
  #released = false;
  #drainedBytes = 0;
  /** Time that was waited since something was said, without the running wait */
  #quietMs = 0;
  /** All that is needed was said: a failure is an end */
  #isEnough = false;
  readonly #silenceMs: number;
  /** Time by the monotonic clock since which somebody waits for the network; undefined while nobody does */
  #waitingSince: number | undefined;
  #timer: Timer;
  readonly #signal: AbortSignal;
  readonly #context: ExchangeContext;
  readonly #onAbort: () => void;

  constructor(request: ProviderHttpRequest, context: ExchangeContext, head: Waiter<HttpExchange>) {
    // Not the request itself: its body is as long as the history, and a stream may last for minutes
    this.#signal = request.signal;
    this.#context = context;
    this.#head = head;
    this.#maxWhole = request.wholeBytes ?? -1;
    this.#onAbort = () => this.#fail(cancelError(this.#signal));
    this.#signal.addEventListener("abort", this.#onAbort);
    this.#waitingSince = context.clock.monotonic();
    const { timeoutMs, silenceMs = Infinity } = request;
    this.#silenceMs = silenceMs;
    this.#timer = context.clock.after(Math.min(timeoutMs, silenceMs), () => this.#checkSilence(timeoutMs));
  }

  header(name: string): string | undefined {
    const value = this.#headers[name];
    return Array.isArray(value) ? value[0] : value;
  }

  read(): Promise<Uint8Array | undefined> {
    if (this.#queue.length > 0) return Promise.resolve(this.#take());
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#ended || this.#released) return Promise.resolve(undefined);
    this.#waitingSince = this.#context.clock.monotonic();
    return new Promise((resolve, reject) => {
      this.#reader = { resolve, reject };
    });
  }

  whole(maxBytes: number): Uint8Array | undefined | Promise<Uint8Array | undefined> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#controller?.paused) this.#controller.resume();
    this.#maxWhole = maxBytes;
    if (this.#ended || this.#released || this.#queuedBytes > maxBytes) return this.#takeWhole();
    this.#waitingSince = this.#context.clock.monotonic();
    return new Promise((resolve, reject) => {
      this.#reader = { resolve, reject };
    });
  }

  async text(maxBytes: number): Promise<{ readonly text: string; readonly cut: boolean }> {
    const parts: Uint8Array[] = [];
    let bytes = 0;
    while (bytes <= maxBytes) {
      const part = await this.read();
      if (part === undefined) return { text: Buffer.concat(parts).toString("utf8"), cut: false };
      parts.push(part);
      bytes += part.length;
    }
    this.release();
    return { text: Buffer.concat(parts).subarray(0, maxBytes).toString("utf8"), cut: true };
  }

  said(): void {
    this.#quietMs = 0;
  }

  hurry(ms: number): void {
    if (this.#ended || this.#released || this.#failure !== undefined) return;
    this.#isEnough = true;
    this.#timer.clear();
    this.#timer = this.#context.clock.after(ms, () => this.#endEarly());
  }

  release(): void {
    if (!this.#letGo()) return;
    this.#controller?.abort(new Error("The reply is not wanted any more"));
  }

  drain(): void {
    if (!this.#letGo()) return;
    this.#drainedBytes = 0;
    if (this.#controller?.paused) this.#controller.resume();
    this.#timer = this.#context.clock.after(
      DRAIN_MS,
      () => this.#controller?.abort(new Error("The reply does not end")),
    );
  }

  /** @returns whether the body is still on its way */
  #letGo(): boolean {
    if (this.#released) return false;
    this.#released = true;
    this.#queue = [];
    if (this.#ended || this.#failure !== undefined) return false;
    this.#settle();
    return true;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#failure !== undefined) controller.abort(this.#failure);
  }

  onResponseStart(
    _: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ) {
    if (status < 200 || this.#failure !== undefined) return;
    this.status = status;
    this.#headers = headers;
    const encoding = this.header("content-encoding");
    // Most replies are neither: the parts of the refusal are not made for them
    if (encoding !== undefined || (status >= 300 && status < 400)) {
      const refusal = refusedHead({ location: this.header("location"), encoding }, { ...this.#context, status });
      if (refusal !== undefined) return this.#fail(refusal);
    }
    if (this.#maxWhole >= 0 && status < 300 && !this.header("content-type")?.startsWith("text/event-stream")) {
      this.#waitingSince = this.#context.clock.monotonic();
      return;
    }
    this.#maxWhole = -1;
    this.#waitingSince = undefined;
    this.#context.queues.give(this);
  }

  /** Hands itself on to who sent the request, unless it has failed meanwhile or was given before */
  give(): void {
    this.#head?.resolve(this);
    this.#head = undefined;
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Uint8Array): void {
    if (this.#released) {
      this.#drainedBytes += chunk.length;
      if (this.#drainedBytes > MAX_DRAINED_BYTES) controller.abort(new Error("The reply does not end"));
      return;
    }
    if (this.#failure !== undefined) return;
    const reader = this.#reader;
    if (this.#maxWhole >= 0) {
      this.#queue.push(chunk);
      this.#queuedBytes += chunk.length;
      if (this.#queuedBytes <= this.#maxWhole) {
        this.#waitingSince = this.#countWait();
        return;
      }
      this.give();
      reader?.resolve(this.#takeWhole());
      return;
    }
    this.#queue.push(chunk);
    this.#queuedBytes += chunk.length;
    if (reader !== undefined && !this.#isDue) {
      this.#isDue = true;
      this.#context.queues.deliver(this);
    }
    if (this.#queuedBytes > MAX_QUEUED_BYTES) controller.pause();
  }

  /** Hands on all that has come by now to who waits for it; what comes until then goes out in one piece */
  deliver(): void {
    this.#isDue = false;
    const reader = this.#reader;
    // An exchange that ended meanwhile has no reader and no pieces any more
    if (reader === undefined || this.#queue.length === 0) return;
    this.#reader = undefined;
    this.#countWait();
    this.#waitingSince = undefined;
    reader.resolve(this.#take());
  }

  onResponseEnd(): void {
    if (this.#failure !== undefined) return;
    this.#ended = true;
    this.#settle();
    if (this.#isDue) return;
    if (this.#head !== undefined && this.#maxWhole >= 0) this.#context.queues.give(this);
    this.#reader?.resolve(this.#maxWhole >= 0 ? this.#takeWhole() : undefined);
    this.#reader = undefined;
  }

  onResponseError(_: unknown, error: Error): void {
    if (this.#released) return this.#timer.clear();
    // A head that waits for its turn is given first, with what came after it
    if (this.status !== 0 && this.#maxWhole < 0) this.give();
    this.#fail(failedConnection(error, { ...this.#context, status: this.status }));
  }

  /** @returns undefined when it is longer than was asked for */
  #takeWhole(): Uint8Array | undefined {
    this.#reader = undefined;
    if (this.#queuedBytes <= this.#maxWhole) return this.#take();
    this.release();
    return undefined;
  }

  #take(): Uint8Array {
    const queue = this.#queue;
    this.#queue = [];
    this.#queuedBytes = 0;
    if (this.#failure === undefined && this.#controller?.paused) this.#controller.resume();
    // The caller checked that there is one
    return queue.length === 1 ? queue[0] as Uint8Array : Buffer.concat(queue);
  }

  /** @returns the time by the monotonic clock */
  #countWait(): number {
    const now = this.#context.clock.monotonic();
    if (this.#waitingSince !== undefined) this.#quietMs += now - this.#waitingSince;
    return now;
  }

  #checkSilence(timeoutMs: number): void {
    const { clock } = this.#context;
    const silentMs = this.#waitingSince === undefined ? 0 : clock.monotonic() - this.#waitingSince;
    const left = Math.min(timeoutMs - silentMs, this.#silenceMs - this.#quietMs - silentMs);
    if (left > 0) {
      this.#timer = clock.after(left, () => this.#checkSilence(timeoutMs));
      return;
    }
    const failed = { ...this.#context, status: this.status };
    this.#fail(silentMs < timeoutMs ? nothingSaid(this.#silenceMs, failed) : silentReply(timeoutMs, failed));
  }

  /** Ends the reply as if its last byte had come. */
  #endEarly(): void {
    if (this.#ended || this.#released) return;
    if (this.#isDue) this.deliver();
    this.#ended = true;
    this.#settle();
    this.#reader?.resolve(undefined);
    this.#reader = undefined;
    this.#controller?.abort(new Error("The reply has said all that is needed"));
  }

  /** Ends everything with this error; what waits is told first, then the socket goes. */
  #fail(error: ProviderError | CancelError): void {
    if (this.#failure !== undefined || this.#ended || this.#released) return;
    if (this.#isEnough && !(error instanceof CancelError)) return this.#endEarly();
    // Deliver the bytes that arrived before the failure first. A reader that has left gets nothing
    if (this.#isDue) this.deliver();
    this.#failure = error;
    if (error instanceof CancelError) this.#queue = [];
    this.#settle();
    this.#head?.reject(error);
    this.#reader?.reject(error);
    this.#head = undefined;
    this.#reader = undefined;
    this.#controller?.abort(error);
  }

  #settle(): void {
    this.#timer.clear();
    this.#signal.removeEventListener("abort", this.#onAbort);
  }
}
