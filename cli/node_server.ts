import type { Server } from "srvx";
import {
  type BodyReader,
  type ClientWatch,
  type PendingBody,
  readWebBody,
  tooLarge,
  watchSignal,
} from "../handlers/request_context.ts";
import { hasDotSegment } from "../handlers/request_target.ts";
import { errorBody } from "../handlers/wire/to_http_error.ts";
import { type ErrorCode, httpError } from "../handlers/wire/error_codes.ts";
import { CancelError } from "../lib/base/cancel.ts";
import { inTurns } from "../lib/base/in_turns.ts";
import type { SocketServer } from "./socket_server.ts";

export interface NodeServerLimits {
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

/** Bytes of a request's line and headers; Node's own parser answers 431 above. */
const MAX_HEADER_BYTES = 16 * 1024;
const KEEP_ALIVE_MS = 75_000;
/** Connections that wait to be taken in, one each turn of the event loop; the system drops more, and their clients ask again after a second. */
const BACKLOG = 4096;

/** Limits of Node's HTTP server; other runtimes have their own and take no notice. */
export function nodeServerOptions({ headersTimeoutMs, requestTimeoutMs }: NodeServerLimits) {
  return {
    backlog: BACKLOG,
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: Math.min(headersTimeoutMs, requestTimeoutMs),
    requestTimeout: requestTimeoutMs,
    connectionsCheckingInterval: Math.max(100, Math.min(headersTimeoutMs, 10_000) / 2),
    keepAliveTimeout: KEEP_ALIVE_MS,
    // Answered below, in the one error shape
    requireHostHeader: false,
    // Node 24.9 and later; an upgrade to anything else is then an ordinary request
    shouldUpgradeCallback: (request: { readonly headers: { readonly upgrade?: string | undefined } }) =>
      isWebSocket(request.headers.upgrade),
  };
}

type NodeHttpServer = NonNullable<NonNullable<Server["node"]>["server"]>;
type Listener = (...values: never[]) => void;
/** What is used of a connection. */
interface Socket {
  readonly writable: boolean;
  readonly _httpMessage?: { readonly headersSent: boolean } | null;
  on(event: "error", listener: () => void): unknown;
  end(text: string): unknown;
  destroy(): unknown;
}
interface Incoming {
  readonly url?: string;
  readonly httpVersion: string;
  readonly headers: { readonly host?: string; readonly upgrade?: string };
  readonly socket: Socket;
}

interface Reply {
  writeHead(status: number, headers: Readonly<Record<string, string | number>>): unknown;
  write(...values: unknown[]): boolean;
  end(...values: unknown[]): unknown;
  /** A text that waits for the end */
  text?: string | undefined;
}

export interface HardenOptions {
  readonly sockets: SocketServer;
  readonly newRequestId: () => string;
}

/** Gives what breaks below HTTP the one error shape, and hands handshakes to the socket server. Does nothing elsewhere than on Node. */
export function hardenNodeServer(server: Server, { sockets, newRequestId }: HardenOptions): void {
  const node = server.node?.server as (NodeHttpServer & { maxHeadersCount: number }) | undefined;
  if (node === undefined) return;
  // 0: no limit of their number, above which Node drops headers in silence; their bytes are limited
  node.maxHeadersCount = 0;
  const refuse = (socket: Socket, code: ErrorCode, reason: string) => {
    const { status, headers, body } = refusal(code, reason, newRequestId());
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.end(`HTTP/1.1 ${status} ${STATUS_TEXT[status] ?? "Bad Request"}\r\n${lines.join("")}\r\n${body}`);
  };
  const on = (event: string, listener: Listener) => node.on(event, listener as () => void);
  const [answer] = node.listeners("request") as ((request: Incoming, reply: Reply) => void)[];
  node.removeAllListeners("request");
  on("request", (request: Incoming, reply: Reply) => {
    if (isSound(request)) {
      reply.write = writeAtEnd;
      reply.end = endWithText;
      return answer?.(request, reply);
    }
    const { status, headers, body } = refusal("invalid_request", UNSOUND, newRequestId());
    reply.writeHead(status, headers);
    reply.end(body);
  });
  on("clientError", (error: Error & { code?: string }, socket: Socket) => {
    if (!socket.writable || error.code === "ECONNRESET" || socket._httpMessage?.headersSent) {
      return void socket.destroy();
    }
    refuse(socket, ...(PARSER_ERRORS[error.code ?? ""] ?? (["invalid_request", "it is not valid HTTP"] as const)));
  });
  on("upgrade", (request: Incoming, socket: Socket, head: Uint8Array) => {
    // Without a listener, a client that goes away during the checks would end the process
    socket.on("error", () => socket.destroy());
    if (!isSound(request)) refuse(socket, "invalid_request", UNSOUND);
    else if (isWebSocket(request.headers.upgrade)) sockets.upgradeOnNode?.(request, socket, head);
    else refuse(socket, "invalid_request", "the only upgrade here is to a WebSocket");
  });
}

/**
 * srvx writes a text and ends at once, which Node sends as two parts, at two microseconds more than one: the first text waits for
 * what follows it.
 */
function writeAtEnd(this: Reply, ...values: unknown[]): boolean {
  const [chunk] = values;
  const node = Object.getPrototypeOf(this) as Reply;
  if (this.text === undefined) {
    if (typeof chunk !== "string" || values.length > 1) return node.write.apply(this, values);
    this.text = chunk;
    return true;
  }
  node.write.call(this, this.text);
  this.text = undefined;
  return node.write.apply(this, values);
}

function endWithText(this: Reply, ...values: unknown[]): unknown {
  const node = Object.getPrototypeOf(this) as Reply;
  const { text } = this;
  if (text === undefined) return node.end.apply(this, values);
  this.text = undefined;
  // As long in bytes as in characters: plain ASCII, which Node need not encode
  if (values.length === 0) {
    return node.end.call(this, text, Buffer.byteLength(text) === text.length ? "latin1" : "utf8");
  }
  node.write.call(this, text);
  return node.end.apply(this, values);
}

/**
 * What ends connections on which nothing was ever said, as browsers open them ahead: Node's `closeIdleConnections()` leaves those.
 * Does nothing elsewhere than on Node.
 */
export function trackSilentConnections(server: Server): () => void {
  const open = new Set<Connection>();
  const onConnection = (connection: Connection) => {
    open.add(connection);
    connection.once("close", () => open.delete(connection));
  };
  server.node?.server?.on("connection", onConnection as unknown as () => void); // the event's argument is a socket
  return () => {
    for (const connection of [...open]) if (connection.bytesRead === 0) connection.destroy();
  };
}

/** What is used of a connection before it has a request. */
interface Connection {
  readonly bytesRead: number;
  once(event: "close", listener: () => void): unknown;
  destroy(): unknown;
}

const PARSER_ERRORS: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  HPE_HEADER_OVERFLOW: ["headers_too_large", `its headers are longer than ${MAX_HEADER_BYTES} bytes`],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ["payload_too_large", "its chunk extensions are too long"],
  ERR_HTTP_REQUEST_TIMEOUT: ["request_timeout", "it did not arrive in time"],
};

function isWebSocket(upgrade: string | undefined): boolean {
  return upgrade?.toLowerCase() === "websocket";
}

function isSound({ httpVersion, headers, url = "" }: Incoming): boolean {
  if (headers.host === undefined && httpVersion === "1.1") return false;
  // srvx would resolve dot segments and turn backslashes before the router sees the path
  const [path = ""] = url.split("?", 1);
  if (hasDotSegment(path) || path.includes("\\")) return false;
  return url.startsWith("/") || url === "*" || (/^https?:\/\/[^/?#]/i.test(url) && URL.canParse(url));
}

function refusal(code: ErrorCode, reason: string, requestId: string) {
  const error = httpError(code, `Cannot read the request: ${reason}`);
  const body = JSON.stringify(errorBody(error));
  const headers = {
    "x-request-id": requestId,
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    connection: "close",
  };
  return { status: error.status, headers, body };
}

const UNSOUND = "it names no host, or its target is no address in its plain form";

const STATUS_TEXT: Readonly<Record<number, string>> = {
  408: "Request Timeout",
  413: "Payload Too Large",
  431: "Request Header Fields Too Large",
};

/** What is used of a request's stream. */
interface BodyStream {
  readonly headers: { readonly "content-length"?: string; readonly "transfer-encoding"?: string };
  on(event: string, listener: (value: never) => void): unknown;
}

/** What is used of the reply under way. */
interface ReplyStream {
  readonly destroyed: boolean;
  on(event: "close", listener: () => void): unknown;
  off(event: "close", listener: () => void): unknown;
}

/** Watches Node's own reply, whose `close` before its end means that nobody is there: a signal costs several times as much. */
export const watchNodeClient: ClientWatch = (request, onGone) => {
  const reply = (request as { runtime?: { node?: { res?: ReplyStream } } }).runtime?.node?.res;
  if (reply === undefined) return watchSignal(request, onGone);
  reply.on("close", onGone);
  if (reply.destroyed) onGone();
  return () => reply.off("close", onGone);
};

/** Reads the body from Node's own stream, past the web stream over it, which costs tens of microseconds. */
export const readNodeBody: BodyReader = (request, maxBytes) => {
  const stream = (request as { runtime?: { node?: { req?: BodyStream } } }).runtime?.node?.req;
  if (stream === undefined) return readWebBody(request, maxBytes);
  if (stream.headers["content-length"] === undefined && stream.headers["transfer-encoding"] === undefined) return EMPTY;
  // Undefined once it is over: a reply may go on for minutes, and what the listeners refer to lives as long as the request
  let reading: Reading | undefined;
  const fail = (error: Error) => {
    reading?.reject(error);
    reading = undefined;
  };
  const bytes = new Promise<Uint8Array>((resolve, reject) => (reading = { resolve, reject, chunks: [], size: 0 }));
  // Left in place: they go with the request, and to take them off costs as much as to read
  stream.on("data", (chunk: Uint8Array) => {
    if (reading === undefined) return;
    reading.size += chunk.length;
    if (reading.size > maxBytes) fail(tooLarge(maxBytes));
    else reading.chunks.push(chunk);
  });
  stream.on("end", () => {
    if (reading === undefined) return;
    giveInTurn(reading);
    reading = undefined;
  });
  // Without a listener for errors Node reports one as the end of the connection
  stream.on("close", () => {
    if (reading !== undefined) fail(new CancelError("client_gone"));
  });
  return { bytes, fail };
};

/** A body that is on its way. */
interface Reading {
  readonly resolve: (body: Uint8Array) => void;
  readonly reject: (error: Error) => void;
  readonly chunks: Uint8Array[];
  size: number;
}

/** Bodies that have come: most open a request to a model, about as much work as its reply makes. */
const giveInTurn = inTurns<Reading>(16, ({ resolve, chunks }) => {
  resolve(chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks)); // length was checked
});

const EMPTY: PendingBody = { bytes: Promise.resolve(new Uint8Array(0)), fail() {} };
