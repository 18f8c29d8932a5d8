import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";

/** Long enough to recognise a value, too short to repeat it */
const MAX_SHOWN = 40;

/**
 * What is wrong with a tool's input: the field, what it must be and what it was. The value itself is not repeated.
 *
 * What a missing field's value was given as, under a name the tool does not know, is named too.
 * @param fields names of the tool's fields
 * @param given the input as it was given
 */
export function inputError(
  tool: string,
  issue: v.BaseIssue<unknown>,
  { fields, given }: { readonly fields: readonly string[]; readonly given: Readonly<Record<string, unknown>> },
): ToolError {
  const field = (v.getDotPath(issue) ?? "").slice(0, MAX_SHOWN);
  const unknown = Object.keys(given).find((name) => !fields.includes(name));
  return new ToolError("invalid_input", `Cannot call "${tool}": ${sentence(issue, field, { fields, unknown })}`);
}

function sentence(
  issue: v.BaseIssue<unknown>,
  field: string,
  { fields, unknown }: { readonly fields: readonly string[]; readonly unknown: string | undefined },
): string {
  const known = fields.map((name) => `"${name}"`).join(", ");
  if (issue.type === "strict_object" && issue.expected === "never") {
    return `"${field}" is not one of its fields: they are ${known}`;
  }
  if (issue.type === "strict_object" && issue.received === "undefined") {
    const other = unknown?.slice(0, MAX_SHOWN);
    return `"${field}" is missing${
      other === undefined ? "" : `, and "${other}" is not one of its fields: they are ${known}`
    }`;
  }
  switch (issue.type) {
    case "min_length":
    case "non_empty":
      return String(issue.received) === "0"
        ? `"${field}" must not be empty`
        : `"${field}" must have a length of at least ${limitOf(issue)}, and has ${issue.received}`;
    case "max_length":
      return `"${field}" must have a length of at most ${limitOf(issue)}, and has ${issue.received}`;
    case "min_value":
      return `"${field}" must be at least ${limitOf(issue)}, and is ${kindOf(issue.input)}`;
    case "max_value":
      return `"${field}" must be at most ${limitOf(issue)}, and is ${kindOf(issue.input)}`;
    case "integer":
      return `"${field}" must be a whole number`;
    case "picklist":
      return `"${field}" must be one of ${String(issue.expected).replace(/[()]/g, "").replaceAll(" | ", ", ")}`;
    default:
      return `"${field}" must be ${wanted(issue.expected)}, and is ${kindOf(issue.input)}`;
  }
}

/** The number of `>=1`, as valibot writes a bound. */
function limitOf({ expected }: v.BaseIssue<unknown>): string {
  return String(expected).replace(/^[<>]=/, "");
}

/** What valibot expects, in words; it writes the names of types and classes. */
function wanted(expected: string | null): string {
  switch (expected) {
    case null:
      return "valid";
    case "Array":
      return "an array";
    case "Object":
      return "an object";
    case "string":
    case "number":
    case "boolean":
      return `a ${expected}`;
    default:
      return expected;
  }
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
