/** Length of the part of a text that the search looks at first, which no text to find may be shorter than. */
export const MIN_FOUND = 8;
/** As much of the beginning of a longer text is found too, without its rest. It bounds the steps at one place of a text. */
export const MIN_PART = 64;
/** Characters that are looked up at once, and the entries of their table. */
const BLOCK = 3;
const BLOCKS = 0x10000;

/** Place where one of the texts was found, as a whole or at least 64 characters of its beginning. */
export interface Found<T> {
  readonly index: number;
  readonly length: number;
  readonly value: T;
}

/** Texts with a common beginning: `label` and then one of `next`, by the first character of its label. */
interface Branch<T> {
  label: string;
  next: Map<number, Branch<T>> | undefined;
  /** Value of the text that ends here */
  value: T | undefined;
}

/** Way of a text along the branches. */
interface Walk<T> {
  /** Characters that are like those of a text to find */
  readonly reached: number;
  readonly found: { readonly length: number; readonly value: T } | undefined;
  /** True where the text has ended before the one to find */
  readonly isCut: boolean;
}

/**
 * Finds many texts of at least 8 characters at once, the longest of a place first.
 *
 * The time grows with the text that is searched, and not with the number of the texts or their lengths: at one place there are fewer than 64
 * steps, or as many as the found text is long. Source: Wu and Manber, "A fast algorithm for multi-pattern searching", 1994
 */
export class TextFinder<T> {
  /** How far the search may go on behind a block: 0 where it may end the first 8 characters of a text */
  readonly #shifts: Uint8Array = new Uint8Array(BLOCKS).fill(MIN_FOUND - BLOCK + 1);
  readonly #root: Branch<T> = { label: "", next: undefined, value: undefined };

  /** @param texts with their values; of equal ones the first counts, and shorter ones than 8 characters are left out */
  constructor(texts: Iterable<readonly [text: string, value: T]>) {
    for (const [text, value] of texts) {
      if (text.length < MIN_FOUND) continue;
      this.#add(text, value);
      for (let end = BLOCK; end <= MIN_FOUND; end++) {
        const block = blockBefore(text, end);
        this.#shifts[block] = Math.min(this.#shifts[block] ?? 0, MIN_FOUND - end);
      }
    }
  }

  /** Returns the first of the texts at `from` or after it. */
  next(text: string, from: number): Found<T> | undefined {
    const last = text.length - MIN_FOUND;
    for (let index = this.#candidate(text, from); index <= last; index = this.#candidate(text, index + 1)) {
      const { found } = this.#walk(text, index);
      if (found !== undefined) return { index, ...found };
    }
    return undefined;
  }

  /** Returns how many characters of the end may begin one of the texts, after the last whole one. */
  pending(text: string): number {
    for (let at = this.#candidate(text, 0); at < text.length;) {
      const { found, reached, isCut } = this.#walk(text, at);
      if (isCut && reached > 0) return reached;
      at = this.#candidate(text, at + (found?.length ?? 1));
    }
    return 0;
  }

  /** Returns the next place where one of the texts may begin; the last 7 characters may each begin one that is cut off. */
  #candidate(text: string, from: number): number {
    const shifts = this.#shifts;
    for (let end = from + MIN_FOUND; end <= text.length;) {
      const shift = shifts[blockBefore(text, end)] ?? 0;
      if (shift === 0) return end - MIN_FOUND;
      end += shift;
      from = end - MIN_FOUND;
    }
    return from;
  }

  #add(text: string, value: T): void {
    let branch = this.#root;
    for (let at = 0; at < text.length;) {
      const first = text.charCodeAt(at);
      const next = branch.next ??= new Map();
      const child = next.get(first);
      if (child === undefined) {
        next.set(first, { label: text.slice(at), next: undefined, value });
        return;
      }
      const shared = sharedLength(child.label, text, at);
      at += shared;
      branch = child;
      if (shared === child.label.length) continue;
      branch = { label: child.label.slice(0, shared), next: new Map(), value: undefined };
      next.set(first, branch);
      child.label = child.label.slice(shared);
      branch.next?.set(child.label.charCodeAt(0), child);
    }
    branch.value ??= value;
  }

  #walk(text: string, from: number): Walk<T> {
    let branch: Branch<T> | undefined = this.#root;
    let at = from;
    let found: Walk<T>["found"];
    for (;;) {
      const child: Branch<T> | undefined = branch.next?.get(text.charCodeAt(at));
      const shared = child === undefined ? 0 : sharedLength(child.label, text, at);
      at += shared;
      const reached = at - from;
      if (child !== undefined && shared === child.label.length) {
        branch = child;
        if (child.value !== undefined) found = { length: reached, value: child.value };
        continue;
      }
      const isCut = at === text.length && (child !== undefined || branch.next !== undefined);
      if (reached >= MIN_PART && reached > (found?.length ?? 0)) {
        found = { length: reached, value: anyValue(child ?? branch) };
      }
      return { reached, found, isCut };
    }
  }
}

/** Returns the value of a text that begins with this branch. */
function anyValue<T>(branch: Branch<T>): T {
  for (let below = branch;;) {
    if (below.value !== undefined) return below.value;
    const [first] = below.next?.values() ?? [];
    if (first === undefined) throw new TypeError("Each branch leads to the end of a text");
    below = first;
  }
}

function sharedLength(label: string, text: string, at: number): number {
  const most = Math.min(label.length, text.length - at);
  let shared = 0;
  while (shared < most && label.charCodeAt(shared) === text.charCodeAt(at + shared)) shared++;
  return shared;
}

/** Returns the entry of the table for the three characters before a place. */
function blockBefore(text: string, end: number): number {
  const characters = (text.charCodeAt(end - 3) << 14) ^ (text.charCodeAt(end - 2) << 7) ^ text.charCodeAt(end - 1);
  return Math.imul(characters, 0x9e3779b1) >>> 16;
}
