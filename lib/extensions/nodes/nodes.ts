import { hash, timingSafeEqual } from "node:crypto";
import { type SlidingWindow, slidingWindow } from "../../access/sliding_window.ts";
import type { Clock } from "../../base/clock.ts";
import type { OpenedList } from "../../base/opened_list.ts";
import { isNodeId } from "../../config/schema/gateway.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Metrics } from "../../base/telemetry/metrics.ts";
import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { NodeEvent } from "../../guard/audit/audit_event.ts";
import type { Access, Tool } from "../../tools/runtime/tool.ts";
import { GatewayLink, type LinkPeer, type LinkSettings, notConnected, TRY_AGAIN_LATER } from "./node_link.ts";
import type { NodeInfo, NodeToolInfo } from "../../base/records/extension_views.ts";
import { KnownNode, UNSHARED_NODES } from "./known_node.ts";
import { type NodeAnswer, type NodeCall, type NodeFailure, toNodeFailure } from "./node_call.ts";
import type { NodeSharing } from "./shared_nodes.ts";
import { CLOSE, type HelloFrame, type ToolOffer } from "./protocol.ts";

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

/** Token, allowed ids and services that node control works with. */
export interface NodesOptions {
  /** Empty: nobody is let in */
  readonly authToken: string;
  /** Ids that cannot be one are left out */
  readonly allowedIds: readonly string[];
  /** Access that `[tools]` sets for a registered tool. Undefined: the operator set none */
  readonly accessOf: (tool: string) => Access | undefined;
  readonly settings: LinkSettings;
  /** Nodes of the cluster. Default: nobody else has any */
  readonly shared?: NodeSharing | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly audit: AuditAppend;
}

/** Handshakes of one address within a minute: a node that comes and goes is below it, one that guesses tokens is not. */
const MAX_HANDSHAKES = 30;
const WINDOW_MS = 60_000;
const GOING_AWAY = 1001;

/** Options of `createConfiguredNodes`. */
export interface ConfiguredNodesOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** The newest configuration. */
  readonly config: () => Pick<Config, "gateway" | "tools">;
  readonly environment: (name: string) => string | undefined;
  readonly audit: AuditAppend;
  readonly opened: OpenedList;
  readonly shared?: NodeSharing | undefined;
}

/** Creates the nodes by the `[gateway.node_control]` of the start. */
export function createConfiguredNodes({ config, environment, opened, ...parts }: ConfiguredNodesOptions): Nodes {
  const { websocket, node_control: settings } = config().gateway;
  const nodes = new Nodes({
    ...parts,
    authToken: settings.auth_token || (environment(settings.auth_token_env) ?? ""),
    allowedIds: settings.allowed_node_ids,
    accessOf: (tool) => config().tools[tool]?.access || undefined,
    settings: {
      heartbeatMs: websocket.heartbeat_secs * 1000,
      silenceMs: websocket.pong_timeout_secs * 1000,
      maxFrameBytes: websocket.max_message_bytes,
    },
  });
  return opened.own(nodes, (open) => open.close());
}

/** The nodes of one gateway (docs/design/plugins.md "Nodes"): those of `allowed_node_ids`, connected or not. */
export class Nodes {
  readonly #options: NodesOptions;
  /** Handshakes by sender */
  readonly #window = slidingWindow({ max: MAX_HANDSHAKES, windowMs: WINDOW_MS });
  /** By id, in the order of the ids */
  readonly #nodes: ReadonlyMap<string, KnownNode>;
  readonly #shared: NodeSharing;
  /** Every connection that has not ended, also before its hello */
  readonly #links = new Set<GatewayLink>();
  /** All tools. Undefined after a change */
  #tools: readonly Tool[] | undefined;

  constructor(options: NodesOptions) {
    const { allowedIds, accessOf, authToken, log, metrics, shared = UNSHARED_NODES } = options;
    this.#options = options;
    this.#shared = shared;
    this.#nodes = new Map(
      [...new Set(allowedIds)].filter(isNodeId).sort().map((id) => [id, new KnownNode(id, accessOf, shared)]),
    );
    if (authToken === "") log.error("Node control is on without a token: no node can connect");
    const connected = () => [...this.#nodes.values()].filter(({ link }) => link !== undefined).length;
    metrics.gaugeOf("postern_nodes_connected", "Connected nodes", connected);
    shared.start({
      changed: (id) => this.#seeElsewhere(id),
      moved: (id, wasRecorded) => this.#leaveToOther(id, wasRecorded),
    });
  }

  /** Checks token, id and rate; has no other effect. The token is compared in constant time, and before the id */
  admit(handshake: NodeHandshake): NodeAdmission {
    return admit(handshake, { ...this.#options, window: this.#window, isAllowed: (id) => this.#nodes.has(id) });
  }

  /** Takes an admitted connection over. A second one of an id replaces the first as soon as it has said hello */
  open(id: string, peer: LinkPeer, address: string | undefined): GatewayLink {
    const node = this.#nodes.get(id);
    if (node === undefined) throw new TypeError(`Node "${id}" was not admitted`);
    const { clock, settings } = this.#options;
    const link: GatewayLink = new GatewayLink({
      nodeId: id,
      peer,
      clock,
      settings,
      onHello: (hello) => this.#connect(node, link, { hello, address }),
      onTools: (offers) => this.#takeOffers(node, offers),
      onEnd: (reason) => this.#end(node, link, { reason, address }),
    });
    this.#links.add(link);
    return link;
  }

  /** By id */
  list(): readonly NodeInfo[] {
    return [...this.#nodes.values()].map((node) => node.info());
  }

  /** undefined: `allowed_node_ids` does not name it */
  get(id: string): NodeInfo | undefined {
    return this.#nodes.get(id)?.info();
  }

  /** The tools it told last, also while it is away */
  toolsOf(id: string): readonly NodeToolInfo[] {
    return this.#nodes.get(id)?.toolInfos() ?? [];
  }

  /**
   * Asks a node for its tools again.
   * @throws {ToolError} `node_lost`, `node_overloaded`, `node_timeout`; {CancelError} when the signal aborts
   */
  async describe(id: string, signal: AbortSignal): Promise<readonly NodeToolInfo[]> {
    if (this.#nodes.get(id)?.link !== undefined || this.#shared.find(id) === undefined) {
      return await this.#describeHere(id, signal);
    }
    await this.#shared.describe(id, signal);
    return this.toolsOf(id);
  }

  /** Asks a node that is connected here for its tools again, for another gateway. @returns their number, or the error for the caller */
  async answerDescribe(id: string, signal: AbortSignal): Promise<{ readonly tools: number } | NodeFailure> {
    return await orFailure(async () => ({ tools: (await this.#describeHere(id, signal)).length }));
  }

  /** Makes a call of another gateway of the cluster on a node that is connected here. @returns the result, or the error for the caller */
  async answerCall(id: string, call: NodeCall, signal: AbortSignal): Promise<NodeAnswer | NodeFailure> {
    const node = this.#nodes.get(id);
    return await orFailure(async () => {
      if (node === undefined) throw notConnected(id, call.tool);
      return await node.call(call, signal);
    });
  }

  async #describeHere(id: string, signal: AbortSignal): Promise<readonly NodeToolInfo[]> {
    const link = this.#nodes.get(id)?.link;
    if (link === undefined) throw notConnected(id, "describe");
    await link.describe(signal);
    return this.toolsOf(id);
  }

  /** All tools that a node has told, for the registry: the same array until something changes */
  readonly tools = (): readonly Tool[] => this.#tools ??= [...this.#nodes.values()].flatMap((node) => node.tools());

  /** Ends every link; calls at work end with an unknown outcome */
  close(): void {
    for (const link of [...this.#links]) link.close(GOING_AWAY, "The gateway is shutting down");
  }

  #connect(
    node: KnownNode,
    link: GatewayLink,
    { hello, address }: { readonly hello: HelloFrame; readonly address: string | undefined },
  ): void {
    const { clock, log } = this.#options;
    const { version, platform, tools } = hello;
    node.link?.close(CLOSE.replaced, "Another connection of this id has taken over");
    node.connect(link, { address, version, platform, connectedAt: clock.now() });
    if (node.takeOffers(tools)) this.#tools = undefined;
    const held = node.held();
    if (held !== undefined) this.#shared.hold(node.id, held);
    log.info("A node has connected", { node: node.id, address, version, tools: tools.length });
    this.#record({ action: "connected", node_id: node.id, address: address ?? null, reason: null });
  }

  #takeOffers(node: KnownNode, offers: readonly ToolOffer[]): void {
    if (!node.takeOffers(offers)) return;
    this.#tools = undefined;
    const held = node.held();
    if (held !== undefined) this.#shared.change(node.id, held);
  }

  /** Takes what another gateway knows of a node that is not connected here. */
  #seeElsewhere(id: string): void {
    const node = this.#nodes.get(id);
    const elsewhere = this.#shared.find(id);
    if (node === undefined || elsewhere === undefined || node.link !== undefined) return;
    if (node.takeOffers(elsewhere.offers)) this.#tools = undefined;
  }

  #leaveToOther(id: string, wasRecorded: boolean): void {
    const link = this.#nodes.get(id)?.link;
    if (wasRecorded) link?.close(CLOSE.replaced, "A connection of this id at another gateway has taken over");
    else link?.close(TRY_AGAIN_LATER, "Another gateway has a newer connection of this id");
  }

  #end(
    node: KnownNode,
    link: GatewayLink,
    { reason, address }: { readonly reason: string; readonly address: string | undefined },
  ): void {
    const { clock, log } = this.#options;
    this.#links.delete(link);
    if (node.link !== link) {
      return log.warn("A node came without a proper hello", { node: node.id, address, reason });
    }
    node.disconnect(clock.now());
    this.#shared.release(node.id);
    log.warn("A node's link has ended", { node: node.id, address, reason });
    this.#record({ action: "disconnected", node_id: node.id, address: address ?? null, reason });
  }

  #record(event: Omit<NodeEvent, "type">): void {
    const { audit, log } = this.#options;
    void audit({ type: "node", ...event }).catch((error) => log.error("Cannot write the audit", { error }));
  }
}

/** Returns the outcome of work, or the error that whoever asked is told. */
async function orFailure<T>(work: () => Promise<T>): Promise<T | NodeFailure> {
  try {
    return await work();
  } catch (error) {
    const failure = error instanceof ToolError ? toNodeFailure(error) : undefined;
    if (failure === undefined) throw error;
    return failure;
  }
}

function admit(
  { token, id, address }: NodeHandshake,
  options: NodesOptions & { readonly window: SlidingWindow; readonly isAllowed: (id: string) => boolean },
): NodeAdmission {
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
