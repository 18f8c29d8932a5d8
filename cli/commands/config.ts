import { isRecord } from "../../lib/base/json.ts";
import { setConfigValue } from "../../lib/config/edit_config.ts";
import { parseKeyText, toKeyText, toTomlKey, toTomlValue } from "../../lib/config/toml.ts";
import { parseValue } from "../../lib/config/layers.ts";
import { nearestKey, schemaAt } from "../../lib/config/schema_keys.ts";
import { maskSecrets } from "../../lib/config/secrets.ts";
import { defineCliCommand, EXIT, UsageError } from "../command.ts";
import { editConfiguration } from "../edit_configuration.ts";
import { configWarnings, floatingWarnings, secretWarnings } from "../doctor/check_configuration.ts";

/** Command `postern config show`: the values in use as TOML, with secrets masked. A comment tells where each value that is no default came from. */
export const configShowCommand = defineCliCommand({
  args: {},
  example: "postern config show",
  async run(context) {
    const { config, file, sources } = await context.loadConfig();
    const { given: _, ...values } = config;
    const shown = maskSecrets(values);
    const lines = tomlLines(shown, (key) => (sources.has(key) ? `  # ${sources.get(key)}` : ""));
    const heading = `# File: ${file?.path ?? "none, all defaults"}`;
    context.print(
      { file: file?.path ?? null, config: shown, sources: Object.fromEntries(sources) },
      [heading, ...lines].join("\n"),
    );
    return EXIT.ok;
  },
});

/** Command `postern config get <key>`: one value as TOML, a text without quotes. */
export const configGetCommand = defineCliCommand({
  args: { key: { type: "positional", required: true, description: "The key, such as gateway.port" } },
  example: "postern config get gateway.port",
  async run(context, { key }) {
    const path = readKey(key);
    const { config } = await context.loadConfig();
    let value: unknown = maskSecrets(config);
    // A list has its entries by their places
    for (const part of path) value = (value as Record<string, unknown> | undefined)?.[part];
    if (value === undefined) throw new UsageError(`Cannot get "${key}": it is not set`);
    context.print(
      value,
      typeof value === "string" ? value : isRecord(value) ? tomlLines(value).join("\n") : toTomlValue(value),
    );
    return EXIT.ok;
  },
});

/**
 * Command `postern config check`: exit code 0 with a warning for each setting that does nothing, each secret that is not there and
 * each MCP server that is fetched again at each start, or 78 with everything that is wrong.
 */
export const configCheckCommand = defineCliCommand({
  args: {},
  example: "postern config check",
  async run(context) {
    const loaded = await context.loadConfig();
    const { file } = loaded;
    const missing = await secretWarnings(loaded, context.io.env);
    const floating = await floatingWarnings(loaded);
    const idle = await configWarnings(loaded, context.io.home);
    const warnings = [...idle, ...missing, ...floating];
    for (const { message } of warnings) context.say(`Warning: ${message}`);
    const place = file === undefined ? "No configuration file: all defaults" : file.path;
    const verdict = idle.length > 0
      ? `${file === undefined ? "The configuration" : place} can be used; what the warnings name does nothing`
      : missing.length > 0
      ? `${place} can be used; what needs the secrets that the warnings name fails`
      : floating.length > 0
      ? `${place} can be used`
      : file === undefined
      ? place
      : `${place} is fine`;
    context.print({ ok: true, file: file?.path ?? null, warnings }, verdict);
    return EXIT.ok;
  },
});

/** Command `postern config schema`: JSON Schema of postern.toml, for editors. */
export const configSchemaCommand = defineCliCommand({
  args: {},
  example: "postern config schema > postern.schema.json",
  async run(context) {
    const { configJsonSchema } = await import("../../lib/config/schema_keys.ts");
    const schema = configJsonSchema();
    context.print(schema, JSON.stringify(schema, null, 2));
    return EXIT.ok;
  },
});

/** Splits a key of the schema into its parts. @throws {UsageError} an unknown key; with the nearest one */
export function readKey(text: string): readonly string[] {
  const path = parseKeyText(text);
  if (path !== undefined && schemaAt(path.map(toPart)) !== undefined) return path;
  const meant = path === undefined ? undefined : nearestKey(path);
  throw new UsageError(
    `Cannot use "${text}": there is no such key${meant === undefined ? "" : `; did you mean "${meant}"?`}`,
  );
}

function toPart(part: string): string | number {
  return /^\d+$/.test(part) ? Number(part) : part;
}

type Table = Readonly<Record<string, unknown>>;

/** Returns a table as lines of TOML: its own keys first, then the tables in it under their headers. */
function tomlLines(
  table: Table,
  comment: (key: string) => string = () => "",
  path: readonly string[] = [],
): readonly string[] {
  const entries = Object.entries(table);
  const own = entries.filter(([, value]) => !isRecord(value));
  const lines = own.map(([key, value]) =>
    `${toTomlKey(key)} = ${toTomlValue(value)}${comment(toKeyText([...path, key]))}`
  );
  const header = path.length > 0 && lines.length > 0 ? ["", `[${path.map(toTomlKey).join(".")}]`] : [];
  return [
    ...header,
    ...lines,
    ...entries.flatMap(([key, value]) => (isRecord(value) ? tomlLines(value, comment, [...path, key]) : [])),
  ];
}

/**
 * Command `postern config set <key> <value>`: changes the text of one value in the file in use, or in a new file of the user. Writes
 * nothing when the result could not be used. A `./postern.toml` that the user accepted stays accepted.
 */
export const configSetCommand = defineCliCommand({
  args: {
    key: { type: "positional", required: true, description: "The key, such as gateway.port" },
    value: { type: "positional", required: true, description: "A TOML value; anything else is taken as text" },
  },
  example: "postern config set gateway.port 8080",
  async run(context, { key, value }) {
    const path = readKey(key);
    const parsed = parseValue(value, path);
    const target = await editConfiguration(context, (text) => setConfigValue(text, path, parsed));
    context.print({ file: target, key }, `Set ${key} in ${target}`);
    return EXIT.ok;
  },
});
