import { ToolError } from "../../base/errors.ts";
import { nearest } from "../../config/nearest.ts";
import { SOP_LIMITS, type SopDefinition, type SopInput } from "./definition.ts";
import { toPlainJson } from "./read_sop_document.ts";

/** Steps of a compiled pattern, which bound the time of a match */
const MAX_PROGRAM = 1000;
/** Characters of a text that a pattern is matched with */
const MAX_MATCHED = 65_536;

/**
 * The inputs of an execution: those given, and the defaults of the others; null where there is neither.
 * @throws {ToolError} `invalid_input` naming the input and the way out
 */
export async function checkInputs(
  definition: SopDefinition,
  given: Readonly<Record<string, unknown>>,
): Promise<Readonly<Record<string, unknown>>> {
  const { id, inputs } = definition;
  const names = inputs.map(({ name }) => name);
  const unknown = Object.keys(given).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    const near = nearest(unknown, names);
    const known = names.length === 0 ? "it takes none" : `they are ${names.map((name) => `"${name}"`).join(", ")}`;
    const hint = near === undefined ? known : `did you mean "${near}"?`;
    throw invalid(id, `"inputs.${unknown.slice(0, 64)}" is not one of its inputs; ${hint}`);
  }
  const plain = toPlainJson(given);
  if ("fault" in plain) throw invalid(id, `"inputs.${plain.fault.path.join(".")}": ${plain.fault.reason}`);
  if (JSON.stringify(given).length > SOP_LIMITS.inputCharacters) {
    throw invalid(id, `its inputs are longer than ${SOP_LIMITS.inputCharacters} characters`);
  }
  const values = await Promise.all(inputs.map(async (input) => {
    const value = given[input.name] ?? null;
    if (value === null) {
      if (!input.required) return [input.name, input.default] as const;
      throw invalid(id, `"inputs.${input.name}" is missing: ${described(input)}`);
    }
    const reason = await checkValue(value, input);
    if (reason !== undefined) throw invalid(id, `"inputs.${input.name}": ${reason}`);
    return [input.name, value] as const;
  }));
  return Object.fromEntries(values);
}

/** Why a value does not fit an input; undefined when it does. */
export async function checkValue(value: unknown, input: SopInput): Promise<string | undefined> {
  const { type, choices, pattern } = input;
  if (!isOf(value, type)) return `it must be ${ARTICLES[type]}`;
  if (choices !== null && !choices.some((choice) => JSON.stringify(choice) === JSON.stringify(value))) {
    return `it must be one of ${choices.map((choice) => JSON.stringify(choice)).join(", ").slice(0, 500)}`;
  }
  if (pattern === null || typeof value !== "string") return undefined;
  if (value.length > MAX_MATCHED) return `it may be ${MAX_MATCHED} characters long at most`;
  const { RE2JS } = await import("re2js");
  return RE2JS.compile(pattern).matches(value) ? undefined : `it must match the pattern ${pattern}`;
}

/** Why a text is no pattern; undefined when it is one. Its engine's time grows with the text alone. */
export async function checkPattern(pattern: string): Promise<string | undefined> {
  const { RE2JS } = await import("re2js");
  try {
    return RE2JS.compile(pattern).programSize() <= MAX_PROGRAM ? undefined : "it is too large";
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^error parsing regexp: /, "").slice(0, 200) : "";
    return `it is no regular expression in RE2 syntax: ${reason}`;
  }
}

const ARTICLES: Readonly<Record<SopInput["type"], string>> = {
  string: "a text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  list: "a list",
  object: "an object",
};

function isOf(value: unknown, type: SopInput["type"]): boolean {
  switch (type) {
    case "string":
      return typeof value === "string";
    case "boolean":
      return typeof value === "boolean";
    case "number":
      return typeof value === "number";
    case "integer":
      return Number.isSafeInteger(value);
    case "list":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
  }
}

function described({ type, description }: SopInput): string {
  return description === "" ? `it is ${ARTICLES[type]}` : `${description} (${ARTICLES[type]})`;
}

function invalid(sop: string, reason: string): ToolError {
  return new ToolError("invalid_input", `Cannot execute "${sop}": ${reason}`);
}
