import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { isLonger } from "../../base/text.ts";
import { isShallow } from "../../base/json.ts";

const MAX_INPUT_BYTES = 1_048_576;
const MAX_DEPTH = 64;
/** Names that models write in place of `op` */
const OP_ALIASES = ["operation", "action"] as const;

/** Options of parseInput. */
export interface ParseInputOptions {
  readonly tool: string;
  /** Properties of the input schema, in order */
  readonly fields: readonly string[];
  readonly required: readonly string[];
  /** Property that a plain text is the value of. undefined when the tool takes only JSON */
  readonly textField: string | undefined;
  /** Optional fields for which null is a value of its own. Default: none, so that null means absent */
  readonly nullable?: readonly string[] | undefined;
  /** True: fields that are not named are allowed too. Default false */
  readonly isOpen?: boolean | undefined;
  /** Reads a plain text as the values of several fields. undefined when the tool has no such form */
  readonly parseText?: ((text: string) => Readonly<Record<string, unknown>>) | undefined;
}

/**
 * Returns a tool's input as an object, not yet validated. A text that parses to a JSON object is that object; every other text is the
 * value of `textField`. `operation` and `action` mean `op`, and `null` in an optional field means that the field is absent.
 * @throws {ToolError} `input_too_large` over 1 MiB, `invalid_input` for nesting over 64 or for text where JSON is wanted
 */
export function parseInput(input: string, options: ParseInputOptions): Readonly<Record<string, unknown>> {
  if (isLonger(input, MAX_INPUT_BYTES)) {
    throw new ToolError(
      "input_too_large",
      `Cannot call "${options.tool}": the input is larger than ${MAX_INPUT_BYTES} bytes; shorten ${named(options)}`,
    );
  }
  const parsed = parseObject(input);
  if (parsed === undefined) {
    if (options.parseText !== undefined) return options.parseText(input);
    if (options.textField !== undefined) return { [options.textField]: input };
    const only = options.isOpen === true ? "a JSON object" : "the JSON object {}";
    throw new ToolError(
      "invalid_input",
      `Cannot call "${options.tool}": the input must be ${
        options.fields.length === 0 ? only : `a JSON object with ${named(options)}`
      }`,
    );
  }
  if (!isShallow(parsed, MAX_DEPTH)) {
    const field = Object.keys(parsed).find((key) => !isShallow(parsed[key], MAX_DEPTH - 1));
    throw new ToolError(
      "invalid_input",
      `Cannot call "${options.tool}": "${
        field?.slice(0, 64)
      }" is nested deeper than ${MAX_DEPTH} levels; the fields are ${quoted(options.fields)}`,
    );
  }
  return normalized(parsed, options);
}

function parseObject(text: string): Record<string, unknown> | undefined {
  if (!text.trimStart().startsWith("{")) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    // A text that starts with a brace parses to an object or not at all
    return value as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

function normalized(
  parsed: Record<string, unknown>,
  { fields, required, nullable = [] }: ParseInputOptions,
): Record<string, unknown> {
  const alias = fields.includes("op") && parsed.op === undefined
    ? OP_ALIASES.find((name) => !fields.includes(name) && typeof parsed[name] === "string")
    : undefined;
  const entries = Object.entries(parsed)
    .filter(([key, value]) =>
      value !== null || required.includes(key) || nullable.includes(key) || !fields.includes(key)
    )
    .map(([key, value]) => [key === alias ? "op" : key, value] as const);
  return Object.fromEntries(entries);
}

function named({ required, fields }: ParseInputOptions): string {
  return required.length > 0 ? quoted(required) : `any of ${quoted(fields)}`;
}

function quoted(names: readonly string[]): string {
  return names.map((name) => `"${name}"`).join(", ");
}

/**
 * Checks that an operation has the fields it needs. A tool's schema cannot say this: it has no union at its top.
 * @param needed fields by operation
 * @throws {ToolError} `invalid_input` naming the first one that is missing
 */
export function requireOpFields(
  tool: string,
  input: { readonly op: string } & Readonly<Record<string, unknown>>,
  needed: Readonly<Record<string, readonly string[]>>,
): void {
  const missing = needed[input.op]?.find((field) => input[field] === undefined);
  if (missing === undefined) return;
  throw new ToolError("invalid_input", `Cannot call "${tool}": "${missing}" is missing, which op "${input.op}" needs`);
}

/** Characters of a field's name that a message shows */
const MAX_SHOWN = 40;

/**
 * Returns the error for an input that breaks the schema: it names the field, the value that is wanted and the kind that was given,
 * never the value itself.
 *
 * For a missing field, the error also names a field that was given and that the tool does not know: often a misspelling.
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

/** Returns the number in `>=1`, as valibot writes a bound. */
function limitOf({ expected }: v.BaseIssue<unknown>): string {
  return String(expected).replace(/^[<>]=/, "");
}

/** Returns in words what valibot expects: valibot gives the names of types and classes. */
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
