import { ToolError } from "../base/errors.ts";
import { isRecord } from "../base/json.ts";
import type { ProgramCompletion, ProgramPrompt } from "./program_offers.ts";
import {
  checkOf,
  type ProgramJsonSchema,
  type ProgramSchema,
  type ProgramSchemaInput,
  type ProgramSchemaOutput,
  readSchema,
} from "./program_schema.ts";

/** Prompt whose arguments a schema says. */
export interface ProgramPromptDefinition<Input, Given = Input>
  extends Pick<ProgramPrompt, "title" | "description" | "clientNeeds"> {
  /** Schema of the arguments, an object of texts: a Standard Schema that gives JSON Schema (valibot, zod, arktype), or a JSON Schema */
  readonly input: ProgramSchema<Given, Input> | ProgramJsonSchema;
  /** Completes values by the names of the arguments. Default: nothing is suggested */
  readonly complete?: Readonly<Partial<Record<keyof Given & string, ProgramCompletion>>>;
  /** Returns the messages, or the text of the user's one. `input` has passed the schema */
  readonly get: (input: Input, call: Parameters<ProgramPrompt["get"]>[1]) => ReturnType<ProgramPrompt["get"]>;
}

/**
 * Makes a prompt whose arguments are those of a schema, with their descriptions. A value that the schema refuses is an error of the client.
 * @throws {TypeError} a schema that gives no JSON Schema, whose arguments take no text, or with a part that is not understood
 */
export function definePrompt<const Schema extends ProgramSchema | ProgramJsonSchema>(
  definition: ProgramPromptDefinition<ProgramSchemaOutput<Schema>, ProgramSchemaInput<Schema>> & {
    readonly input: Schema;
  },
): ProgramPrompt {
  const { input, complete = {}, get, ...rest } = definition;
  const place = "Cannot define the prompt: its input";
  const { json, parse } = readSchema(input, place);
  const { schema: { properties, required = [] }, check } = checkOf(json, place);
  const refused = (reason: string) => new ToolError("invalid_input", `Cannot get the prompt: ${reason}`);
  const unknown = Object.keys(complete).find((name) => !Object.hasOwn(properties, name));
  if (unknown !== undefined) {
    throw new TypeError(`Cannot define the prompt: there is no argument "${unknown}" to complete`);
  }
  return {
    ...rest,
    arguments: Object.fromEntries(
      Object.entries(properties).map(([name, schema]) => [name, {
        ...descriptionOf(name, schema),
        required: required.includes(name),
        ...toCompletion((complete as Readonly<Record<string, ProgramCompletion>>)[name]), // its names are those of the schema
      }]),
    ),
    async get(given, call) {
      const fault = check(given);
      if (fault !== undefined) throw refused(`${JSON.stringify(fault.path.slice(0, 200))} ${fault.reason}`);
      const parsed = await parse({ ...given });
      if ("fault" in parsed) throw refused(parsed.fault);
      return await get(parsed.value as ProgramSchemaOutput<Schema>, call); // the schema has checked what its type says
    },
  };
}

/** @throws {TypeError} the argument takes no text */
function descriptionOf(name: string, schema: unknown): { readonly description?: string } {
  const { type, description } = isRecord(schema) ? schema : {};
  if (type !== undefined && ![type].flat().includes("string")) {
    throw new TypeError(
      `Cannot define the prompt: people type the argument "${name}", so it must take text, as v.pipe(v.string(), v.toNumber()) does`,
    );
  }
  return typeof description === "string" ? { description } : {};
}

function toCompletion(complete: ProgramCompletion | undefined) {
  return complete === undefined ? {} : { complete };
}
