import { ToolError } from "../../base/errors.ts";
import { isLonger } from "../../base/is_longer.ts";
import { isShallow } from "../../base/is_shallow.ts";

const MAX_INPUT_BYTES = 1_048_576;
const MAX_DEPTH = 64;
/** Other names of `op`, as models like to write it */
const OP_ALIASES = ["operation", "action"] as const;

export interface ParseInputOptions {
  readonly tool: string;
  /** Properties of the input schema, in order */
  readonly fields: readonly string[];
  readonly required: readonly string[];
  /** The property that a plain text is; undefined: the tool takes JSON alone */
  readonly textField: string | undefined;
}

/**
 * A tool's input as an object, not yet validated: a text that parses to a JSON object is that object, otherwise it is the text
 * form. `operation` and `action` mean `op`; `null` in an optional field means that it is absent.
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
    if (options.textField !== undefined) return { [options.textField]: input };
    throw new ToolError(
      "invalid_input",
      `Cannot call "${options.tool}": the input must be ${
        options.fields.length === 0 ? "the JSON object {}" : `a JSON object with ${named(options)}`
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

function normalized(parsed: Record<string, unknown>, { fields, required }: ParseInputOptions): Record<string, unknown> {
  const alias = fields.includes("op") && parsed.op === undefined
    ? OP_ALIASES.find((name) => !fields.includes(name) && typeof parsed[name] === "string")
    : undefined;
  const entries = Object.entries(parsed)
    .filter(([key, value]) => value !== null || required.includes(key) || !fields.includes(key))
    .map(([key, value]) => [key === alias ? "op" : key, value] as const);
  return Object.fromEntries(entries);
}

function named({ required, fields }: ParseInputOptions): string {
  return required.length > 0 ? quoted(required) : `any of ${quoted(fields)}`;
}

function quoted(names: readonly string[]): string {
  return names.map((name) => `"${name}"`).join(", ");
}
