import type { BaseIssue } from "valibot";
import type { HttpError } from "../../lib/base/errors.ts";
import { httpError } from "./http_errors.ts";

/**
 * Returns the 400 for a body that its schema refused: `param` and the message name the field at fault, as
 * `messages[2].content[0].image_url.url`. Values never appear in it: they may be secrets.
 *
 * For a union, the message is about the alternative that got furthest into the value, which is most likely the one that was meant.
 */
export function invalidRequest(issues: readonly [BaseIssue<unknown>, ...BaseIssue<unknown>[]]): HttpError {
  const { path, issue } = deepest(issues[0], "");
  const param = path === "" ? null : path.slice(0, MAX_PARAM_LENGTH);
  const place = param === null ? "the request body" : `"${param}"`;
  return httpError("invalid_request", `Cannot accept ${place}: ${reasonOf(issue)}`, { param });
}

const MAX_PARAM_LENGTH = 200;
const MAX_EXPECTED_LENGTH = 300;

/** Returns the reason from the schema and the kind of the value. `received` and valibot's default messages quote the value itself. */
function reasonOf(issue: BaseIssue<unknown>): string {
  const expected = expectedOf(issue);
  if (issue.kind === "schema") {
    return issue.input === undefined ? "it is missing" : `expected ${expected}, got ${kindOf(issue.input, expected)}`;
  }
  // The message was written in a schema of the gateway
  if (!issue.message.startsWith("Invalid")) return issue.message.charAt(0).toLowerCase() + issue.message.slice(1);
  if (issue.type === "integer") return "expected a whole number";
  return issue.type === "min_length" || issue.type === "max_length"
    ? `expected a length of ${expected}`
    : `expected ${expected}`;
}

/** Returns the expected kind, such as "string or array" or ">=1". valibot writes names of classes, here in lower case. */
function expectedOf(issue: BaseIssue<unknown>): string {
  const words = (issue.expected ?? "another value").replace(/^\((.*)\)$/s, "$1").replaceAll(" | ", " or ")
    .replaceAll(/\b(Object|Array)\b/g, (name) => name.toLowerCase());
  return words.length > MAX_EXPECTED_LENGTH ? `${words.slice(0, MAX_EXPECTED_LENGTH)}...` : words;
}

function kindOf(value: unknown, expected: string): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  // The schema expects certain strings, or strings of a form
  return typeof value === "string" && /"|string/.test(expected) ? "another string" : `a ${typeof value}`;
}

interface Fault {
  readonly path: string;
  readonly depth: number;
  readonly issue: BaseIssue<unknown>;
}

function deepest(issue: BaseIssue<unknown>, prefix: string): Fault {
  const path = prefix + pathOf(issue, prefix === "");
  let best: Fault = { path, depth: depthOf(issue), issue };
  for (const inner of issue.issues ?? []) {
    if (inner.path === undefined) continue;
    const fault = deepest(inner, path);
    const depth = depthOf(issue) + fault.depth;
    if (depth > best.depth) best = { ...fault, depth };
  }
  return best;
}

function depthOf(issue: BaseIssue<unknown>): number {
  return issue.path?.length ?? 0;
}

function pathOf(issue: BaseIssue<unknown>, first: boolean): string {
  let path = "";
  for (const { key } of issue.path ?? []) {
    if (typeof key === "number") path += `[${key}]`;
    else path += path === "" && first ? String(key) : `.${String(key)}`;
  }
  return path;
}
