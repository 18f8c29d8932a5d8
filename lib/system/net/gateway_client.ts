import { messageOf } from "../../base/errors.ts";
import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request as send } from "node:http";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock, TimeoutSignal } from "../../base/clock.ts";

/** The reply of a gateway. `body` is its JSON, undefined where there was none. */
export interface GatewayReply {
  readonly status: number;
  readonly body: unknown;
}

/** A reply that is read piece by piece. */
export interface GatewayStream {
  readonly status: number;
  /** By lower-case name */
  readonly headers: Readonly<IncomingHttpHeaders>;
  readonly body: AsyncIterable<Uint8Array>;
}

/** Request to a gateway. `body` is sent as JSON. */
export interface GatewayRequest {
  readonly method: "GET" | "POST" | "DELETE";
  /** With the query */
  readonly path: string;
  readonly body?: unknown;
  /** Bytes to send in place of `body`, with their media type. Default: none */
  readonly raw?: { readonly type: string; readonly bytes: Uint8Array } | undefined;
  /** Headers beside those of the body and the token. Default: none */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Text frames from a socket; ends when the gateway closes it. */
export interface GatewaySocket {
  send(text: string): void;
  frames(): AsyncIterable<string>;
  close(): void;
}

/** Speaks to a running gateway on this machine. */
export interface GatewayClient {
  /** @throws {GatewayClientError} no or a broken answer; {CancelError} on abort */
  request(request: GatewayRequest): Promise<GatewayReply>;
  /**
   * A reply as it comes, for event streams; reading no further pauses it, leaving it ends the request.
   * @throws {GatewayClientError} no or a broken answer, also while it is read; {CancelError} on abort
   */
  stream(request: GatewayRequest): Promise<GatewayStream>;
  /** Opens a WebSocket. @param path with the query. @throws {GatewayClientError} the handshake was refused */
  openSocket(path: string): Promise<GatewaySocket>;
}

/** Address and token of a gateway. */
export interface GatewayClientOptions {
  /** As `http://127.0.0.1:42617/` */
  readonly address: string;
  readonly token: string;
  readonly clock: Clock;
  /** Milliseconds for one whole request, and until the head of a stream. Default 600,000 */
  readonly timeoutMs?: number;
}

/** The gateway did not answer as one. */
export class GatewayClientError extends Error {
  override readonly name = "GatewayClientError";
}

const TIMEOUT_MS = 600_000;
const MAX_REPLY_BYTES = 67_108_864;
const MAX_WAITING_FRAMES = 100_000;

/** Creates a client for one gateway; nothing is kept open between requests. */
export function createGatewayClient(options: GatewayClientOptions): GatewayClient {
  return {
    request: (request) => exchange(request, options),
    stream: (request) => openStream(request, options),
    openSocket: (path) => openSocket(new URL(path, options.address.replace(/^http/, "ws"))),
  };
}

async function exchange(request: GatewayRequest, options: GatewayClientOptions): Promise<GatewayReply> {
  const { signal, clear } = limited(request, options);
  try {
    const { status, text } = await transfer(request, { ...options, signal });
    return { status, body: text === "" ? undefined : JSON.parse(text) };
  } catch (cause) {
    if (signal.aborted) throw limitError(signal, options);
    const reason = cause instanceof SyntaxError ? "the answer is not JSON" : messageOf(cause);
    throw new GatewayClientError(`Cannot reach the gateway at ${options.address}: ${reason}`, { cause });
  } finally {
    clear();
  }
}

/** The caller's signal, which aborts at the time limit too. */
function limited({ signal }: GatewayRequest, { clock, timeoutMs = TIMEOUT_MS }: GatewayClientOptions): TimeoutSignal {
  const limit = clock.timeoutSignal(timeoutMs);
  return signal === undefined ? limit : { ...limit, signal: AbortSignal.any([limit.signal, signal]) };
}

/** Returns the reason of an abort; that of the time limit says who did not answer. */
function limitError(signal: AbortSignal, { address, timeoutMs = TIMEOUT_MS }: GatewayClientOptions): CancelError {
  const error = cancelError(signal);
  const message = `Cannot reach the gateway at ${address}: it gave no answer in ${timeoutMs / 1000} s; try again`;
  return error.reason === "timeout" ? new CancelError("timeout", message) : error;
}

/** Sends a request; `read` gets the reply before its body. */
function dispatch(
  { method, path, body, raw, headers: more }: GatewayRequest,
  options: GatewayClientOptions & { readonly signal: AbortSignal },
  read: (incoming: IncomingMessage) => void,
): ClientRequest {
  const payload = raw?.bytes ?? (body === undefined ? undefined : JSON.stringify(body));
  const headers = {
    ...more,
    authorization: `Bearer ${options.token}`,
    ...(payload === undefined
      ? {}
      : { "content-type": raw?.type ?? "application/json", "content-length": Buffer.byteLength(payload) }),
  };
  const { signal } = options;
  const outgoing = send(new URL(path, options.address), { method, headers, agent: false, signal }, read);
  outgoing.end(payload);
  return outgoing;
}

function transfer(
  request: GatewayRequest,
  options: GatewayClientOptions & { readonly signal: AbortSignal },
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const outgoing = dispatch(request, options, (incoming) => {
      const parts: Buffer[] = [];
      let bytes = 0;
      incoming.on("data", (part: Buffer) => {
        bytes += part.length;
        if (bytes > MAX_REPLY_BYTES) {
          outgoing.destroy(new Error(`the answer is larger than ${MAX_REPLY_BYTES} bytes`));
        } else parts.push(part);
      });
      incoming.on(
        "end",
        () => resolve({ status: incoming.statusCode ?? 0, text: Buffer.concat(parts).toString("utf8") }),
      );
      incoming.on("error", reject);
    });
    outgoing.on("error", reject);
  });
}

function openStream(request: GatewayRequest, options: GatewayClientOptions): Promise<GatewayStream> {
  const { signal, clear } = limited(request, options);
  const toError = (cause: unknown, hasBegun = false) => {
    if (signal.aborted) return limitError(signal, options);
    const reason = hasBegun ? "it broke off the connection" : messageOf(cause);
    return new GatewayClientError(`Cannot reach the gateway at ${options.address}: ${reason}`, { cause });
  };
  async function* read(incoming: IncomingMessage): AsyncIterable<Uint8Array> {
    try {
      yield* incoming;
    } catch (cause) {
      throw toError(cause, true);
    }
  }
  return new Promise((resolve, reject) => {
    const outgoing = dispatch(request, { ...options, signal }, (incoming) => {
      clear();
      resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, body: read(incoming) });
    });
    outgoing.on("error", (cause) => {
      clear();
      reject(toError(cause));
    });
  });
}

function openSocket(url: URL): Promise<GatewaySocket> {
  const socket = new WebSocket(url);
  const waiting: string[] = [];
  let wake: (() => void) | undefined;
  let open = true;
  socket.addEventListener("message", ({ data }) => {
    if (waiting.length >= MAX_WAITING_FRAMES) return socket.close();
    waiting.push(String(data));
    wake?.();
  });
  socket.addEventListener("close", () => {
    open = false;
    wake?.();
  });
  async function* frames(): AsyncIterable<string> {
    for (;;) {
      for (let frame = waiting.shift(); frame !== undefined; frame = waiting.shift()) yield frame;
      if (!open) return;
      await new Promise<void>((resolve) => (wake = resolve));
    }
  }
  return new Promise((resolve, reject) => {
    socket.addEventListener(
      "open",
      () => resolve({ send: (text) => socket.send(text), frames, close: () => socket.close() }),
    );
    socket.addEventListener(
      "error",
      () => reject(new GatewayClientError(`Cannot open a socket to ${url.origin}: it was refused`)),
    );
  });
}
