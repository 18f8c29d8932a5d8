/**
 * Writes the tables of docs/configuration.md from the schema of postern.toml and the presets: `node scripts/configuration_page.ts`.
 *
 * The text outside of the marks is written by hand and kept.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { presetMarkdown } from "../cli/presets.ts";
import type { JsonSchema } from "../lib/base/json.ts";
import { defaultConfig } from "../lib/config/config.ts";
import { configJsonSchema } from "../lib/config/schema_keys.ts";
import { KEY_CHANGES } from "../lib/config/change_config.ts";
import { toTomlValue } from "../lib/config/toml.ts";
import { idleSettings } from "../lib/tools/idle_settings.ts";

const PAGE = join(import.meta.dirname, "../docs/configuration.md");
const MARK = "<!-- Generated from the schema by scripts/configuration_page.ts, from here to the end -->\n";
const PRESET_MARKS = ["<!-- Generated from cli/presets.ts -->\n", "<!-- Up to here -->\n"] as const;

/** The parts of the JSON Schema that the generator reads. */
interface Key {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Key>>;
  readonly additionalProperties?: Key | false;
  readonly items?: Key;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
}

/** Returns the page with its tables rebuilt. @throws {Error} the page lacks a mark */
export function configurationPage(page: string, schema: JsonSchema = configJsonSchema()): string {
  const [written = "", ...rest] = page.split(MARK);
  const [before, presets = ""] = written.split(PRESET_MARKS[0]);
  const [, after] = presets.split(PRESET_MARKS[1]);
  if (rest.length === 0) throw new Error(`Cannot write the tables: "${PAGE}" has no line ${MARK}`);
  if (after === undefined) {
    throw new Error(`Cannot write the presets: "${PAGE}" has not both of ${PRESET_MARKS.join("")}`);
  }
  // The schema is one of tables and values alone
  const root = schema as Key;
  return `${before}${PRESET_MARKS.join(`\n${presetMarkdown()}\n\n`)}${after}${MARK}\n${
    sections([], root).join("\n\n")
  }\n`;
}

/** The section of a table, then those of the tables in it. */
function sections(path: readonly string[], table: Key): readonly string[] {
  const entries = Object.entries(table.properties ?? {});
  const values = entries.filter(([, key]) => inner(key) === undefined);
  const title = path.length === 0 ? "Top of the file" : `\`${brackets(path)}\``;
  const idle = path.length > 0 && isIdle(path)
    ? " Nothing in this version uses it: a setting here changes nothing."
    : "";
  const meaning = table.description === undefined ? "" : `${table.description}.${idle}\n\n`;
  const rows = values.map(([name, key]) => row([...path, name], key));
  const head = "| key | meaning | values | default | a change counts |\n|---|---|---|---|---|";
  const own = values.length === 0 ? [] : [`### ${title}\n\n${meaning}${[head, ...rows].join("\n")}`];
  return [
    ...own,
    ...entries.flatMap(([name, key]) => {
      const { step, table: below } = inner(key) ?? {};
      if (below === undefined) return [];
      const described = { ...below, description: key.description ?? below.description ?? "" };
      return sections([...path, name, ...(step === undefined ? [] : [step])], described);
    }),
  ];
}

/** The table that a key stands for, and what is between the key and it: `<name>` for a free name, `[]` for an item of a list. */
function inner(key: Key): { readonly step?: string; readonly table: Key } | undefined {
  if (key.properties !== undefined) return { table: key };
  const named = key.additionalProperties;
  if (named !== undefined && named !== false && named.properties !== undefined) return { step: "<name>", table: named };
  return key.items?.properties === undefined ? undefined : { step: "[]", table: key.items };
}

function brackets(path: readonly string[]): string {
  const name = path.filter((part) => part !== "[]").join(".");
  return path.at(-1) === "[]" ? `[[${name}]]` : `[${name}]`;
}

function row(path: readonly string[], key: Key): string {
  const standard = key.default === undefined
    ? "must be given"
    : `\`${toTomlValue(key.default).replaceAll("\n", " ")}\``;
  const cells = [`\`${path.at(-1)}\``, `${key.description}.`, values(key), standard, changeOf(path)];
  return `| ${cells.map((cell) => cell.replaceAll(/(?<!\\)\|/g, "\\|")).join(" | ")} |`;
}

function values(key: Key): string {
  if (key.enum !== undefined) return key.enum.map((value) => `\`"${value}"\``).join(", ");
  switch (key.type) {
    case "integer":
      return key.maximum === Number.MAX_SAFE_INTEGER
        ? `number from ${key.minimum}`
        : `${grouped(key.minimum)} to ${grouped(key.maximum)}`;
    case "boolean":
      return "`true`, `false`";
    case "array":
      return "list of texts";
    case "object":
      return "table of texts";
    default:
      return "text";
  }
}

function grouped(value: number | undefined): string {
  return String(value).replaceAll(/\B(?=(\d{3})+$)/g, ",");
}

function changeOf(path: readonly string[]): string {
  for (let length = path.length; length > 0; length--) {
    const change = KEY_CHANGES[path.slice(0, length).join(".")];
    if (change !== undefined) return change === "live" ? "at once" : "after a restart";
  }
  throw new Error(`Nothing says when a change of "${path.join(".")}" counts`);
}

/** Tells whether a table is for a feature that this version does not have. */
function isIdle([first = "", second = ""]: readonly string[]): boolean {
  const given = [first, `${first}.${second}`];
  return idleSettings({ ...defaultConfig(), given }, { others: [] }).some(({ path }) => given.includes(path.join(".")));
}

if (import.meta.main) writeFileSync(PAGE, configurationPage(readFileSync(PAGE, "utf8")));
