import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";

/** Long enough to recognise a value, too short to repeat it */
const MAX_SHOWN = 40;

/**
 * What is wrong with a tool's input: the field, what it must be and what it was. The value itself is not repeated.
 * @param fields names of the tool's fields
 */
export function inputError(tool: string, issue: v.BaseIssue<unknown>, fields: readonly string[]): ToolError {
  const field = (v.getDotPath(issue) ?? "").slice(0, MAX_SHOWN);
  return new ToolError("invalid_input", `Cannot call "${tool}": ${sentence(issue, field, fields)}`);
}

function sentence(issue: v.BaseIssue<unknown>, field: string, fields: readonly string[]): string {
  const known = fields.map((name) => `"${name}"`).join(", ");
  if (issue.type === "strict_object" && issue.expected === "never") {
    return `"${field}" is not one of its fields: they are ${known}`;
  }
  if (issue.type === "strict_object" && issue.received === "undefined") return `"${field}" is missing`;
  switch (issue.type) {
    case "min_length":
    case "max_length":
    case "non_empty":
      return `"${field}" must have a length of ${issue.expected}, and has ${issue.received}`;
    case "integer":
      return `"${field}" must be a whole number`;
    case "picklist":
      return `"${field}" must be one of ${String(issue.expected).replace(/[()]/g, "").replaceAll(" | ", ", ")}`;
    default:
      return `"${field}" must be ${issue.expected ?? "valid"}, and is ${kindOf(issue.input)}`;
  }
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
