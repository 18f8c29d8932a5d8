import { isRecord } from "./json.ts";

/** Fields of somebody else's JSON object, by name. */
export type Fields = Readonly<Record<string, unknown>>;

/** Texts that name a thing: a later one replaces the earlier one. */
const NAMES: ReadonlySet<string> = new Set(["type", "id", "format", "role", "object", "status"]);

/**
 * Adds the fields of one part of a stream to those before it, as clients of the chat-completions format do: texts and lists are
 * joined, items of a list with the same `index` are one item, objects are joined field by field, and any other value replaces the
 * earlier one.
 * @param options.texts `replace`: a later text replaces the earlier one too
 */
export function joinFields(
  before: Fields | undefined,
  part: Fields,
  { texts }: { readonly texts: "join" | "replace" } = { texts: "join" },
): Fields {
  if (before === undefined) return part;
  const joined = new Map(Object.entries(before));
  for (const [name, value] of Object.entries(part)) {
    const keepsBoth = texts === "join" && !NAMES.has(name);
    joined.set(name, joinValues(joined.get(name), value, keepsBoth));
  }
  return Object.fromEntries(joined);
}

function joinValues(before: unknown, value: unknown, joinsTexts: boolean): unknown {
  if (typeof before === "string" && typeof value === "string") return joinsTexts ? before + value : value;
  if (Array.isArray(before) && Array.isArray(value)) return joinLists(before, value);
  return isRecord(before) && isRecord(value) ? joinFields(before, value) : value;
}

function joinLists(before: readonly unknown[], items: readonly unknown[]): readonly unknown[] {
  const joined = [...before];
  for (const item of items) {
    const place = indexOf(item);
    const at = place === undefined ? -1 : joined.findLastIndex((known) => isSameItem(known, item, place));
    if (at < 0) joined.push(item);
    // Both are objects with an index
    else joined[at] = joinFields(joined[at] as Fields, item as Fields);
  }
  return joined;
}

function isSameItem(known: unknown, item: unknown, place: number): boolean {
  return indexOf(known) === place && isRecord(known) && isRecord(item) && known["type"] === item["type"];
}

function indexOf(item: unknown): number | undefined {
  const index = isRecord(item) ? item["index"] : undefined;
  return typeof index === "number" ? index : undefined;
}
