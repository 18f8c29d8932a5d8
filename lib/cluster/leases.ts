import { readable, type ReadRecord } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import { GATEWAY_FENCES, GATEWAY_LEASES, type LeaseBody, parseLease } from "./cluster_records.ts";
import { counts, fencedRow, joined, type LeaseRow, type LeaseTerms, renewed } from "./ownership.ts";

/** Place of the leases: a store on a connection of its own, and the clock of the database. */
export interface LeaseDatabase {
  /** Store whose connection nothing else uses, so that no other work delays a heartbeat. */
  readonly store: Pick<Store, "get" | "scan" | "batch" | "unreadable">;
  /** Returns the time by the database's clock, in ms since the epoch. */
  now(): Promise<number>;
}

/** Lease of a gateway as others see it. */
export interface GatewayView extends LeaseBody {
  readonly id: string;
  /** Milliseconds until the lease runs out, by the database's clock; negative when it has. */
  readonly leftMs: number;
}

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

  constructor(database: LeaseDatabase, terms: LeaseTerms) {
    this.#database = database;
    this.#terms = terms;
  }

  /** Joins, also after the gateway was fenced off. @returns the new fence */
  async join(id: string, about: LeaseBody["about"]): Promise<number> {
    const { store } = this.#database;
    for (;;) {
      const now = await this.#database.now();
      const version = (await store.get(GATEWAY_FENCES, id))?.version ?? 0;
      const row = joined(version === 0 ? undefined : { fence: version, until: 0 }, now, this.#terms);
      const isJoined = await store.batch([
        fenceWrite(id, version),
        lease(id, { v: 1, ...row, about }),
      ]);
      if (isJoined) return row.fence;
    }
  }

  /** @returns false when others have fenced the gateway off */
  async renew({ id, fence }: JoinedGateway, about: LeaseBody["about"]): Promise<boolean> {
    const now = await this.#database.now();
    const row = renewed({ fence, until: 0 }, { fence, now, leaseMs: this.#terms.leaseMs });
    if (row === undefined) return false;
    return await this.#database.store.batch([fenceCheck({ id, fence }), lease(id, { v: 1, ...row, about })]);
  }

  /** Ends the lease of a gateway, so that others may claim its runs at once. */
  async leave({ id, fence }: JoinedGateway): Promise<void> {
    await this.#database.store.batch([
      fenceCheck({ id, fence }),
      { op: "delete", collection: GATEWAY_LEASES, key: id },
      { op: "delete", collection: GATEWAY_FENCES, key: id },
    ]);
  }

  /**
   * Fences off the gateways whose leases have run out. Call it only when `mayTakeOver` says so.
   * @returns their ids
   */
  async fenceOff(own: JoinedGateway): Promise<readonly string[]> {
    const off: string[] = [];
    const now = await this.#database.now();
    for (const { key: id, version, value: { fence, until } } of await this.#rows()) {
      const next = id === own.id ? undefined : fencedRow({ fence, until }, now);
      if (next === undefined) continue;
      const isFenced = await this.#database.store.batch([
        fenceCheck(own),
        // Another version: the gateway has renewed its lease meanwhile
        { op: "check", collection: GATEWAY_LEASES, key: id, version },
        { op: "delete", collection: GATEWAY_LEASES, key: id },
        { op: "putIf", collection: GATEWAY_FENCES, key: id, version: fence, body: FENCE_BODY },
      ]);
      if (isFenced) off.push(id);
    }
    return off;
  }

  /** Returns the gateways that have a lease, with what is left of it. */
  async list(): Promise<readonly GatewayView[]> {
    const now = await this.#database.now();
    return (await this.#rows()).map(({ key, value }) => ({ id: key, ...value, leftMs: value.until - now }));
  }

  /** Returns the rows of some gateways by their ids, as far as `counts` asks for them. */
  async fences(ids: Iterable<string>): Promise<ReadonlyMap<string, LeaseRow>> {
    const { store } = this.#database;
    const found = await Promise.all(
      [...new Set(ids)].map(async (id) => [id, await store.get(GATEWAY_FENCES, id)] as const),
    );
    return new Map(
      found.flatMap(([id, stored]) => stored === undefined ? [] : [[id, { fence: stored.version, until: 0 }]]),
    );
  }

  async #rows(): Promise<readonly ReadRecord<LeaseBody>[]> {
    const { store } = this.#database;
    return readable(store, GATEWAY_LEASES, await store.scan(GATEWAY_LEASES, { limit: MAX_GATEWAYS }), parseLease);
  }
}

/** Gateways of one cluster. */
const MAX_GATEWAYS = 1_000;
const FENCE_BODY = { v: 1 } as const;

/** Returns the precondition that a gateway still has its fence. */
export function fenceCheck({ id, fence }: JoinedGateway): Write {
  return { op: "check", collection: GATEWAY_FENCES, key: id, version: fence };
}

function fenceWrite(id: string, version: number): Write {
  const place = { collection: GATEWAY_FENCES, key: id, body: FENCE_BODY };
  return version === 0 ? { op: "insert", ...place } : { op: "putIf", ...place, version };
}

function lease(id: string, body: LeaseBody): Write {
  return { op: "put", collection: GATEWAY_LEASES, key: id, body };
}

/** Tells whether a claim's gateway still has the fence of the claim. */
export function isOwned(
  claim: { readonly gateway: string | null; readonly fence: number },
  fences: ReadonlyMap<string, LeaseRow>,
) {
  return claim.gateway !== null && counts(fences.get(claim.gateway), claim.fence);
}
