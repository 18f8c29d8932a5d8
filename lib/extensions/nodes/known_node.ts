import type { NodeInfo, NodeToolInfo } from "../../base/records/extension_views.ts";
import { needsEffectRight, untilEffectMayBegin } from "../../base/effect_right.ts";
import { canonicalDigest, type ObjectJsonSchema } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import { parseInput } from "../../tools/runtime/parse_input.ts";
import type { Access, PreparedCall, Tool, ToolContext } from "../../tools/runtime/tool.ts";
import type { ToolResult } from "../../tools/runtime/tool_call.ts";
import { type GatewayLink, notConnected } from "./node_link.ts";
import type { HelloFrame, ToolOffer } from "./protocol.ts";
import type { NodeAnswer, NodeCall } from "./node_call.ts";
import type { HeldNode, NodeSharing } from "./shared_nodes.ts";

/** Facts about the newest connection of a node. */
interface Connection extends Pick<HelloFrame, "version" | "platform"> {
  /** Peer address; undefined when the server does not say */
  readonly address: string | undefined;
  /** Milliseconds since the epoch */
  readonly connectedAt: number;
}

/** Sharing of nodes that no other gateway has. */
export const UNSHARED_NODES: NodeSharing = {
  gateway: undefined,
  start() {},
  hold() {},
  change() {},
  release() {},
  find: () => undefined,
  call: (id, { tool }) => Promise.reject(notConnected(id, tool)),
  describe: () => Promise.resolve(),
};

/** A node that may connect: its link, and the tools that it told last. */
export class KnownNode {
  readonly id: string;
  readonly #accessOf: (tool: string) => Access | undefined;
  readonly #shared: NodeSharing;
  /** Undefined while the node is away */
  #link: GatewayLink | undefined;
  #connection: Connection | undefined;
  /** Milliseconds since the epoch. Undefined while it is connected, and before it ever was */
  #disconnectedAt: number | undefined;
  #offers: readonly ToolOffer[] = [];
  /** Digest of each offer, by name: what a call was prepared for must still be there when it is made */
  #digests: ReadonlyMap<string, string> = new Map();

  /**
   * @param accessOf access that the operator sets for a registered tool
   * @param shared nodes of the cluster. Default: nobody else has any
   */
  constructor(id: string, accessOf: (tool: string) => Access | undefined, shared: NodeSharing = UNSHARED_NODES) {
    this.id = id;
    this.#accessOf = accessOf;
    this.#shared = shared;
  }

  /** The link of the node. Undefined while it is away. */
  get link(): GatewayLink | undefined {
    return this.#link;
  }

  /** Tells whether the node is connected, here or at another gateway of the cluster. */
  isConnected(): boolean {
    return this.#link !== undefined || this.#shared.find(this.id) !== undefined;
  }

  /** Returns the connection to this gateway, for the others. Undefined while there is none. */
  held(): HeldNode | undefined {
    if (this.#link === undefined || this.#connection === undefined) return undefined;
    return { ...this.#connection, offers: this.#offers };
  }

  connect(link: GatewayLink, connection: Connection): void {
    this.#link = link;
    this.#connection = connection;
    this.#disconnectedAt = undefined;
  }

  /** @param time milliseconds since the epoch */
  disconnect(time: number): void {
    this.#link = undefined;
    this.#disconnectedAt = time;
  }

  /** Takes the tools that the node tells. @returns false when they are the same as before */
  takeOffers(offers: readonly ToolOffer[]): boolean {
    const digests = new Map(offers.map((offer) => [offer.name, canonicalDigest(offer)]));
    const same = digests.size === this.#digests.size &&
      [...digests].every(([name, digest]) => this.#digests.get(name) === digest);
    if (same) return false;
    this.#offers = offers;
    this.#digests = digests;
    return true;
  }

  info(): NodeInfo {
    const elsewhere = this.#link === undefined ? this.#shared.find(this.id) : undefined;
    const { connectedAt, address = null, version = null, platform = null } = elsewhere ?? this.#connection ?? {};
    const gateway = elsewhere?.gateway.id ?? (this.#link === undefined ? null : this.#shared.gateway ?? null);
    return {
      id: this.id,
      object: "node",
      connected: this.isConnected(),
      ...(this.#shared.gateway === undefined ? {} : { gateway }),
      connected_at: toTime(connectedAt),
      disconnected_at: elsewhere === undefined ? toTime(this.#disconnectedAt) : null,
      address,
      version,
      platform,
      calls_in_flight: this.#link?.inFlight ?? 0,
      tool_count: this.#offers.length,
    };
  }

  toolInfos(): readonly NodeToolInfo[] {
    return this.#offers.map((offer): NodeToolInfo => ({
      name: offer.name,
      registered_as: nodeToolName(this.id, offer.name),
      description: offer.description,
      node_access: offer.access,
      input_schema: offer.input_schema,
    }));
  }

  /** Returns the tools of the node as tools of the gateway. */
  tools(): readonly Tool[] {
    return this.#offers.map((offer) => this.#toTool(offer));
  }

  #toTool(offer: ToolOffer): Tool {
    const name = nodeToolName(this.id, offer.name);
    const digest = this.#digests.get(offer.name);
    return createNodeTool({
      nodeId: this.id,
      offer,
      access: () => this.#accessOf(name) ?? "network",
      connected: () => this.isConnected(),
      call: async (input, { runId, callId, signal }) => {
        const call: NodeCall = {
          ...{ tool: offer.name, input, run_id: runId, call_id: callId },
          digest: digest ?? "",
        };
        // Without a right the link looks at the signal, in the step in which it sends
        if (needsEffectRight()) await untilEffectMayBegin(signal);
        const isElsewhere = this.#link === undefined && this.#shared.find(this.id) !== undefined;
        const answer = isElsewhere ? await this.#shared.call(this.id, call, signal) : await this.call(call, signal);
        const { output, is_error: isError, data } = answer;
        return { output, isError, ...(data === undefined ? {} : { data }) };
      },
    });
  }

  /** Makes a call over the node's link to this gateway. @throws {ToolError} as `GatewayLink.invoke`; `node_changed` */
  async call({ digest, ...call }: NodeCall, signal: AbortSignal): Promise<NodeAnswer> {
    if (this.#link === undefined) throw notConnected(this.id, call.tool);
    if (this.#digests.get(call.tool) !== digest) {
      const name = nodeToolName(this.id, call.tool);
      throw new ToolError("node_changed", `Cannot call "${name}": its node has changed it since; look at it again`);
    }
    return await this.#link.invoke(call, signal);
  }
}

function toTime(time: number | undefined): string | null {
  return time === undefined ? null : new Date(time).toISOString();
}

/** The offer of a node and the way to call it, from which a tool is made. */
export interface NodeToolOptions {
  readonly nodeId: string;
  readonly offer: ToolOffer;
  /** The access that the operator gave it, `network` without one (docs/design/plugins.md "Nodes") */
  readonly access: () => Access;
  readonly connected: () => boolean;
  /** Makes the call on the node. @throws {ToolError} {CancelError} */
  readonly call: (input: Readonly<Record<string, unknown>>, context: ToolContext) => Promise<ToolResult>;
}

/** Returns the name of a node's tool in the registry. */
export function nodeToolName(nodeId: string, tool: string): string {
  return `node__${nodeId}__${tool}`;
}

/** Makes a tool of a node one of the gateway's. Its input is looked at here as far as its schema says plainly, and checked on the node. */
export function createNodeTool(options: NodeToolOptions): Tool {
  const { nodeId, offer, access } = options;
  const name = nodeToolName(nodeId, offer.name);
  const inputSchema: ObjectJsonSchema | undefined = offer.input_schema;
  const fields = Object.keys(inputSchema?.properties ?? {});
  const required = inputSchema?.required ?? [];
  const prepare = (text: string): PreparedCall => {
    const input = parseInput(text, { tool: name, fields, required, textField: fields[0] });
    const missing = required.find((field) => !Object.hasOwn(input, field));
    const unknown = Object.keys(input).find((field) => !fields.includes(field));
    const wrong = missing ?? unknown;
    if (wrong !== undefined) {
      const fault = `${JSON.stringify(wrong.slice(0, 64))} ${missing === undefined ? "is not a field" : "is missing"}`;
      throw new ToolError(
        "invalid_input",
        `Cannot call "${name}": ${fault}; the fields are ${fields.join(", ") || "none"}`,
      );
    }
    return {
      input,
      digest: canonicalDigest(input),
      access: access(),
      effects: {},
      run: (context) => options.call(input, context),
    };
  };
  return {
    name,
    description: `On the node "${nodeId}": ${offer.description}`,
    get access() {
      return access();
    },
    source: "node",
    origin: `node ${nodeId}`,
    enabled: options.connected,
    enabledBy: `up the link of the node "${nodeId}", there: postern node --connect <url> --id ${nodeId}`,
    local: false,
    needs: [],
    inputSchema,
    prepare,
    execute: async (text, context) => await prepare(text).run(context),
  };
}
