import { isDeepStrictEqual } from "node:util";
import type { JsonSchema } from "../../base/json.ts";
import type { Message } from "../../base/records/message.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import type { ProviderRequest, ToolDeclaration } from "../provider.ts";
import { fitSchema, type FittedSchema, FULL_WORK, type SchemaWork } from "./fit_schema.ts";
import { type SchemaDialect, strictDialect } from "./schema_dialect.ts";
import { createToolNames, type ToolNames } from "./tool_names.ts";

/** Request whose tools a vendor takes, and the way back of the names. */
export interface FittedTools {
  readonly request: ProviderRequest;
  /** Gives the events of the reply with the names that Postern knows. Undefined: they are the same */
  readonly toOwn: ((events: readonly ProviderEvent[]) => readonly ProviderEvent[]) | undefined;
  /** Returns the names of what the vendor is told in another form. Compares the schemas: for a client that is told */
  readonly changed: () => readonly string[];
}

/** Keeps the fitted schemas of tools that come again in the requests of a provider. */
export type SchemaCache = WeakMap<SchemaDialect, WeakMap<JsonSchema, KnownSchema>>;

interface KnownSchema {
  readonly fitted: FittedSchema;
  /** Nodes that it took */
  readonly nodes: number;
}

/** Nodes that are opened and written for all tools of a request: those of some 500 tools of the usual size, or of 7 of the largest. */
const MAX_WORK = 30_000;

/** Fits names and schemas of the tools in a request, its history among them, to a vendor's dialect. */
export function fitTools(request: ProviderRequest, dialect: SchemaDialect, cache: SchemaCache): FittedTools {
  const names = createToolNames(namesOf(request), dialect.toolName);
  const work = { left: MAX_WORK };
  const tools = request.tools.map((tool) => fitTool(tool, { dialect, cache, names, work }));
  const changed = () => changedFields(request.tools, tools);
  if (names.changed === 0) return { request: { ...request, tools }, toOwn: undefined, changed };
  const { toolChoice } = request;
  return {
    request: {
      ...request,
      tools,
      messages: request.messages.map((message) => renameCalls(message, names)),
      toolChoice: typeof toolChoice === "object" ? { name: names.toVendor(toolChoice.name) } : toolChoice,
    },
    toOwn: (events) => events.map((event) => renameCall(event, names)),
    changed: () => ["tools[].function.name", ...changed()],
  };
}

function changedFields(given: readonly ToolDeclaration[], told: readonly ToolDeclaration[]): readonly string[] {
  const isChanged = (field: "description" | "parameters") =>
    told.some((tool, at) => tool[field] !== given[at]?.[field] && !isDeepStrictEqual(tool[field], given[at]?.[field]));
  return (["description", "parameters"] as const).filter(isChanged).map((field) => `tools[].function.${field}`);
}

function* namesOf({ tools, messages, toolChoice }: ProviderRequest): Generator<string> {
  for (const { name } of tools) yield name;
  if (typeof toolChoice === "object") yield toolChoice.name;
  for (const message of messages) {
    if (message.role !== "assistant") continue;
    for (const call of message.tool_calls ?? []) yield call.function.name;
  }
}

function fitTool(
  tool: ToolDeclaration,
  { dialect, cache, names, work }: {
    readonly dialect: SchemaDialect;
    readonly cache: SchemaCache;
    readonly names: ToolNames;
    readonly work: SchemaWork;
  },
): ToolDeclaration {
  const name = names.toVendor(tool.name);
  const { schema, notes } = tool.parameters === undefined
    ? NO_PARAMETERS
    : fitOnce(tool.parameters, tool.strict === true ? strictDialect(dialect) : dialect, { cache, work });
  const described = notes === "" ? tool.description : `${tool.description} (${notes})`;
  const max = dialect.maxToolDescription;
  if (max === undefined || described.length <= max) {
    return { ...tool, name, description: described, parameters: schema };
  }
  const kept = max - GOES_ON.length;
  const rest = [described.slice(kept), schema?.["description"]].filter((text) => text !== undefined).join(" ");
  const parameters = { type: "object", properties: {}, ...schema, description: rest };
  return { ...tool, name, description: `${described.slice(0, kept)}${GOES_ON}`, parameters };
}

/** End of a description that the vendor bounds: its rest is in the schema, where there is no bound. */
const GOES_ON = "... (goes on in the description of the parameters)";
const NO_PARAMETERS: FittedSchema = { schema: undefined, notes: "" };

/** Fits a schema once. Whether it was known makes no difference to the tools behind it, which a vendor keeps with the prompt. */
function fitOnce(
  schema: JsonSchema,
  dialect: SchemaDialect,
  { cache, work }: { readonly cache: SchemaCache; readonly work: SchemaWork },
): FittedSchema {
  let known = cache.get(dialect);
  if (known === undefined) cache.set(dialect, known = new WeakMap());
  const kept = known.get(schema);
  if (kept !== undefined && work.left >= FULL_WORK) {
    work.left -= kept.nodes;
    return kept.fitted;
  }
  const before = work.left;
  const fitted = fitSchema(schema, dialect, work);
  // A schema that was cut for the sake of others in the request is another one where it stands alone
  if (before >= FULL_WORK) known.set(schema, { fitted, nodes: before - work.left });
  return fitted;
}

function renameCalls(message: Message, names: ToolNames): Message {
  if (message.role !== "assistant" || message.tool_calls === undefined) return message;
  const calls = message.tool_calls.map((call) => {
    const name = names.toVendor(call.function.name);
    return name === call.function.name ? call : { ...call, function: { ...call.function, name } };
  });
  return { ...message, tool_calls: calls };
}

function renameCall(event: ProviderEvent, names: ToolNames): ProviderEvent {
  if (event.type !== "tool_call_delta" || event.name === undefined) return event;
  return { ...event, name: names.toOwn(event.name) };
}
