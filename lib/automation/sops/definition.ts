import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import type { KeyPath } from "../../config/toml.ts";
import { nearest } from "../../config/nearest.ts";

/** Bounds of definitions and of inputs. */
export const SOP_LIMITS = {
  /** Bytes of a definition's file */
  fileBytes: 65_536,
  /** Definitions in one folder */
  files: 200,
  steps: 50,
  inputs: 50,
  /** Levels of nesting in a definition, an input or an output that is filled in */
  depth: 16,
  /** Values in one definition */
  values: 5_000,
  /** UTF-16 units of all inputs of an execution as JSON */
  inputCharacters: 262_144,
  /** UTF-16 units of a step's input or instructions, with their templates filled in */
  filledCharacters: 524_288,
} as const;

/** Types of an input. */
export const INPUT_TYPES = ["string", "number", "integer", "boolean", "list", "object"] as const;
/** Type of an input. */
export type InputType = (typeof INPUT_TYPES)[number];

/** Id of a definition, a step or the name of an input. */
export const SOP_NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const name = v.pipe(v.string(), v.regex(SOP_NAME));

const inputSchema = v.object({
  name,
  type: v.picklist(INPUT_TYPES),
  description: v.string(),
  required: v.boolean(),
  /** Value of an input that is not given; null: none */
  default: v.unknown(),
  /** Values that the input may have; null: any of its type */
  choices: v.nullable(v.array(v.unknown())),
  /** Regular expression for the whole text, RE2 syntax; null: any text */
  pattern: v.nullable(v.string()),
});
/** An input that an execution is given. */
export type SopInput = v.InferOutput<typeof inputSchema>;

const work = v.variant("kind", [
  /** Call of a tool. Texts in its input are templates */
  v.object({ kind: v.literal("tool"), tool: v.string(), input: v.record(v.string(), v.unknown()) }),
  /** Instructions for the agent, with these of its tools: names, `prefix*`, `*` */
  v.object({ kind: v.literal("agent"), instructions: v.string(), tools: v.array(v.string()) }),
  /** Work that a person does outside of the gateway */
  v.object({ kind: v.literal("manual"), text: v.string() }),
]);

const stepSchema = v.object({
  id: name,
  title: v.string(),
  requires_approval: v.boolean(),
  /** Effect of a failed step on the execution */
  on_error: v.picklist(["fail", "continue"]),
  work,
});
/** A step. Steps are done one after the other. */
export type SopStep = v.InferOutput<typeof stepSchema>;

/** A checked procedure, in the form that executions keep. */
export const definitionSchema = v.object({
  id: name,
  name: v.string(),
  description: v.string(),
  /** Text for the agent in each of its steps: the text of a Markdown definition before its first step; empty: none */
  guide: v.string(),
  inputs: v.array(inputSchema),
  steps: v.array(stepSchema),
});
/** A procedure as its file defines it. */
export type SopDefinition = v.InferOutput<typeof definitionSchema>;

/** Fault of the value at `path`. The reason continues the sentence `Cannot use "key": `. */
export interface Fault {
  readonly path: KeyPath;
  readonly reason: string;
}

/** Steps of a compiled pattern, which bound the time of a match */
const MAX_PROGRAM = 1000;
/** Characters of a text that a pattern is matched with */
const MAX_MATCHED = 65_536;

/**
 * Returns the inputs of an execution: those given, and the defaults of the others; null where there is neither.
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

/** Returns why a value does not fit an input; undefined when it does. */
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

/** Returns why a text is no pattern; undefined when it is one. The engine's time grows with the text alone. */
export async function checkPattern(pattern: string): Promise<string | undefined> {
  const { RE2JS } = await import("re2js");
  try {
    return RE2JS.compile(pattern).programSize() <= MAX_PROGRAM ? undefined : "it is too large";
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^error parsing regexp: /, "").slice(0, 200) : "";
    return `it is no regular expression in RE2 syntax: ${reason}`;
  }
}

/** Returns a copy of a value as plain JSON, or the first place that JSON cannot hold or that is over the bounds. */
export function toPlainJson(document: unknown): { readonly value: unknown } | { readonly fault: Fault } {
  let left: number = SOP_LIMITS.values;
  const copy = (value: unknown, path: KeyPath): unknown => {
    if (--left < 0) {
      throw new FaultError({ path: path.slice(0, 1), reason: `it holds over ${SOP_LIMITS.values} values` });
    }
    if (value === null || typeof value === "boolean" || typeof value === "string") return value;
    if (typeof value === "number") {
      if (Number.isFinite(value)) return value;
      throw new FaultError({ path, reason: "it must be a finite number" });
    }
    if (value instanceof Date) throw new FaultError({ path, reason: "a date must be a text here: put it into quotes" });
    if (typeof value !== "object") throw new FaultError({ path, reason: "it is no value that JSON has" });
    if (path.length > SOP_LIMITS.depth) {
      throw new FaultError({ path: path.slice(0, 3), reason: `it is nested deeper than ${SOP_LIMITS.depth} levels` });
    }
    if (Array.isArray(value)) return value.map((item, index) => copy(item, [...path, index]));
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => {
        if (key === "__proto__") {
          throw new FaultError({ path, reason: 'it has a key "__proto__", which is not allowed' });
        }
        return [key, copy(item, [...path, key])];
      }),
    );
  };
  try {
    return { value: copy(document, []) };
  } catch (error) {
    if (error instanceof FaultError) return { fault: error.fault };
    throw error;
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

class FaultError extends Error {
  readonly fault: Fault;
  constructor(fault: Fault) {
    super(fault.reason);
    this.fault = fault;
  }
}
