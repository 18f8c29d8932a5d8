import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import type { JsonSchema } from "../../lib/base/json.ts";
import type { QueryField } from "../route.ts";
import { jsonReply, type Reply } from "./reply.ts";

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 1000;
/** Highest position that a query may name. */
export const MAX_POSITION = 999_999_999_999_999;

/** Query parameter `limit` of a list. */
export const LIMIT_QUERY = countQuery("Maximum number of items", { max: MAX_LIMIT, usual: DEFAULT_LIMIT });

/** Query parameter that is a whole number of 1 to `max`. `usual`: its value where it is absent */
export function countQuery(
  description: string,
  { max, usual }: { readonly max: number; readonly usual: number },
): QueryField<number> {
  return {
    description,
    schema: { type: "integer", minimum: 1, maximum: max, default: usual },
    read: (text, name) => wholeNumber(name, text ?? String(usual), max),
  };
}

/** Query parameter that is one of `choices`. */
export function choiceQuery<T extends string>(
  description: string,
  choices: readonly T[],
): QueryField<T | undefined> {
  return {
    description,
    schema: { type: "string", enum: choices },
    read(text, name) {
      const choice = choices.find((known) => known === text);
      if (text === null || choice !== undefined) return choice;
      throw refuse("invalid_request", `Cannot use this "${name}": it must be one of ${choices.join(", ")}`, {
        param: name,
      });
    },
  };
}

/** Query parameter that is any text. `schema`: what is said of it */
export function textQuery(
  description: string,
  schema: JsonSchema = { type: "string" },
): QueryField<string | undefined> {
  return { description, schema, read: (text) => text ?? undefined };
}

/** Query parameter that is a position in a numbered sequence. `absent`: the position that its absence means */
export function positionQuery(description: string, absent = 0): QueryField<number> {
  return {
    description,
    schema: { type: "integer", minimum: 0, maximum: MAX_POSITION },
    read: (text, name) => positionOf(name, text ?? String(absent)),
  };
}

/** Reads a whole number of 1 to `max` from a query. @throws {HttpError} 400 invalid_request naming the parameter */
export function wholeNumber(name: string, text: string, max: number): number {
  const number = /^\d{1,16}$/.test(text) ? Number(text) : 0;
  if (number >= 1 && number <= max) return number;
  throw refuse("invalid_request", `Cannot use this "${name}": it must be a whole number of 1-${max}`, {
    param: name,
  });
}

/** Reads a position in a numbered sequence, 0 for its start. @throws {HttpError} 400 invalid_request naming the parameter */
export function positionOf(name: string, text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw refuse("invalid_request", `Cannot use this "${name}": it must be a whole number, 0 for the start`, {
    param: name,
  });
}

/** Place of a reader in a numbered sequence, and how the request called it. */
export interface ReaderPlace {
  readonly name: string;
  readonly place: number;
}

/** Returns the place of a reader: by the header `Last-Event-ID`, else by a parameter. Undefined where neither is there. @throws as positionOf */
export function afterOf<T extends string | null>(
  headers: Headers,
  { name, text }: { readonly name: string; readonly text: T },
): ReaderPlace | (T extends string ? never : undefined) {
  const header = headers.get("last-event-id");
  if (header !== null) return { name: "Last-Event-ID", place: positionOf("Last-Event-ID", header) };
  // A text is read, and null alone gives undefined
  if (text === null) return undefined as T extends string ? never : undefined;
  return { name, place: positionOf(name, text) };
}

/** Returns the schema of a list reply (docs/design/http.md "Lists and times"). */
export function listSchema<S extends v.GenericSchema>(item: S) {
  return v.object({
    object: v.literal("list"),
    data: v.array(item),
    has_more: v.boolean(),
    last_id: v.nullable(v.string()),
  });
}

/** Returns a list of items that have an id. `hasMore`: more items follow after the last one. */
export function listReply(items: readonly { readonly id: string }[], hasMore = false): Reply {
  return placedListReply(items, { hasMore, lastId: items.at(-1)?.id ?? null });
}

/** Returns a list of items whose position is not their id. `hasMore`: more items follow after `lastId`. */
export function placedListReply(
  data: readonly unknown[],
  { hasMore, lastId }: { readonly hasMore: boolean; readonly lastId: string | null },
): Reply {
  return jsonReply(200, { object: "list", data, has_more: hasMore, last_id: lastId });
}
