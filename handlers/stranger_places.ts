/** Bounds of `StrangerPlaces`. */
export interface StrangerBounds {
  readonly max: number;
  /** Places of one address. */
  readonly maxEach: number;
}

/**
 * Places for requests whose credentials the gateway does not know, while it looks for them in the database of the cluster. Known callers wait
 * elsewhere, and no address has all places, so that strangers hold nobody up.
 */
export class StrangerPlaces {
  readonly #bounds: StrangerBounds;
  readonly #byAddress = new Map<string, number>();
  #taken = 0;

  constructor(bounds: StrangerBounds) {
    this.#bounds = bounds;
  }

  /**
   * Takes a place.
   * @param address undefined: the server does not say, so that such senders have the bound of all alone
   * @returns a function that gives the place back, to be called once. Undefined when there is none
   */
  take(address: string | undefined): (() => void) | undefined {
    const { max, maxEach } = this.#bounds;
    const own = address === undefined ? 0 : this.#byAddress.get(address) ?? 0;
    if (this.#taken >= max || own >= maxEach) return undefined;
    this.#add(address, 1);
    return () => this.#add(address, -1);
  }

  #add(address: string | undefined, count: 1 | -1): void {
    this.#taken += count;
    if (address === undefined) return;
    const own = (this.#byAddress.get(address) ?? 0) + count;
    if (own === 0) this.#byAddress.delete(address);
    else this.#byAddress.set(address, own);
  }
}
