import type { JsonSchema } from "../../lib/base/json.ts";

/** Keywords that OpenAI and Anthropic take, by type: those of JSON Schema 2020-12 and nothing beside them. */
const KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  object: ["properties", "required", "additionalProperties"],
  array: ["items", "minItems", "maxItems", "uniqueItems"],
  string: ["enum", "minLength", "maxLength", "pattern"],
  integer: ["enum", "minimum", "maximum"],
  number: ["enum", "minimum", "maximum"],
  boolean: [],
};
/** Source: platform.claude.com/docs "Tool use", `input_schema` property keys */
const NAME = /^[a-zA-Z0-9_.-]{1,64}$/;
/** Source: developers.openai.com/api/docs "Structured Outputs", nesting */
const MAX_DEPTH = 5;

interface Node {
  readonly type?: unknown;
  readonly description?: unknown;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly unknown[];
  readonly additionalProperties?: unknown;
  readonly items?: JsonSchema;
  readonly enum?: readonly unknown[];
  readonly pattern?: string;
}

/** Why the two vendors or a validator could refuse a tool's schema as function parameters; empty: they take it. */
export function schemaFaults(schema: JsonSchema): readonly string[] {
  return schema["type"] === "object" ? faultsOf(schema, { place: "", depth: 1 }) : ["the top is no object"];
}

function faultsOf(schema: JsonSchema, { place, depth }: { readonly place: string; readonly depth: number }): string[] {
  const node = schema as Node;
  const fault = (what: string) => `${place || "the top"}: ${what}`;
  if (depth > MAX_DEPTH) return [fault(`is deeper than ${MAX_DEPTH} levels`)];
  if (typeof node.type !== "string" || KEYWORDS[node.type] === undefined) return [fault("has no single type")];
  const known = ["type", "description", ...KEYWORDS[node.type] ?? []];
  const faults = Object.keys(schema).filter((key) => !known.includes(key)).map((key) => fault(`has ${key}`));
  for (const [low, high] of [["minimum", "maximum"], ["minLength", "maxLength"], ["minItems", "maxItems"]] as const) {
    const [from, to] = [schema[low] ?? -Infinity, schema[high] ?? Infinity];
    if (typeof from !== "number" || typeof to !== "number" || from > to) faults.push(fault(`${low} is above ${high}`));
  }
  if (node.enum !== undefined && (node.enum.length === 0 || new Set(node.enum).size < node.enum.length)) {
    faults.push(fault("has a choice of none, or one twice"));
  }
  if (node.pattern !== undefined) new RegExp(node.pattern, "u");
  if (node.type === "object") faults.push(...objectFaults(node, { place, depth }, fault));
  if (node.type === "array") {
    if (node.items === undefined) faults.push(fault("has no items"));
    else faults.push(...faultsOf(node.items, { place: `${place}[]`, depth: depth + 1 }));
  }
  return faults;
}

/** An object of any properties, as the inputs of something that is not known beforehand. */
function isOpen(properties: Readonly<Record<string, JsonSchema>>): boolean {
  return Object.keys(properties).length === 0;
}

function objectFaults(
  { properties, required = [], additionalProperties }: Node,
  { place, depth }: { readonly place: string; readonly depth: number },
  fault: (what: string) => string,
): string[] {
  const faults: string[] = [];
  if (properties === undefined) return [fault("has no properties")];
  if (additionalProperties !== false && (place === "" || !isOpen(properties))) {
    faults.push(fault("takes other properties"));
  }
  if (required.some((name) => typeof name !== "string" || !Object.hasOwn(properties, name))) {
    faults.push(fault("requires what it does not have"));
  }
  for (const [name, property] of Object.entries(properties)) {
    const below = place === "" ? name : `${place}.${name}`;
    if (!NAME.test(name)) faults.push(`${below}: is no name for a property`);
    const { description } = property as Node;
    if (typeof description !== "string" || description.trim().length < 5) faults.push(`${below}: has no description`);
    faults.push(...faultsOf(property, { place: below, depth: depth + 1 }));
  }
  return faults;
}
