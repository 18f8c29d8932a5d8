import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import type { RequestContext, RouteParameter } from "../route.ts";
import { jsonReply } from "./reply.ts";

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 1000;
/** Highest position that a query may name. */
export const MAX_POSITION = 999_999_999_999_999;

/** Describes `limit` of a list. */
export const LIMIT_QUERY: RouteParameter = {
  description: "Maximum number of items",
  schema: { type: "integer", minimum: 1, maximum: MAX_LIMIT, default: DEFAULT_LIMIT },
};

/** Describes a query parameter that is one of `choices`, see `choiceOf`. */
export function choiceQuery(description: string, choices: readonly string[]): RouteParameter {
  return { description, schema: { type: "string", enum: choices } };
}

/** Describes a query parameter that is any text. */
export function textQuery(description: string): RouteParameter {
  return { description, schema: { type: "string" } };
}

/** Describes a query parameter that is a position in a numbered sequence, see `positionOf`. */
export function positionQuery(description: string): RouteParameter {
  return { description, schema: { type: "integer", minimum: 0, maximum: MAX_POSITION } };
}

/** Reads the query's `limit`. @throws {HttpError} 400 invalid_request for anything but a whole number of 1-1000 */
export function limitOf({ query }: RequestContext): number {
  return wholeNumber("limit", query.get("limit") ?? String(DEFAULT_LIMIT), MAX_LIMIT);
}

/** Reads the part of a list that a query names: up to `limit` items that come after the id `after`. @throws {HttpError} see `limitOf` */
export function pageOf(context: RequestContext): { readonly limit: number; readonly after: string | undefined } {
  return { limit: limitOf(context), after: context.query.get("after") ?? undefined };
}

/** Reads the query parameter `name`; undefined without one. @throws {HttpError} 400 invalid_request for anything but one of `choices` */
export function choiceOf<T extends string>(
  { query }: RequestContext,
  name: string,
  choices: readonly T[],
): T | undefined {
  const asked = query.get(name);
  const choice = choices.find((known) => known === asked);
  if (asked === null || choice !== undefined) return choice;
  throw refuse("invalid_request", `Cannot use this "${name}": it must be one of ${choices.join(", ")}`, {
    param: name,
  });
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

/** Returns the schema of a list reply (docs/design/http.md "Lists and times"). */
export function listSchema<S extends v.GenericSchema>(item: S) {
  return v.object({
    object: v.literal("list"),
    data: v.array(item),
    has_more: v.boolean(),
    last_id: v.nullable(v.string()),
  });
}

/** Replies with a list of items that have an id. `hasMore`: more items follow after the last one. */
export function listReply(
  context: RequestContext,
  items: readonly { readonly id: string }[],
  hasMore = false,
): Response {
  return placedListReply(context, items, { hasMore, lastId: items.at(-1)?.id ?? null });
}

/** Replies with a list of items whose position is not their id. `hasMore`: more items follow after `lastId`. */
export function placedListReply(
  context: RequestContext,
  data: readonly unknown[],
  { hasMore, lastId }: { readonly hasMore: boolean; readonly lastId: string | null },
): Response {
  return jsonReply(context, 200, { object: "list", data, has_more: hasMore, last_id: lastId });
}
