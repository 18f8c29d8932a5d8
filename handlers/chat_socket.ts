import type { Message, Peer } from "crossws";
import type { Route } from "./route.ts";
import { createSocketSession, type SocketSession } from "./websocket/socket_session.ts";
import { callerOf } from "./wire/caller_of.ts";
import { httpError } from "./wire/error_codes.ts";
import { textQuery } from "./wire/list_query.ts";
import { requireAgent } from "./wire/require_agent.ts";

/**
 * GET /ws/chat. The router has checked host, origin, token and scope before `websocket` is called; what
 * it throws refuses the handshake.
 * Source: docs/design/websocket.md "Frames in"
 */
export const chatSocketRoute: Route = {
  method: "GET",
  path: "/ws/chat",
  access: "chat",
  summary: "Chat over a WebSocket with streamed replies",
  query: { ticket: textQuery("Single-use ticket of POST /v1/ws-ticket, in place of the Authorization header") },
  reply: { status: 101, description: "The connection is a WebSocket" },
  errors: ["upgrade_required", "agent_unavailable", "shutting_down"],
  websocket(context) {
    const { services, requestId } = context;
    requireAgent(services);
    if (services.state() === "draining") {
      throw httpError("shutting_down", "Cannot open a socket: the gateway is shutting down");
    }
    // Deno's sockets know no ping, and crossws warns on the terminal when one is tried
    const options = { services, caller: callerOf(context, "websocket"), requestId, canPing: !("Deno" in globalThis) };
    let session: SocketSession | undefined;
    const sessionOf = (peer: Peer) => (session ??= createSocketSession(peer, options));
    return {
      open: (peer) => void sessionOf(peer),
      message(peer, message) {
        const data: unknown = message.rawData;
        if (typeof data === "string") sessionOf(peer).text(data);
        else sessionOf(peer).binary(sizeOf(message));
      },
      pong: () => session?.pong(),
      ping: () => session?.pinged(),
      drain: () => session?.drained(),
      close: () => session?.closed(),
      error: () => session?.closed(),
    };
  },
  handler() {
    throw httpError("upgrade_required", "Cannot chat here over plain HTTP: open a WebSocket");
  },
};

function sizeOf({ rawData }: Message): number {
  if (rawData instanceof Blob) return rawData.size;
  return rawData instanceof ArrayBuffer || ArrayBuffer.isView(rawData) ? rawData.byteLength : 0;
}
