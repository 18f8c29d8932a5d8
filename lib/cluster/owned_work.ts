import { type Clock, withTimeout } from "../base/clock.ts";
import { Poller } from "../base/poller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store, Write } from "../storage/store.ts";
import { readable, readRecord, unlessUnreadable } from "../storage/read_records.ts";
import { parseWorkMark, waiterOf, type WorkMark } from "./cluster_records.ts";
import { type ClusterNews, type ClusterNote, POLL_MS } from "./cluster_news.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import { fenceCheck, type JoinedGateway, type Leases } from "./leases.ts";
import type { RunOwnership } from "./run_ownership.ts";
import { MAX_STRANDED, type OpenWork, WorkClaims } from "./work_claims.ts";
import { type StrandedWork, takenOver, WorkHold } from "./work_hold.ts";

/** A kind of work with owners: a collection with a mark for each open piece, and the functions that do the work. None may throw. */
export interface WorkKind {
  readonly collection: string;
  /** Returns how many more pieces this gateway can take. */
  readonly room: () => number;
  /** Lets a piece go on that is this gateway's from now on. */
  readonly takeUp: (id: string, hold: WorkHold) => void;
  /** Takes the news that a piece may have changed, here or elsewhere. `version`: that of its record; 0 where it is not known. */
  readonly changed: (id: string, version: number) => void;
}

/** Parts of a cluster that owned work uses. */
export interface OwnedWorkParts {
  readonly store: Store;
  readonly lease: GatewayLease;
  readonly leases: Leases;
  readonly news: ClusterNews;
  /** Says which workspace work is bound to, and may be claimed of. */
  readonly ownership: Pick<RunOwnership, "workspace" | "mayWorkIn" | "provenWorkspace" | "isThere">;
  readonly clock: Clock;
  /** Clock that tells the database's time. */
  readonly time: Pick<Clock, "now">;
  /** Milliseconds that work waits for a gateway of its workspace when all are gone. */
  readonly workspaceWaitMs: number;
  readonly log: Logger;
}

interface Owned {
  readonly lost: AbortController;
  /** Version of the mark at the last look. */
  version: number;
  /** True: nothing is left to do. The entry goes once a look has found no mark. */
  hasEnded: boolean;
}

/** Pieces whose acceptance may be under way at once. The marks of more are found by the next look. */
const MAX_OPENING = 1_000;

/**
 * Pieces of work of one kind, each of which one gateway of the cluster does: executions of procedures, deliveries.
 *
 * The mark of an open piece names its owner. Marks of a gateway that was alone name none, and are claimed like those of a gateway that is gone:
 * the oldest first, at a look each second. Work of a workspace without a gateway is claimed by any gateway, to end it or to let it wait. A change that others make to a piece writes its mark again, so the owner finds out by the same
 * look when the note of it is lost.
 */
export class OwnedWork {
  readonly #parts: OwnedWorkParts;
  readonly #kind: WorkKind;
  readonly #claims: WorkClaims<WorkMark>;
  readonly #owned = new Map<string, Owned>();
  /** Gateway and fence in the marks of pieces whose acceptance is under way. */
  readonly #opening = new Map<string, JoinedGateway>();
  readonly #poller: Poller;
  /** True from `start` to `stop`: outside of that nobody here would do the work. */
  #isStarted = false;

  constructor(parts: OwnedWorkParts, kind: WorkKind) {
    const { store, leases, log } = parts;
    const { collection } = kind;
    this.#parts = parts;
    this.#kind = kind;
    this.#claims = new WorkClaims({
      store,
      leases,
      collection,
      parse: parseWorkMark,
      toClaimed: (mark) => this.#toClaimed(mark),
    });
    this.#poller = new Poller(() => this.#claim(), (error) => {
      log.error("Work cannot be claimed: the gateway tries again each second", { collection, error });
    });
  }

  /** Begins to claim. Resolves after the first look. */
  async start(): Promise<void> {
    this.#isStarted = true;
    this.#poller.start(this.#parts.clock, POLL_MS);
    await this.#poller.look();
  }

  /** Ends the claiming, for a shutdown or a drain. The work itself is stopped by whoever does it. */
  async stop(): Promise<void> {
    this.#isStarted = false;
    await this.#poller.stop();
  }

  /** Gives back all pieces of this gateway, once none is at work here. */
  async giveAllBack(): Promise<void> {
    const own = this.#parts.lease.own();
    if (own !== undefined) await this.#claims.giveBack(own);
  }

  /**
   * Returns the write of the mark that goes with the acceptance of a piece. It names this gateway when this one does such work and may act;
   * else it names none, and another gateway claims the piece: a drained one and one without an agent accept pieces too.
   * @param isLocal true: the piece needs the workspace of this gateway. Default false
   */
  opening(id: string, isLocal = false): Write {
    const { lease, ownership } = this.#parts;
    const own = this.#isStarted && lease.mayAct() ? lease.own() : undefined;
    if (own !== undefined) this.#opening.set(id, own);
    for (const oldest of this.#opening.keys()) {
      if (this.#opening.size <= MAX_OPENING) break;
      this.#opening.delete(oldest);
    }
    const body = {
      v: 1,
      ...(own === undefined ? {} : { gateway: own.id, fence: own.fence }),
      ...(isLocal ? { workspace: ownership.workspace() ?? undefined } : {}),
    };
    return { op: "insert", collection: this.#kind.collection, key: id, body };
  }

  /** Lets a piece begin here whose acceptance is written. */
  accepted(id: string): void {
    const own = this.#opening.get(id);
    this.#opening.delete(id);
    if (own !== undefined && this.#parts.lease.hasFence(own.fence)) this.#take(id, own, { version: 1 });
  }

  /** Returns the writes that tell the owner of a piece of a change, for the batch of the change. Empty for a piece that has ended. */
  async signal(id: string): Promise<readonly Write[]> {
    const { collection } = this.#kind;
    const { store } = this.#parts;
    const mark = await store.get(collection, id);
    if (mark === undefined) return [];
    const waiting = readable(store, collection, [mark], parseWorkMark).find(({ value }) => isWaiting(value));
    // No gateway reads the mark of work that waits: each one looks for work that nobody owns
    const body = waiting === undefined ? mark.body : { ...waiting.value, gateway: null, fence: 0 };
    return [{ op: "putIf", collection, key: id, version: mark.version, body }];
  }

  /** Tells whether a piece waits for a gateway of its workspace. */
  async waitsForWorkspace(id: string): Promise<boolean> {
    const mark = await unlessUnreadable(readRecord(this.#parts.store, this.#kind.collection, id, parseWorkMark));
    return mark?.value.waiting_since !== undefined;
  }

  /** Tells all gateways that a piece has changed. @param version of its record; 0 where it is not known */
  tell(id: string, version: number): void {
    this.#parts.news.tell("work", id, version);
  }

  /** Lets the owner of a piece look at it again. */
  wake(id: string): void {
    this.tell(id, 0);
  }

  /** Resolves after news of a piece, or when it is time to look again: news may be lost. */
  async news(heard: Promise<void>): Promise<void> {
    await withTimeout(heard, { ms: POLL_MS, clock: this.#parts.clock });
  }

  /** Takes a note that came over the wire. */
  onNote({ kind, id, seq }: ClusterNote): void {
    if (kind === "work") this.#kind.changed(id, seq);
  }

  /** Takes the news that others have fenced this gateway off. */
  onFenced(): void {
    const owned = [...this.#owned.values()];
    this.#owned.clear();
    for (const { lost } of owned) lost.abort(takenOver());
  }

  async #claim(): Promise<void> {
    const { lease, ownership } = this.#parts;
    const { room, changed } = this.#kind;
    const own = lease.own();
    if (own === undefined || !lease.mayAct()) return;
    const over = [...this.#owned].filter(([, { hasEnded }]) => hasEnded).map(([id]) => id);
    const { claimed, own: known, left } = await this.#claims.claim(own, {
      isWhole: true,
      places: ownership,
      isKnown: (id) => this.#owned.has(id),
      hasRoom: (_, count) => count < room(),
    });
    for (const { id, version } of known) {
      const owned = this.#owned.get(id);
      if (owned === undefined || owned.version === version) continue;
      owned.version = version;
      if (!owned.hasEnded) changed(id, 0);
    }
    const found = new Set(known.map(({ id }) => id));
    for (const id of over) if (!found.has(id) && this.#owned.get(id)?.hasEnded) this.#owned.delete(id);
    // Others may have fenced the gateway off while it claimed
    if (!lease.hasFence(own.fence)) return;
    const isForeign = ({ body }: OpenWork<WorkMark>) => !ownership.mayWorkIn(body.workspace ?? null);
    const mine = claimed.map((work) => ({ ...work, version: work.version + 1 }));
    for (const work of mine) if (!isForeign(work)) this.#take(work.id, own, work);
    await this.#strand(own, { lost: mine.filter(isForeign), found: left.filter(({ place }) => place === "nowhere") });
  }

  /**
   * Takes up work whose workspace has no gateway: what was claimed here before the gateway lost the workspace, what was just found and what
   * somebody has changed, and what has waited for too long.
   */
  async #strand(own: JoinedGateway, { lost, found }: {
    readonly lost: readonly OpenWork<WorkMark>[];
    readonly found: readonly OpenWork<WorkMark>[];
  }): Promise<void> {
    const { time, workspaceWaitMs: waitMs, ownership, lease } = this.#parts;
    const end = time.now() - waitMs;
    const hasWaited = ({ waiting_since: since }: WorkMark) => since !== undefined && since <= end;
    let taken = 0;
    const take = (work: OpenWork<WorkMark>) => {
      taken++;
      // Others may have fenced the gateway off meanwhile
      if (!lease.hasFence(own.fence)) return;
      const { id, version, body } = work;
      const wait = () => this.#wait(work, own, body.waiting_since ?? time.now());
      this.#take(id, own, { version, stranded: { isTooLate: hasWaited(body), waitMs, wait } });
    };
    for (const work of lost) {
      if (!await ownership.isThere(work.body.workspace ?? "")) take(work);
      else await this.#changeMark(work, own, { gateway: null, fence: 0 });
    }
    for (const { id, body } of found) {
      if (taken >= MAX_STRANDED) return;
      if (isWaiting(body) && !hasWaited(body)) continue;
      const work = await this.#claims.claimOne(id, own);
      if (work !== undefined) take({ ...work, version: work.version + 1 });
    }
  }

  /** Gives work back that waits for its workspace. */
  async #wait(work: OpenWork<WorkMark>, own: JoinedGateway, since: number): Promise<void> {
    const { id, body: { workspace = "", waiting_since: before } } = work;
    const waiting = { gateway: waiterOf(workspace), fence: 0, waiting_since: since };
    if (await this.#changeMark(work, own, waiting) && before === undefined) {
      const { collection } = this.#kind;
      this.#parts.log.warn("Work waits for its workspace, which has no gateway", { collection, id, workspace });
    }
    this.#owned.delete(id);
  }

  /** Writes the mark of work that this gateway has claimed. @returns false when somebody has changed it meanwhile: the next look reads it */
  #changeMark(
    { id, version, body }: OpenWork<WorkMark>,
    own: JoinedGateway,
    change: Partial<WorkMark>,
  ): Promise<boolean> {
    const write = { op: "putIf", collection: this.#kind.collection, key: id, version } as const;
    return this.#parts.store.batch([fenceCheck(own), { ...write, body: { ...body, ...change } }]);
  }

  /** Returns the mark of work that this gateway claims. Work that goes on has ended its wait. */
  #toClaimed(mark: WorkMark): WorkMark {
    if (!this.#parts.ownership.mayWorkIn(mark.workspace ?? null)) return mark;
    const { waiting_since: _, ...claimed } = mark;
    return claimed;
  }

  #take(id: string, own: JoinedGateway, { version, stranded }: {
    readonly version: number;
    readonly stranded?: StrandedWork;
  }): void {
    if (this.#owned.get(id)?.hasEnded === false) return;
    const owned: Owned = { lost: new AbortController(), version, hasEnded: false };
    const giveBack = () => void (this.#owned.get(id) === owned && this.#owned.delete(id));
    const end = () => void (owned.hasEnded = true);
    this.#owned.set(id, owned);
    this.#kind.takeUp(id, new WorkHold(this.#parts, own, { lost: owned.lost, end, giveBack, stranded }));
  }
}

/** Tells whether work waits for a gateway of its workspace. */
function isWaiting({ gateway, workspace }: WorkMark): boolean {
  return workspace !== undefined && gateway === waiterOf(workspace);
}
