import type { ObjectJsonSchema } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import { compileSchema } from "./json_schema.ts";
import { parseInput, type ParseInputOptions } from "./parse_input.ts";

/** Reader of the inputs of a tool that has only a JSON Schema, as a plugin's or a program's. */
export interface ForeignInput {
  readonly schema: ObjectJsonSchema;
  /**
   * Parses an input and checks it. A plain text is the value of the first property where that is a text. A required property that is not
   * there gets its default: some servers call properties with a default required.
   * @throws {ToolError} `invalid_input`
   */
  read(text: string): Readonly<Record<string, unknown>>;
}

/** Makes the reader of a tool's inputs. @throws {SchemaError} a schema with a part that is not understood */
export function createForeignInput(
  tool: string,
  inputSchema: unknown,
  { nullable }: Pick<ParseInputOptions, "nullable"> = {},
): ForeignInput {
  const { schema, check } = compileSchema(inputSchema);
  const fields = Object.keys(schema.properties);
  const [first = ""] = fields;
  const textField = schema.properties[first]?.["type"] === "string" ? first : undefined;
  const defaults = (schema.required ?? []).flatMap((name) => {
    const value = schema.properties[name]?.["default"];
    return value === undefined ? [] : [[name, value] as const];
  });
  const parsing = { tool, fields, required: schema.required ?? [], textField, nullable };
  return {
    schema,
    read(text) {
      const given = parseInput(text, parsing);
      const missing = defaults.filter(([name]) => given[name] === undefined);
      const input = missing.length === 0 ? given : { ...given, ...Object.fromEntries(missing) };
      const fault = check(input);
      if (fault === undefined) return input;
      const field = fault.path === "" ? "the input" : JSON.stringify(fault.path.slice(0, 200));
      throw new ToolError("invalid_input", `Cannot call "${tool}": ${field} ${fault.reason}`);
    },
  };
}
