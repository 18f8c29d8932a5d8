import { refuse } from "../../../lib/base/errors.ts";
import type { ToolChoice, ToolDeclaration } from "../../../lib/providers/provider.ts";
import { addOnce } from "../to_completion_input.ts";
import { isClientTool, type ResponseBody, type ResponseTool } from "./response_body.ts";

/** A tool of the client as its request declares it, by the name that the model is told. */
export interface NamedTool {
  readonly kind: "function" | "custom";
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

/**
 * Translates the tools of a request. A custom tool becomes a function with one text; tools of a namespace become `namespace.name`. Tools
 * that run at the vendor are left out.
 * @param ignored receives the names of fields that are not honoured
 * @throws {HttpError} 400 `invalid_request` for a name given twice and an allowed tool that is not declared; 400 `unsupported_parameter` for
 *   a choice that forces a tool of the vendor
 */
export function toResponseTools({ tools, tool_choice: choice }: ResponseBody, ignored: string[]): ResponseTools {
  const declared = new Map<string, ToolDeclaration>();
  const named = new Map<string, NamedTool>();
  const add = (tool: ResponseTool, namespace: string | undefined, param: string) => {
    const name = flatName(tool.name, namespace);
    if (declared.has(name)) {
      throw refuse("invalid_request", `Cannot declare the tool "${name}" twice: rename one of the two`, { param });
    }
    declared.set(name, { ...toDeclaration(tool, ignored), name });
    named.set(name, { kind: tool.type, name: tool.name, namespace });
  };
  (tools ?? []).forEach((tool, at) => {
    const param = `tools[${at}]`;
    if (!isClientTool(tool)) addOnce(ignored, `tools[].${tool.type}`);
    else if (tool.type !== "namespace") add(tool, undefined, `${param}.name`);
    else tool.tools.forEach((inner, place) => add(inner, tool.name, `${param}.tools[${place}].name`));
  });
  const all = [...declared.values()];
  if (typeof choice !== "object" || choice === null) return { declared: all, choice: choice ?? undefined, named };
  // The schema tells this choice from the others by its type, which TypeScript cannot see
  const allowed = choice as AllowedTools;
  if (allowed.type !== "allowed_tools") {
    return { declared: all, choice: { name: chosenName(choice, "tool_choice") }, named };
  }
  const names = new Set(allowed.tools.map((tool, at) => chosenName(tool, `tool_choice.tools[${at}]`)));
  for (const name of names) {
    if (declared.has(name)) continue;
    throw refuse("invalid_request", `Cannot allow the tool "${name}": it is not among the request's tools`, {
      param: "tool_choice.tools",
    });
  }
  return { declared: all.filter(({ name }) => names.has(name)), choice: allowed.mode, named };
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

const FIELDS: ReadonlySet<string> = new Set(["type", "name", "description", "parameters", "strict", "format"]);

function toDeclaration(tool: ResponseTool, ignored: string[]): ToolDeclaration {
  for (const key in tool) {
    if (!FIELDS.has(key) && tool[key] !== null && tool[key] !== undefined) addOnce(ignored, `tools[].${key}`);
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
