import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import type { FormContent } from "../../base/records/elicitation.ts";
import { defineTool } from "../runtime/define_tool.ts";
import type { ElicitationAnswer } from "../runtime/askable_client.ts";
import type { ToolResult } from "../runtime/tool_call.ts";

const TYPES = ["text", "number", "yes_no", "choice", "several"] as const;

const answerEntries = {
  type: v.optional(v.pipe(v.picklist(TYPES), v.description("Kind of answer. Default: text, choice with choices"))),
  choices: v.optional(
    v.pipe(
      v.array(v.pipe(v.string(), v.minLength(1), v.maxLength(500))),
      v.minLength(1),
      v.maxLength(50),
      v.description("choice, several: what to choose from"),
    ),
  ),
} as const;
const fieldSchema = v.strictObject({
  name: v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("Name shown to the user")),
  ...answerEntries,
  optional: v.optional(v.pipe(v.boolean(), v.description("May stay empty"))),
});
const inputSchema = v.strictObject({
  question: v.pipe(v.string(), v.minLength(1), v.maxLength(4_000), v.description("The question, whole")),
  ...answerEntries,
  fields: v.optional(
    v.pipe(v.array(fieldSchema), v.minLength(1), v.maxLength(32), v.description("A form, in place of one answer")),
  ),
});
type Input = v.InferOutput<typeof inputSchema>;
type Field = v.InferOutput<typeof fieldSchema>;

/**
 * `ask_user`: a question of the agent to a person, which waits as an approval does and is answered where approvals are.
 * Source: docs/design/tools.md "Questions to a person"
 */
export const askUser = defineTool({
  name: "ask_user",
  description: "Asks the user a question and waits for the answer. Ask only what you cannot find out by yourself",
  access: "read",
  enabled: ({ agent }) => agent.ask_user,
  enabledBy: "[agent] ask_user = true",
  needs: ["redactor"],
  input: inputSchema,
  textField: "question",
  check: (input) => void toSchema(input),
  async run(input, { elicit, services: { redactor } }) {
    const { parseElicitation } = await import("../../guard/elicitation.ts");
    const asked = parseElicitation(
      { message: input.question, requestedSchema: toSchema(input) },
      { redact: (text) => redactor.redact(text), agent: true },
    );
    if ("refused" in asked) throw wrong(asked.refused);
    if (elicit === undefined) {
      throw new ToolError(
        "nobody_could_answer",
        "Cannot ask: nobody who made this call answers questions. " +
          'A conversation of the dashboard or "postern chat", a durable run and a client of MCP with elicitation do',
      );
    }
    return toResult(input, await elicit(asked));
  },
});

/** Returns the form of a question. @throws {ToolError} for parts that do not go together */
function toSchema({ question: _, fields, ...answer }: Input): Readonly<Record<string, unknown>> {
  if (fields !== undefined && (answer.type ?? answer.choices) !== undefined) {
    throw wrong('"fields" stands in place of "type" and "choices"');
  }
  const asked: readonly Field[] = fields ?? [{ name: "answer", ...answer }];
  const properties = Object.fromEntries(asked.map((field) => [field.name, toProperty(field)]));
  if (Object.keys(properties).length < asked.length) throw wrong('two of "fields" have the same "name"');
  return {
    type: "object",
    properties,
    required: asked.filter(({ optional }) => optional !== true).map(({ name }) => name),
  };
}

function toProperty({ name, choices, type = choices === undefined ? "text" : "choice" }: Field) {
  const chooses = type === "choice" || type === "several";
  if (chooses && choices === undefined) throw wrong(`"${type}" of "${name}" needs "choices"`);
  if (!chooses && choices !== undefined) throw wrong(`"choices" of "${name}" do not go with "${type}"`);
  if (type === "several") return { type: "array", items: { enum: choices } };
  if (type === "choice") return { type: "string", enum: choices };
  return type === "text" ? { type: "string", minLength: 1 } : { type: type === "number" ? "number" : "boolean" };
}

function wrong(why: string): ToolError {
  return new ToolError("invalid_input", `Cannot call "ask_user": ${why}`);
}

function toResult({ fields }: Input, answer: ElicitationAnswer): ToolResult {
  const { action } = answer;
  if (action === "cancel") return { output: `Nobody answered: ${answer.reason}`, isError: true };
  if (action === "decline") {
    return { output: "The user declined to answer. Go on without it, or say what you need", isError: false };
  }
  const content = answer.content ?? {};
  const given = fields === undefined ? content["answer"] : content;
  return { output: inWords(given), isError: false, data: { answer: given } };
}

function inWords(given: FormContent | FormContent[string] | undefined): string {
  if (typeof given === "boolean") return given ? "yes" : "no";
  if (Array.isArray(given)) return given.length === 0 ? "None of them" : given.join("\n");
  return typeof given === "object" ? JSON.stringify(given) : String(given);
}
