import type { Peer } from "crossws";
import type { NodeAdmission, NodeLink, Nodes } from "../lib/extensions/nodes/nodes.ts";
import { bearerTokenOf } from "./bearer_token.ts";
import type { RequestContext, Route } from "./route.ts";
import { createOutbox } from "./websocket/outbox.ts";
import { httpError } from "./wire/error_codes.ts";
import { textQuery } from "./wire/list_query.ts";
import { requireNodes } from "./wire/require_nodes.ts";

/** A node that takes nothing for so long is given up. Milliseconds */
const PATIENCE_MS = 30_000;

/**
 * GET /ws/node: the link of a node (docs/design/plugins.md "Nodes"). It has a token of its own: what pairing hands
 * out does not open it. Everything that refuses it is said before the upgrade.
 */
export const nodeSocketRoute: Route = {
  method: "GET",
  path: "/ws/node",
  access: "node_token",
  summary: "The link of a node, with the token of [gateway.node_control]",
  query: { id: textQuery("Id of the node, one of allowed_node_ids") },
  reply: { status: 101, description: "The connection is a WebSocket" },
  errors: [
    "invalid_request",
    "auth_required",
    "auth_invalid",
    "not_found",
    "upgrade_required",
    "rate_limited",
    "shutting_down",
  ],
  websocket(context) {
    const { services, remoteAddress } = context;
    const nodes = requireNodes(services);
    const token = bearerTokenOf(context.authorization);
    const id = context.query.get("id") ?? undefined;
    const admission = nodes.admit({ token, id, address: remoteAddress });
    if (!admission.ok) throw refusalOf(admission);
    if (services.state() === "draining") {
      throw httpError("shutting_down", "Cannot connect the node: the gateway is shutting down");
    }
    let link: NodeLink | undefined;
    const linkOf = (peer: Peer) => (link ??= openLink(nodes, peer, { context, id: admission.id }));
    return {
      open: (peer) => void linkOf(peer),
      message(peer, { rawData }) {
        if (typeof rawData === "string") linkOf(peer).text(rawData);
        else linkOf(peer).binary();
      },
      close: () => link?.closed(),
      error: () => link?.closed(),
    };
  },
  handler() {
    throw httpError("upgrade_required", "Cannot connect a node over plain HTTP: open a WebSocket");
  },
};

/** It is no socket of the others': a shutdown ends it last, for the work that has its grace may need it. */
function openLink(
  nodes: Nodes,
  peer: Peer,
  { context, id }: { readonly context: RequestContext; readonly id: string },
): NodeLink {
  const { services, remoteAddress } = context;
  const outbox = createOutbox({ peer, clock: services.clock, patienceMs: PATIENCE_MS });
  const link = nodes.open(id, {
    send: (text) => outbox.send(text),
    close(code, reason) {
      outbox.close();
      try {
        peer.close(code, reason);
      } catch {
        // It was closed by the other side at this moment
      }
    },
    terminate() {
      outbox.close();
      peer.terminate();
    },
  }, remoteAddress);
  return {
    ...link,
    closed() {
      outbox.close();
      link.closed();
    },
  };
}

function refusalOf({ code, message, retryAfterSeconds }: Extract<NodeAdmission, { ok: false }>) {
  return httpError(code, message, {
    param: code === "invalid_request" ? "id" : null,
    ...(retryAfterSeconds === undefined ? {} : { headers: { "retry-after": String(retryAfterSeconds) } }),
  });
}
