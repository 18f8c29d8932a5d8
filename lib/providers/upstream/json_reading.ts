import type { Fields } from "../../base/join_fields.ts";
import { isRecord } from "../../base/json.ts";
import type { Usage } from "../../base/records/usage.ts";

/** A JSON object whose members are not known yet. */
export type JsonRecord = { readonly [key: string]: unknown };

/** Returns the value when it is a string that is not empty. */
export function stringOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Returns the value when it is a count: a whole number from 0. */
export function countOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** Returns the fields with a value that are not among `known`; undefined when there is none. */
export function fieldsBeside(record: JsonRecord, known: ReadonlySet<string>): Fields | undefined {
  let names: string[] | undefined;
  for (const name in record) {
    const value = record[name];
    if (value !== null && value !== undefined && !known.has(name)) (names ??= []).push(name);
  }
  return names && Object.fromEntries(names.map((name) => [name, record[name]]));
}

/**
 * Reads usage in the words of the chat-completions format, with everything that the vendor says beside the counts. Undefined when a
 * count is missing. A missing total is the sum.
 */
export function usageOf(value: unknown): Usage | undefined {
  if (!isRecord(value)) return undefined;
  const prompt = countOf(value["prompt_tokens"]);
  const completion = countOf(value["completion_tokens"]);
  if (prompt === undefined || completion === undefined) return undefined;
  const usage: Mutable<Usage> = {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: countOf(value["total_tokens"]) ?? prompt + completion,
  };
  let vendor: Record<string, unknown> | undefined;
  for (const name in value) {
    const given = value[name];
    if (given === null || COUNTS.has(name)) continue;
    const isDetails = name === "prompt_tokens_details" || name === "completion_tokens_details";
    if (isDetails && isRecord(given)) usage[name] = given;
    // Entries are set one by one: an assignment to __proto__ would be none
    else vendor = { ...vendor, [name]: given };
  }
  if (vendor !== undefined) usage.vendor = vendor;
  return usage;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

const COUNTS: ReadonlySet<string> = new Set(["prompt_tokens", "completion_tokens", "total_tokens"]);
