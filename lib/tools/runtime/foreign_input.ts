import { isRecord, type JsonSchema, type ObjectJsonSchema } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import { compileSchema, findDefinition } from "./json_schema.ts";
import { parseInput, type ParseInputOptions } from "./parse_input.ts";

/** Reader of the inputs of a tool that has only a JSON Schema, as a plugin's or a program's. */
export interface ForeignInput {
  readonly schema: ObjectJsonSchema;
  /** Parses an input and checks it. A plain text is the value of the first property where that is a text. @throws {ToolError} `invalid_input` */
  read(text: string): Readonly<Record<string, unknown>>;
}

/** Returns an input with the defaults of the required fields that it has not: models leave out what has a default. */
export function withDefaults(
  input: Readonly<Record<string, unknown>>,
  { properties, required }: JsonSchema,
): Readonly<Record<string, unknown>> {
  if (!isRecord(properties)) return input;
  const wanted: readonly unknown[] = Array.isArray(required) ? required : [];
  const given = Object.entries(properties).flatMap(([name, schema]) => {
    if (!isRecord(schema)) return [];
    if (!Object.hasOwn(input, name)) {
      const isFilled = wanted.includes(name) && schema["default"] !== undefined;
      return isFilled ? [[name, structuredClone(schema["default"])] as const] : [];
    }
    const value = input[name];
    return isRecord(value) ? [[name, withDefaults(value, schema)] as const] : [];
  });
  return given.length === 0 ? input : { ...input, ...Object.fromEntries(given) };
}

/** Keywords whose schemas see the very value that theirs sees. */
const CHOICES: readonly string[] = ["allOf", "anyOf", "oneOf"];
/** Keywords that say something of the parts of a value. */
const OF_PARTS = ["properties", "additionalProperties", "items", "prefixItems", ...CHOICES, "not", "$ref"];
/** Levels of JSON to which objects are closed. compileSchema refuses what is nested half as deep */
const MAX_CLOSED_DEPTH = 64;
/** Schemas within one schema. compileSchema refuses more */
const MAX_CLOSED = 500;

/**
 * Returns a schema whose objects are closed where they name properties and say nothing of others: who lists the fields means no other. Its
 * top is left to compileSchema.
 *
 * Closed are objects that one schema alone describes: as field, as item, by a reference, or in a choice as the only form that is an object
 * ("this or null"). What several schemas describe together, as those of `allOf`, stays open with all of its parts: each would refuse the
 * fields of the others. A definition is closed where all of its uses let it be.
 */
export function closeObjects(schema: unknown): unknown {
  const [alone, together] = [new Set<unknown>(), new Set<unknown>()];
  const todo: (readonly [part: unknown, isAlone: boolean])[] = [[schema, true]];
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    const [part, isAlone] = next;
    const seen = isAlone ? alone : together;
    if (!isRecord(part) || seen.has(part)) continue;
    seen.add(part);
    const { properties, additionalProperties, items, prefixItems, not, $ref } = part;
    const ownParts = [...Object.values(isRecord(properties) ? properties : {}), additionalProperties, items];
    const forms = CHOICES.flatMap((keyword) => listOf(part[keyword]));
    // Attack: a server's schema of 128 KiB has room for 30,000 forms, of which each is looked at for each field
    if (alone.size + together.size > 2 * MAX_CLOSED || ownParts.length + forms.length > MAX_CLOSED + 2) return schema;
    const isOwn = isAlone && !isJoined(part);
    for (const own of [...ownParts, ...listOf(prefixItems)]) todo.push([own, isOwn]);
    const isOnly = isAlone && OF_PARTS.filter((keyword) => saysOfParts(part, keyword)).length === 1;
    const shared = KINDS.filter((kind) => forms.filter((form) => kindsOf(form, schema).includes(kind)).length > 1);
    for (const form of forms) {
      todo.push([form, isOnly && !kindsOf(form, schema).some((kind) => shared.includes(kind))]);
    }
    todo.push([not, false], [findDefinition(schema, $ref), isOnly]);
  }
  /** Each object once: a program's may hold itself, and what is copied for each way to it has no end */
  const copies = new Map<object, unknown>();
  const close = (value: unknown, depth: number): unknown => {
    if (depth > MAX_CLOSED_DEPTH || typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value.map((item) => close(item, depth + 1));
    if (copies.has(value)) return copies.get(value);
    copies.set(value, value);
    const copy = Object.fromEntries(Object.entries(value).map(([name, part]) => [name, close(part, depth + 1)]));
    const isClosed = depth > 0 && alone.has(value) && !together.has(value) && isClosable(copy);
    const closed = isClosed ? { ...copy, additionalProperties: false } : copy;
    copies.set(value, closed);
    return closed;
  };
  return close(schema, 0);
}

function isClosable(schema: JsonSchema): boolean {
  const { properties } = schema;
  return isRecord(properties) && Object.keys(properties).length > 0 &&
    schema["additionalProperties"] === undefined && !isJoined(schema) &&
    // Else nothing would fit any more
    listOf(schema["required"]).every((name) => typeof name !== "string" || Object.hasOwn(properties, name));
}

/** Tells whether others describe the parts of a value beside a schema's own keywords. */
function isJoined(schema: JsonSchema): boolean {
  return [...CHOICES, "not", "$ref"].some((keyword) => saysOfParts(schema, keyword));
}

/** Tells whether a keyword says something of the parts of a value. Forms that only say which fields are `required` do not. */
function saysOfParts(schema: JsonSchema, keyword: string): boolean {
  const said = schema[keyword];
  if (said === undefined || !(keyword === "not" || CHOICES.includes(keyword))) return said !== undefined;
  const forms = keyword === "not" ? [said] : listOf(said);
  return forms.some((form) => isRecord(form) && OF_PARTS.some((name) => form[name] !== undefined));
}

/** Kinds of values that have parts. */
const KINDS = ["object", "array"];

/** Returns the kinds of values with parts that a schema takes, as far as its `type` or that of its definition tells. */
function kindsOf(schema: unknown, whole: unknown): readonly string[] {
  if (!isRecord(schema)) return schema === true ? KINDS : [];
  if (schema["const"] !== undefined || schema["enum"] !== undefined) return [];
  const definition = findDefinition(whole, schema["$ref"]);
  const type = schema["type"] ?? (isRecord(definition) ? definition["type"] : undefined);
  return type === undefined ? KINDS : KINDS.filter((kind) => type === kind || listOf(type).includes(kind));
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Makes the reader of a tool's inputs. @throws {SchemaError} a schema with a part that is not understood */
export function createForeignInput(
  tool: string,
  inputSchema: unknown,
  { nullable }: Pick<ParseInputOptions, "nullable"> = {},
): ForeignInput {
  const { schema, check } = compileSchema(closeObjects(inputSchema));
  const fields = Object.keys(schema.properties);
  const [first = ""] = fields;
  const textField = schema.properties[first]?.["type"] === "string" ? first : undefined;
  const isOpen = schema.additionalProperties !== false;
  const parsing = { tool, fields, required: schema.required ?? [], textField, nullable, isOpen };
  return {
    schema,
    read(text) {
      const input = withDefaults(parseInput(text, parsing), schema);
      const fault = check(input);
      if (fault === undefined) return input;
      const field = fault.path === "" ? "the input" : JSON.stringify(fault.path.slice(0, 200));
      throw new ToolError("invalid_input", `Cannot call "${tool}": ${field} ${fault.reason}`);
    },
  };
}
