/**
 * Writes lib/config/gateway_config.ts from the schema of postern.toml: `node scripts/config_types.ts`.
 *
 * A type that TypeScript infers from the schema would bring the declarations of all schemas into the package, and JSR refuses it.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { JsonSchema } from "../lib/base/json.ts";
import { configJsonSchema } from "../lib/config/schema_keys.ts";

/** The parts of the JSON Schema that the types are made of. */
interface Key {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Key>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Key | false;
  readonly items?: Key;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Key[];
}

const FILE = join(import.meta.dirname, "../lib/config/gateway_config.ts");

/** Returns the module with the type of the configuration. */
export function configTypes(schema: JsonSchema = configJsonSchema()): string {
  // The schema is one of tables and values alone
  return `// deno-fmt-ignore-file: written from the schema by scripts/config_types.ts
/** Tables and keys of \`postern.toml\` as an object; docs/configuration.md has their meanings. */
export interface GatewayConfig ${typeOf(schema as Key, { indent: "", path: [] })}
`;
}

/** Where a key stands: its tables, and the indentation of its line. */
interface Place {
  readonly indent: string;
  readonly path: readonly string[];
}

/** @throws {Error} a schema of a kind that no key had so far */
function typeOf(key: Key, place: Place): string {
  if (key.enum !== undefined) return key.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (key.anyOf !== undefined) return key.anyOf.map((one) => typeOf(one, place)).join(" | ");
  switch (key.type) {
    case "string":
    case "boolean":
      return key.type;
    case "integer":
    case "number":
      return "number";
    case "array":
      return `readonly ${within(typeOf(key.items ?? {}, place))}[]`;
    case "object":
      return key.properties === undefined
        ? `{ readonly [name: string]: ${typeOf(key.additionalProperties || {}, place)} }`
        : tableOf(key, place);
    default:
      throw new Error(`Cannot write the type of ${JSON.stringify(key).slice(0, 200)}`);
  }
}

function tableOf({ properties = {}, required = [] }: Key, { indent, path }: Place): string {
  const inner = `${indent}  `;
  const lines = Object.entries(properties).map(([name, key]) => {
    const place = { indent: inner, path: [...path, name] };
    const [mark, end] = required.includes(name) ? ["", ""] : ["?", " | undefined"];
    return `${inner}/** ${meaningOf(key, place.path)} */\n${inner}readonly ${name}${mark}: ${
      typeOf(key, place)
    }${end};\n`;
  });
  return `{\n${lines.join("")}${indent}}`;
}

/** Returns the words of a key for whoever hovers over it: those of docs/configuration.md. A table is named as the file names it. */
function meaningOf(key: Key, path: readonly string[]): string {
  const table = [key, key.additionalProperties || {}, key.items ?? {}].find(({ properties }) =>
    properties !== undefined
  );
  const description = `${key.description ?? table?.description}.`.replaceAll("*/", "*\\/");
  if (table !== undefined) return `\`[${path.join(".")}]\`: ${description}`;
  return key.default === undefined ? description : `${description} Default: \`${JSON.stringify(key.default)}\``;
}

function within(type: string): string {
  return type.includes(" | ") ? `(${type})` : type;
}

if (import.meta.main) writeFileSync(FILE, configTypes());
