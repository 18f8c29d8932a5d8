import * as v from "valibot";
import type { SearchProblem, SearchReply, SearchResult, WebAnswer } from "./search_provider.ts";

/** Entries of one reply that are looked at. */
const MAX_ENTRIES = 200;
/** Characters of an error that are kept. */
const MAX_SAID = 300;

/** Returns the JSON of a reply in the wanted form. undefined when the reply is no JSON or has another form. */
export function jsonOfReply<T>({ text }: SearchReply, schema: v.GenericSchema<unknown, T>): T | undefined {
  try {
    const parsed = v.safeParse(schema, JSON.parse(text));
    return parsed.success ? parsed.output : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reads the entries of a list, each by itself: one that is broken is left out.
 * @returns `changed` for a list with entries of which none can be read
 */
export function readList<T>(
  list: readonly unknown[],
  entry: v.GenericSchema<unknown, T>,
  to: (found: T) => SearchResult,
): WebAnswer {
  const results = list.slice(0, MAX_ENTRIES).flatMap((item) => {
    const parsed = v.safeParse(entry, item);
    return parsed.success ? [to(parsed.output)] : [];
  });
  if (results.length === 0 && list.length > 0) return { kind: "failed", problem: "changed", says: "" };
  return { kind: "results", results };
}

/**
 * Returns what a reply with an error means, by its status and the provider's own code. undefined for a reply of status 200 that is no
 * error object.
 * @param keyCodes codes of errors that mean a refused key, where the status does not say so
 */
export function failedBy(
  reply: SearchReply,
  { keyCodes = [] }: { readonly keyCodes?: readonly string[] } = {},
): Extract<WebAnswer, { kind: "failed" }> | undefined {
  const { code, says, isError } = errorOf(reply);
  if (reply.status === 200 && !isError) return undefined;
  const problem = keyCodes.includes(code) ? "key" : problemOf(reply.status);
  return { kind: "failed", problem, says };
}

function problemOf(status: number): SearchProblem {
  if (status === 401 || status === 403) return "key";
  if (status === 402 || status === 429) return "quota";
  return status >= 500 ? "unavailable" : "refused";
}

/** Reads the error of a reply, in any of the forms that providers use: a text, an object, or fields of the body itself. */
function errorOf(reply: SearchReply): { readonly code: string; readonly says: string; readonly isError: boolean } {
  const body = jsonOfReply(reply, v.looseObject({ error: v.optional(v.unknown()) }));
  const error = body?.error;
  const isError = error !== undefined && error !== null && error !== "";
  const inner = typeof error === "object" && error !== null ? error : body ?? {};
  const fields = inner as Readonly<Record<string, unknown>>; // an object of JSON
  const texts = [typeof error === "string" ? error : "", fields.message, fields.readableMessage, fields.detail];
  const says = texts.find((text): text is string => typeof text === "string" && text !== "") ?? "";
  return { code: typeof fields.code === "string" ? fields.code : "", says: says.slice(0, MAX_SAID), isError };
}
