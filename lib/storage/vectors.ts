/** Vector of a text: where a model places its meaning. Vectors of two models, or of two lengths, cannot be compared. */
export interface TextVector {
  /** Name of the model, with that of its provider */
  readonly model: string;
  readonly values: Float32Array;
}

/** Most numbers of a vector. */
export const MAX_DIMENSIONS = 8192;

/**
 * Returns a copy of the values with the length 1, so that the product of two is the cosine of their angle.
 * @throws {RangeError} for no values, more than 8,192, one that is no finite number, or all zero
 */
export function toUnit(values: Float32Array): Float32Array {
  if (values.length < 1 || values.length > MAX_DIMENSIONS) {
    throw new RangeError(`Cannot use a vector of ${values.length} numbers: it must have 1-${MAX_DIMENSIONS}`);
  }
  const length = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
  if (!Number.isFinite(length) || length === 0) {
    throw new RangeError("Cannot use a vector: its length is no number above 0");
  }
  return values.map((value) => value / length);
}

/** Returns the cosine of the angle between two vectors of length 1, from -1 to 1. */
export function cosineOf(one: Float32Array, other: Float32Array): number {
  let sum = 0;
  for (let index = 0; index < one.length; index++) sum += (one[index] ?? 0) * (other[index] ?? 0);
  return sum;
}

/** The best items of many, by score. */
export class BestItems<T> {
  readonly #limit: number;
  #items: { readonly item: T; readonly score: number }[] = [];
  /** Score that an item must be above while the list is full */
  #least = Number.NEGATIVE_INFINITY;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Takes an item. Of equal scores the first one stays. */
  add(item: T, score: number): void {
    if (score <= this.#least) return;
    this.#items.push({ item, score });
    if (this.#items.length >= this.#limit * 2) this.#cut();
  }

  /** Returns the best items, best first. */
  list(): readonly T[] {
    this.#cut();
    return this.#items.map(({ item }) => item);
  }

  #cut(): void {
    this.#items = this.#items.sort((a, b) => b.score - a.score).slice(0, this.#limit);
    if (this.#items.length === this.#limit) this.#least = this.#items.at(-1)?.score ?? this.#least;
  }
}
