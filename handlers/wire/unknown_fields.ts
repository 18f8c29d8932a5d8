import type { Fields } from "../../lib/base/join_fields.ts";

/** Fields of a request's body that the gateway does not know. */
export interface Unknown {
  /** Names of what is not copied, each once */
  readonly ignored: string[];
  /** Names of what goes on to the model, each once */
  readonly passed: string[];
  /** All of it goes on to the model */
  readonly plain: boolean;
}

/**
 * Names the fields that are not known.
 * @param always those that go on to the model in either mode
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

/** A list, not a set: nearly always empty, and short where it is not. */
export function addOnce(names: string[], name: string): void {
  if (names.length < MAX_IGNORED && !names.includes(name)) names.push(name);
}

/** No header tells more */
const MAX_IGNORED = 100;

/** Fields beside the known ones of an object with a `function` in it. */
export function withFunction(own: Fields | undefined, inner: Fields | undefined): { readonly extra?: Fields } {
  if (inner === undefined) return own === undefined ? {} : { extra: own };
  return { extra: { ...own, function: inner } };
}
