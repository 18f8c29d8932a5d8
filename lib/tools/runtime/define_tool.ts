import { toJsonSchema } from "@valibot/to-json-schema";
import * as v from "valibot";
import { canonicalDigest, type JsonSchema, type ObjectJsonSchema } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import { lazily } from "../../base/lazily.ts";
import type { Config } from "../../config/config.ts";
import { inputError, parseInput } from "./parse_input.ts";
import type {
  Access,
  BoundParts,
  Effects,
  PreparedCall,
  RealCall,
  ScreenContext,
  ServiceName,
  Tool,
  ToolContext,
  ToolServices,
} from "./tool.ts";
import type { ToolResult } from "./tool_call.ts";

/** Schema of a tool's input: a strict object, so that an unknown field is refused. */
export type InputSchema = v.StrictObjectSchema<v.ObjectEntries, undefined>;

/** Context that a tool's `run` gets, with only the services that the tool needs. */
export type ContextWith<N extends ServiceName> = Omit<ToolContext, "services"> & {
  readonly services: Pick<ToolServices, N>;
};

/** Definition of a built-in tool. */
export interface ToolDefinition<S extends InputSchema, N extends ServiceName> {
  /** `[a-z][a-z0-9_]{0,63}`, also the name of its file */
  readonly name: string;
  /** Text for the model: what the tool does and returns, in one to three sentences */
  readonly description: string;
  readonly access: Access;
  /** True when the output comes from outside though the access is not `network`. Default false */
  readonly outside?: boolean;
  /** True when an output that is no error is what was read, without a word of the input: its links are none of the model's. Default false */
  readonly verbatim?: boolean;
  /** Returns the access of one call when it depends on the input. Default: `access`, which lists show */
  readonly accessOf?: (input: v.InferOutput<S>) => Access;
  /** Returns the access that a configuration gives to every call and to lists, when that is wider. Default: it gives none */
  readonly accessUnder?: (config: Config) => Access;
  /** Returns the sites that a configuration signs every call in to. Default: none */
  readonly loginsUnder?: (config: Config) => readonly string[];
  /**
   * True when making a call twice does no more than making it once: after a crash that left the outcome unknown, the call is made
   * again. Default false: a person reviews the run. Calls that only read are always made again
   */
  readonly repeatable?: boolean | ((input: v.InferOutput<S>) => boolean);
  /**
   * True for calls of access `state` that a tainted run may make as any other: the record that they change carries the taint, or a person
   * is asked anyway. Default false: they ask
   */
  readonly carriesTaint?: boolean | ((input: v.InferOutput<S>) => boolean);
  readonly enabled: "always" | ((config: Config) => boolean);
  /** Setting that enables the tool, such as `[cron] enabled = true`. Required unless `enabled` is `always` */
  readonly enabledBy?: string;
  /** Name that the tool is called by in a run whose client has a tool of its name. Default: the client's hides it */
  readonly otherName?: string;
  /** True when the model is told of the tool in each turn. Default false: `tool_search` finds it in a run with many tools */
  readonly alwaysOffered?: boolean;
  /** True when calls need this machine though no service in `needs` does. Default: as the services say */
  readonly local?: boolean;
  readonly needs: readonly N[];
  /** Milliseconds that one call may take. Default: the executor's limit */
  readonly timeoutMs?: (config: Config) => number;
  /** Schema of the input. Each property has a description, and only plain validations: it becomes the JSON Schema */
  readonly input: S;
  /** Property that a plain text is the value of, when the input is no JSON object; the first one. Default: plain text is refused */
  readonly textField?: keyof S["entries"] & string;
  /** Reads a plain text that is the values of several fields, in place of `textField`. @throws {ToolError} `invalid_input` */
  readonly parseText?: (text: string) => Readonly<Record<string, unknown>>;
  /** Checks the rules that the schema cannot express, as the fields of each `op`. @throws {ToolError} `invalid_input` naming the field */
  readonly check?: (input: v.InferOutput<S>) => void;
  /** Refuses calls that the configuration forbids whoever approves them, such as a command that is not allowed. @throws {ToolError} */
  readonly admit?: (input: v.InferOutput<S>, config: Config) => void;
  /** Looks on the disk, before an approval is opened, for reasons that refuse the call anyway. @throws {ToolError} */
  readonly screen?: (
    input: v.InferOutput<S>,
    context: Omit<ScreenContext, "services"> & Pick<ContextWith<N>, "services">,
  ) => Promise<void>;
  /** Returns the state that an approval is bound to beside the changed files. Has no effect. Default: none. @throws {ToolError} */
  readonly bind?: (
    input: v.InferOutput<S>,
    context: Omit<ScreenContext, "services"> & Pick<ContextWith<N>, "services" | "signal">,
  ) => Promise<BoundParts>;
  /** Returns the call that a call stands for. undefined: it is a call of its own. Default: it always is */
  readonly standsFor?: (input: v.InferOutput<S>) => RealCall | undefined;
  /** Returns the effects of a call, as the files it changes. Default: none beyond its access */
  readonly effects?: (input: v.InferOutput<S>) => Effects;
  /** Returns the effects of a call under a configuration. Default: `effects`. @throws {ToolError} for a command that cannot be read */
  readonly effectsUnder?: (input: v.InferOutput<S>, config: Config) => Effects;
  /** Returns the description for the model under a configuration. Default: `description` */
  readonly descriptionUnder?: (config: Config) => string;
  /** Returns the input with what its conversation knows. Default: the input */
  readonly fill?: (
    input: v.InferOutput<S>,
    context: Pick<ContextWith<N>, "conversationId" | "config" | "services">,
  ) => Promise<v.InferOutput<S>>;
  readonly run: (input: v.InferOutput<S>, context: ContextWith<N>) => Promise<ToolResult>;
}

/** Services, and whether they lead to things of this machine that other gateways of a cluster do not have. */
const LOCAL_SERVICES: Readonly<Record<ServiceName, boolean>> = {
  files: true,
  memory: false,
  plans: false,
  mailbox: false,
  commandFolders: false,
  cookieJars: false,
  browserLogins: false,
  commands: true,
  processes: true,
  workers: false,
  git: true,
  desktop: true,
  urls: false,
  browsers: true,
  guardedFetch: false,
  documents: false,
  proxyOf: false,
  environment: false,
  secrets: false,
  redactor: false,
  schedules: false,
  sops: true,
  subAgents: false,
  boards: true,
  catalogue: false,
  wasmModules: true,
  mcpReader: true,
  skills: true,
};

/**
 * Makes a tool from its definition. Its JSON Schema is made at the first use, since a start needs the schema of no tool.
 * @throws {TypeError} for a definition that breaks the rules above, when the program starts. The first use of the schema throws for a
 *   property that has no description or no JSON Schema; `test/tools/contract.test.ts` uses the schema of each tool
 */
export function defineTool<const S extends InputSchema, const N extends ServiceName>(
  definition: ToolDefinition<S, N>,
): Tool {
  const { name, access } = definition;
  const inputSchema = lazily(() => toInputSchema(name, definition.input));
  // An object stays an object
  const modelSchema = lazily(() => withoutWideBounds(inputSchema()) as ObjectJsonSchema);
  const fields = Object.keys(definition.input.entries);
  if (definition.textField !== undefined && definition.textField !== fields[0]) {
    throw new TypeError(`Tool "${name}": the text form's property must stand first`);
  }
  if (definition.enabled !== "always" && definition.enabledBy === undefined) {
    throw new TypeError(`Tool "${name}": say what enables it`);
  }
  const { textField, parseText } = definition;
  const parsing = lazily(() => ({ tool: name, fields, required: inputSchema().required ?? [], textField, parseText }));
  const objects = lazily(() => fields.filter((field) => inputSchema().properties[field]?.["type"] === "object"));
  const read = (text: string): v.InferOutput<S> => {
    const given = parseInput(text, parsing());
    const list = objects().find((field) => Array.isArray(given[field]));
    // Valibot accepts an array as an object
    if (list !== undefined) {
      throw new ToolError("invalid_input", `Cannot call "${name}": "${list}" must be an object, and is an array`);
    }
    const parsed = v.safeParse(definition.input, given, { abortEarly: true });
    if (!parsed.success) throw inputError(name, parsed.issues[0], { fields, given });
    const input = parsed.output;
    definition.check?.(input);
    return input;
  };
  const { standsFor, fill, repeatable, carriesTaint, admit, screen, bind, effects, effectsUnder } = definition;
  const prepare = (text: string): PreparedCall => {
    const input = read(text);
    return {
      input,
      digest: canonicalDigest(input),
      access: definition.accessOf?.(input) ?? access,
      effects: effects?.(input) ?? {},
      repeatable: typeof repeatable === "function" ? repeatable(input) : repeatable ?? false,
      carriesTaint: typeof carriesTaint === "function" ? carriesTaint(input) : carriesTaint ?? false,
      // A step that the tool does not have is left out
      ...(effectsUnder && { effectsUnder: (config) => effectsUnder(input, config) }),
      ...(admit && { admit: (config) => admit(input, config) }),
      ...(screen && { screen: async (context) => await screen(input, context) }),
      ...(bind && { bind: async (context) => await bind(input, context) }),
      // The executor hands in the services that `needs` names
      run: async (context) => await definition.run(input, context as ContextWith<N>),
    };
  };
  return {
    name,
    description: definition.description,
    access,
    accessUnder: definition.accessUnder,
    descriptionUnder: definition.descriptionUnder,
    loginsUnder: definition.loginsUnder,
    source: "builtin",
    outside: definition.outside,
    verbatim: definition.verbatim,
    enabled: definition.enabled,
    enabledBy: definition.enabledBy,
    otherName: definition.otherName,
    alwaysOffered: definition.alwaysOffered,
    local: definition.local ?? definition.needs.some((service) => LOCAL_SERVICES[service]),
    needs: definition.needs,
    timeoutMs: definition.timeoutMs,
    get inputSchema() {
      return inputSchema();
    },
    fill: fill && (async (text, context) => {
      let input: v.InferOutput<S>;
      try {
        input = read(text);
      } catch {
        // A bad input is refused where it is prepared
        return text;
      }
      return JSON.stringify(await fill(input, context));
    }),
    standsFor: standsFor === undefined ? undefined : (text) => standsFor(read(text)),
    get modelSchema() {
      return modelSchema();
    },
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

/** Longer texts, and integers above this, come from no sensible call: the model need not be told that they are refused. */
const WIDE_LENGTH = 64;
const WIDE_INTEGER = 1_000_000;

/**
 * Returns a schema without the bounds that no sensible call meets. They cost the model bytes on every turn, and a call that breaks
 * one is refused with its name.
 */
function withoutWideBounds(schema: JsonSchema): JsonSchema {
  // Keywords of valibot's, which a JsonSchema does not name
  const { minLength: _minLength, maxLength, minimum, maximum, properties, items, ...rest } = schema as JsonSchema & {
    readonly properties?: Record<string, JsonSchema>;
    readonly items?: JsonSchema;
  };
  const narrowed = Object.entries(properties ?? {}).map(([key, property]) => [key, withoutWideBounds(property)]);
  return {
    ...rest,
    ...(typeof maxLength === "number" && maxLength < WIDE_LENGTH ? { maxLength } : {}),
    ...(typeof minimum === "number" && minimum > 1 ? { minimum } : {}),
    ...(typeof maximum === "number" && maximum < WIDE_INTEGER ? { maximum } : {}),
    ...(properties === undefined ? {} : { properties: Object.fromEntries(narrowed) }),
    ...(items === undefined ? {} : { items: withoutWideBounds(items) }),
  };
}

function requireDescriptions(place: string, schema: JsonSchema): void {
  // Keywords of valibot's, which a JsonSchema does not name
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
