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
export interface GatewayConfig ${typeOf(schema as Key, "")}
`;
}

/** @throws {Error} a schema of a kind that no key had so far */
function typeOf(key: Key, indent: string): string {
  if (key.enum !== undefined) return key.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (key.anyOf !== undefined) return key.anyOf.map((one) => typeOf(one, indent)).join(" | ");
  switch (key.type) {
    case "string":
    case "boolean":
      return key.type;
    case "integer":
    case "number":
      return "number";
    case "array":
      return `readonly ${within(typeOf(key.items ?? {}, indent))}[]`;
    case "object":
      return key.properties === undefined
        ? `{ readonly [name: string]: ${typeOf(key.additionalProperties || {}, indent)} }`
        : tableOf(key, indent);
    default:
      throw new Error(`Cannot write the type of ${JSON.stringify(key).slice(0, 200)}`);
  }
}

function tableOf({ properties = {}, required = [] }: Key, indent: string): string {
  const inner = `${indent}  `;
  const lines = Object.entries(properties).map(([name, key]) =>
    required.includes(name)
      ? `${inner}readonly ${name}: ${typeOf(key, inner)};\n`
      : `${inner}readonly ${name}?: ${typeOf(key, inner)} | undefined;\n`
  );
  return `{\n${lines.join("")}${indent}}`;
}

function within(type: string): string {
  return type.includes(" | ") ? `(${type})` : type;
}

if (import.meta.main) writeFileSync(FILE, configTypes());
