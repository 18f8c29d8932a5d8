import type { IncomingMessage } from "node:http";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";

/** An open WebSocket to a gateway. */
export interface LinkSocket {
  /** @throws {Error} when it is not open any more */
  send(text: string): void;
  /** Bytes that are not on their way yet */
  unsent(): number;
  /** @param code 1000, or 3000 to 4999: a client may use no other. @param reason at most 123 bytes */
  close(code: number, reason: string): void;
}

/** Handlers of the frames that arrive. `closed` is called once, and last. */
export interface LinkHandlers {
  text(text: string): void;
  binary(): void;
  closed(code: number, reason: string): void;
}

/** Address and token of a gateway that a node connects to. */
export interface LinkSocketOptions {
  /** http or https address, with path and query */
  readonly url: URL;
  /** Token for `Authorization: Bearer` */
  readonly token: string;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Until it is open. Milliseconds. Default 10,000 */
  readonly timeoutMs?: number;
}

/** The other side could not be reached, or refuses; the message is whole by itself. */
export class LinkError extends Error {
  override readonly name = "LinkError";
  /** HTTP status of the refusal, or the close code; undefined: it was not reached */
  readonly status: number | undefined;
  constructor(message: string, options: { readonly status?: number | undefined; readonly cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.status = options.status;
  }
}

const TIMEOUT_MS = 10_000;
const MAX_REFUSAL_BYTES = 65_536;
const MAX_SHOWN = 500;

/**
 * Opens a WebSocket whose handshake carries a token.
 *
 * The API of the platform does not say why a handshake was refused, so it is then asked once more by plain HTTP.
 * @throws {LinkError} refused or not reached; {CancelError} on abort
 */
export async function openLinkSocket(options: LinkSocketOptions, handlers: LinkHandlers): Promise<LinkSocket> {
  const { url, signal, clock } = options;
  if (signal.aborted) throw cancelError(signal);
  const limit = clock.timeoutSignal(options.timeoutMs ?? TIMEOUT_MS);
  const both = AbortSignal.any([signal, limit.signal]);
  try {
    const socket = await open(options, { handlers, signal: both });
    if (socket !== undefined) return socket;
    const refusal = await askWhy(options, both).catch((cause: unknown) => {
      if (both.aborted) throw both.reason;
      const reason = cause instanceof Error && cause.message !== "" ? cause.message : "it does not answer";
      return { status: undefined, reason };
    });
    throw new LinkError(`Cannot connect to ${url.origin}: ${refusal.reason}`, { status: refusal.status });
  } catch (error) {
    if (signal.aborted) throw cancelError(signal);
    if (limit.signal.aborted) throw new LinkError(`Cannot connect to ${url.origin}: it does not answer in time`);
    throw error;
  } finally {
    limit.clear();
  }
}

function headersOf({ token }: LinkSocketOptions): Record<string, string> {
  return { authorization: `Bearer ${token}` };
}

/** @returns undefined when the handshake failed */
function open(
  options: LinkSocketOptions,
  { handlers, signal }: { readonly handlers: LinkHandlers; readonly signal: AbortSignal },
): Promise<LinkSocket | undefined> {
  const target = new URL(options.url);
  target.protocol = target.protocol === "https:" ? "wss:" : "ws:";
  // Node and Deno take headers in place of the protocols, which the standard does not know
  const extra = { headers: headersOf(options) } as unknown as string[];
  const socket = new WebSocket(target, extra);
  socket.binaryType = "arraybuffer";
  return new Promise((resolve, reject) => {
    let opened = false;
    const abort = () => {
      socket.close();
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    socket.addEventListener("open", () => {
      opened = true;
      signal.removeEventListener("abort", abort);
      resolve({
        send: (text) => socket.send(text),
        unsent: () => socket.bufferedAmount,
        close: (code, reason) => socket.close(code, reason),
      });
    });
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") handlers.text(data);
      else handlers.binary();
    });
    // After an open the close event that follows an error says the same
    socket.addEventListener("error", () => !opened && settleFailed());
    socket.addEventListener("close", ({ code, reason }) => (opened ? handlers.closed(code, reason) : settleFailed()));
    const settleFailed = () => {
      signal.removeEventListener("abort", abort);
      resolve(undefined);
    };
  });
}

/** The same handshake by hand. @returns status and the sentence of the gateway */
async function askWhy(
  options: LinkSocketOptions,
  signal: AbortSignal,
): Promise<{ readonly status: number | undefined; readonly reason: string }> {
  const { request } = options.url.protocol === "https:" ? await import("node:https") : await import("node:http");
  return await new Promise((resolve, reject) => {
    const headers = {
      ...headersOf(options),
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      // Any 16 bytes: this handshake is not carried on
      "sec-websocket-key": Buffer.from("postern-refusal!").toString("base64"),
    };
    const outgoing = request(options.url, { headers, agent: false, signal }, (incoming) => {
      readRefusal(incoming).then((reason) => resolve({ status: incoming.statusCode, reason }), reject);
    });
    outgoing.on("upgrade", (_incoming, socket) => {
      socket.destroy();
      resolve({ status: undefined, reason: "the handshake broke" });
    });
    outgoing.on("error", reject);
    outgoing.end();
  });
}

async function readRefusal(incoming: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of incoming.setEncoding("utf8")) {
    text += part;
    if (text.length > MAX_REFUSAL_BYTES) break;
  }
  const message = messageIn(text);
  const shown = message === undefined ? `it answers with status ${incoming.statusCode}` : message.slice(0, MAX_SHOWN);
  // deno-lint-ignore no-control-regex -- the sentence comes from outside, and goes to a terminal
  return shown.replace(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}

function messageIn(text: string): string | undefined {
  try {
    const message: unknown = JSON.parse(text)?.error?.message;
    return typeof message === "string" ? message : undefined;
  } catch {
    return undefined;
  }
}
