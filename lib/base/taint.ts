/**
 * Origins of outside content, the oldest first, as `web_fetch example.com`: what a run has read of it, or what a record was made from.
 * Empty: none. Source: docs/design/policy.md "Content from outside"
 */
export type Taint = readonly string[];

/** The taint of what no outside content reached. */
export const UNTAINTED: Taint = [];

/** Origins that are named; with more of them the last one says so */
const MAX_ORIGINS = 16;
const MAX_ORIGIN_CHARACTERS = 120;
const MORE = "and others";

/** Returns the origins of several taints, each once. With more than 16 the last one is `and others`. */
export function joinTaints(...taints: readonly (Taint | undefined)[]): Taint {
  const origins = new Set<string>();
  for (const taint of taints) for (const origin of taint ?? UNTAINTED) origins.add(shortened(origin));
  if (origins.size <= MAX_ORIGINS) return [...origins];
  origins.delete(MORE);
  return [...[...origins].slice(0, MAX_ORIGINS - 1), MORE];
}

/** Returns the field `taint` of a record; nothing for a record that no outside content reached. */
export function taintField(taint: Taint): { readonly taint?: string[] } {
  return taint.length === 0 ? {} : { taint: [...taint] };
}

/** Taint of a run at work. It only grows. */
export class RunTaint {
  #origins: Taint;

  /** @param origins what the run inherits: from its parent, its schedule or its conversation */
  constructor(origins: Taint = UNTAINTED) {
    this.#origins = joinTaints(origins);
  }

  get origins(): Taint {
    return this.#origins;
  }

  add(origins: Taint): void {
    this.#origins = joinTaints(this.#origins, origins);
  }
}

/** An origin as text on one line: a name that a page chose may hold anything. */
function shortened(origin: string): string {
  const line = origin.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ").trim();
  return line.length <= MAX_ORIGIN_CHARACTERS ? line : `${line.slice(0, MAX_ORIGIN_CHARACTERS).toWellFormed()}...`;
}
