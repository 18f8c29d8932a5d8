import type { Clock } from "../base/clock.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store } from "../storage/store.ts";
import { ClusterNews, type NewsWire } from "./cluster_news.ts";
import { GatewayLease } from "./gateway_lease.ts";
import { type GatewayView, type LeaseDatabase, Leases } from "./leases.ts";
import type { LeaseBody } from "./cluster_records.ts";
import { type LeaseTerms, marginOf } from "./ownership.ts";
import { RunClaims } from "./run_claims.ts";
import { RunOwnership } from "./run_ownership.ts";

/** Database that gateways share. */
export interface ClusterDatabase {
  /** Place of the leases, on a connection of its own. */
  readonly leases: LeaseDatabase;
  readonly wire: NewsWire;
  /** Ends its connections. Default: there are none */
  close?(): Promise<void>;
}

/** Options of `joinCluster`. */
export interface JoinClusterOptions {
  readonly store: Store;
  readonly database: ClusterDatabase;
  /** `[cluster] lease_secs`, in milliseconds. */
  readonly leaseMs: number;
  readonly about: Omit<LeaseBody["about"], "started_at">;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly opened: OpenedList;
}

/** This gateway as a member of a cluster. */
export interface Cluster {
  /** Id of this gateway, new at each start. */
  readonly id: string;
  readonly ownership: RunOwnership;
  readonly lease: GatewayLease;
  /** Fences off the gateways whose leases have run out, when this one may. @returns how many */
  takeOver(): Promise<number>;
  gateways(): Promise<readonly GatewayView[]>;
  /** Calls a function after each heartbeat with the milliseconds that programs of this gateway may still run. */
  onBeat(listener: (leftMs: number) => void): void;
}

/** Joins a cluster. The gateway leaves it when it is closed. @throws when the database cannot be reached */
export async function joinCluster(options: JoinClusterOptions): Promise<Cluster> {
  const { store, database, leaseMs, clock, random, log, opened } = options;
  const terms: LeaseTerms = { leaseMs, marginMs: marginOf(leaseMs) };
  const leases = new Leases(database.leases, terms);
  const beatListeners: ((leftMs: number) => void)[] = [];
  const id = random.id("gw_");
  const lease: GatewayLease = new GatewayLease({
    leases,
    terms,
    clock,
    log,
    id,
    about: { ...options.about, started_at: new Date(clock.now()).toISOString() },
    onLost: () => ownership.lose(),
    onBeat: (leftMs) => {
      for (const listener of beatListeners) listener(leftMs);
    },
  });
  const news = new ClusterNews(database.wire, log);
  const ownership = new RunOwnership({ lease, claims: new RunClaims(store, leases), news, clock, leaseMs });
  opened.own(database, (open) => open.close?.());
  opened.own(await database.wire.listen((note) => ownership.hear(note)), (stop) => stop());
  await lease.start();
  opened.own(lease, async (held) => {
    await news.flush();
    await held.stop();
  });
  return {
    id,
    ownership,
    lease,
    async takeOver() {
      const own = lease.own();
      if (own === undefined || !lease.mayTakeOver()) return 0;
      const off = await leases.fenceOff(own);
      for (const gateway of off) log.warn("A gateway is gone: its runs are taken over", { gateway });
      return off.length;
    },
    gateways: () => leases.list(),
    onBeat: (listener) => void beatListeners.push(listener),
  };
}
