import type { Store } from "../../storage/store.ts";
import { readHead } from "./audit_chain.ts";
import type { ChainPoint } from "./audit_event.ts";
import { AUDIT_CHAINS, type ChainHead, LONE_CHAIN, MAX_OPEN, placeOfHead } from "./chain_records.ts";

/** Newest chains that had ended before a start, which its first records name. */
const MAX_ENDED = 64;
/** Heads that one record names. Those beyond are named by the next. */
export const MAX_NAMED = 16;

/** An open chain with the version of its head. */
export interface OpenChain extends ChainHead {
  readonly chain: string;
  readonly version: number;
}

/**
 * Heads of the other chains of a cluster, as the last look found them, and which of them this gateway's chain has yet to name. Naming
 * them costs no round trip: the looks run beside the appends.
 */
export class OtherChains {
  readonly #store: Store;
  #open: readonly OpenChain[] = [];
  /** Heads that are not named yet, by chain, in the order in which they were found. */
  readonly #unnamed = new Map<string, ChainPoint & { readonly time: string; readonly told: number }>();
  /** Newest positions that were named, of chains that are open. */
  readonly #named = new Map<string, number>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** Reads what was there before a start: the newest chains that have ended, and the chain of a gateway alone. */
  async lookBack(own: string): Promise<void> {
    const found = await this.#store.scan(AUDIT_CHAINS.name, {
      prefix: "ended.",
      order: "created",
      reverse: true,
      limit: MAX_ENDED,
    });
    for (const { key, value } of AUDIT_CHAINS.readable(this.#store, found)) {
      if (placeOfHead(key, value) !== undefined) this.#find(key.slice("ended.".length), value);
    }
    const head = await readHead(this.#store);
    if (head !== undefined && head.seq > 0) {
      this.#unnamed.set(LONE_CHAIN, { chain: LONE_CHAIN, ...head, time: "", told: head.seq });
    }
    await this.look(own);
  }

  /** Reads the heads of the open chains, and once more those of chains that have ended since. */
  async look(own: string): Promise<void> {
    const page = await this.#store.scan(AUDIT_CHAINS.name, { prefix: "open.", order: "created", limit: MAX_OPEN });
    const open = AUDIT_CHAINS.readable(this.#store, page).flatMap(({ key, version, value }) => {
      const chain = placeOfHead(key, value);
      return chain === undefined ? [] : [{ ...value, chain, version }];
    });
    const isOpen = new Set(open.map(({ chain }) => chain));
    const ended = this.#open.filter(({ chain }) => !isOpen.has(chain) && chain !== own);
    this.#open = open;
    for (const head of open) if (head.chain !== own) this.#find(head.chain, head);
    for (const { chain } of ended) {
      const last = await AUDIT_CHAINS.read(this.#store, `ended.${chain}`);
      if (last !== undefined) this.#find(chain, last.value);
      this.#named.delete(chain);
    }
  }

  /** Returns the chains that were open at the last look, the oldest first. */
  open(): readonly OpenChain[] {
    return this.#open;
  }

  /**
   * Returns the heads that the next record names: those that have waited longest.
   * @param since ISO 8601: chains whose newest record is older may soon be forgotten, and are not named
   */
  unnamed(since: string): readonly ChainPoint[] {
    for (const [chain, { time }] of this.#unnamed) if (time !== "" && time < since) this.#unnamed.delete(chain);
    return [...this.#unnamed.values()].slice(0, MAX_NAMED).map(({ chain, seq, hash }) => ({ chain, seq, hash }));
  }

  /** Tells whether a head waits to be named whose chain has told something new. */
  hasNews(): boolean {
    return [...this.#unnamed.values()].some(({ chain, told }) => told > (this.#named.get(chain) ?? 0));
  }

  /** Takes note of heads that a record on disk names. */
  named(heads: readonly ChainPoint[]): void {
    for (const { chain, seq } of heads) {
      if (this.#unnamed.get(chain)?.seq === seq) this.#unnamed.delete(chain);
      if (this.#open.some((open) => open.chain === chain)) this.#named.set(chain, seq);
    }
  }

  #find(chain: string, { seq, hash, time, told }: ChainHead): void {
    if (seq <= (this.#named.get(chain) ?? 0)) return;
    this.#unnamed.set(chain, { chain, seq, hash, time, told });
  }
}
