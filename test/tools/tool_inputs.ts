import fc from "fast-check";
import type { JsonSchema } from "../../lib/base/json.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import { TOOLS } from "../contract/tools.ts";

/** Texts that a tool may take for a path, a command, a key or a pattern. */
const TEXTS = [
  "notes.txt",
  "src/a.ts",
  "new.txt",
  "secrets/x",
  ".",
  "../outside/secret.txt",
  "/etc/passwd",
  "../.ssh/id_rsa",
  "*",
  "ls",
  "a",
  "gate",
] as const;

/** Inputs of a tool as text: what its table shows, what its schema allows, and any text. @param texts that fields of text are */
export function toolInputs(tool: Tool, texts: readonly string[] = TEXTS): fc.Arbitrary<string> {
  const sample = TOOLS[tool.name]?.sample ?? {};
  const { properties = {}, required = [] } = tool.inputSchema ?? {};
  const fields = Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, valueOf(schema, texts)]));
  const bySchema = fc.record(fields, { requiredKeys: [...required] });
  const inputs = fc.oneof(
    { weight: 4, arbitrary: bySchema.map((input) => JSON.stringify({ ...sample, ...input })) },
    { weight: 3, arbitrary: bySchema.map((input) => JSON.stringify(input)) },
    { weight: 2, arbitrary: fc.constantFrom(...texts) },
    { weight: 1, arbitrary: fc.string() },
  );
  return inputs;
}

function valueOf(schema: JsonSchema, texts: readonly string[]): fc.Arbitrary<unknown> {
  const { enum: choices, type, items } = schema as { enum?: readonly unknown[]; type?: string; items?: JsonSchema };
  if (choices !== undefined) return fc.constantFrom(...choices);
  switch (type) {
    case "integer":
    case "number":
      return fc.integer({ min: 0, max: 20 });
    case "boolean":
      return fc.boolean();
    case "array":
      return fc.array(valueOf(items ?? {}, texts), { minLength: 1, maxLength: 3 });
    case "object":
      return fc.record(
        Object.fromEntries(
          Object.entries((schema as { properties?: Record<string, JsonSchema> }).properties ?? {})
            .map(([name, property]) => [name, valueOf(property, texts)]),
        ),
      );
    default:
      return fc.constantFrom(...texts);
  }
}
