import type { RequestContext } from "../route.ts";
import { httpError } from "./error_codes.ts";

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 1000;

/** How `limit` of a list is described. */
export const LIMIT_QUERY = `How many, 1-${MAX_LIMIT}. Default ${DEFAULT_LIMIT}`;

/** The query's `limit`. @throws {HttpError} 400 invalid_request for anything but a whole number of 1-1000 */
export function limitOf({ query }: RequestContext): number {
  return wholeNumber("limit", query.get("limit") ?? String(DEFAULT_LIMIT), MAX_LIMIT);
}

/** A whole number of 1 to `max`, from a query. @throws {HttpError} 400 invalid_request naming the parameter */
export function wholeNumber(name: string, text: string, max: number): number {
  const number = /^\d{1,16}$/.test(text) ? Number(text) : 0;
  if (number >= 1 && number <= max) return number;
  throw httpError("invalid_request", `Cannot use this "${name}": it must be a whole number of 1-${max}`, {
    param: name,
  });
}

/** A place in a numbered sequence, 0 for its start. @throws {HttpError} 400 invalid_request naming the parameter */
export function positionOf(name: string, text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw httpError("invalid_request", `Cannot use this "${name}": it must be a whole number, 0 for the start`, {
    param: name,
  });
}
