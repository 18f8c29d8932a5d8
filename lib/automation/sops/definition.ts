import * as v from "valibot";

/** Bounds of definitions and of what they are given. */
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
  /** Used where the input is not given; null: none */
  default: v.unknown(),
  /** The only values there are; null: any of the type */
  choices: v.nullable(v.array(v.unknown())),
  /** Regular expression for the whole text, RE2 syntax; null: any text */
  pattern: v.nullable(v.string()),
});
/** An input that an execution is given. */
export type SopInput = v.InferOutput<typeof inputSchema>;

const work = v.variant("kind", [
  /** A call of a tool. Texts in its input are templates */
  v.object({ kind: v.literal("tool"), tool: v.string(), input: v.record(v.string(), v.unknown()) }),
  /** A task for the agent, with these of its tools: names, `prefix*`, `*` */
  v.object({ kind: v.literal("agent"), instructions: v.string(), tools: v.array(v.string()) }),
  /** Done outside of the gateway */
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
  /** Told to the agent in its steps: the text of a Markdown definition before its first step; empty: none */
  guide: v.string(),
  inputs: v.array(inputSchema),
  steps: v.array(stepSchema),
});
/** A procedure as its file defines it. */
export type SopDefinition = v.InferOutput<typeof definitionSchema>;
