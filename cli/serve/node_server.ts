import type { Server } from "srvx";
import { UNKNOWN_TRANSFER_CODING } from "../../handlers/middleware/guards.ts";
import { earlyRefusal, isSound, OTHER_UPGRADE, toHttpText, UNSOUND } from "../../handlers/node/unsound_request.ts";
import type { ErrorCode } from "../../lib/base/errors.ts";
import type { Connection, NodeConnections, NodeReply } from "./node_connections.ts";
import type { SocketServer } from "./socket_server.ts";

/** Most bytes of a request's line and headers. Node's parser refuses more with 431. */
const MAX_HEADER_BYTES = 16 * 1024;
const KEEP_ALIVE_MS = 75_000;
/** Most connections that wait to be accepted. The system drops further ones, and their clients try again after a second. */
const BACKLOG = 4096;

/** Returns the options of Node's HTTP server. Other runtimes ignore them. */
export function nodeServerOptions(
  { headersTimeoutMs, requestTimeoutMs }: { readonly headersTimeoutMs: number; readonly requestTimeoutMs: number },
) {
  return {
    backlog: BACKLOG,
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: Math.min(headersTimeoutMs, requestTimeoutMs),
    requestTimeout: requestTimeoutMs,
    connectionsCheckingInterval: Math.max(100, Math.min(headersTimeoutMs, 10_000) / 2),
    keepAliveTimeout: KEEP_ALIVE_MS,
    // A request without a host is refused in isSound(), in the error shape of the API
    requireHostHeader: false,
    // Known to Node 24.9 and later: an upgrade to anything but a WebSocket is then an ordinary request
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
  /** First text of the body, kept back until the next write or the end */
  text?: string | undefined;
  /** Runs when the reply ends */
  ended?: (reply: NodeReply) => void;
}

/** Options of `hardenNodeServer`. */
export interface HardenOptions {
  readonly sockets: SocketServer;
  readonly connections: NodeConnections;
  readonly newRequestId: () => string;
}

/**
 * Answers requests that Node's parser refuses in the error shape of the API, and hands WebSocket handshakes to the socket server.
 * Does nothing on another runtime than Node.
 */
export function hardenNodeServer(server: Server, { sockets, connections, newRequestId }: HardenOptions): void {
  // Node's own server, by the members that are used here
  const node = server.node?.server as (NodeHttpServer & NodeServerSettings) | undefined;
  if (node === undefined) return;
  // 0: no limit for the number of headers, above which Node would drop headers in silence. Their bytes are limited
  node.maxHeadersCount = 0;
  // A client may end its half of the connection after the request. Node would close the whole connection
  node.httpAllowHalfOpen = true;
  const refuse = (socket: Connection, code: ErrorCode, message: string) =>
    connections.refuse(socket, toHttpText(earlyRefusal(code, message, newRequestId())));
  // Each event has the parameters of its listener below
  const on = (event: string, listener: Listener) => node.on(event, listener as () => void);
  const [answer] = node.listeners("request") as ((request: Incoming, reply: Reply) => void)[]; // that of srvx
  node.removeAllListeners("request");
  const onRequest = (request: Incoming, reply: Reply) => {
    // Nothing can be written any more after a refusal on the same connection
    if (!request.socket.writable) return void request.socket.destroy();
    reply.write = writeAtEnd;
    reply.end = endWithText;
    reply.ended = connections.closeUnlessDrained;
    if (isSound(request)) return answer?.(request, reply);
    const { status, headers, body } = earlyRefusal("invalid_request", UNSOUND, newRequestId());
    reply.writeHead(status, headers);
    reply.end(body);
  };
  on("request", onRequest);
  // Without these two listeners Node would ask for the body, or refuse, before the router has seen the request
  on("checkContinue", onRequest);
  on("checkExpectation", onRequest);
  on("clientError", (error: Error & { code?: string; reason?: string }, socket: Connection) => {
    if (connections.isRefused(socket)) return;
    if (!socket.writable || error.code === "ECONNRESET" || socket._httpMessage?.headersSent) {
      return void socket.destroy();
    }
    // Attack: a length beside a transfer coding smuggles a second request. The reply must not say that a coding is missing
    const known = error.reason?.includes("Content-Length") ? undefined : PARSER_ERRORS[error.code ?? ""];
    refuse(socket, ...(known ?? (["invalid_request", NOT_HTTP] as const)));
  });
  on("upgrade", (request: Incoming, socket: Connection, head: Uint8Array) => {
    // Without a listener, a client that leaves during the handshake would end the process
    socket.on("error", () => socket.destroy());
    if (!isSound(request)) refuse(socket, "invalid_request", UNSOUND);
    else if (isWebSocket(request.headers.upgrade)) sockets.upgradeOnNode?.(request, socket, head);
    else refuse(socket, "invalid_request", OTHER_UPGRADE);
  });
}

/**
 * Keeps the first text of a reply back until the next write or the end. srvx writes a text and ends at once, which Node would send
 * as two parts: that takes two microseconds more.
 */
function writeAtEnd(this: Reply, ...values: unknown[]): boolean {
  const [chunk] = values;
  const node: Reply = Object.getPrototypeOf(this);
  if (this.text === undefined) {
    if (typeof chunk !== "string" || values.length > 1) return node.write.apply(this, values);
    this.text = chunk;
    return true;
  }
  node.write.call(this, this.text);
  this.text = undefined;
  return node.write.apply(this, values);
}

/** Ends a reply, together with the text that `writeAtEnd` kept back. */
function endWithText(this: Reply, ...values: unknown[]): unknown {
  const node: Reply = Object.getPrototypeOf(this);
  const { text } = this;
  this.ended?.(this);
  if (text === undefined) return node.end.apply(this, values);
  this.text = undefined;
  // A text with as many bytes as characters is ASCII, which Node sends without encoding it
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

const NOT_HTTP = "Cannot read the request: it is not valid HTTP";
