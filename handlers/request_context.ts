import { CancelError, type CancelReason } from "../lib/base/cancel.ts";
import type { Timer } from "../lib/base/clock.ts";
import { HttpError } from "../lib/base/errors.ts";
import type { Identity } from "../lib/access/identity.ts";
import type { Services } from "../lib/gateway.ts";
import type { RequestTarget } from "./request_target.ts";
import type { RequestContext, ResponseClass, RunClaim } from "./route.ts";
import { httpError } from "./wire/http_errors.ts";

/** A request's body on its way. */
export interface PendingBody {
  /** @throws {HttpError} by `tooLarge` when it is longer than it may be; {CancelError} `client_gone` when it stops half-way */
  readonly bytes: Promise<Uint8Array>;
  /** Gives it up: what waits for it gets this error. Does nothing once it is there */
  fail(error: Error): void;
}

/** Begins to read the whole body of a request, `maxBytes` at most. */
export type BodyReader = (request: Request, maxBytes: number) => PendingBody;

/** Calls `onGone` when the client goes away before its reply is written. @returns what ends the watch */
export type ClientWatch = (request: Request, onGone: () => void) => () => void;

export interface RequestContextOptions {
  readonly services: Services;
  readonly Response: ResponseClass;
  readonly requestId: string;
  readonly remoteAddress: string | undefined;
  readonly target: RequestTarget;
  readonly path: string;
  readonly readBody: BodyReader;
  readonly watchClient: ClientWatch;
}

/** The context of one request, with what the middleware fills in. Lives until the reply is handed over. */
export class GatewayRequestContext implements RequestContext {
  readonly services: Services;
  readonly Response: ResponseClass;
  readonly requestId: string;
  readonly remoteAddress: string | undefined;
  readonly target: RequestTarget;
  readonly path: string;
  readonly ignored: string[] = [];
  readonly replyHeaders: Record<string, string>;
  built: Response | undefined = undefined;
  identity: Identity | null = null;
  claim: RunClaim | undefined = undefined;
  params: Readonly<Record<string, string>> = NO_PARAMS;
  /** Most bytes that the route takes in a body */
  maxBodyBytes = Infinity;
  /** Others who wait for this request's reply: with some, the client's leaving stops nothing (idempotency) */
  followers = 0;
  #request: Request;
  #readBody: BodyReader;
  #watchClient: ClientWatch;
  #query: URLSearchParams | undefined = undefined;
  #body: PendingBody | undefined = undefined;
  #controller: AbortController | undefined = undefined;
  #unwatch: (() => void) | undefined = undefined;
  /** One for the body and the work after it */
  #timer: Timer | undefined = undefined;
  #clientGone = false;
  #done = false;

  constructor(request: Request, options: RequestContextOptions) {
    this.#request = request;
    this.#readBody = options.readBody;
    this.#watchClient = options.watchClient;
    this.services = options.services;
    this.Response = options.Response;
    this.requestId = options.requestId;
    this.remoteAddress = options.remoteAddress;
    this.target = options.target;
    this.path = options.path;
    this.replyHeaders = { "x-request-id": options.requestId, vary: "Origin" };
  }

  get query(): URLSearchParams {
    return (this.#query ??= new URLSearchParams(this.target.search));
  }

  get authorization(): string | undefined {
    return this.#request.headers.get("authorization") ?? undefined;
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  get controller(): AbortController {
    if (this.#controller !== undefined) return this.#controller;
    const controller = (this.#controller = new AbortController());
    if (this.#done) return controller;
    this.#startTimer();
    this.#unwatch = this.#watchClient(this.#request, () => this.#onClientGone());
    return controller;
  }

  body(): Promise<Uint8Array> {
    if (this.#body === undefined) {
      this.#startTimer();
      this.#body = this.#readBody(
        this.#request,
        Math.min(this.services.config().gateway.max_request_bytes, this.maxBodyBytes),
      );
    }
    return this.#body.bytes;
  }

  /** Stops the handler's work; does nothing once the reply was handed over. */
  abort(reason: CancelReason): void {
    if (!this.#done) this.#controller?.abort(new CancelError(reason));
  }

  /** One follower has gone too. */
  unfollow(): void {
    this.followers--;
    if (this.#clientGone) this.#onClientGone();
  }

  /** The reply is handed over: the signal stays as it is from here on, whatever the runtime reports later. */
  detach(): void {
    this.#done = true;
    // A stream may last for minutes, and something of it may refer to its request
    this.#body = undefined;
    this.#timer?.clear();
    this.#unwatch?.();
  }

  #onClientGone(): void {
    this.#clientGone = true;
    if (this.followers === 0) this.abort("client_gone");
  }

  #startTimer(): void {
    if (this.#timer !== undefined || this.#done) return;
    const { clock, config } = this.services;
    const seconds = config().gateway.request_timeout_secs;
    this.#timer = clock.after(seconds * 1000, () => {
      this.#body?.fail(slowBody(seconds));
      this.abort("timeout");
    });
  }
}

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze({});

/** The refusal of a long body. The connection stays: closed at once, it would break before a client that still sends has read why. */
export function tooLarge(maxBytes: number) {
  return httpError("payload_too_large", `Cannot accept the request body: it is longer than ${maxBytes} bytes`);
}

function slowBody(seconds: number) {
  return httpError("request_timeout", `Cannot accept the request body: it did not arrive within ${seconds} s`, {
    headers: { connection: "close" },
  });
}

/** The watch for any fetch-based server: the request's own signal. */
export const watchSignal: ClientWatch = ({ signal }, onGone) => {
  if (signal.aborted) onGone();
  else signal.addEventListener("abort", onGone, { once: true });
  return () => signal.removeEventListener("abort", onGone);
};

/** The reader for any fetch-based server: the body as a web stream. */
export const readWebBody: BodyReader = (request, maxBytes) => {
  const { promise: bytes, resolve, reject } = Promise.withResolvers<Uint8Array>();
  readStream(request.body, maxBytes).then(resolve, (error: unknown) => {
    reject(error instanceof HttpError ? error : new CancelError("client_gone"));
  });
  return { bytes, fail: reject };
};

async function readStream(body: Request["body"], maxBytes: number): Promise<Uint8Array> {
  if (body === null) return new Uint8Array(0);
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > maxBytes) {
      reader.cancel().catch(() => {});
      throw tooLarge(maxBytes);
    }
    chunks.push(value);
  }
  if (chunks.length === 1) return chunks[0] as Uint8Array; // length was checked
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
