import type { Server } from "srvx";
import type { Clock, Timer } from "../../lib/base/clock.ts";

/** Time for a client to send the rest of a request that is answered already, in ms. Then its connection is closed. */
const DRAIN_LIMIT_MS = 5_000;
/** Time after a client ended its half of the connection until the first probe, in ms. Most replies are there sooner. */
const FIRST_PROBE_MS = 500;
const SECOND_PROBE_MS = 250;
const PROBE_EVERY_MS = 10_000;

/** Members of Node's socket that the server uses. */
export interface Connection {
  readonly bytesRead: number;
  readonly writable: boolean;
  readonly destroyed: boolean;
  /** Reply under way, as Node's HTTP server keeps it */
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
  /** Status line and headers as they were sent */
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

/** Open connections of Node's HTTP server, and the ways to end them. */
export interface NodeConnections {
  /** Ends connections on which no byte ever arrived: browsers open some ahead, and Node's `closeIdleConnections()` leaves them */
  closeSilent(): void;
  /** Sends a last text, reads what the client still sends for at most 5 s, and closes the connection */
  refuse(connection: Connection, text: string): void;
  /** Tells whether `refuse` was called for a connection: nothing that arrives on it counts any more */
  isRefused(connection: Connection): boolean;
  /** Must be called at the end of each reply. Closes the connection where the request has not arrived whole 5 s later */
  closeUnlessDrained(reply: NodeReply): void;
}

/** Watches the connections of `server`. Does nothing on another runtime than Node. */
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
      // Unread bytes would reset the connection before the client has read the refusal
      connection.resume();
      const timer = clock.after(DRAIN_LIMIT_MS, () => connection.destroy());
      connection.once("close", () => timer.clear());
    },
    isRefused: (connection) => refused.has(connection),
    closeUnlessDrained(reply) {
      const { req } = reply;
      // Node marks a request without a body as complete only a moment after its headers
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
 * Finds out whether a client that ended its half of the connection still waits for the answer. TCP cannot tell.
 *
 * Sends bytes without meaning: a comment in an event stream, or `100 Continue` before the reply, which every client of HTTP/1.1 must
 * skip. Where the client has gone, the first bytes make its machine reset the connection, and the second bytes find it closed.
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
    } else if (EVENT_STREAM.test(reply._header ?? "")) reply.write(":\n\n", "latin1"); // with an encoding, since a bare text waits for the next one
    schedule();
  };
  connection.once("close", () => timer?.clear());
  if (connection._httpMessage?.headersSent) probe();
  else schedule();
}

const EVENT_STREAM = /\r\ncontent-type: text\/event-stream/i;
