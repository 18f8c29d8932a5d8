import { toJsonSchema } from "@valibot/to-json-schema";
import * as v from "valibot";
import { canonicalDigest } from "../../base/canonical_json.ts";
import { ToolError } from "../../base/errors.ts";
import type { JsonSchema, ObjectJsonSchema } from "../../base/records/json_schema.ts";
import type { Config } from "../../config/config.ts";
import { inputError, parseInput } from "./parse_input.ts";
import type {
  Access,
  BoundParts,
  Effects,
  PreparedCall,
  ScreenContext,
  ServiceName,
  Tool,
  ToolContext,
  ToolResult,
  ToolServices,
} from "./tool.ts";

/** A strict object, so that an unknown field is refused. */
export type InputSchema = v.StrictObjectSchema<v.ObjectEntries, undefined>;

/** The context a tool's `run` gets: its own services alone. */
export type ContextWith<N extends ServiceName> = Omit<ToolContext, "services"> & {
  readonly services: Pick<ToolServices, N>;
};

/** A built-in tool. */
export interface ToolDefinition<S extends InputSchema, N extends ServiceName> {
  /** `[a-z][a-z0-9_]{0,63}`, also the name of its file */
  readonly name: string;
  /** For the model: what it does and gives, one to three sentences */
  readonly description: string;
  readonly access: Access;
  /** Of one call, where it depends on the input. Default: `access`, which lists show */
  readonly accessOf?: (input: v.InferOutput<S>) => Access;
  /**
   * Making a call twice does no more than making it once, so that it may be made again after a crash that left its outcome unknown.
   * Default: it does more, and a person is asked; what only reads is always made again
   */
  readonly repeatable?: boolean;
  readonly enabled: "always" | ((config: Config) => boolean);
  /** What to set to enable it; required unless `enabled` is `always` */
  readonly enabledBy?: string;
  readonly needs: readonly N[];
  /** Milliseconds one call may take, where its own configuration has a limit. Default: the executor's */
  readonly timeoutMs?: (config: Config) => number;
  /** Every property with a description; plain validations alone, since it becomes the JSON Schema */
  readonly input: S;
  /** The first property, when an input that is no JSON object is its value */
  readonly textField?: keyof S["entries"] & string;
  /** What the schema cannot say, as the fields of each `op`. @throws {ToolError} `invalid_input` naming the field */
  readonly check?: (input: v.InferOutput<S>) => void;
  /** What the configuration refuses whoever approves it, as a command that is not allowed. @throws {ToolError} */
  readonly admit?: (input: v.InferOutput<S>, config: Config) => void;
  /** Looks on the disk for what would refuse the call anyway, before anybody is asked to approve it. @throws {ToolError} */
  readonly screen?: (
    input: v.InferOutput<S>,
    context: Omit<ScreenContext, "services"> & Pick<ContextWith<N>, "services">,
  ) => Promise<void>;
  /** Returns what an approval of the call is bound to beside the files it changes. Has no effect. Default: nothing. @throws {ToolError} */
  readonly bind?: (
    input: v.InferOutput<S>,
    context: Omit<ScreenContext, "services"> & Pick<ContextWith<N>, "services" | "signal">,
  ) => Promise<BoundParts>;
  /** Default: nothing but what `access` says */
  readonly effects?: (input: v.InferOutput<S>) => Effects;
  readonly run: (input: v.InferOutput<S>, context: ContextWith<N>) => Promise<ToolResult>;
}

/**
 * A tool from its definition; the JSON Schema is made at once.
 * @throws {TypeError} for a definition that breaks the rules above: a mistake of ours, found when the program starts
 */
export function defineTool<const S extends InputSchema, const N extends ServiceName>(
  definition: ToolDefinition<S, N>,
): Tool {
  const { name, access } = definition;
  const inputSchema = toInputSchema(name, definition.input);
  const fields = Object.keys(inputSchema.properties);
  if (definition.textField !== undefined && definition.textField !== fields[0]) {
    throw new TypeError(`Tool "${name}": the text form's property must stand first`);
  }
  if (definition.enabled !== "always" && definition.enabledBy === undefined) {
    throw new TypeError(`Tool "${name}": say what enables it`);
  }
  const parsing = { tool: name, fields, required: inputSchema.required ?? [], textField: definition.textField };
  const objects = fields.filter((field) => inputSchema.properties[field]?.["type"] === "object");
  const prepare = (text: string): PreparedCall => {
    const given = parseInput(text, parsing);
    const list = objects.find((field) => Array.isArray(given[field]));
    // Valibot takes a list for an object
    if (list !== undefined) {
      throw new ToolError("invalid_input", `Cannot call "${name}": "${list}" must be an object, and is an array`);
    }
    const parsed = v.safeParse(definition.input, given, { abortEarly: true });
    if (!parsed.success) throw inputError(name, parsed.issues[0], { fields, given });
    const input = parsed.output;
    definition.check?.(input);
    return {
      input,
      digest: canonicalDigest(input),
      access: definition.accessOf?.(input) ?? access,
      effects: definition.effects?.(input) ?? {},
      repeatable: definition.repeatable ?? false,
      admit: (config) => definition.admit?.(input, config),
      screen: async (context) => await definition.screen?.(input, context),
      ...(definition.bind === undefined
        ? {}
        : { bind: async (context) => await definition.bind?.(input, context) ?? { shown: [] } }),
      // The executor hands in the services that `needs` names
      run: async (context) => await definition.run(input, context as ContextWith<N>),
    };
  };
  return {
    name,
    description: definition.description,
    access,
    source: "builtin",
    enabled: definition.enabled,
    enabledBy: definition.enabledBy,
    needs: definition.needs,
    timeoutMs: definition.timeoutMs,
    inputSchema,
    prepare,
    execute: async (text, context) => await prepare(text).run(context),
  };
}

function toInputSchema(name: string, schema: InputSchema): ObjectJsonSchema {
  const { $schema: _version, ...converted } = toJsonSchema(schema, { target: "draft-2020-12" });
  requireDescriptions(name, converted);
  // A strict object converts to exactly this shape
  return converted as unknown as ObjectJsonSchema;
}

function requireDescriptions(place: string, schema: JsonSchema): void {
  const { properties, items } = schema as {
    readonly properties?: Record<string, JsonSchema>;
    readonly items?: JsonSchema;
  };
  for (const [key, property] of Object.entries(properties ?? {})) {
    if (typeof property.description !== "string") throw new TypeError(`Tool "${place}": "${key}" has no description`);
    requireDescriptions(`${place}.${key}`, property);
  }
  if (items !== undefined) requireDescriptions(`${place}[]`, items);
}
