import * as v from "valibot";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { canonicalDigest } from "../../base/json.ts";
import { Poller } from "../../base/poller.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { GatewayLinkError, type LinkedGateway } from "../../cluster/gateway_links.ts";
import type { Cluster } from "../../cluster/join_cluster.ts";
import { fenceCheck, type JoinedGateway } from "../../cluster/leases.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import { linkBroke, notConnected, timedOut } from "./node_link.ts";
import { type NodeAnswer, nodeAnswerSchema, type NodeCall, nodeFailureSchema } from "./node_call.ts";
import { offersSchema, type ToolOffer } from "./protocol.ts";

const linkSchema = v.object({
  v: v.literal(1),
  gateway: v.pipe(v.string(), v.maxLength(200)),
  fence: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  /** Milliseconds since the epoch */
  connected_at: v.number(),
  address: v.nullable(v.pipe(v.string(), v.maxLength(1_000))),
  version: v.pipe(v.string(), v.maxLength(64)),
  platform: v.pipe(v.string(), v.maxLength(64)),
  tools: offersSchema,
});
type LinkRecord = v.InferOutput<typeof linkSchema>;

/** Collection of the links of nodes in a cluster, by node id: which gateway holds the link. */
export const NODE_LINKS = new Collection("node_links", linkSchema, {
  replaced: "the gateway that the node is connected to says all about it",
});

/** Connection of a node, as the gateway knows it that holds the link. */
export interface HeldNode extends Pick<LinkRecord, "version" | "platform"> {
  /** Peer address; undefined when the server does not say */
  readonly address: string | undefined;
  /** Milliseconds since the epoch */
  readonly connectedAt: number;
  readonly offers: readonly ToolOffer[];
}

/** A node whose link another gateway holds. */
export interface NodeElsewhere extends HeldNode {
  readonly gateway: LinkedGateway;
}

/** Receives the nodes of other gateways. */
export interface SharedNodesListener {
  /** A node that another gateway holds has come, changed or gone. */
  changed(id: string): void;
  /**
   * Another gateway holds a node now that was connected here.
   * @param wasRecorded false: the other connection was there before this one was recorded, and is newer by its time. Two clocks may differ,
   *   so a node that is still there should connect again
   */
  moved(id: string, wasRecorded: boolean): void;
}

/** Options of `SharedNodes`. */
export interface SharedNodesOptions {
  readonly store: Store;
  readonly cluster: Pick<Cluster, "id" | "lease" | "links" | "bus">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Time between two looks at the records, in case a note was lost. Milliseconds */
const LOOK_MS = 5_000;
/** Pause before a record is written again that could not be, since something else had changed. Milliseconds */
const AGAIN_MS = 250;
const MAX_NODES = 1_000;
/** Longest answer of another gateway, in bytes: a frame of a node, and what goes around it. */
const MAX_ANSWER_BYTES = 68 * 1024 * 1024;

/** A node that is connected here. `isRecorded` false: it has just come, and takes the place of an older connection. */
interface Held {
  readonly node: HeldNode;
  isRecorded: boolean;
}

/** Record of a node's link as a look found it. Undefined where there is none; a damaged one has a version alone. */
interface FoundLink {
  readonly record: LinkRecord | undefined;
  readonly version: number | undefined;
}

/** Nodes of this gateway among those who have the same ones. `gateway`: its id; undefined: nobody else has them */
export interface NodeSharing
  extends Pick<SharedNodes, "start" | "hold" | "change" | "release" | "find" | "call" | "describe"> {
  readonly gateway: string | undefined;
}

/**
 * The nodes of a cluster: a record says which gateway holds a node's link, with the gateway's fence. That gateway answers, and the others
 * ask it over the link between gateways. The newest connection of a node counts.
 */
export class SharedNodes {
  /** Id of this gateway. */
  readonly gateway: string;
  readonly #options: SharedNodesOptions;
  readonly #held = new Map<string, Held>();
  #elsewhere: ReadonlyMap<string, NodeElsewhere> = new Map();
  #listener: SharedNodesListener | undefined = undefined;
  readonly #poller: Poller;
  #stopNotes = () => {};
  /** Ends the pause that is due. */
  readonly #closing = new AbortController();

  constructor(options: SharedNodesOptions) {
    this.#options = options;
    this.gateway = options.cluster.id;
    this.#poller = new Poller(() => this.#reconcile(), (error) => {
      options.log.warn("The nodes of the cluster cannot be read: it is tried again", { error });
    });
  }

  /** Begins to look at the nodes of the others. */
  start(listener: SharedNodesListener): void {
    const { clock, cluster } = this.#options;
    this.#listener = listener;
    this.#poller.start(clock, LOOK_MS);
    this.#stopNotes = cluster.bus.onNote(({ kind }) => void (kind === "node" && this.#look()));
    this.#look();
  }

  /** Takes a node that has connected here. */
  hold(id: string, node: HeldNode): void {
    this.#held.set(id, { node, isRecorded: false });
    this.#look();
  }

  /** Takes the new tools of a node that is connected here. */
  change(id: string, node: HeldNode): void {
    const isRecorded = this.#held.get(id)?.isRecorded ?? true;
    this.#held.set(id, { node, isRecorded });
    this.#look();
  }

  /** Lets go of a node that has left. */
  release(id: string): void {
    if (this.#held.delete(id)) this.#look();
  }

  /** Returns a node whose link another gateway holds. */
  find(id: string): NodeElsewhere | undefined {
    return this.#elsewhere.get(id);
  }

  /**
   * Has the gateway of a node make a call, at most once.
   * @throws {ToolError} as `GatewayLink.invoke`; {CancelError} when the signal aborts
   */
  async call(id: string, call: NodeCall, signal: AbortSignal): Promise<NodeAnswer> {
    const answer = await this.#ask(id, { path: "call", what: call.tool, body: call, signal });
    const failure = v.safeParse(nodeFailureSchema, answer);
    if (failure.success) throw new ToolError(failure.output.code, failure.output.message);
    const parsed = v.safeParse(nodeAnswerSchema, answer);
    if (parsed.success) return parsed.output;
    throw linkBroke(id, call.tool);
  }

  /** Has the gateway of a node ask it for its tools again. @throws as `call` */
  async describe(id: string, signal: AbortSignal): Promise<void> {
    const answer = await this.#ask(id, { path: "describe", what: "describe", body: {}, signal });
    const failure = v.safeParse(nodeFailureSchema, answer);
    if (failure.success) throw new ToolError(failure.output.code, failure.output.message);
    await this.#poller.look();
  }

  /** Ends the looks, and takes back the records of the nodes that are connected here. Never throws. */
  async close(): Promise<void> {
    this.#held.clear();
    this.#stopNotes();
    const last = this.#poller.look();
    this.#closing.abort();
    await last;
    await this.#poller.stop();
  }

  async #ask(
    id: string,
    { path, what, body, signal }: {
      readonly path: string;
      readonly what: string;
      readonly body: unknown;
      readonly signal: AbortSignal;
    },
  ): Promise<unknown> {
    const there = this.#elsewhere.get(id);
    if (there === undefined) throw notConnected(id, what);
    const { gateway } = there;
    if (gateway.address === undefined) {
      throw new ToolError(
        "node_lost",
        `Cannot call "${what}" on node "${id}": gateway ${gateway.id} has its link, and ${gateway.problem}; nothing was sent`,
      );
    }
    try {
      return await this.#options.cluster.links.ask(gateway, {
        ...{ path: `/v1/cluster/nodes/${id}/${path}`, body, signal, maxBytes: MAX_ANSWER_BYTES },
      });
    } catch (error) {
      if (signal.aborted) {
        const cancelled = cancelError(signal);
        throw cancelled.reason === "timeout" ? timedOut(id, what) : cancelled;
      }
      if (!(error instanceof GatewayLinkError)) throw error;
      this.#look();
      throw error.isRefused ? notConnected(id, what) : linkBroke(id, what);
    }
  }

  /** Looks at the records, now or after the look that is at work. */
  #look(): void {
    void this.#poller.look();
  }

  async #reconcile(): Promise<void> {
    if (!await this.#lookOnce()) await this.#tryAgain();
  }

  /** Waits before the next look: nothing says that it finds anything else. */
  async #tryAgain(): Promise<void> {
    const { signal } = this.#closing;
    await this.#options.clock.sleep(AGAIN_MS, signal).catch(() => {});
    if (!signal.aborted) this.#look();
  }

  /** @returns false when a record could not be written, since something else had changed */
  async #lookOnce(): Promise<boolean> {
    const { store, cluster } = this.#options;
    const own = cluster.lease.own();
    if (own === undefined) return true;
    const page = await store.scan(NODE_LINKS.name, { limit: MAX_NODES });
    const records = new Map(NODE_LINKS.readable(store, page).map((record) => [record.key, record]));
    // A damaged record has a version too
    const versions = new Map(page.map(({ key, version }) => [key, version]));
    let isWritten = true;
    for (const [id, held] of [...this.#held]) {
      const found = { record: records.get(id)?.value, version: versions.get(id) };
      if (!await this.#record(id, held, { own, found })) isWritten = false;
    }
    const elsewhere = new Map<string, NodeElsewhere>();
    for (const [id, found] of records) {
      if (this.#held.has(id)) continue;
      const { value: { gateway, fence }, version } = found;
      const there = gateway === own.id ? undefined : await cluster.links.find({ id: gateway, fence });
      if (there !== undefined) elsewhere.set(id, toElsewhere(found.value, there));
      // The gateway of the link has left, or the node has left this gateway
      else if (await store.batch([NODE_LINKS.check(id, version), NODE_LINKS.remove(id)])) {
        cluster.bus.tell("node", id);
      }
    }
    this.#takeElsewhere(elsewhere);
    return isWritten;
  }

  /**
   * Writes the record of a node that is connected here, or lets go of a node that has moved.
   * @returns false when the record could not be written, since something else had changed
   */
  async #record(
    id: string,
    held: Held,
    { own, found: { record, version } }: { readonly own: JoinedGateway; readonly found: FoundLink },
  ): Promise<boolean> {
    const { store, cluster } = this.#options;
    const body = toBody(held.node, own);
    const isMine = record?.gateway === own.id;
    if (isMine && held.isRecorded && digestOf(record) === digestOf(body)) return true;
    const isNewer = record !== undefined && (held.isRecorded || record.connected_at > body.connected_at);
    if (isNewer && !isMine) {
      this.#held.delete(id);
      this.#listener?.moved(id, held.isRecorded);
      return true;
    }
    if (!await store.batch([fenceCheck(own), NODE_LINKS.putOver(id, version ?? 0, body)])) return false;
    if (this.#held.get(id) === held) held.isRecorded = true;
    cluster.bus.tell("node", id);
    return true;
  }

  #takeElsewhere(elsewhere: ReadonlyMap<string, NodeElsewhere>): void {
    const before = this.#elsewhere;
    this.#elsewhere = elsewhere;
    for (const id of new Set([...before.keys(), ...elsewhere.keys()])) {
      if (digestOf(before.get(id)) !== digestOf(elsewhere.get(id))) this.#listener?.changed(id);
    }
  }
}

/** Returns the digest of the JSON form of a value. */
function digestOf(value: unknown): string {
  return value === undefined ? "" : canonicalDigest(JSON.parse(JSON.stringify(value)));
}

function toBody({ address, connectedAt, version, platform, offers }: HeldNode, own: JoinedGateway): LinkRecord {
  return {
    v: 1,
    gateway: own.id,
    fence: own.fence,
    connected_at: connectedAt,
    address: address ?? null,
    version,
    platform,
    tools: [...offers],
  };
}

function toElsewhere(record: LinkRecord, gateway: LinkedGateway): NodeElsewhere {
  const { connected_at: connectedAt, address, version, platform, tools: offers } = record;
  return { gateway, connectedAt, address: address ?? undefined, version, platform, offers };
}
