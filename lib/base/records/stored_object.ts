import * as v from "valibot";

/**
 * Property of a parsed record with the fields that its schema does not know: a newer Postern of the same cluster has written them. JSON, and
 * so the wire, leaves the property out; a spread keeps it; and the store writes the fields back (docs/design/storage.md "Mixed versions").
 */
export const UNKNOWN_FIELDS: unique symbol = Symbol("unknown fields");

/** Object that may carry unknown fields. */
interface Carrier {
  readonly [UNKNOWN_FIELDS]?: Readonly<Record<string, unknown>>;
}

/**
 * Schema of a stored object with these entries. What it does not know is kept beside what it parses, see `UNKNOWN_FIELDS`. An object with a part
 * that keeps something has that property too.
 */
export function storedObject<const E extends v.ObjectEntries>(
  entries: E,
): v.GenericSchema<v.InferInput<v.ObjectSchema<E, undefined>>, v.InferOutput<v.ObjectSchema<E, undefined>>> {
  // The transformation uses the names of the entries alone
  const loose = v.looseObject(entries) as unknown as v.GenericSchema<unknown, Readonly<Record<string, unknown>>>;
  const schema = v.pipe(loose, v.transform((value) => apart(value, entries)));
  // Unknown fields stand under a symbol, which no type of the entries names
  return schema as unknown as ReturnType<typeof storedObject<E>>;
}

/** Returns the unknown fields of a parsed record, for a spread into the body that replaces it. */
export function unknownFieldsOf(record: (object & Carrier) | undefined): Readonly<Record<never, never>> {
  const fields = record === undefined ? undefined : record[UNKNOWN_FIELDS];
  return fields === undefined ? {} : { [UNKNOWN_FIELDS]: fields };
}

/** Returns a body as JSON, with the unknown fields of its parts in their places. Undefined for what JSON cannot carry. */
export function toStoredJson(body: unknown): string | undefined {
  return carries(body) ? JSON.stringify(body, putBack) : JSON.stringify(body);
}

function apart(value: Readonly<Record<string, unknown>>, entries: v.ObjectEntries): Readonly<Record<string, unknown>> {
  const names = Object.keys(value);
  if (names.every((name) => Object.hasOwn(entries, name))) {
    return Object.values(value).some(hasCarrier) ? { ...value, [UNKNOWN_FIELDS]: {} } : value;
  }
  const pick = (isKnown: boolean) =>
    Object.fromEntries(
      names.filter((name) => Object.hasOwn(entries, name) === isKnown).map((name) => [name, value[name]]),
    );
  return { ...pick(true), [UNKNOWN_FIELDS]: pick(false) };
}

/** Tells whether a body, a part of it, or an item of a list in it carries unknown fields. */
function carries(body: unknown): boolean {
  if (!isObject(body)) return false;
  if (UNKNOWN_FIELDS in body) return true;
  return !Array.isArray(body) &&
    Object.values(body).some((part) =>
      isObject(part) && (UNKNOWN_FIELDS in part || (Array.isArray(part) && part.some(isCarrier)))
    );
}

/** Tells whether a part carries unknown fields, or an item of a list or a map. */
function hasCarrier(part: unknown): boolean {
  return isCarrier(part) || (isObject(part) && Object.values(part).some(isCarrier));
}

function isCarrier(value: unknown): value is Carrier {
  return isObject(value) && UNKNOWN_FIELDS in value;
}

function putBack(_name: string, value: unknown): unknown {
  return isCarrier(value) ? { ...value[UNKNOWN_FIELDS], ...value } : value;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
