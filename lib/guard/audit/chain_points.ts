import type { AuditHead } from "./audit_chain.ts";
import type { ChainPoint } from "./audit_event.ts";

/** Newest hashes that are kept for the records that name them: of a chain, and of all chains. */
const MAX_HASHES = 2_048;
const MAX_ALL_HASHES = 131_072;

/** Hashes of the newest records that a walk has read, by chain and position. The chains that were read longest ago go first. */
export class NewestHashes {
  readonly #chains = new Map<string, Map<number, string>>();
  #count = 0;

  /** Returns the hash of a record. Undefined for one that was not read, or is forgotten. */
  at(chain: string, seq: number): string | undefined {
    return this.#chains.get(chain)?.get(seq);
  }

  keep(chain: string, { seq, hash }: AuditHead): void {
    const hashes = this.#chains.get(chain) ?? new Map<number, string>();
    // The chain that was read last goes to the end
    this.#chains.delete(chain);
    this.#chains.set(chain, hashes);
    if (!hashes.has(seq)) this.#count++;
    hashes.set(seq, hash);
    if (hashes.size > MAX_HASHES && hashes.delete(firstKey(hashes) ?? seq)) this.#count--;
    const oldest = this.#count > MAX_ALL_HASHES ? firstKey(this.#chains) : undefined;
    if (oldest === undefined) return;
    this.#count -= this.#chains.get(oldest)?.size ?? 0;
    this.#chains.delete(oldest);
  }
}

function firstKey<K>(map: ReadonlyMap<K, unknown>): K | undefined {
  return map.keys().next().value;
}

/** Most points that one record can have, so that a forged one does not hold up a verification. */
const MAX_POINTS = 2_000;

/** Returns the places that a record names. The record has its hash, and may still be one that somebody forged. */
export function pointsOf(value: unknown): readonly ChainPoint[] {
  if (!Array.isArray(value)) return [];
  return value.slice(0, MAX_POINTS).filter((point: unknown): point is ChainPoint => {
    if (typeof point !== "object" || point === null) return false;
    const { chain, seq, hash } = point as Readonly<Record<string, unknown>>; // an object, of which each field is checked
    return typeof chain === "string" && chain.length <= 100 && Number.isSafeInteger(seq) && Number(seq) >= 0 &&
      typeof hash === "string";
  });
}

/** Returns the place up to which a gateway alone has forgotten its chain. */
export function toPoint(
  chain: string,
  { through, through_hash }: { readonly through: number; readonly through_hash: string },
) {
  return { chain, seq: through, hash: through_hash };
}

/** Returns the place that is further in its chain. */
export function later(a: ChainPoint | undefined, b: ChainPoint): ChainPoint {
  return a !== undefined && a.seq > b.seq ? a : b;
}
