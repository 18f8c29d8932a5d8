import type { ProgramApproval, ProgramElicitationAnswer } from "../lib/runs/program_run.ts";
import {
  checkOf,
  type ProgramJsonSchema,
  type ProgramSchema,
  type ProgramSchemaOutput,
  readSchema,
} from "../lib/tools/program_schema.ts";

/** Answer of the program to an approval; undefined leaves it to the people. */
export type ProgramAnswer = "approve" | "deny" | ProgramElicitationAnswer | undefined;

/** Function of the program that is asked about approvals. */
export type ProgramApprovalHook = (
  approval: ProgramApproval,
  options: { readonly signal: AbortSignal },
) => ProgramAnswer | Promise<ProgramAnswer>;

/** Answers of the program to the approvals of one tool. */
export interface ProgramApprovalDefinition<Input> {
  /** Name of the tool */
  readonly tool: string;
  /** Schema of what is answered: a Standard Schema that gives JSON Schema (valibot, zod, arktype), or a JSON Schema */
  readonly input: ProgramSchema<unknown, Input> | ProgramJsonSchema;
  /** Answers one approval. `input` has passed the schema; known secrets in it are masked, as everywhere in an approval */
  readonly answer: (
    input: Input,
    call: { readonly approval: ProgramApproval; readonly signal: AbortSignal },
  ) => ProgramAnswer | Promise<ProgramAnswer>;
}

/**
 * Makes an `onApproval` that answers for one tool, and whose input is one that a schema knows. An approval of another tool, of another input,
 * and a question of a server are left to the people.
 * @throws {TypeError} a schema that gives no JSON Schema, or with a part that is not understood
 */
export function defineApproval<const Schema extends ProgramSchema | ProgramJsonSchema>(
  { tool, input, answer }: ProgramApprovalDefinition<ProgramSchemaOutput<Schema>> & { readonly input: Schema },
): ProgramApprovalHook {
  const place = `Cannot define the approval of "${tool}": its input`;
  const { json, parse } = readSchema(input, place);
  const { check } = checkOf(json, place);
  return async (approval, { signal }) => {
    if (approval.tool !== tool || approval.kind === "elicitation" || check(approval.input) !== undefined) {
      return undefined;
    }
    const parsed = await parse(structuredClone(approval.input));
    // The schema has checked what its type says
    return "fault" in parsed
      ? undefined
      : await answer(parsed.value as ProgramSchemaOutput<Schema>, { approval, signal });
  };
}
