import { hash, timingSafeEqual } from "node:crypto";
import { slidingWindow } from "../../access/sliding_window.ts";
import { canonicalDigest, type ObjectJsonSchema } from "../../base/json.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { isNodeId } from "../../base/records/node_id.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Metrics } from "../../base/telemetry/metrics.ts";
import type { NodeEvent } from "../../guard/audit/audit_event.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { Access, Tool } from "../../tools/runtime/tool.ts";
import { createGatewayLink, type GatewayLink, type LinkSettings, notConnected } from "./node_link.ts";
import { createNodeTool, nodeToolName } from "./node_tool.ts";
import { CLOSE, type ToolOffer } from "./protocol.ts";

/** An allowed node, as `/v1/nodes` shows it. Times are in ISO 8601. */
export interface NodeInfo {
  readonly id: string;
  readonly object: "node";
  readonly connected: boolean;
  /** Since when it is connected, or was the last time; null: it never was since the gateway started */
  readonly connected_at: string | null;
  readonly disconnected_at: string | null;
  /** Peer address of its newest connection; null: none, or the server does not say */
  readonly address: string | null;
  /** Version of Postern that the node runs, for example "0.2.0". */
  readonly version: string | null;
  readonly platform: string | null;
  readonly calls_in_flight: number;
  readonly tool_count: number;
}

/** A tool of a node. */
export interface NodeToolInfo {
  /** On the node */
  readonly name: string;
  /** In the gateway's registry: `node__<id>__<name>` */
  readonly registered_as: string;
  readonly description: string;
  /** Access that the node declares. The gateway decides nothing by it */
  readonly node_access: Access;
  readonly input_schema: ObjectJsonSchema | undefined;
}

/** The socket beneath a link. */
export interface LinkPeer {
  /** @returns false when the other side is too slow, or gone */
  send(text: string): boolean;
  close(code: number, reason: string): void;
  /** Ends the connection without a handshake */
  terminate(): void;
}

/** The gateway's end of one connection. None of its methods throws. */
export interface NodeLink {
  text(text: string): void;
  /** A frame that no side of this protocol sends */
  binary(): void;
  /** The connection is gone */
  closed(): void;
  close(code: number, reason: string): void;
}

/** Token, id and address that a node sends with its handshake. */
export interface NodeHandshake {
  /** Text after `Authorization: Bearer`. Undefined without that header */
  readonly token: string | undefined;
  readonly id: string | undefined;
  /** Peer address; undefined when the server does not say */
  readonly address: string | undefined;
}

/** Answer to a handshake: it may become a link, or it is refused with `code` and `message` for the client. */
export type NodeAdmission = { readonly ok: true; readonly id: string } | {
  readonly ok: false;
  readonly code: "auth_required" | "auth_invalid" | "insufficient_scope" | "invalid_request" | "rate_limited";
  readonly message: string;
  /** With `rate_limited` */
  readonly retryAfterSeconds?: number;
};

/** The nodes of one gateway (docs/design/plugins.md "Nodes"): those of `allowed_node_ids`, connected or not. */
export interface Nodes {
  /** Checks token, id and rate; has no other effect. The token is compared in constant time, and before the id */
  admit(handshake: NodeHandshake): NodeAdmission;
  /** Takes an admitted connection over. A second one of an id replaces the first as soon as it has said hello */
  open(id: string, peer: LinkPeer, address: string | undefined): NodeLink;
  /** By id */
  list(): readonly NodeInfo[];
  /** undefined: `allowed_node_ids` does not name it */
  get(id: string): NodeInfo | undefined;
  /** The tools it told last, also while it is away */
  toolsOf(id: string): readonly NodeToolInfo[];
  /**
   * Asks a node for its tools anew.
   * @throws {ToolError} `node_lost`, `node_overloaded`, `node_timeout`; {CancelError} when the signal aborts
   */
  describe(id: string, signal: AbortSignal): Promise<readonly NodeToolInfo[]>;
  /** All tools that a node has told, for the registry: the same array until something changes */
  tools(): readonly Tool[];
  /** Ends every link; calls at work end with an unknown outcome */
  close(): void;
}

/** Token, allowed ids and services that node control works with. */
export interface NodesOptions {
  /** Empty: nobody is let in */
  readonly authToken: string;
  readonly allowedIds: readonly string[];
  /** Access that `[tools]` sets for a registered tool. Undefined: the operator set none */
  readonly accessOf: (tool: string) => Access | undefined;
  readonly settings: LinkSettings;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly audit: AuditAppend;
}

/** Handshakes of one address within a minute: a node that comes and goes is below it, one that guesses tokens is not. */
const MAX_HANDSHAKES = 30;
const WINDOW_MS = 60_000;
const GOING_AWAY = 1001;

interface Known {
  link: GatewayLink | undefined;
  address: string | undefined;
  version: string | undefined;
  platform: string | undefined;
  connectedAt: number | undefined;
  disconnectedAt: number | undefined;
  offers: readonly ToolOffer[];
  /** Digest of each offer, by name: what a call was prepared for must still be there when it is made */
  digests: ReadonlyMap<string, string>;
}

/** The nodes of one gateway. Ids of `allowedIds` that cannot be one are left out. */
export function createNodes(options: NodesOptions): Nodes {
  const { clock, log } = options;
  const window = slidingWindow({ max: MAX_HANDSHAKES, windowMs: WINDOW_MS });
  const nodes = new Map<string, Known>(
    [...new Set(options.allowedIds)].filter(isNodeId).sort().map((id) => [id, unknownYet()]),
  );
  const links = new Set<GatewayLink>();
  let tools: readonly Tool[] | undefined;
  if (options.authToken === "") log.error("Node control is on without a token: no node can connect");
  const connected = () => [...nodes.values()].filter(({ link }) => link !== undefined).length;
  options.metrics.gaugeOf("postern_nodes_connected", "Connected nodes", connected);

  const record = (event: Omit<NodeEvent, "type">) =>
    void options.audit({ type: "node", ...event }).catch((error) => log.error("Cannot write the audit", { error }));

  function offered(node: Known, offers: readonly ToolOffer[]): void {
    const digests = new Map(offers.map((offer) => [offer.name, canonicalDigest(offer)]));
    const same = digests.size === node.digests.size &&
      [...digests].every(([name, digest]) => node.digests.get(name) === digest);
    if (same) return;
    node.offers = offers;
    node.digests = digests;
    tools = undefined;
  }

  function toTool(id: string, node: Known, offer: ToolOffer): Tool {
    const name = nodeToolName(id, offer.name);
    const digest = node.digests.get(offer.name);
    return createNodeTool({
      nodeId: id,
      offer,
      access: () => options.accessOf(name) ?? "network",
      connected: () => node.link !== undefined,
      async call(input, { runId, callId, signal }) {
        if (node.link === undefined) throw notConnected(id, offer.name);
        if (node.digests.get(offer.name) !== digest) {
          throw new ToolError("node_changed", `Cannot call "${name}": its node has changed it since; look at it again`);
        }
        const result = await node.link.invoke({ tool: offer.name, input, run_id: runId, call_id: callId }, signal);
        const { output, is_error: isError, data } = result;
        return { output, isError, ...(data === undefined ? {} : { data }) };
      },
    });
  }

  function toInfo(id: string, node: Known): NodeInfo {
    return {
      id,
      object: "node",
      connected: node.link !== undefined,
      connected_at: toTime(node.connectedAt),
      disconnected_at: toTime(node.disconnectedAt),
      address: node.address ?? null,
      version: node.version ?? null,
      platform: node.platform ?? null,
      calls_in_flight: node.link?.inFlight() ?? 0,
      tool_count: node.offers.length,
    };
  }

  const toolInfos = (id: string) =>
    (nodes.get(id)?.offers ?? []).map((offer): NodeToolInfo => ({
      name: offer.name,
      registered_as: nodeToolName(id, offer.name),
      description: offer.description,
      node_access: offer.access,
      input_schema: offer.input_schema,
    }));

  return {
    admit: (handshake) => admit(handshake, { ...options, window, isAllowed: (id) => nodes.has(id) }),
    open(id, peer, address) {
      const node = nodes.get(id);
      if (node === undefined) throw new TypeError(`Node "${id}" was not admitted`);
      const link: GatewayLink = createGatewayLink({
        nodeId: id,
        peer,
        clock,
        settings: options.settings,
        onHello({ version, platform, tools: offers }) {
          node.link?.close(CLOSE.replaced, "Another connection of this id has taken over");
          Object.assign(node, {
            link,
            address,
            version,
            platform,
            connectedAt: clock.now(),
            disconnectedAt: undefined,
          });
          offered(node, offers);
          log.info("A node has connected", { node: id, address, version, tools: offers.length });
          record({ action: "connected", node_id: id, address: address ?? null, reason: null });
        },
        onTools: (offers) => offered(node, offers),
        onEnd(reason) {
          links.delete(link);
          if (node.link !== link) {
            return log.warn("A node came without a proper hello", { node: id, address, reason });
          }
          node.link = undefined;
          node.disconnectedAt = clock.now();
          log.warn("A node's link has ended", { node: id, address, reason });
          record({ action: "disconnected", node_id: id, address: address ?? null, reason });
        },
      });
      links.add(link);
      return link;
    },
    list: () => [...nodes].map(([id, node]) => toInfo(id, node)),
    get(id) {
      const node = nodes.get(id);
      return node === undefined ? undefined : toInfo(id, node);
    },
    toolsOf: toolInfos,
    async describe(id, signal) {
      const link = nodes.get(id)?.link;
      if (link === undefined) throw notConnected(id, "describe");
      await link.describe(signal);
      return toolInfos(id);
    },
    tools() {
      return tools ??= [...nodes].flatMap(([id, node]) => node.offers.map((offer) => toTool(id, node, offer)));
    },
    close() {
      for (const link of [...links]) link.close(GOING_AWAY, "The gateway is shutting down");
    },
  };
}

interface AdmitOptions extends NodesOptions {
  readonly window: ReturnType<typeof slidingWindow>;
  readonly isAllowed: (id: string) => boolean;
}

function admit({ token, id, address }: NodeHandshake, options: AdmitOptions): NodeAdmission {
  const isRight = token !== undefined && options.authToken !== "" && isSame(token, options.authToken);
  // With the right token a node spends its own slots alone: others at its address cannot keep it out
  const sender = isRight && id !== undefined && options.isAllowed(id)
    ? `node ${id}`
    : `address ${address ?? "unknown"}`;
  const { allowed, resetMs } = options.window.take(sender, options.clock.monotonic());
  if (!allowed) {
    const retryAfterSeconds = Math.max(1, Math.ceil(resetMs / 1000));
    const from = isRight ? "by this node" : "from this address";
    const message = `Cannot connect: ${MAX_HANDSHAKES} handshakes were made ${from} within a minute; try again in ` +
      `${retryAfterSeconds} s`;
    return { ok: false, code: "rate_limited", message, retryAfterSeconds };
  }
  if (token === undefined) {
    const message = 'Cannot connect without the token of node control: send "Authorization: Bearer ..."';
    return { ok: false, code: "auth_required", message };
  }
  if (!isRight) {
    return { ok: false, code: "auth_invalid", message: "Cannot connect: this is not the token of node control" };
  }
  if (id === undefined || !isNodeId(id)) {
    const message = 'Cannot connect: "id" must be lower-case letters and digits with single "_" or "-", at most 24';
    return { ok: false, code: "invalid_request", message };
  }
  if (!options.isAllowed(id)) {
    const message = `Cannot connect node "${id}": [gateway.node_control] allowed_node_ids does not name it`;
    return { ok: false, code: "insufficient_scope", message };
  }
  return { ok: true, id };
}

/** Compares two texts in constant time. */
function isSame(given: string, secret: string): boolean {
  const digest = (text: string) => hash("sha256", text, "buffer");
  return timingSafeEqual(digest(given), digest(secret));
}

function unknownYet(): Known {
  return {
    link: undefined,
    address: undefined,
    version: undefined,
    platform: undefined,
    connectedAt: undefined,
    disconnectedAt: undefined,
    offers: [],
    digests: new Map(),
  };
}

function toTime(time: number | undefined): string | null {
  return time === undefined ? null : new Date(time).toISOString();
}
