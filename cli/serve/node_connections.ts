import type { Server } from "srvx";
import type { Clock, Timer } from "../../lib/base/clock.ts";

/** Milliseconds for a client to send the rest of a request that is answered already; then its connection is closed. */
const DRAIN_LIMIT_MS = 5_000;
/** Milliseconds after a client's last byte before it is asked whether it still listens; most replies are there sooner. */
const FIRST_PROBE_MS = 500;
const SECOND_PROBE_MS = 250;
const PROBE_EVERY_MS = 10_000;

/** Members of Node's socket that the server uses of a connection. */
export interface Connection {
  readonly bytesRead: number;
  readonly writable: boolean;
  readonly destroyed: boolean;
  /** The reply under way, as Node's HTTP server notes it */
  readonly _httpMessage?: NodeReply | null;
  on(event: string, listener: () => void): unknown;
  once(event: string, listener: () => void): unknown;
  end(text: string): unknown;
  resume(): unknown;
  destroy(): unknown;
}

/** Members of Node's reply, and of its request, that the server uses. */
export interface NodeReply {
  readonly headersSent: boolean;
  /** The head as it was sent */
  readonly _header: string | null;
  readonly writableEnded: boolean;
  readonly req: {
    readonly complete: boolean;
    readonly httpVersion: string;
    readonly headers: { readonly "content-length"?: string; readonly "transfer-encoding"?: string };
    readonly socket: Connection;
    once(event: "close", listener: () => void): unknown;
  };
  write(text: string, encoding: "latin1"): unknown;
  writeContinue(): void;
  once(event: "finish", listener: () => void): unknown;
}

/** The connections of Node's HTTP server: when each of them ends. */
export interface NodeConnections {
  /** Ends those on which nothing was ever said, as browsers open them ahead: Node's `closeIdleConnections()` leaves these */
  closeSilent(): void;
  /** Sends a last text, takes what the client still sends for 5 s at most, and closes */
  refuse(connection: Connection, text: string): void;
  /** True for a connection that `refuse` was called for: nothing that comes on it counts any more */
  isRefused(connection: Connection): boolean;
  /** Call at the end of each reply: where the request has not come whole 5 s later, its connection is closed */
  closeUnlessDrained(reply: NodeReply): void;
}

/** Watches the connections of `server`; on another runtime than Node there are none to watch. */
export function watchNodeConnections(server: Server, clock: Clock): NodeConnections {
  const open = new Set<Connection>();
  const refused = new WeakSet<Connection>();
  const onConnection = (connection: Connection) => {
    open.add(connection);
    connection.once("close", () => open.delete(connection));
    connection.once("end", () => watchHalfClosed(connection, clock));
  };
  server.node?.server?.on("connection", onConnection as unknown as () => void); // the event's argument is a socket
  return {
    closeSilent() {
      for (const connection of [...open]) if (connection.bytesRead === 0) connection.destroy();
    },
    refuse(connection, text) {
      refused.add(connection);
      connection.end(text);
      // Read on: bytes that nobody has read would break the connection before the client has read why
      connection.resume();
      const timer = clock.after(DRAIN_LIMIT_MS, () => connection.destroy());
      connection.once("close", () => timer.clear());
    },
    isRefused: (connection) => refused.has(connection),
    closeUnlessDrained(reply) {
      const { req } = reply;
      // A request without a body is whole once its headers are, though Node says so a moment later
      if (req.complete || !hasBody(req.headers)) return;
      reply.once("finish", () => {
        if (req.complete) return;
        const timer = clock.after(DRAIN_LIMIT_MS, () => req.socket.destroy());
        req.once("close", () => timer.clear());
      });
    },
  };
}

function hasBody(headers: NodeReply["req"]["headers"]): boolean {
  return headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined;
}

/**
 * A client that has ended its half of the connection may wait for its answer, or be gone: TCP says the same of both. So it is sent
 * something that means nothing: a comment in an event stream, before the reply `100 Continue`, which every client of HTTP/1.1 must
 * skip. Where nobody is there, the first such bytes break the connection, and the second ones, a moment later, find it broken.
 */
function watchHalfClosed(connection: Connection, clock: Clock): void {
  let timer: Timer | undefined;
  let probes = 0;
  const schedule = () => {
    const waitMs = probes === 0 ? FIRST_PROBE_MS : probes % 2 === 1 ? SECOND_PROBE_MS : PROBE_EVERY_MS;
    timer = clock.after(waitMs, probe);
  };
  const probe = () => {
    const reply = connection._httpMessage;
    if (!connection.writable || reply === undefined || reply === null || reply.writableEnded) return;
    probes++;
    if (!reply.headersSent) {
      if (reply.req.httpVersion === "1.1") reply.writeContinue();
    } else if (EVENT_STREAM.test(reply._header ?? "")) reply.write(":\n\n", "latin1"); // a text alone waits for the next one
    schedule();
  };
  connection.once("close", () => timer?.clear());
  if (connection._httpMessage?.headersSent) probe();
  else schedule();
}

const EVENT_STREAM = /\r\ncontent-type: text\/event-stream/i;
