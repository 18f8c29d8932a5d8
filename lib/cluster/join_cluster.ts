import { CancelError, unlessAborted } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { ConfigError, HttpError } from "../base/errors.ts";
import type { Kit } from "../base/kit.ts";
import type { OpenedList } from "../base/opened_list.ts";
import { storageUnavailable } from "../storage/postgres/server_watch.ts";
import type { Store } from "../storage/store.ts";
import { ClusterDuties } from "./cluster_duties.ts";
import { createClusterClock } from "./cluster_clock.ts";
import { observeCluster, SeenQueue } from "./cluster_metrics.ts";
import { type ClusterBus, ClusterNews, type NewsWire, type NoteCounts } from "./cluster_news.ts";
import { ClusterOverview } from "./cluster_status.ts";
import type { PostgresFacts } from "../base/records/cluster_view.ts";
import { GatewayDrains } from "./gateway_drains.ts";
import { GatewayLinks, type GatewayLinkSettings } from "./gateway_links.ts";
import { GatewayLease } from "./gateway_lease.ts";
import { type GatewayView, type LeaseDatabase, Leases } from "./leases.ts";
import type { LeaseBody } from "./cluster_records.ts";
import { type LeaseRow, type LeaseTerms, marginOf } from "./ownership.ts";
import { OwnedWork, type WorkKind } from "./owned_work.ts";
import { RunClaims } from "./run_claims.ts";
import { RunOwnership } from "./run_ownership.ts";
import { Takeovers } from "./takeovers.ts";
import { WorkspaceLocks } from "./workspace_locks.ts";
import { WorkspaceFolders } from "./workspace_folders.ts";
import { WorkspaceMembership } from "./workspace_membership.ts";
import type { OwnWorkspace } from "./workspace_record.ts";

/** Database that gateways share. */
export interface ClusterDatabase {
  /** Place of the leases, on a connection of its own. */
  readonly leases: LeaseDatabase;
  readonly wire: NewsWire;
  /** Reads facts about the server. Default: there are none */
  facts?(): Promise<PostgresFacts>;
  /** Ends its connections. Default: there are none */
  close?(): Promise<void>;
}

/** Options of `joinCluster`. */
export interface JoinClusterOptions {
  readonly store: Store;
  readonly database: ClusterDatabase;
  /** `[cluster] lease_secs`, in milliseconds. */
  readonly leaseMs: number;
  readonly about: Omit<LeaseBody["about"], "started_at" | "lease_ms" | "workspace_wait_ms">;
  /** Workspace of this gateway. Default: it has none, and claims no run that needs one */
  readonly workspace?: OwnWorkspace | undefined;
  /** `[cluster] workspace_wait_secs`, in milliseconds. Default: a day */
  readonly workspaceWaitMs?: number | undefined;
  /** Returns when a run was accepted, ISO 8601. */
  readonly acceptedAt: (runId: string) => Promise<string | undefined>;
  /** Way to the other gateways. Default: there is none */
  readonly link?: GatewayLinkSettings | undefined;
  /** Kit with the clock of this machine. */
  readonly kit: Omit<Kit, "environment">;
  readonly opened: OpenedList;
  /** Aborts when the start is given up. Default: it never does */
  readonly signal?: AbortSignal | undefined;
}

/** This gateway as a member of a cluster. */
export interface Cluster {
  /** Id of this gateway, new at each start. */
  readonly id: string;
  /** Bus of notes between the gateways. */
  readonly bus: ClusterBus;
  /** Claims of runs. */
  readonly ownership: RunOwnership;
  readonly lease: GatewayLease;
  /** Clock that tells the database's time. */
  readonly clock: Clock;
  readonly drains: GatewayDrains;
  /** Overview of the whole cluster, from the database. */
  readonly overview: ClusterOverview;
  /** Returns how many notes were sent, heard, and left to the looks once a second, since the start. */
  notes(): NoteCounts;
  /** The direct way to the other gateways. */
  readonly links: GatewayLinks;
  /** Gives all work back that this gateway owns, so that others may claim it at once. */
  giveWorkBack(): Promise<void>;
  /** Locks of files of the workspace. Undefined: this gateway has no workspace */
  readonly fileLocks: WorkspaceLocks | undefined;
  /** Milliseconds that a run waits for a gateway of its workspace when all are gone. */
  readonly workspaceWaitMs: number;
  /** Calls a function each time that this gateway has fenced others off. */
  onTakeover(listener: () => void): void;
  gateways(): Promise<readonly GatewayView[]>;
  /** Returns how many gateways had a lease at the last look. Undefined before the first one. */
  gatewaysFound(): number | undefined;
  /** Returns the rows of some gateways by their ids, as far as `counts` asks for them. */
  fences(ids: Iterable<string>): Promise<ReadonlyMap<string, LeaseRow>>;
  /** Does work that one gateway does at a time, see ClusterDuties. */
  alone: ClusterDuties["alone"];
  /** Creates the part of this gateway in a kind of work, each piece of which one gateway does. */
  work(kind: WorkKind): OwnedWork;
  /** Calls a function now and after each heartbeat with the milliseconds that programs of this gateway may still run. */
  onBeat(listener: (leftMs: number) => void): void;
}

const NO_LINK: GatewayLinkSettings = {
  token: undefined,
  insecure: false,
  fetch: () => Promise.reject(new TypeError("This gateway has no way to others")),
};

/** Time that a start waits for a database that does not answer yet. Milliseconds */
const WAIT_MS = 30_000;
const PAUSE_MS = 500;
const DAY_MS = 86_400_000;

/**
 * Joins a cluster. The gateway leaves it when it is closed. Waits up to 30 seconds for the database.
 * @throws {HttpError} `storage_unavailable`; {ConfigError} `workspace_mismatch`; `database_unusable`: records are copied into the database;
 * {CancelError} the signal aborted
 */
export async function joinCluster(options: JoinClusterOptions): Promise<Cluster> {
  const { store, database, leaseMs, opened, workspaceWaitMs = DAY_MS } = options;
  const { clock, random, log, metrics } = options.kit;
  const terms: LeaseTerms = { leaseMs, marginMs: marginOf(leaseMs) };
  const time = createClusterClock(clock, database.leases);
  const leases = new Leases(time.leases, terms);
  const beatListeners: ((leftMs: number) => void)[] = [];
  const works: OwnedWork[] = [];
  const id = random.id("gw_");
  const lease: GatewayLease = new GatewayLease({
    leases,
    terms,
    clock,
    log,
    id,
    about: {
      ...options.about,
      ...{ started_at: new Date(clock.now()).toISOString(), lease_ms: leaseMs, workspace_wait_ms: workspaceWaitMs },
    },
    onLost() {
      ownership.onFenced();
      for (const work of works) work.onFenced();
    },
    onBeat: (leftMs) => {
      for (const listener of beatListeners) listener(leftMs);
    },
  });
  const duties = new ClusterDuties({ store, leases, lease });
  const news = new ClusterNews(database.wire, log);
  const ownership = new RunOwnership({
    ...{ lease, bus: news, clock, leaseMs },
    claims: new RunClaims(store, leases),
    membership: () => membership,
    onLook: (found) => queue.take(found),
  });
  const membership = options.workspace && new WorkspaceMembership({
    ...{ store, leases, lease, news, clock, random, log, workspace: options.workspace },
    gateway: id,
    host: options.about.host,
  });
  const queue = new SeenQueue(clock);
  const drains = new GatewayDrains({ store, leases, tell: (gateway) => news.tell("drain", gateway) });
  opened.own(database, (open) => open.close?.());
  const takeovers = new Takeovers({ leases, lease, leaseMs, clock, log });
  const notes = () => news.counts();
  // Before the join, which is the first heartbeat
  const gateways = () => takeovers.isStale() ? undefined : leases.found();
  observeCluster(metrics, { lease, notes, ownership, queue, gateways, takeovers: () => takeovers.count() });
  opened.own(await patiently(() => database.wire.listen((note) => news.receive(note)), options), (stop) => stop());
  // Before the start: a join that the signal cuts off may have given a lease
  opened.own(lease, async (held) => {
    await news.flush();
    await held.stop();
  });
  await patiently(() => lease.start(), options);
  // Before the membership, whose start may wait for gateways that are gone
  opened.own(takeovers, (open) => open.stop()).start();
  if (membership !== undefined) {
    news.onNote(({ kind, id }) => void (kind === "workspace" && id === membership.id && membership.look()));
    await unlessGivenUp(opened.own(membership, (left) => left.stop()).start(), options);
  }
  const links = new GatewayLinks({ ...(options.link ?? NO_LINK), store, clock, id });
  return {
    id,
    bus: news,
    ownership,
    lease,
    clock: time.clock,
    workspaceWaitMs,
    fileLocks: membership && new WorkspaceLocks({ store, leases, lease, membership, clock, log }),
    drains,
    overview: new ClusterOverview({
      ...{ store, leases, drains, id },
      folders: new WorkspaceFolders({ store, leases, tell: (workspace) => news.tell("workspace", workspace) }),
      acceptedAt: options.acceptedAt,
      facts: database.facts?.bind(database),
    }),
    notes,
    links,
    async giveWorkBack() {
      await ownership.giveAllBack();
      for (const work of works) await work.giveAllBack();
    },
    onTakeover: (listener) => takeovers.onTakeover(listener),
    gateways: () => leases.list(),
    gatewaysFound: () => leases.found(),
    fences: (ids) => leases.fences(ids),
    alone: (name, work) => duties.alone(name, work),
    work(kind) {
      const work = new OwnedWork(
        { store, lease, leases, news, clock, log, ownership, time: time.clock, workspaceWaitMs },
        kind,
      );
      works.push(work);
      news.onNote((note) => work.onNote(note));
      return work;
    },
    onBeat(listener) {
      beatListeners.push(listener);
      // The join was a heartbeat too
      listener(lease.heartbeats().leftMs);
    },
  };
}

/** Waits for a part of the join. @throws {CancelError} the signal aborted */
function unlessGivenUp<T>(work: Promise<T>, { signal }: Pick<JoinClusterOptions, "signal">): Promise<T> {
  return signal === undefined ? work : unlessAborted(work, signal);
}

/**
 * Tries something again until it succeeds, since a database may restart while a gateway starts.
 * @throws {CancelError} the signal aborted
 */
async function patiently<T>(
  work: () => Promise<T>,
  { kit: { clock, log }, signal }: Pick<JoinClusterOptions, "kit" | "signal">,
): Promise<T> {
  for (const end = clock.monotonic() + WAIT_MS;;) {
    try {
      return await unlessGivenUp(work(), { signal });
    } catch (error) {
      if (error instanceof ConfigError || error instanceof CancelError) throw error;
      if (clock.monotonic() >= end) throw error instanceof HttpError ? error : storageUnavailable(error);
      log.warn("The cluster cannot be joined yet: the database does not answer", { error });
    }
    await clock.sleep(PAUSE_MS, signal);
  }
}
