import type { Clock } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { Poller } from "../../base/poller.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Cluster } from "../../cluster/join_cluster.ts";
import { fenceCheck, type JoinedGateway } from "../../cluster/leases.ts";
import { counts } from "../../cluster/ownership.ts";
import type { Store, Write } from "../../storage/store.ts";
import { AUDIT_RECORDS, type AuditAppend, type AuditHead, chainRecord, NO_HASH } from "./audit_chain.ts";
import type { ChainPoint } from "./audit_event.ts";
import type { ChainPlace, ChainRetry, ChainStep, TimedEvent } from "./audit_writer.ts";
import { AUDIT_CHAINS, type ChainHead, chainId, chainKey } from "./chain_records.ts";
import { OtherChains } from "./other_chains.ts";

/** Membership of a cluster, for the audit. */
export interface AuditCluster extends Pick<Cluster, "fences"> {
  readonly lease: Pick<Cluster["lease"], "own">;
}

/** Options of `GatewayChain`. */
export interface GatewayChainOptions {
  readonly store: Store;
  readonly cluster: AuditCluster;
  /** Clock that tells the database's time. */
  readonly clock: Clock;
  readonly log: Logger;
  /** Days a record is kept. */
  readonly retentionDays: () => number;
  /** False: nothing is recorded, and nobody looks. */
  readonly enabled: () => boolean;
}

interface Step extends ChainStep {
  readonly named: readonly ChainPoint[];
}

const NONE: AuditHead = { seq: 0, hash: NO_HASH };
const LOOK_MS = 1_000;
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
/** Pause before the fence is looked at again, and the time after which an append gives up. */
const AGAIN_MS = 250;
const MAX_WAIT_MS = 10_000;

/**
 * The chain that this gateway writes in a cluster, under its fence: `<gateway>.<fence>`.
 *
 * Each batch checks the fence, so nothing is added to a chain that others have ended. A gateway that was fenced off goes on in a new
 * chain, and the events that were refused go there. A record names the heads of other chains that are new since the record before it, at
 * most 16, so that the others know when the end of a chain is cut off.
 */
export class GatewayChain implements ChainPlace {
  readonly others: OtherChains;
  readonly #options: GatewayChainOptions;
  #own: JoinedGateway;
  /** Version of the own head; 0: the chain has no record yet. */
  #version = 0;
  #told = 0;
  /** Time of the newest record: time does not go back in a chain. ISO 8601 */
  #time = "";
  #isEnded = false;
  #pollers: readonly Poller[] = [];
  #isStopped = false;

  /** @throws {HttpError} `storage_unavailable` for a gateway that has joined no cluster */
  constructor(options: GatewayChainOptions) {
    const own = options.cluster.lease.own();
    if (own === undefined) throw notJoined();
    this.#options = options;
    this.#own = own;
    this.others = new OtherChains(options.store);
  }

  /** Id of the chain that is written now. */
  get id(): string {
    return chainId(this.#own);
  }

  async load(): Promise<AuditHead> {
    if (this.#options.enabled()) await this.others.lookBack(this.id);
    return NONE;
  }

  /** Begins to look at the other chains. @param append writes to this chain */
  start(append: AuditAppend): void {
    const { clock } = this.#options;
    // Without a word in the log: the store says that it is down
    const looks = new Poller(() => this.#look());
    const upkeep = new Poller(() => this.#keepUp(append));
    this.#pollers = [looks, upkeep];
    looks.start(clock, LOOK_MS);
    upkeep.start(clock, MINUTE_MS);
    void upkeep.look();
  }

  /** Ends the looks, and waits for what is at work: it may write until then. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
  }

  now(): number {
    return this.#options.clock.now();
  }

  next({ head }: ChainRetry, events: readonly TimedEvent[]): Step {
    const chain = this.id;
    const named = this.others.unnamed(this.#namedSince());
    const { id: gateway, fence } = this.#own;
    let next = head;
    let time = this.#time;
    let told = this.#told;
    let isEnd = false;
    const inserts: Write[] = [];
    const add = ({ event, time: at }: TimedEvent) => {
      time = at > time ? at : time;
      const seq = next.seq + 1;
      const heads = inserts.length === 0 && named.length > 0 ? { heads: named } : {};
      const record = chainRecord(next, { event, time, seq, more: { chain, ...heads } });
      const isUpkeep = event.type === "audit_chain";
      if (!isUpkeep || event.action !== "witnessed") told = seq;
      if (isUpkeep && event.action === "closed") isEnd = true;
      next = { seq, hash: record.hash };
      const key = chainKey({ time: Date.parse(time), chain, seq });
      inserts.push(AUDIT_RECORDS.insert(key, record));
    };
    if (head.seq === 0) {
      const opened = { type: "audit_chain", action: "opened", gateway, fence } as const;
      add({ event: opened, time: events[0]?.time ?? new Date(this.now()).toISOString() });
    }
    events.forEach(add);
    const body: ChainHead = { v: 1, gateway, fence, ...next, time, told, ...(isEnd ? { end: "closed" } : {}) };
    return { head: next, named, writes: [fenceCheck(this.#own), ...inserts, ...this.#headWrites(body)] };
  }

  async refused({ head }: ChainRetry): Promise<ChainRetry | undefined> {
    const { store, cluster } = this.#options;
    const own = this.#own;
    const row = (await cluster.fences([own.id])).get(own.id);
    if (!counts(row, own.fence)) {
      this.#own = await this.#joinedAgain(own.fence);
      [this.#version, this.#told, this.#time] = [0, 0, ""];
      await this.others.look(this.id);
      return { head: NONE, skipped: 0 };
    }
    const stored = await AUDIT_CHAINS.read(store, `open.${this.id}`);
    if ((stored?.version ?? 0) === this.#version) return undefined;
    // The answer to an earlier batch was lost: it was written after all
    this.#version = stored?.version ?? 0;
    if (stored === undefined) return { head, skipped: 0 };
    const { seq, hash, told, time } = stored.value;
    [this.#told, this.#time] = [told, time];
    return { head: { seq, hash }, skipped: 0 };
  }

  ended(step: Step, outcome: "written" | "failed"): void {
    if (outcome === "failed") return;
    const body =
      step.writes.flatMap((write) =>
        "body" in write && write.collection === AUDIT_CHAINS.name ? [write.body as ChainHead] : [] // this.next wrote it
      )[0];
    if (body === undefined) return;
    this.#version++;
    this.#told = body.told;
    this.#time = body.time;
    this.#isEnded = body.end !== undefined;
    this.others.named(step.named);
  }

  rewrite(): readonly Write[] {
    return [fenceCheck(this.#own)];
  }

  /** Tells whether the chain has its last record, after which nothing may come. */
  get isEnded(): boolean {
    return this.#isEnded || this.#version === 0;
  }

  /** Ends the chains of gateways that are gone, and names heads that nothing has named for a minute. Never throws. */
  async #keepUp(append: AuditAppend): Promise<void> {
    const { cluster, log, enabled } = this.#options;
    if (!enabled()) return;
    try {
      const others = this.others.open().filter(({ chain }) => chain !== this.id);
      const fences = await cluster.fences(others.map(({ gateway }) => gateway));
      for (const head of others) {
        // The other gateways end the chains that are left: a close waits for this chain alone
        if (this.#isStopped) return;
        if (!counts(fences.get(head.gateway), head.fence)) await this.#leaveOff(head.chain, append);
      }
      if (!this.#isStopped && this.others.hasNews()) await append({ type: "audit_chain", action: "witnessed" });
    } catch (error) {
      if (this.#isStopped) return;
      log.warn("The audit could not look after the chains of other gateways: it tries again in a minute", { error });
    }
  }

  /** Ends the chain of a gateway that writes nothing any more, since its fence has changed. */
  async #leaveOff(chain: string, append: AuditAppend): Promise<void> {
    // Read after the fence: nothing follows
    const found = await AUDIT_CHAINS.read(this.#options.store, `open.${chain}`);
    if (found === undefined) return;
    const { version, value: { seq, hash } } = found;
    const key = `open.${chain}`;
    await append({ type: "audit_chain", action: "left_off", last: { chain, seq, hash } }, [
      AUDIT_CHAINS.check(key, version),
      AUDIT_CHAINS.remove(key),
      AUDIT_CHAINS.insert(`ended.${chain}`, { ...found.value, end: "left_off" }),
    ]);
  }

  /** Returns the oldest time of chains that are named, so that what is named is forgotten before the record of its being forgotten is. */
  #namedSince(): string {
    const keptMs = this.#options.retentionDays() * DAY_MS;
    return new Date(this.now() - keptMs + Math.min(DAY_MS, keptMs / 2)).toISOString();
  }

  #headWrites(body: ChainHead): readonly Write[] {
    const key = `open.${this.id}`;
    const version = this.#version;
    if (body.end === undefined) return [AUDIT_CHAINS.putOver(key, version, body)];
    return [
      AUDIT_CHAINS.check(key, version),
      AUDIT_CHAINS.remove(key),
      AUDIT_CHAINS.insert(`ended.${this.id}`, body),
    ];
  }

  async #look(): Promise<void> {
    if (this.#options.enabled()) await this.others.look(this.id);
  }

  async #joinedAgain(fence: number): Promise<JoinedGateway> {
    const { cluster, clock } = this.#options;
    for (const end = clock.monotonic() + MAX_WAIT_MS; clock.monotonic() < end;) {
      const own = cluster.lease.own();
      if (own !== undefined && own.fence !== fence) return own;
      await clock.sleep(AGAIN_MS);
    }
    throw notJoined();
  }
}

function notJoined(): HttpError {
  const message = "Cannot write to the audit: the gateway has no lease of its cluster now";
  return refuse("storage_unavailable", message, { headers: { "retry-after": "1" } });
}
