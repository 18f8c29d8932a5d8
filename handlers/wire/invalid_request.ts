import type { BaseIssue } from "valibot";
import { HttpError } from "../../lib/base/errors.ts";

/**
 * The 400 for a body that its schema refused: `param` and the message name the field at fault, as
 * `messages[2].content[0].image_url.url`. Values never appear in it: they may be secrets.
 *
 * Of a union the alternative that got furthest into the value is told, since it is the one the client meant.
 */
export function invalidRequest(issues: readonly [BaseIssue<unknown>, ...BaseIssue<unknown>[]]): HttpError {
  const { path, issue } = deepest(issues[0], "");
  const message = `Cannot read ${path === "" ? "the body" : `"${path}"`}: ${reasonOf(issue)}`;
  return new HttpError("invalid_request", message, {
    status: 400,
    type: "invalid_request_error",
    param: path === "" ? null : path,
  });
}

function reasonOf(issue: BaseIssue<unknown>): string {
  if (issue.kind === "schema") {
    if (issue.input === undefined || issue.received === "undefined") return "it is missing";
    const expected = (issue.expected ?? "another value").replace(/^\((.*)\)$/s, "$1").replaceAll(" | ", " or ")
      .toLowerCase();
    return `expected ${expected}, got ${
      issue.input === null ? "null" : Array.isArray(issue.input) ? "array" : typeof issue.input
    }`;
  }
  if (issue.type === "integer") return "expected a whole number";
  // A message of our own schemas, or a bound as ">=1"
  if (!issue.message.startsWith("Invalid")) return issue.message.charAt(0).toLowerCase() + issue.message.slice(1);
  return `expected ${issue.expected ?? "another value"}`;
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
