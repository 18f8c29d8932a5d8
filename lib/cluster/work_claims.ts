import { readable, readRecord } from "../storage/read_records.ts";
import type { Store, Stored, Write } from "../storage/store.ts";
import { fenceCheck, isOwned, type JoinedGateway, type Leases } from "./leases.ts";
import { type Claim, mayClaim } from "./ownership.ts";

/** Owner of a piece of work: a gateway with the fence that it had. Null: nobody has claimed it. */
export interface ClaimedBy {
  readonly gateway: string | null;
  readonly fence: number;
}

/** Open work with its record. */
export interface OpenWork<T> {
  readonly id: string;
  readonly version: number;
  readonly body: T;
}

/** Rules of one look for work to claim. */
export interface ClaimRules<T> {
  /**
   * True: looks for the work of gateways that are gone too, and for work that this gateway owns without knowing it, as after an answer that was
   * lost. False: for free work alone, after news of some.
   */
  readonly isWhole: boolean;
  /** Further names of owners that a whole look reads the work of: names of no gateway. Default: none */
  readonly also?: readonly string[];
  /** Tells whether this gateway works on it, or ends work on it that was lost: it is not claimed then. */
  readonly isKnown: (id: string) => boolean;
  /** Tells whether this gateway has room for free work, after so many claims of this look. Work without room is asked again after each claim. */
  readonly hasRoom: (work: OpenWork<T>, claimed: number) => boolean;
  /**
   * Tells whether this gateway has no room at all after so many claims of this look. While it has some, a whole look goes on behind the first
   * 1,000 free pieces. Default: it reads those alone
   */
  readonly isFull?: (claimed: number) => boolean;
  /** Returns more writes for the batch that claims free work. Undefined: the work cannot begin yet. Called in the order of the work. Default: none */
  readonly more?: (work: OpenWork<T>) => Promise<readonly Write[] | undefined>;
  /** Receives work that stays free, in the order of the work. */
  readonly onLeft?: (work: OpenWork<T>) => void;
}

/** Work that one look found. */
export interface LookedAt<T> {
  /** Work that is this gateway's now, and that it did not know. */
  readonly claimed: readonly OpenWork<T>[];
  /** Work that was this gateway's before, with the versions of its records. */
  readonly own: readonly OpenWork<T>[];
  /** Number of free pieces beyond those that the look has read. Undefined: nobody has counted them */
  readonly beyond: number | undefined;
}

/** Most records of one kind that a look reads. Those beyond wait for the next look. */
const MAX_LOOKED_AT = 1_000;
/** Free pieces that a look after news reads. */
const MAX_AFTER_NEWS = 50;
/** Tries to claim that go to the database together. */
const TRIES_AT_ONCE = 16;
/** Most batches of one look that do not hold: others are faster. */
const MAX_MISSES = 100;
/** Whole looks from one search for strays to the next: work whose gateway has no row, or has joined again since and has no room. */
const LOOKS_PER_SEARCH = 30;

/** Batches by which work is given back at the same time. */
const GIVEN_AT_ONCE = 50;
/** Value of the indexed field "gateway" for work that nobody owns. */
const NOBODY = "";

/** Claims of one kind of work: a record for each open piece, which names the gateway that owns it. */
export class WorkClaims<T extends ClaimedBy> {
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #collection: string;
  readonly #parse: (body: unknown) => T;
  readonly #toClaimed: (body: T) => T;
  /** Whole looks so far. */
  #looks = 0;
  /** Piece of free work up to which the last look has read that went on behind the first 1,000. */
  #readTo: string | undefined = undefined;
  /** Place in the records where the last search for strays ended. */
  #searched: string | undefined = undefined;

  constructor({ store, leases, collection, parse, toClaimed = (body) => body }: {
    readonly store: Store;
    readonly leases: Leases;
    readonly collection: string;
    readonly parse: (body: unknown) => T;
    /** Returns the record of work that this gateway claims, beside its owner. Default: as it was */
    readonly toClaimed?: (body: T) => T;
  }) {
    this.#toClaimed = toClaimed;
    this.#store = store;
    this.#leases = leases;
    this.#collection = collection;
    this.#parse = parse;
    leases.onForget(async (gateway) => (await this.#ownedBy(gateway, 1)).length > 0);
  }

  /** Claims work that nobody owns: that of gateways that are gone first, then the oldest. */
  async claim(own: JoinedGateway, rules: ClaimRules<T>): Promise<LookedAt<T>> {
    const { isWhole, also = [], isKnown, isFull, onLeft } = rules;
    const fences = isWhole ? await this.#leases.allFences() : { rows: new Map(), gone: [] };
    const { found, beyond, lastFree } = await this.#find(own, { isWhole, gone: [...fences.gone, ...also] });
    const claimed: OpenWork<T>[] = [];
    const known: OpenWork<T>[] = [];
    const free: OpenWork<T>[] = [];
    for (const work of found.values()) {
      const { id, body } = work;
      if (body.gateway !== own.id || body.fence !== own.fence) {
        if (mayClaim(toClaim(body), (gateway) => fences.rows.get(gateway), isKnown(id))) free.push(work);
      } else if (isKnown(id)) known.push(work);
      // The run may have ended since the page was read: it has no claim then, and the write does not hold
      else if (await this.#write(work, own)) claimed.push(work);
    }
    await this.#claimFree(own, { free, claimed, rules });
    let further = 0;
    if (lastFree !== undefined && isFull?.(claimed.length) === false) {
      const page = (await this.#readOn(lastFree)).filter(({ id }) => !found.has(id));
      further = page.length;
      const claimable = page.filter(({ id }) => !isKnown(id));
      await this.#claimFree(own, { free: claimable, claimed, rules });
      free.push(...claimable);
    }
    const isClaimed = new Set(claimed);
    for (const work of free) if (!isClaimed.has(work)) onLeft?.(work);
    return { claimed, own: known, beyond: beyond && Math.max(0, beyond - further) };
  }

  /** Claims free work in its order, while there is room. Work that cannot begin yet is passed over. */
  async #claimFree(own: JoinedGateway, { free, claimed, rules: { hasRoom, more } }: {
    readonly free: readonly OpenWork<T>[];
    readonly claimed: OpenWork<T>[];
    readonly rules: Pick<ClaimRules<T>, "hasRoom" | "more">;
  }): Promise<void> {
    const isOver = new Set<OpenWork<T>>();
    /** True: some work could not begin, so more is asked at once than there is room for. */
    let hasRefused = false;
    for (let misses = 0; misses < MAX_MISSES;) {
      const asked: OpenWork<T>[] = [];
      for (const work of free) {
        if (asked.length === TRIES_AT_ONCE) break;
        const taken = hasRefused ? claimed.length : claimed.length + asked.length;
        if (!isOver.has(work) && hasRoom(work, taken)) asked.push(work);
      }
      if (asked.length === 0) return;
      const answers = await Promise.all(asked.map(async (work) => ({ work, writes: await more?.(work) })));
      const tried: { readonly work: OpenWork<T>; readonly writes: readonly Write[] }[] = [];
      for (const { work, writes = more === undefined ? [] : undefined } of answers) {
        if (writes === undefined) {
          hasRefused = true;
          isOver.add(work);
        } else if (hasRoom(work, claimed.length + tried.length)) tried.push({ work, writes });
      }
      const won = await Promise.all(tried.map(({ work, writes }) => this.#write(work, own, writes)));
      for (const [index, { work }] of tried.entries()) {
        isOver.add(work);
        if (won[index] === true) claimed.push(work);
        else misses++;
      }
      if (!asked.some((work) => isOver.has(work))) return;
    }
  }

  /** Claims one piece of work, if nobody owns it. @returns undefined when others do, or when it has ended */
  async claimOne(id: string, own: JoinedGateway): Promise<OpenWork<T> | undefined> {
    const found = await readRecord(this.#store, this.#collection, id, this.#parse);
    if (found === undefined) return undefined;
    const { value: body, version } = found;
    if (isOwned(body, await this.#leases.fences(body.gateway === null ? [] : [body.gateway]))) return undefined;
    const work = { id, version, body };
    return await this.#write(work, own) ? work : undefined;
  }

  /** Gives back all that a gateway owns under its fence, so that others may claim it at once. */
  async giveBack(own: JoinedGateway): Promise<void> {
    for (let page = await this.#ownedBy(own.id); page.length > 0; page = await this.#ownedBy(own.id)) {
      const owned = page.filter(({ body }) => body.fence === own.fence);
      let given = 0;
      for (let at = 0; at < owned.length; at += GIVEN_AT_ONCE) {
        const writes = owned.slice(at, at + GIVEN_AT_ONCE).map(({ id, version, body }) =>
          this.#store.batch([
            fenceCheck(own),
            { op: "putIf", collection: this.#collection, key: id, version, body: { ...body, gateway: null, fence: 0 } },
          ])
        );
        given += (await Promise.all(writes)).filter((isGiven) => isGiven).length;
      }
      // The rest has another fence, or another gateway was faster
      if (given === 0 || page.length < MAX_LOOKED_AT) return;
    }
  }

  /** Returns the work that a look is about, each piece once, the number of free pieces beyond, and the last free one that was read before those. */
  async #find(
    own: JoinedGateway,
    { isWhole, gone }: { readonly isWhole: boolean; readonly gone: readonly string[] },
  ): Promise<{
    readonly found: ReadonlyMap<string, OpenWork<T>>;
    readonly beyond: number | undefined;
    readonly lastFree: string | undefined;
  }> {
    const found = new Map<string, OpenWork<T>>();
    const add = (work: OpenWork<T>) => void found.set(work.id, work);
    if (isWhole) {
      for (const gateway of [own.id, ...gone]) (await this.#ownedBy(gateway)).forEach(add);
      if (this.#looks++ % LOOKS_PER_SEARCH === 0) (await this.#strays()).forEach(add);
    }
    const limit = isWhole ? MAX_LOOKED_AT : MAX_AFTER_NEWS;
    const free = await this.#ownedBy(NOBODY, limit);
    free.forEach(add);
    if (free.length < limit) return { found, beyond: 0, lastFree: undefined };
    if (!isWhole) return { found, beyond: undefined, lastFree: undefined };
    const all = await this.#store.count(this.#collection, { field: "gateway", value: NOBODY });
    return { found, beyond: Math.max(0, all - free.length), lastFree: free.at(-1)?.id };
  }

  /** Returns a page of free work behind a piece, the next one at each call. */
  async #readOn(lastFree: string): Promise<readonly OpenWork<T>[]> {
    const page = await this.#ownedBy(NOBODY, MAX_LOOKED_AT, this.#readTo ?? lastFree);
    this.#readTo = page.length < MAX_LOOKED_AT ? undefined : page.at(-1)?.id;
    return page;
  }

  /** Returns the oldest work of a gateway. @param after the piece behind which it begins. Default: from the oldest on */
  async #ownedBy(gateway: string, limit = MAX_LOOKED_AT, after?: string): Promise<readonly OpenWork<T>[]> {
    return this.#toWork(
      await this.#store.scan(this.#collection, {
        ...{ order: "created", where: { field: "gateway", value: gateway }, limit },
        ...after === undefined ? {} : { after },
      }),
    );
  }

  /** Returns a page of all open work, the next one at each call. */
  async #strays(): Promise<readonly OpenWork<T>[]> {
    const after = this.#searched;
    const page = await this.#store.scan(this.#collection, {
      ...{ limit: MAX_LOOKED_AT, ...after === undefined ? {} : { after } },
    });
    this.#searched = page.length < MAX_LOOKED_AT ? undefined : page.at(-1)?.key;
    return this.#toWork(page);
  }

  #toWork(page: readonly Stored[]): readonly OpenWork<T>[] {
    return readable(this.#store, this.#collection, page, this.#parse)
      .map(({ key, version, value }) => ({ id: key, version, body: value }));
  }

  #write({ id, version, body }: OpenWork<T>, own: JoinedGateway, more: readonly Write[] = []): Promise<boolean> {
    const claimed = { ...this.#toClaimed(body), gateway: own.id, fence: own.fence };
    return this.#store.batch([
      fenceCheck(own),
      { op: "putIf", collection: this.#collection, key: id, version, body: claimed },
      ...more,
    ]);
  }
}

function toClaim({ gateway, fence }: ClaimedBy): Claim | undefined {
  return gateway === null ? undefined : { gateway, fence };
}
