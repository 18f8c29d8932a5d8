import { ConfigError } from "../base/errors.ts";
import type { ReadRecord } from "../storage/read_records.ts";
import type { Store, Stored, Write } from "../storage/store.ts";
import { GATEWAY_FENCES, GATEWAY_LEASES, type LeaseBody, MAX_GATEWAYS } from "./cluster_records.ts";
import { counts, fencedRow, joined, type LeaseRow, type LeaseTerms, renewed } from "./ownership.ts";

/** Place of the leases: a store on a connection of its own, and the clock of the database. */
export interface LeaseDatabase {
  /** Store whose connection nothing else uses, so that no other work delays a heartbeat. */
  readonly store: Pick<Store, "get" | "scan" | "batch" | "unreadable">;
  /** Returns the time by the database's clock, in ms since the epoch. */
  now(): Promise<number>;
  /**
   * Returns the name of the history that the database went on with when it was last asked for the time: another name says that another
   * server answers now, which may lack the last commits. Undefined where the database does not say. Default: there is one history
   */
  history?(): string | undefined;
  /**
   * Rejects while no gateway may use the database, as when records are copied into it. Default: gateways may always
   * @throws {ConfigError}
   */
  admit?(): Promise<void>;
}

/** Lease of a gateway as others see it. */
export interface GatewayView extends LeaseBody {
  readonly id: string;
  /** Milliseconds until the lease runs out, by the database's clock; negative when it has. */
  readonly leftMs: number;
}

/** Part of a lease that its gateway says about itself. */
export type LeaseFacts = Omit<LeaseBody, "v" | "fence" | "until">;

/** Gateway with the fence that it joined with. */
export interface JoinedGateway {
  readonly id: string;
  readonly fence: number;
}

/**
 * The lease rows of a cluster, in the database. Each change follows `ownership.ts`, and holds only while nothing else changed the row.
 *
 * The fence is the version of a record of its own, since a renewal changes the lease and must not change what batches check. The time is
 * read before each change, so a lease is never longer than its owner may believe.
 */
export class Leases {
  readonly #database: LeaseDatabase;
  readonly #terms: LeaseTerms;
  /** History in which each gateway of this process has joined, by its id. */
  readonly #histories = new Map<string, string | undefined>();
  #found: number | undefined = undefined;
  /** Leases that could not be read when the rows were last read. */
  #damaged: readonly Pick<Stored, "key" | "version">[] = [];
  /** Damaged leases as the last looks found them. */
  #seen: ReadonlyMap<string, { readonly version: number; readonly since: number; readonly at: number }> = new Map();

  readonly #isNamed: ((gateway: string) => Promise<boolean>)[] = [];

  constructor(database: LeaseDatabase, terms: LeaseTerms) {
    this.#database = database;
    this.#terms = terms;
  }

  /**
   * Joins, also after the gateway was fenced off. Whoever begins to copy records into the database looks for gateways after it has said so,
   * and a gateway looks for a copy after it has joined: one of the two finds the other.
   * @param after fence that the gateway had before, since the database may have forgotten it. Default 0: none
   * @returns the new fence, which is above all that the gateway had
   * @throws {ConfigError} no gateway may use the database
   */
  async join(id: string, facts: LeaseFacts, after = 0): Promise<number> {
    const { store } = this.#database;
    for (;;) {
      const now = await this.#database.now();
      const history = this.#database.history?.();
      const version = (await store.get(GATEWAY_FENCES.name, id))?.version ?? 0;
      const earlier = Math.max(version, after);
      const row = joined(earlier === 0 ? undefined : { fence: earlier, until: 0 }, now, this.#terms);
      const isJoined = await store.batch([
        ...fenceWrites(id, { from: version, to: row.fence }),
        lease(id, { v: 1, ...row, ...facts }),
      ]);
      if (!isJoined) continue;
      await this.#requireAdmitted({ id, fence: row.fence });
      this.#histories.set(id, history);
      return row.fence;
    }
  }

  /** @returns false when others have fenced the gateway off, and when the database goes on with another history */
  async renew({ id, fence }: JoinedGateway, facts: LeaseFacts): Promise<boolean> {
    const now = await this.#database.now();
    if (this.hasOtherHistory(id)) return false;
    const row = renewed({ fence, until: 0 }, { fence, now, leaseMs: this.#terms.leaseMs });
    if (row === undefined) return false;
    return await this.#database.store.batch([fenceCheck({ id, fence }), lease(id, { v: 1, ...row, ...facts })]);
  }

  /** Returns the name of the database's history, see `LeaseDatabase`. */
  history(): string | undefined {
    return this.#database.history?.();
  }

  /** Tells whether the database goes on with another history than the one in which the gateway has joined. */
  hasOtherHistory(id: string): boolean {
    return this.#histories.has(id) && this.#histories.get(id) !== this.#database.history?.();
  }

  /** Ends the lease of a gateway, so that others may claim its runs at once. */
  async leave({ id, fence }: JoinedGateway): Promise<void> {
    await this.#database.store.batch([
      fenceCheck({ id, fence }),
      GATEWAY_LEASES.remove(id),
      goneWrite(id, fence),
    ]);
  }

  /**
   * Fences off the gateways whose leases have run out. Call it only when `mayTakeOver` says so.
   * @returns their ids
   */
  async fenceOff(own: JoinedGateway): Promise<readonly string[]> {
    const off: string[] = [];
    const now = await this.#database.now();
    const rows = [...await this.#rows(), ...await this.#damagedRows(now)];
    for (const { key: id, version, value: { fence, until } } of rows) {
      const next = id === own.id ? undefined : fencedRow({ fence, until }, now);
      if (next === undefined) continue;
      const isFenced = await this.#database.store.batch([
        fenceCheck(own),
        // Another version: the gateway has renewed its lease meanwhile
        GATEWAY_LEASES.check(id, version),
        GATEWAY_LEASES.remove(id),
        goneWrite(id, fence),
      ]);
      if (isFenced) off.push(id);
    }
    return off;
  }

  /** Returns the time by the database's clock, in ms since the epoch. */
  now(): Promise<number> {
    return this.#database.now();
  }

  /** Returns the gateways that have a lease, with what is left of it. */
  async list(): Promise<readonly GatewayView[]> {
    const now = await this.#database.now();
    return (await this.#rows()).map(({ key, value }) => ({ id: key, ...value, leftMs: value.until - now }));
  }

  /** Returns how many gateways had a lease when their rows were last read. Undefined before that. */
  found(): number | undefined {
    return this.#found;
  }

  /** Returns the rows of some gateways by their ids, as far as `counts` asks for them. */
  async fences(ids: Iterable<string>): Promise<ReadonlyMap<string, LeaseRow>> {
    const [id, ...others] = new Set(ids);
    if (id === undefined) return new Map();
    if (others.length > 0) return (await this.allFences()).rows;
    const stored = await this.#database.store.get(GATEWAY_FENCES.name, id);
    return new Map(stored === undefined ? [] : [[id, { fence: stored.version, until: 0 }]]);
  }

  /** Returns the rows of all gateways, as far as `counts` asks for them, and the ids of those that are gone. */
  async allFences(): Promise<Fences> {
    const found = await this.#database.store.scan(GATEWAY_FENCES.name, { limit: MAX_GATEWAYS });
    return {
      rows: new Map(found.map(({ key, version }) => [key, { fence: version, until: 0 }])),
      gone: found.filter(({ body }) => isGone(body)).map(({ key }) => key),
    };
  }

  /** Asks a function whether something still names a gateway that is gone, before the gateway is forgotten. */
  onForget(isNamed: (gateway: string) => Promise<boolean>): void {
    this.#isNamed.push(isNamed);
  }

  /** Removes the rows of gateways that are gone and that no claim names. A gateway that comes back joins with a fence above its last. */
  async forgetGone(own: JoinedGateway): Promise<void> {
    const { rows, gone } = await this.allFences();
    for (const id of gone) {
      if (id === own.id || (await Promise.all(this.#isNamed.map((isNamed) => isNamed(id)))).includes(true)) continue;
      await this.#database.store.batch([
        fenceCheck(own),
        GATEWAY_FENCES.check(id, rows.get(id)?.fence ?? 0),
        GATEWAY_FENCES.remove(id),
      ]);
    }
  }

  /** Takes the rows of a gateway back that may not use the database. @throws {ConfigError} */
  async #requireAdmitted({ id, fence }: JoinedGateway): Promise<void> {
    try {
      await this.#database.admit?.();
    } catch (error) {
      if (error instanceof ConfigError) {
        await this.#database.store.batch([
          fenceCheck({ id, fence }),
          GATEWAY_LEASES.remove(id),
          GATEWAY_FENCES.remove(id),
        ]);
      }
      throw error;
    }
  }

  async #rows(): Promise<readonly ReadRecord<LeaseBody>[]> {
    const { store } = this.#database;
    const page = await store.scan(GATEWAY_LEASES.name, { limit: MAX_GATEWAYS });
    this.#found = page.length;
    const rows = GATEWAY_LEASES.readable(store, page);
    const isRead = new Set(rows.map(({ key }) => key));
    this.#damaged = page.length === rows.length ? [] : page.filter(({ key }) => !isRead.has(key));
    return rows;
  }

  /**
   * Returns the leases that cannot be read, as of the last reading of the rows. A gateway that lives writes its lease again, so one that has
   * stood for two leases, as this gateway has seen without a gap, has run out.
   */
  async #damagedRows(now: number): Promise<readonly Pick<ReadRecord<LeaseRow>, "key" | "version" | "value">[]> {
    const { leaseMs } = this.#terms;
    const rows: Pick<ReadRecord<LeaseRow>, "key" | "version" | "value">[] = [];
    const seen = new Map<string, { readonly version: number; readonly since: number; readonly at: number }>();
    for (const { key, version } of this.#damaged) {
      const before = this.#seen.get(key);
      const isSame = before?.version === version && now - before.at < leaseMs;
      const since = isSame ? before.since : now;
      seen.set(key, { version, since, at: now });
      const fence = (await this.fences([key])).get(key)?.fence;
      if (fence !== undefined) rows.push({ key, version, value: { fence, until: since + 2 * leaseMs } });
    }
    this.#seen = seen;
    return rows;
  }
}

const FENCE_BODY = { v: 1 } as const;
/** Body of a fence that nobody has: others have added one to it, or its gateway has left. */
const GONE_BODY = { v: 1, gone: true } as const;

/** Fences of all gateways. */
export interface Fences {
  readonly rows: ReadonlyMap<string, LeaseRow>;
  /** Gateways that were fenced off or have left, and have not joined again. */
  readonly gone: readonly string[];
}

/** Returns the precondition that a gateway still has its fence. */
export function fenceCheck({ id, fence }: JoinedGateway): Write {
  return GATEWAY_FENCES.check(id, fence);
}

/** Returns the write by which nobody has a fence any more. */
function goneWrite(id: string, fence: number): Write {
  return GATEWAY_FENCES.putOver(id, fence, GONE_BODY);
}

function isGone(body: unknown): boolean {
  return typeof body === "object" && body !== null && "gone" in body && body.gone === true;
}

/** Returns the writes that bring the version of a fence from one number to another. All in one batch, so nobody sees those between. */
function fenceWrites(id: string, { from, to }: { readonly from: number; readonly to: number }): readonly Write[] {
  const more = Array.from({ length: to - from - 1 }, () => GATEWAY_FENCES.put(id, FENCE_BODY));
  return [GATEWAY_FENCES.putOver(id, from, FENCE_BODY), ...more];
}

function lease(id: string, body: LeaseBody): Write {
  return GATEWAY_LEASES.put(id, body);
}

/** Tells whether a claim's gateway still has the fence of the claim. */
export function isOwned(
  claim: { readonly gateway: string | null; readonly fence: number },
  fences: ReadonlyMap<string, LeaseRow>,
) {
  return claim.gateway !== null && counts(fences.get(claim.gateway), claim.fence);
}
