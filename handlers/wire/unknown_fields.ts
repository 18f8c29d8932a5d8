import type { Fields } from "../../lib/base/join_fields.ts";

/** Fields of a request's body that the gateway does not know. */
export interface Unknown {
  /** Names of fields that are not copied, each once */
  readonly ignored: string[];
  /** Names of fields that go on to the model, each once */
  readonly passed: string[];
  /** true: every unknown field goes on to the model */
  readonly plain: boolean;
}

/**
 * Sorts the unknown fields of an object into passed and ignored ones.
 * @param always names of fields that go on to the model in either mode
 * @returns the fields that go on to the model; undefined when there is none
 */
export function sortUnknownFields(
  fields: object,
  known: ReadonlySet<string>,
  place: string,
  unknown: Unknown,
  always: ReadonlySet<string> = NO_FIELDS,
): Fields | undefined {
  let kept: [string, unknown][] | undefined;
  for (const key in fields) {
    // The key was just listed on this object
    const value = (fields as Record<string, unknown>)[key];
    if (known.has(key) || value === null || value === undefined) continue;
    const isKept = unknown.plain || always.has(key);
    if (isKept) (kept ??= []).push([key, value]);
    addOnce(isKept ? unknown.passed : unknown.ignored, `${place}.${key}`);
  }
  return kept && Object.fromEntries(kept);
}

const NO_FIELDS: ReadonlySet<string> = new Set();

/** Adds a name to a list that does not have it. A list, not a set: it is nearly always empty, and bounded. */
export function addOnce(names: string[], name: string): void {
  if (names.length < MAX_IGNORED && !names.includes(name)) names.push(name);
}

/** Most names that are kept; the header shows fewer */
const MAX_IGNORED = 100;

/** Returns the unknown fields of an object with a `function` in it, as `extra`. */
export function withFunction(own: Fields | undefined, inner: Fields | undefined): { readonly extra?: Fields } {
  if (inner === undefined) return own === undefined ? {} : { extra: own };
  return { extra: { ...own, function: inner } };
}
