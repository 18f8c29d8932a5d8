import * as v from "valibot";
import { isRecord } from "../../base/json.ts";
import { toKeyText } from "../../config/toml.ts";
import { nearest } from "../../config/nearest.ts";
import {
  checkPattern,
  checkValue,
  type Fault,
  INPUT_TYPES,
  SOP_LIMITS,
  SOP_NAME,
  type SopDefinition,
  type SopInput,
  type SopStep,
} from "./definition.ts";
import type { Section } from "./read_sop_document.ts";
import { checkTemplates, type KnownNames, namesIn } from "./template.ts";

const NAME_RULE = "1-64 of a-z, 0-9, _ and -, beginning with a letter or digit";
const text = (maximum: number) => v.pipe(v.string(), v.maxLength(maximum));
const name = v.pipe(v.string(), v.regex(SOP_NAME, NAME_RULE));

const inputSchema = v.strictObject({
  type: v.optional(v.picklist(INPUT_TYPES), "string"),
  description: v.optional(text(1000), ""),
  required: v.optional(v.boolean()),
  default: v.optional(v.unknown()),
  choices: v.optional(v.pipe(v.array(v.unknown()), v.minLength(1), v.maxLength(100))),
  pattern: v.optional(v.pipe(text(500), v.minLength(1))),
});

const stepSchema = v.strictObject({
  id: name,
  title: v.optional(text(200)),
  tool: v.optional(v.pipe(v.string(), v.regex(/^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/, "the name of a tool"))),
  input: v.optional(v.record(v.string(), v.unknown())),
  instructions: v.optional(v.pipe(text(32_768), v.minLength(1))),
  tools: v.optional(v.pipe(v.array(v.pipe(text(65), v.minLength(1))), v.maxLength(100))),
  manual: v.optional(v.pipe(text(4000), v.minLength(1))),
  requires_approval: v.optional(v.boolean(), false),
  on_error: v.optional(v.picklist(["fail", "continue"]), "fail"),
});

const rootSchema = v.strictObject({
  id: v.optional(name),
  name: v.optional(v.pipe(text(200), v.minLength(1))),
  description: v.optional(text(2000), ""),
  inputs: v.optional(v.record(v.string(), inputSchema), {}),
  steps: v.pipe(v.array(stepSchema), v.minLength(1), v.maxLength(SOP_LIMITS.steps)),
});

type RawStep = v.InferOutput<typeof stepSchema>;
type RawInput = v.InferOutput<typeof inputSchema>;

/** Procedures neither run nor steer procedures: one that runs itself would have no end. */
const NOT_IN_STEPS: ReadonlySet<string> = new Set(["sop_execute", "sop_advance", "sop_approve"]);

/** Default id, guide and sections that a definition is checked with. */
export interface DefinitionContext {
  /** Id where the definition has none: the file's name without its ending */
  readonly defaultId: string;
  readonly guide: string;
  readonly sections: ReadonlyMap<string, Section>;
}

/** Returns the checked definition, or everything that is wrong with it. @param document plain JSON */
export async function checkDefinition(
  document: unknown,
  { defaultId, guide, sections }: DefinitionContext,
): Promise<{ readonly definition: SopDefinition } | { readonly faults: readonly Fault[] }> {
  if (!isRecord(document)) return { faults: [{ path: [], reason: "it must be a table with id, inputs and steps" }] };
  const parsed = v.safeParse(rootSchema, withSections(document, sections));
  if (!parsed.success) return { faults: parsed.issues.map(toFault) };
  const root = parsed.output;
  const id = root.id ?? defaultId;
  const faults: Fault[] = [];
  if (!SOP_NAME.test(id)) faults.push({ path: ["id"], reason: `${NAME_RULE}, and the file's name is not` });
  const inputs = await Promise.all(
    Object.entries(root.inputs).map(([key, input]) => checkInput(key, input, (fault) => void faults.push(fault))),
  );
  if (inputs.length > SOP_LIMITS.inputs) {
    faults.push({ path: ["inputs"], reason: `there may be ${SOP_LIMITS.inputs} at most` });
  }
  const steps = root.steps.map((step, index) => checkStep(step, index, (fault) => void faults.push(fault)));
  faults.push(...twins(steps), ...templateFaults(inputs, steps));
  if (faults.length > 0) return { faults };
  const described = { name: root.name ?? id, description: root.description };
  return { definition: { id, ...described, guide, inputs, steps } };
}

/** Returns the document with the text under a step's heading as the instructions of a Markdown step that has no work of its own. */
function withSections(document: Readonly<Record<string, unknown>>, sections: ReadonlyMap<string, Section>): unknown {
  if (!Array.isArray(document["steps"])) return document;
  const steps = document["steps"].map((step: unknown) => {
    if (!isRecord(step) || ["tool", "instructions", "manual"].some((key) => key in step)) return step;
    const section = sections.get(String(step["id"]))?.text ?? "";
    return section === "" ? step : { ...step, instructions: section };
  });
  return { ...document, steps };
}

async function checkInput(key: string, raw: RawInput, report: (fault: Fault) => void): Promise<SopInput> {
  const input: SopInput = {
    name: key,
    type: raw.type,
    description: raw.description,
    required: raw.required ?? raw.default === undefined,
    default: raw.default ?? null,
    choices: raw.choices ?? null,
    pattern: raw.pattern ?? null,
  };
  const at = (field: string, reason: string | undefined) => {
    if (reason !== undefined) report({ path: ["inputs", key, field], reason });
  };
  if (!SOP_NAME.test(key)) report({ path: ["inputs", key], reason: NAME_RULE });
  if (input.pattern !== null) {
    at("pattern", input.type === "string" ? await checkPattern(input.pattern) : "only a string has a pattern");
  }
  const bare = { ...input, choices: null, pattern: null };
  for (const choice of input.choices ?? []) at("choices", await checkValue(choice, bare));
  if (input.default !== null) at("default", await checkValue(input.default, input).catch(() => undefined));
  return input;
}

function checkStep(raw: RawStep, index: number, report: (fault: Fault) => void): SopStep {
  const at = (field: string, reason: string) => report({ path: ["steps", index, field], reason });
  const given = (["tool", "instructions", "manual"] as const).filter((key) => raw[key] !== undefined);
  const [kind = "manual", second] = given;
  if (second !== undefined) at(second, `a step has one of tool, instructions and manual, and this one has ${kind} too`);
  if (given.length === 0) {
    const reason = "it does nothing: give it tool with input, instructions, or manual for what is done elsewhere";
    report({ path: ["steps", index], reason });
  }
  if (raw.input !== undefined && raw.tool === undefined) at("input", "it belongs to a tool, and the step has none");
  if (raw.tools !== undefined && raw.instructions === undefined) {
    at("tools", "it belongs to instructions, and the step has none");
  }
  if (NOT_IN_STEPS.has(raw.tool ?? "")) at("tool", "a procedure neither runs nor steers procedures");
  return {
    id: raw.id,
    title: raw.title ?? raw.id,
    requires_approval: raw.requires_approval,
    on_error: raw.on_error,
    work: workOf(raw),
  };
}

function workOf({ tool, input = {}, instructions, tools = ["*"], manual = "" }: RawStep): SopStep["work"] {
  if (tool !== undefined) return { kind: "tool", tool, input };
  return instructions === undefined ? { kind: "manual", text: manual } : { kind: "agent", instructions, tools };
}

function twins(steps: readonly SopStep[]): readonly Fault[] {
  return steps.flatMap(({ id }, index) =>
    steps.findIndex((other) => other.id === id) === index
      ? []
      : [{ path: ["steps", index, "id"], reason: `"${id}" is the id of an earlier step` }]
  );
}

function templateFaults(inputs: readonly SopInput[], steps: readonly SopStep[]): readonly Fault[] {
  const types = new Map(inputs.map((input) => [input.name, input.type]));
  const allSteps = new Set(steps.map(({ id }) => id));
  return steps.flatMap(({ work }, index) => {
    const known: KnownNames = { inputs: types, allSteps, steps: new Set(steps.slice(0, index).map(({ id }) => id)) };
    const fields: readonly (readonly [string, unknown])[] = work.kind === "tool"
      ? [["input", work.input]]
      : work.kind === "agent"
      ? [["instructions", work.instructions]]
      : [["manual", work.text]];
    return fields.flatMap(([field, value]) =>
      [...checkTemplates(value, known), ...commandFaults(work, inputs)].map(({ path, reason }) => (
        { path: ["steps", index, field, ...path], reason }
      ))
    );
  });
}

/** Returns the faults of a command. A value in it could become several words, so only inputs that the definition bounds may stand there. */
function commandFaults(work: SopStep["work"], inputs: readonly SopInput[]): readonly Fault[] {
  const command = work.kind === "tool" ? work.input["command"] : undefined;
  if (typeof command !== "string") return [];
  const bounded = new Set(inputs.filter(isBounded).map(({ name }) => `inputs.${name}`));
  return namesIn(command).filter((named) => !bounded.has(named)).map((named) => ({
    path: ["command"],
    reason:
      `"{{${named}}}" could be more words than meant; a command takes inputs with a pattern or choices, and numbers`,
  }));
}

function isBounded({ type, pattern, choices }: SopInput): boolean {
  return pattern !== null || choices !== null || type === "integer" || type === "number" || type === "boolean";
}

const KEYS: Readonly<Record<string, readonly string[]>> = {
  "": Object.keys(rootSchema.entries),
  inputs: Object.keys(inputSchema.entries),
  steps: Object.keys(stepSchema.entries),
};

function toFault(issue: v.BaseIssue<unknown>): Fault {
  const path = (issue.path ?? []).map(({ key }) => typeof key === "number" ? key : String(key));
  if (issue.type === "strict_object" && issue.expected === "never") {
    const known = KEYS[path.length === 1 ? "" : String(path[0])] ?? [];
    const near = nearest(String(path.at(-1)), known);
    const hint = near === undefined ? `the keys are ${known.join(", ")}` : `did you mean "${near}"?`;
    return { path, reason: `there is no such key; ${hint}` };
  }
  if (issue.type === "strict_object" && issue.received === "undefined") return { path, reason: "it must be given" };
  switch (issue.type) {
    case "min_length":
      return { path, reason: "it must not be empty" };
    case "max_length":
      return { path, reason: `it may be ${issue.expected?.slice(2)} long at most` };
    case "picklist":
      return { path, reason: `it must be one of ${issue.expected?.replace(/[()]/g, "").replaceAll(" | ", ", ")}` };
    case "regex":
      return { path, reason: `it must be ${issue.message}` };
    default: {
      const what = KINDS[issue.expected ?? ""] ?? issue.expected ?? "valid";
      const hint = toKeyText(path).endsWith(".input")
        ? "; a text form cannot be filled in safely, so name the fields"
        : "";
      return { path, reason: `it must be ${what}${hint}` };
    }
  }
}

const KINDS: Readonly<Record<string, string>> = {
  Object: "a table",
  Array: "a list",
  string: "a text",
  boolean: "true or false",
};
