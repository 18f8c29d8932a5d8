import { refuse } from "../../../lib/base/errors.ts";
import type { ToolChoice, ToolDeclaration } from "../../../lib/providers/provider.ts";
import { addOnce } from "../to_completion_input.ts";
import {
  bringsTools,
  isClientTool,
  type ResponseBody,
  type ResponseItem,
  type ResponseTool,
  type ToolsOfBody,
} from "./response_body.ts";

/** A tool of the client as its request declares it, by the name that the model is told. */
export interface NamedTool {
  readonly kind: ResponseTool["type"];
  readonly name: string;
  readonly namespace: string | undefined;
}

/** Tools of a request, as a run takes them and as its reply names them. */
export interface ResponseTools {
  readonly declared: readonly ToolDeclaration[];
  readonly choice: ToolChoice | undefined;
  /** Tools of the client by the name that the model is told */
  readonly named: ReadonlyMap<string, NamedTool>;
}

/** Returns the name that the model is told for a tool in a namespace. */
export function flatName(name: string, namespace: string | null | undefined): string {
  return typeof namespace === "string" ? `${namespace}.${name}` : name;
}

/** Field of the function that stands for a custom tool. */
export const CUSTOM_INPUT = "input";

/** Name of the function that stands for a search of tools that the client executes. */
export const CLIENT_SEARCH = "tool_search";

/**
 * Translates the tools of a request, and those that items of its input bring. A custom tool becomes a function with one text; tools of a
 * namespace become `namespace.name`. Tools that run at the vendor are left out. Where the client executes a search, deferred tools wait for it.
 *
 * A name in `tools` is that tool, whatever an item says; of several items the last one counts, as a client repeats what it found.
 * @param ignored receives the names of fields that are not honoured
 * @param brought items of earlier responses that bring tools. Default: none
 * @throws {HttpError} 400 `invalid_request` for a name given twice in `tools` and an allowed tool that is not declared; 400
 *   `unsupported_parameter` for a choice that forces a tool of the vendor
 */
export function toResponseTools(
  { tools, tool_choice: choice, input }: ResponseBody,
  ignored: string[],
  brought: readonly ResponseItem[] = [],
): ResponseTools {
  if (!tools?.length && !choice && brought.length === 0 && typeof input === "string") return NO_TOOLS;
  const declared = new Map<string, ToolDeclaration>();
  const named = new Map<string, NamedTool>();
  const deferred = new Set<string>();
  const loaded = new Set<string>();
  let own: ReadonlySet<string> = new Set();
  const add = ({ tool, name, namespace }: PlacedTool, isFound: boolean, unknown = ignored) => {
    (tool["defer_loading"] === true && !isFound ? deferred : loaded).add(name);
    if (own.has(name)) return;
    declared.set(name, { ...toDeclaration(tool, unknown), name });
    named.set(name, { kind: tool.type, name: tool.type === CLIENT_SEARCH ? name : tool.name, namespace });
  };
  for (const placed of clientTools(tools ?? [], ignored)) {
    const { name, place } = placed;
    if (declared.has(name)) {
      throw refuse("invalid_request", `Cannot declare the tool "${name}" twice: rename one of the two`, {
        param: `tools${place}`,
      });
    }
    add(placed, false);
  }
  own = new Set(declared.keys());
  const addBrought = (items: readonly ResponseItem[], unknown: string[]) => {
    for (const item of items.filter(bringsTools)) {
      for (const placed of clientTools(item.tools, unknown)) add(placed, item.type === "tool_search_output", unknown);
    }
  };
  addBrought(brought, []);
  if (typeof input !== "string") addBrought(input ?? [], ignored);
  const canSearch = named.get(CLIENT_SEARCH)?.kind === CLIENT_SEARCH;
  if (!canSearch && deferred.size > 0) addOnce(ignored, "tools[].defer_loading");
  const told = () => [...declared.values()].filter(({ name }) => !canSearch || loaded.has(name) || !deferred.has(name));
  if (typeof choice !== "object" || choice === null) return { declared: told(), choice: choice ?? undefined, named };
  // The schema tells this choice from the others by its type, which TypeScript cannot see
  const allowed = choice as AllowedTools;
  const nameOf = (chosen: Chosen, param: string) =>
    canSearch && chosen.type === CLIENT_SEARCH ? CLIENT_SEARCH : chosenName(chosen, param);
  if (allowed.type !== "allowed_tools") {
    const name = nameOf(choice, "tool_choice");
    // A tool that must be called waits for no search
    loaded.add(name);
    return { declared: told(), choice: { name }, named };
  }
  const names = new Set(allowed.tools.map((tool, at) => nameOf(tool, `tool_choice.tools[${at}]`)));
  for (const name of names) {
    if (declared.has(name)) continue;
    throw refuse("invalid_request", `Cannot allow the tool "${name}": it is not among the request's tools`, {
      param: "tool_choice.tools",
    });
  }
  return { declared: told().filter(({ name }) => names.has(name)), choice: allowed.mode, named };
}

const NO_TOOLS: ResponseTools = { declared: [], choice: undefined, named: new Map() };

/** Returns what the model is told of a search: the names of the tools that it brought. */
export function toFound(tools: ToolsOfBody): string {
  const names = clientTools(tools, []).map(({ name }) => name);
  return names.length === 0 ? "No tool was found" : `These tools can be called from now on: ${names.join(", ")}`;
}

/** A tool of the client with the name that the model is told. */
interface PlacedTool {
  readonly tool: ResponseTool;
  readonly name: string;
  readonly namespace: string | undefined;
  /** Place of its name in the list, such as `[3].name` */
  readonly place: string;
}

/** Returns the client's tools of a list, those of its namespaces too. @param ignored receives the types of those that run at the vendor */
function clientTools(tools: ToolsOfBody, ignored: string[]): readonly PlacedTool[] {
  return tools.flatMap((tool, at): PlacedTool | PlacedTool[] => {
    if (!isClientTool(tool)) {
      addOnce(ignored, `tools[].${tool.type}`);
      return [];
    }
    if (tool.type === "tool_search") return { tool, name: CLIENT_SEARCH, namespace: undefined, place: `[${at}]` };
    if (tool.type !== "namespace") return { tool, name: tool.name, namespace: undefined, place: `[${at}].name` };
    const { name: namespace } = tool;
    return tool.tools.map((inner, place) => ({
      tool: inner,
      name: flatName(inner.name, namespace),
      namespace,
      place: `[${at}].tools[${place}].name`,
    }));
  });
}

interface Chosen {
  readonly type: string;
  readonly name?: string | null | undefined;
  readonly namespace?: string | null | undefined;
}

interface AllowedTools {
  readonly type: string;
  readonly mode: "auto" | "required" | "none";
  readonly tools: readonly Chosen[];
}

function chosenName({ type, name, namespace }: Chosen, param: string): string {
  if ((type === "function" || type === "custom") && typeof name === "string") return flatName(name, namespace);
  if (type === "function" || type === "custom") {
    throw refuse("invalid_request", `Cannot accept "${param}.name": it is missing`, { param: `${param}.name` });
  }
  throw refuse(
    "unsupported_parameter",
    `Cannot force the tool type given in "${param}": such tools run at the vendor, and this gateway has none of them; ` +
      'choose a function, or send "auto"',
    { param },
  );
}

const FIELDS: ReadonlySet<string> = new Set([
  "type",
  "name",
  "description",
  "parameters",
  "strict",
  "format",
  "execution",
  "defer_loading",
]);

function toDeclaration(tool: ResponseTool, ignored: string[]): ToolDeclaration {
  for (const key in tool) {
    if (!FIELDS.has(key) && tool[key] !== null && tool[key] !== undefined) addOnce(ignored, `tools[].${key}`);
  }
  if (tool.type === "tool_search") {
    const { description, parameters } = tool;
    return { name: CLIENT_SEARCH, description: description ?? "Finds more tools", parameters: parameters ?? undefined };
  }
  if (tool.type === "function") {
    return {
      name: tool.name,
      description: tool.description ?? "",
      parameters: tool.parameters ?? undefined,
      ...(typeof tool.strict === "boolean" ? { strict: tool.strict } : {}),
    };
  }
  const { definition, syntax } = tool.format ?? {};
  const grammar = typeof definition === "string"
    ? `\n\nThe text must fit this ${syntax ?? ""} grammar:\n${definition}`
    : "";
  return {
    name: tool.name,
    description: `${tool.description ?? ""}${grammar}`,
    parameters: {
      type: "object",
      properties: { [CUSTOM_INPUT]: { type: "string", description: "The whole input, as plain text" } },
      required: [CUSTOM_INPUT],
      additionalProperties: false,
    },
  };
}
