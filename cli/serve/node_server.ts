import type { Server } from "srvx";
import { UNKNOWN_TRANSFER_CODING } from "../../handlers/middleware/body_guard.ts";
import { hasDotSegment } from "../../handlers/request_target.ts";
import { errorBody } from "../../handlers/wire/to_http_error.ts";
import { type ErrorCode, httpError } from "../../handlers/wire/error_codes.ts";
import type { Connection, NodeConnections, NodeReply } from "./node_connections.ts";
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
interface NodeServerSettings {
  maxHeadersCount: number;
  httpAllowHalfOpen: boolean;
}
interface Incoming {
  readonly url?: string;
  readonly httpVersion: string;
  readonly headers: { readonly host?: string; readonly upgrade?: string };
  readonly socket: Connection;
}

interface Reply extends Omit<NodeReply, "write"> {
  writeHead(status: number, headers: Readonly<Record<string, string | number>>): unknown;
  write(...values: unknown[]): boolean;
  end(...values: unknown[]): unknown;
  /** A text that waits for the end */
  text?: string | undefined;
  /** Called once it has ended */
  ended?: (reply: NodeReply) => void;
}

export interface HardenOptions {
  readonly sockets: SocketServer;
  readonly connections: NodeConnections;
  readonly newRequestId: () => string;
}

/** Gives what breaks below HTTP the one error shape, and hands handshakes to the socket server. Does nothing elsewhere than on Node. */
export function hardenNodeServer(server: Server, { sockets, connections, newRequestId }: HardenOptions): void {
  const node = server.node?.server as (NodeHttpServer & NodeServerSettings) | undefined;
  if (node === undefined) return;
  // 0: no limit of their number, above which Node drops headers in silence; their bytes are limited
  node.maxHeadersCount = 0;
  // A client may end its half of the connection once it has asked; Node would hang up on it
  node.httpAllowHalfOpen = true;
  const refuse = (socket: Connection, code: ErrorCode, message: string) => {
    const { status, headers, body } = refusal(code, message, newRequestId());
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    connections.refuse(
      socket,
      `HTTP/1.1 ${status} ${STATUS_TEXT[status] ?? "Bad Request"}\r\n${lines.join("")}\r\n${body}`,
    );
  };
  const on = (event: string, listener: Listener) => node.on(event, listener as () => void);
  const [answer] = node.listeners("request") as ((request: Incoming, reply: Reply) => void)[];
  node.removeAllListeners("request");
  const onRequest = (request: Incoming, reply: Reply) => {
    // A request that follows a refusal on the same connection cannot be answered: nothing more can be written there
    if (!request.socket.writable) return void request.socket.destroy();
    reply.write = writeAtEnd;
    reply.end = endWithText;
    reply.ended = connections.closeUnlessDrained;
    if (isSound(request)) return answer?.(request, reply);
    const { status, headers, body } = refusal("invalid_request", UNSOUND, newRequestId());
    reply.writeHead(status, headers);
    reply.end(body);
  };
  on("request", onRequest);
  // Without these two, Node asks for the body, or refuses in a form of its own, before anything here has seen the request
  on("checkContinue", onRequest);
  on("checkExpectation", onRequest);
  on("clientError", (error: Error & { code?: string; reason?: string }, socket: Connection) => {
    if (connections.isRefused(socket)) return;
    if (!socket.writable || error.code === "ECONNRESET" || socket._httpMessage?.headersSent) {
      return void socket.destroy();
    }
    // A length beside a transfer coding is how requests are smuggled, and not a coding that is missing here
    const known = error.reason?.includes("Content-Length") ? undefined : PARSER_ERRORS[error.code ?? ""];
    refuse(socket, ...(known ?? (["invalid_request", NOT_HTTP] as const)));
  });
  on("upgrade", (request: Incoming, socket: Connection, head: Uint8Array) => {
    // Without a listener, a client that goes away during the checks would end the process
    socket.on("error", () => socket.destroy());
    if (!isSound(request)) refuse(socket, "invalid_request", UNSOUND);
    else if (isWebSocket(request.headers.upgrade)) sockets.upgradeOnNode?.(request, socket, head);
    else refuse(socket, "invalid_request", "Cannot read the request: the only upgrade here is to a WebSocket");
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
  this.ended?.(this);
  if (text === undefined) return node.end.apply(this, values);
  this.text = undefined;
  // As long in bytes as in characters: plain ASCII, which Node need not encode
  if (values.length === 0) {
    return node.end.call(this, text, Buffer.byteLength(text) === text.length ? "latin1" : "utf8");
  }
  node.write.call(this, text);
  return node.end.apply(this, values);
}

const PARSER_ERRORS: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  HPE_HEADER_OVERFLOW: [
    "headers_too_large",
    `Cannot read the request: its headers are longer than ${MAX_HEADER_BYTES} bytes`,
  ],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ["payload_too_large", "Cannot read the request: its chunk extensions are too long"],
  ERR_HTTP_REQUEST_TIMEOUT: ["request_timeout", "Cannot read the request: it did not arrive in time"],
  HPE_INVALID_TRANSFER_ENCODING: ["not_implemented", UNKNOWN_TRANSFER_CODING],
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

function refusal(code: ErrorCode, message: string, requestId: string) {
  const error = httpError(code, message);
  const body = JSON.stringify(errorBody(error));
  const headers = {
    "x-request-id": requestId,
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    connection: "close",
    ...(error.status === 501 ? { "x-should-retry": "false" } : {}),
  };
  return { status: error.status, headers, body };
}

const NOT_HTTP = "Cannot read the request: it is not valid HTTP";
const UNSOUND = "Cannot read the request: it names no host, or its target is no address in its plain form";

const STATUS_TEXT: Readonly<Record<number, string>> = {
  408: "Request Timeout",
  413: "Payload Too Large",
  431: "Request Header Fields Too Large",
  501: "Not Implemented",
};
