import type { Peer } from "crossws";
import * as v from "valibot";
import { CancelError } from "../../lib/base/cancel.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { type ErrorCode, messageOf, refuse, ToolError } from "../../lib/base/errors.ts";
import type { Services } from "../../lib/services.ts";
import { nodeDetailSchema, type NodeInfo, nodeSchema } from "../../lib/base/records/extension_views.ts";
import type { NodeAdmission, Nodes } from "../../lib/extensions/nodes/nodes.ts";
import { defineRoute, defineSocket } from "../define_route.ts";
import { bearerTokenOf } from "../door.ts";
import type { RouteParts } from "../route.ts";
import { Outbox } from "../websocket/outbox.ts";
import { listReply, listSchema, textQuery } from "../wire/lists.ts";
import { callFields, callReplySchema, makeCall } from "../wire/make_call.ts";
import { answerStream, KEEP_ALIVE_MS } from "../wire/event_stream.ts";
import { jsonReply, type Reply, streamReply } from "../wire/reply.ts";

const invokeSchema = v.object({
  /** Name of the tool at the node */
  tool: v.pipe(v.string(), v.minLength(1), v.maxLength(64)),
  ...callFields,
});

/** GET /v1/nodes: the nodes of `allowed_node_ids`, connected or not. */
export const nodesRoute = defineRoute({
  method: "GET",
  path: "/v1/nodes",
  access: "tools",
  needs: ["nodes"],
  errors: ["not_found"],
  summary: "Nodes that may connect, and whether they are",
  reply: { status: 200, type: "application/json", schema: listSchema(nodeSchema) },
  handle: ({ nodes }) => listReply(requireNodes(nodes).list()),
});

/** GET /v1/nodes/:id: one node with the tools that it last reported, also while it is not connected. */
export const nodeRoute = defineRoute({
  method: "GET",
  path: "/v1/nodes/:id",
  access: "tools",
  needs: ["nodes"],
  summary: "One node and the tools it last reported",
  reply: { status: 200, type: "application/json", schema: nodeDetailSchema },
  handle: ({ nodes }, { params }) => jsonReply(200, described(nodes, params.id)),
});

/** POST /v1/nodes/:id/describe: makes the node report its tools now. */
export const describeNodeRoute = defineRoute({
  method: "POST",
  path: "/v1/nodes/:id/describe",
  access: "tools",
  needs: ["nodes"],
  errors: ["overloaded", "shutting_down", "provider_timeout"],
  summary: "Ask a node for its tools again",
  reply: { status: 200, type: "application/json", schema: nodeDetailSchema },
  idempotency: "harmless",
  async handle({ nodes }, { params, signal }) {
    const { id } = findNode(nodes, params.id);
    try {
      await requireNodes(nodes).describe(id, signal);
    } catch (error) {
      throw toRefusal(error);
    }
    return jsonReply(200, described(nodes, id));
  },
});

/** POST /v1/nodes/:id/invoke: one call of a node's tool, through the gateway's executor and then the node's own. */
export const invokeNodeRoute = defineRoute({
  method: "POST",
  path: "/v1/nodes/:id/invoke",
  access: "tools",
  needs: ["nodes", "calls"],
  summary: "Call a tool of a node; a bad, disabled or denied call is a result with is_error",
  body: invokeSchema,
  reply: { status: 200, type: "application/json", schema: callReplySchema },
  errors: ["shutting_down", "halted", "provider_timeout"],
  idempotency: "honoured",
  before: ({ nodes }, { params }) => void findNode(nodes, params.id),
  async handle({ nodes, calls }, request) {
    const node = findNode(nodes, request.params.id);
    const { tool, ...fields } = request.body;
    const known = requireNodes(nodes).toolsOf(node.id).find(({ name }) => name === tool);
    if (known === undefined) throw noSuchTool(node);
    return await makeCall(known.registered_as, fields, { calls, request });
  },
});

const nodeCallSchema = v.object({
  /** Name of the tool at the node */
  tool: v.pipe(v.string(), v.regex(/^[a-zA-Z][a-zA-Z0-9_-]{0,31}$/)),
  input: v.record(v.string(), v.unknown()),
  // As a frame of the link has them: a node ends a link with any other
  run_id: v.pipe(v.string(), v.regex(/^[\w.:-]{1,64}$/)),
  call_id: v.pipe(v.string(), v.regex(/^[\w.:-]{1,64}$/)),
  /** Digest of the offer that the call was prepared for */
  digest: v.pipe(v.string(), v.minLength(1), v.maxLength(128)),
});

/** POST /v1/cluster/nodes/:id/call: a call that has passed the policy of another gateway, for a node whose link this one holds. */
export const clusterNodeCallRoute = defineRoute({
  method: "POST",
  path: "/v1/cluster/nodes/:id/call",
  access: "cluster",
  needs: ["nodes", "cluster", "kit"],
  steady: "link",
  summary: "For other gateways of the cluster: call a tool of a node that is connected to this gateway",
  body: nodeCallSchema,
  reply: { status: 200, type: "text/event-stream", description: "Signs of life, then the result or the error as JSON" },
  errors: ["not_found", "conflict"],
  idempotency: "honoured",
  before: (parts, { params }) => void findConnected(parts, params.id),
  handle(parts, { params, body }) {
    const nodes = requireNodes(parts.nodes);
    return answerGateway(parts, (signal) => nodes.answerCall(params.id, body, signal));
  },
});

/** POST /v1/cluster/nodes/:id/describe: makes a node report its tools, for another gateway. */
export const clusterNodeDescribeRoute = defineRoute({
  method: "POST",
  path: "/v1/cluster/nodes/:id/describe",
  access: "cluster",
  needs: ["nodes", "cluster", "kit"],
  steady: "link",
  summary: "For other gateways of the cluster: ask a node that is connected to this gateway for its tools",
  body: v.object({}),
  bodyOptional: true,
  reply: { status: 200, type: "text/event-stream", description: "Signs of life, then the tools or the error as JSON" },
  errors: ["not_found", "conflict"],
  idempotency: "harmless",
  before: (parts, { params }) => void findConnected(parts, params.id),
  handle(parts, { params }) {
    const nodes = requireNodes(parts.nodes);
    return answerGateway(parts, (signal) => nodes.answerDescribe(params.id, signal));
  },
});

type LinkParts = Pick<RouteParts, "nodes" | "cluster" | "kit">;

/** Finds a node whose link this gateway holds. @throws {HttpError} 404 not_found; 409 conflict, so that the caller looks again */
function findConnected({ nodes, cluster }: LinkParts, id: string): NodeInfo {
  const node = findNode(nodes, id);
  if (node.connected && node.gateway === cluster.id) return node;
  throw refuse("conflict", `Cannot ask node "${node.id}": it is not connected to this gateway`);
}

/** Answers another gateway with the outcome of work that ends when the caller leaves. */
function answerGateway(
  { cluster, kit: { clock, log } }: LinkParts,
  work: (signal: AbortSignal) => Promise<unknown>,
): Reply {
  const leaving = new AbortController();
  const outcome = work(leaving.signal).catch((error) => {
    if (!leaving.signal.aborted) log.error("A node could not be asked", { error });
    throw error;
  });
  const stream = answerStream({
    work: outcome,
    clock,
    beatMs: cluster.links.beatMs ?? KEEP_ALIVE_MS,
    onLeave: () => leaving.abort(new CancelError("client_gone")),
  });
  return streamReply(stream);
}

/** Returns the nodes of the gateway. @throws {HttpError} 404 not_found while node control is off */
function requireNodes(nodes: Services["nodes"]): Nodes {
  if (nodes !== undefined) return nodes;
  throw refuse(
    "not_found",
    "Cannot find this path: node control is off; set [gateway.node_control] enabled = true and restart the gateway",
  );
}

function findNode(nodes: Services["nodes"], id: string): NodeInfo {
  const node = requireNodes(nodes).get(id);
  if (node !== undefined) return node;
  throw refuse("not_found", "Cannot find this node: [gateway.node_control] allowed_node_ids does not name it", {
    param: "id",
  });
}

function described(nodes: Services["nodes"], id: string) {
  return { ...findNode(nodes, id), tools: requireNodes(nodes).toolsOf(id) };
}

function noSuchTool({ id, connected_at }: NodeInfo) {
  const reason = connected_at === null
    ? `node "${id}" has not connected since the gateway started`
    : `node "${id}" does not offer it; see /v1/nodes/${id} for those it does`;
  return refuse("not_found", `Cannot find this tool: ${reason}`, { param: "tool" });
}

const CODES: Readonly<Record<string, ErrorCode>> = {
  node_lost: "overloaded",
  node_overloaded: "overloaded",
  node_timeout: "provider_timeout",
};

/** Maps a failed call to a refusal: 503 with Retry-After for a node that is not connected, 504 for one that does not answer. */
function toRefusal(error: unknown): unknown {
  const code = error instanceof ToolError ? CODES[error.code] : undefined;
  return code === undefined ? error : refuse(code, messageOf(error), { cause: error });
}

/** A node that reads nothing for this long is disconnected, in milliseconds. */
const PATIENCE_MS = 30_000;

/**
 * GET /ws/node: the link of a node (docs/design/plugins.md "Nodes"). It needs the token of node
 * control: a token of pairing does not open it. Every refusal comes before the upgrade.
 */
export const nodeSocketRoute = defineSocket({
  path: "/ws/node",
  access: "node_token",
  needs: ["nodes", "kit", "sockets"],
  summary: "The link of a node, with the token of [gateway.node_control]",
  query: { id: { ...textQuery("Id of the node, one of allowed_node_ids"), required: true } },
  errors: [
    "invalid_request",
    "auth_required",
    "auth_invalid",
    "not_found",
    "upgrade_required",
    "rate_limited",
    "shutting_down",
  ],
  accept({ nodes: given, kit: { clock }, sockets }, { query: { id }, address, head }) {
    const nodes = requireNodes(given);
    const token = bearerTokenOf(head.headers.get("authorization"));
    const admission = nodes.admit({ token, id, address });
    if (!admission.ok) throw refusalOf(admission);
    sockets.checkOpen("connect the node");
    let link: ReturnType<typeof openLink> | undefined;
    const linkOf = (peer: Peer) => (link ??= openLink(nodes, peer, { clock, address, id: admission.id }));
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
});

/** Opens the link of a node. A shutdown ends links after all other sockets, because runs that are finishing may need their node. */
function openLink(
  nodes: Nodes,
  peer: Peer,
  { clock, address, id }: { readonly clock: Clock; readonly address: string | undefined; readonly id: string },
) {
  const outbox = new Outbox(peer, { clock, patienceMs: PATIENCE_MS });
  const link = nodes.open(id, {
    send: (text) => outbox.send(text),
    close(code, reason) {
      outbox.close();
      try {
        peer.close(code, reason);
      } catch {
        // The other side has closed the connection at this moment
      }
    },
    terminate() {
      outbox.close();
      peer.terminate();
    },
  }, address);
  return {
    text: (text: string) => link.text(text),
    binary: () => link.binary(),
    closed() {
      outbox.close();
      link.closed();
    },
  };
}

function refusalOf({ code, message, retryAfterSeconds }: Extract<NodeAdmission, { ok: false }>) {
  return refuse(code, message, {
    param: code === "invalid_request" ? "id" : null,
    ...(retryAfterSeconds === undefined ? {} : { headers: { "retry-after": String(retryAfterSeconds) } }),
  });
}
