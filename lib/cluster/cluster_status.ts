import { HttpError } from "../base/errors.ts";
import type {
  ClusterStatus,
  GatewayStatus,
  OwnedRunView,
  PostgresFacts,
  StrandedWorkspace,
} from "../base/records/cluster_view.ts";
import { storageUnavailable } from "../storage/postgres/server_watch.ts";
import type { Store } from "../storage/store.ts";
import { type ClaimBody, type GatewayPlace, RUN_CLAIMS, toPlace, waiterOf, WORKSPACES } from "./cluster_records.ts";
import type { GatewayDrains, RequestedDrain } from "./gateway_drains.ts";
import { type GatewayView, isOwned, type Leases } from "./leases.ts";
import type { LeaseRow } from "./ownership.ts";
import type { ForgottenFolder, WorkspaceFolders } from "./workspace_folders.ts";
import { isOwnWorkspace } from "./workspace_id.ts";

/** Words about a workspace without a gateway. */
export interface StrandedWords {
  /** The workspace and, as far as it is known, where its gateway was: `office (last in /work on web-1)`. */
  readonly which: string;
  /** `1 run waits`. */
  readonly wait: string;
  /** Advice on the gateway to start. */
  readonly start: string;
}

/** Returns words about a workspace without a gateway, for people. A gateway of an earlier version does not say where the last one was. */
export function strandedWords(
  { workspace, runs, last_gateway: last }: Omit<StrandedWorkspace, "last_gateway"> & {
    readonly last_gateway?: GatewayPlace | null | undefined;
  },
): StrandedWords {
  const wait = runs === 1 ? "1 run waits" : `${runs} runs wait`;
  const isOwn = isOwnWorkspace(workspace);
  if (last === null || last === undefined) {
    const start = isOwn
      ? "start the gateway that had it, with its data directory and folder"
      : "start one with this workspace";
    return { which: workspace, wait, start };
  }
  if (!isOwn) {
    return {
      which: `${workspace} (last in ${last.folder} on ${last.host})`,
      wait,
      start: "start one with this workspace there",
    };
  }
  const which = `${workspace} of the gateway in ${last.folder} (data directory ${last.data_dir}) on ${last.host}`;
  return { which, wait, start: "start it there again" };
}

/** Parts of `ClusterOverview`. */
export interface ClusterOverviewOptions {
  readonly store: Pick<Store, "scan" | "count" | "unreadable">;
  readonly leases: Pick<Leases, "list" | "fences" | "allFences" | "now">;
  readonly drains: Pick<GatewayDrains, "all" | "request">;
  readonly folders: Pick<WorkspaceFolders, "forget">;
  /** Id of the gateway that answers. Undefined: a command looks. */
  readonly id: string | undefined;
  /** Returns when a run was accepted, ISO 8601. */
  readonly acceptedAt: (runId: string) => Promise<string | undefined>;
  /** Reads facts about the database server. Default: there are none */
  readonly facts?: (() => Promise<PostgresFacts>) | undefined;
}

/** Part of the claims that a list has. */
export interface OwnedRunsQuery {
  /** Only those of this gateway; `none`: only those that wait. Default: all */
  readonly gateway?: string | undefined;
  readonly limit: number;
  readonly after: string | undefined;
}

/** Page of the open runs. */
export interface OwnedRunsPage {
  readonly runs: readonly OwnedRunView[];
  readonly hasMore: boolean;
  /** Place to go on after; null: nothing was looked at. */
  readonly lastId: string | null;
}

/** Waiting runs that a status reads, and records of a page of a list. */
const MAX_READ = 1_000;
/** Gateways, and workspaces, whose runs a status counts: the first ones by their ids. */
const MAX_COUNTED = 200;
/** Ids of runs of a gateway, and conversations and workspaces of the queue, that a status has. */
const SHOWN = 20;
/** Claims that name no gateway. */
const NOBODYS = { field: "gateway", value: "" } as const;
/** Runs of a gateway: how many, and the ids of the oldest. */
interface OwnedRuns {
  readonly runs: number;
  readonly ids: readonly string[];
}
const NONE: OwnedRuns = { runs: 0, ids: [] };
/** Pages that one list looks through for the runs of one gateway. */
const MAX_PAGES = 20;

/** Overview of a cluster: who is there, who owns what, and what waits. Each call reads the database, and changes nothing in it. */
export class ClusterOverview {
  readonly #options: ClusterOverviewOptions;

  constructor(options: ClusterOverviewOptions) {
    this.#options = options;
  }

  /** Drains a gateway. @throws {HttpError} as `GatewayDrains.request` */
  drain(...asked: Parameters<GatewayDrains["request"]>): Promise<RequestedDrain> {
    return reached(this.#options.drains.request(...asked));
  }

  /** Forgets which folder a workspace is. @throws {HttpError} as `WorkspaceFolders.forget` */
  forgetFolder(...asked: Parameters<WorkspaceFolders["forget"]>): Promise<ForgottenFolder> {
    return reached(this.#options.folders.forget(...asked));
  }

  /** Reads the state of the cluster. @throws {HttpError} 503 `storage_unavailable` */
  status(): Promise<ClusterStatus> {
    return reached(this.#status());
  }

  /** Lists the open runs in the order of their ids. @throws {HttpError} 503 `storage_unavailable` */
  runs(query: OwnedRunsQuery): Promise<OwnedRunsPage> {
    return reached(this.#runs(query));
  }

  async #status(): Promise<ClusterStatus> {
    const { store, leases, drains, facts } = this.#options;
    const [now, views, drained, { rows, gone }, open, free, waiting, database] = await Promise.all([
      leases.now(),
      leases.list(),
      drains.all(),
      leases.allFences(),
      store.count(RUN_CLAIMS.name),
      store.count(RUN_CLAIMS.name, NOBODYS),
      RUN_CLAIMS.page(store, { order: "created", where: NOBODYS, limit: MAX_READ }),
      facts?.() ?? null,
    ]);
    const [owned, left, stranded] = await Promise.all([
      this.#ownedBy(views.map(({ id }) => id), (claim) => isOwned(claim, rows)),
      this.#ownedBy(gone.filter((id) => views.every((view) => view.id !== id)), () => true),
      this.#stranded(),
    ]);
    const goneWithRuns = [...left].filter(([, { runs }]) => runs > 0);
    const oldest = [waiting[0]?.key, ...goneWithRuns.map(([, { ids }]) => ids[0])].filter((id) => id !== undefined);
    return {
      now: new Date(now).toISOString(),
      gateways: [
        ...views.map((view) => this.#toStatus(view, owned.get(view.id) ?? NONE, drained)),
        ...goneWithRuns.map(([id, found]) => goneGateway(id, found)),
      ],
      queue: {
        open,
        waiting: free + goneWithRuns.reduce((sum, [, { runs }]) => sum + runs, 0),
        waiting_for_workspace: waiting.filter(({ value }) => value.workspace !== undefined).length,
        lag_ms: await this.#lag(oldest.slice(0, SHOWN), now),
        by_conversation: busiest(waiting.map(({ value }) => value)),
        workspaces_without_gateway: stranded,
      },
      database,
    };
  }

  /** Counts the runs of some gateways, and returns the ids of the oldest whose claims count. */
  async #ownedBy(
    gateways: readonly string[],
    counts: (claim: ClaimBody) => boolean,
  ): Promise<ReadonlyMap<string, OwnedRuns>> {
    const { store } = this.#options;
    const found = await Promise.all(
      gateways.slice(0, MAX_COUNTED).map(async (id) => {
        const where = { field: "gateway", value: id };
        const [runs, claims] = await Promise.all([
          store.count(RUN_CLAIMS.name, where),
          RUN_CLAIMS.page(store, { order: "created", where, limit: SHOWN }),
        ]);
        return [id, { runs, ids: claims.filter(({ value }) => counts(value)).map(({ key }) => key) }] as const;
      }),
    );
    return new Map(found);
  }

  /** Counts the runs that wait for a gateway of their workspace. */
  async #stranded(): Promise<readonly StrandedWorkspace[]> {
    const { store } = this.#options;
    const workspaces = await store.scan(WORKSPACES.name, { limit: MAX_COUNTED });
    const bodies = new Map(
      WORKSPACES.readable(store, workspaces).map(({ key, value }) => [key, value]),
    );
    const counted = await Promise.all(workspaces.map(async ({ key: workspace }) => {
      const last = bodies.get(workspace)?.last_gateway;
      const runs = await store.count(RUN_CLAIMS.name, { field: "gateway", value: waiterOf(workspace) });
      return { workspace, runs, last_gateway: last === undefined ? null : toPlace(last) };
    }));
    return counted.filter(({ runs }) => runs > 0).sort((a, b) => b.runs - a.runs).slice(0, SHOWN);
  }

  async #runs({ gateway, limit, after }: OwnedRunsQuery): Promise<OwnedRunsPage> {
    const { store, leases } = this.#options;
    const runs: OwnedRunView[] = [];
    let place = after;
    for (let pages = 0; pages < MAX_PAGES; pages++) {
      const page = await store.scan(RUN_CLAIMS.name, { limit: MAX_READ, ...place !== undefined && { after: place } });
      const claims = RUN_CLAIMS.readable(store, page);
      const fences = await leases.fences(claims.flatMap(({ value }) => value.gateway ?? []));
      for (const { key: id, value } of claims) {
        if (runs.length === limit) return { runs, hasMore: true, lastId: runs.at(-1)?.id ?? null };
        const run = toView(id, value, fences);
        if (gateway === undefined || (run.gateway ?? "none") === gateway) runs.push(run);
      }
      place = page.at(-1)?.key ?? place;
      if (page.length < MAX_READ) return { runs, hasMore: false, lastId: runs.at(-1)?.id ?? null };
    }
    return { runs, hasMore: true, lastId: place ?? null };
  }

  #toStatus(
    { id, about, until, leftMs, drain: phase }: GatewayView,
    { runs, ids }: OwnedRuns,
    drains: Awaited<ReturnType<GatewayDrains["all"]>>,
  ): GatewayStatus {
    const asked = drains.get(id);
    return {
      id,
      this: id === this.#options.id,
      state: leftMs <= 0 ? "late" : phase ?? (asked === undefined ? "alive" : "draining"),
      host: about.host,
      pid: about.pid,
      version: about.version,
      advertise_url: about.advertise_url ?? null,
      started_at: about.started_at,
      lease_until: new Date(until).toISOString(),
      lease_left_ms: leftMs,
      drain: asked === undefined
        ? null
        : { requested_at: asked.requested_at, via: asked.by.via, token_id: asked.by.token_id },
      runs,
      run_ids: ids,
    };
  }

  /** Returns the age of the oldest of some waiting runs, in milliseconds. */
  async #lag(ids: readonly string[], now: number): Promise<number | null> {
    if (ids.length === 0) return null;
    const accepted = await Promise.all(ids.map((id) => this.#options.acceptedAt(id)));
    // A gateway's clock may be ahead of the database's
    return Math.max(0, ...accepted.map((time) => time === undefined ? 0 : now - Date.parse(time)));
  }
}

/** Waits for the database. An error of its connections is a 503 for the client. */
async function reached<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof HttpError || error instanceof TypeError) throw error;
    throw storageUnavailable(error);
  }
}

function busiest(waiting: readonly ClaimBody[]): ClusterStatus["queue"]["by_conversation"] {
  const counts = new Map<string, number>();
  for (const { conversation_id: id } of waiting) if (id !== null) counts.set(id, (counts.get(id) ?? 0) + 1);
  return [...counts].map(([conversation_id, count]) => ({ conversation_id, waiting: count }))
    .sort((a, b) => b.waiting - a.waiting).slice(0, SHOWN);
}

function goneGateway(id: string, { runs, ids }: OwnedRuns): GatewayStatus {
  return {
    ...{ id, this: false, state: "gone", host: null, pid: null, version: null, started_at: null, advertise_url: null },
    ...{ lease_until: null, lease_left_ms: null, drain: null, runs, run_ids: ids },
  };
}

function toView(id: string, claim: ClaimBody, fences: ReadonlyMap<string, LeaseRow>): OwnedRunView {
  const gateway = isOwned(claim, fences) ? claim.gateway : null;
  const { conversation_id, parent_id, workspace = null } = claim;
  return { id, gateway, conversation_id, workspace, parent_id };
}
