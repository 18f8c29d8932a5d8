import { isRecord, type JsonSchema, type ObjectJsonSchema } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import { compileSchema } from "./json_schema.ts";
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

/** Keywords beside which `properties` is not all that an object may have. */
const OPENING = [
  "additionalProperties",
  "patternProperties",
  "unevaluatedProperties",
  "allOf",
  "anyOf",
  "oneOf",
  "not",
  "if",
  "$ref",
];
const MAX_CLOSED_DEPTH = 16;

/**
 * Returns a schema whose objects are closed where they name properties and say nothing of others, in fields and items too: who lists the
 * fields means no other. Definitions and branches stay as they are: another part may add to their fields.
 */
export function closeObjects(schema: unknown, depth = 0): unknown {
  if (!isRecord(schema) || depth > MAX_CLOSED_DEPTH) return schema;
  const close = (part: unknown) => closeObjects(part, depth + 1);
  const { properties, items, prefixItems } = schema;
  const isClosed = depth > 0 && isRecord(properties) && Object.keys(properties).length > 0 &&
    !OPENING.some((keyword) => Object.hasOwn(schema, keyword));
  return {
    ...schema,
    ...(isRecord(properties)
      ? { properties: Object.fromEntries(Object.entries(properties).map(([name, part]) => [name, close(part)])) }
      : {}),
    ...(isRecord(items) ? { items: close(items) } : {}),
    ...(Array.isArray(prefixItems) ? { prefixItems: prefixItems.map(close) } : {}),
    ...(isClosed ? { additionalProperties: false } : {}),
  };
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
