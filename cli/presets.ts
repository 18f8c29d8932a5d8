import { isDeepStrictEqual } from "node:util";
import { type Config, defaultConfig } from "../lib/config/config.ts";
import { setConfigValue } from "../lib/config/edit_config.ts";
import { checkConfigText } from "../lib/config/load_config.ts";
import { isTable } from "../lib/config/schema_keys.ts";
import { type KeyPath, parseToml } from "../lib/config/toml.ts";
import { toTable, wrapText } from "./terminal/terminal_text.ts";

/** Names of the presets, each with all that the ones before it open. */
export const PRESETS = ["look", "write", "code"] as const;
/** Preset: how far the agent may go, in one word that stands for several keys of the configuration. */
export type Preset = (typeof PRESETS)[number];

/** Answer of a preset to a kind of work. `asks you`: a person is asked about each call. */
export type PresetAnswer = "yes" | "asks you" | "no";

/** Values by preset, in the order of PRESETS. */
type ByPreset<T> = readonly [look: T, write: T, code: T];

const FEW_COMMANDS = defaultConfig().security.allowed_commands;
/** Programs of tests and builds */
const BUILDERS = ["npm", "npx", "node", "deno", "python3", "make", "cargo", "go"];

/** Keys that a preset decides, with their values. All presets name all of them, so that each can take back what another opened. */
const SETTINGS: readonly (readonly [key: KeyPath, values: ByPreset<unknown>])[] = [
  [["autonomy", "level"], ["supervised", "supervised", "supervised"]],
  [["enable_git"], [false, true, true]],
  [["security", "write_file", "enabled"], [false, true, true]],
  [["security", "allowed_commands"], [FEW_COMMANDS, FEW_COMMANDS, [...FEW_COMMANDS, ...BUILDERS]]],
  [["security", "shell", "sandbox"], ["auto", "auto", "require"]],
  [["security", "shell", "network"], ["none", "none", "none"]],
  [["web_fetch", "enabled"], [false, false, true]],
  [["web_search", "enabled"], [false, false, true]],
];

/** Kind of work, and what the presets say to it. */
export interface PresetRow {
  readonly work: string;
  readonly answers: ByPreset<PresetAnswer>;
  /** Call that stands for it: a test asks the policy about it under each preset */
  readonly call: { readonly tool: string; readonly input: Readonly<Record<string, unknown>> };
}

/** Table of what each preset opens, for `init`, `preset show`, docs and tests. */
export const PRESET_ROWS: readonly PresetRow[] = [
  {
    work: "read and search files of the folder",
    answers: ["yes", "yes", "yes"],
    call: { tool: "read_file", input: { path: "notes.md" } },
  },
  {
    work: "remember, plan",
    answers: ["yes", "yes", "yes"],
    call: { tool: "memory_store", input: { key: "colour", value: "blue" } },
  },
  {
    work: "write, edit and patch files",
    answers: ["no", "asks you", "asks you"],
    call: { tool: "write_file", input: { path: "notes.md", content: "a" } },
  },
  {
    work: "look at history and changes with git",
    answers: ["no", "yes", "yes"],
    call: { tool: "git_operations", input: { op: "status" } },
  },
  {
    work: "commit, switch and push with git",
    answers: ["no", "asks you", "asks you"],
    call: { tool: "git_operations", input: { op: "commit", message: "a" } },
  },
  {
    work: `run ${FEW_COMMANDS.join(", ")}`,
    answers: ["asks you", "asks you", "asks you"],
    call: { tool: "shell", input: { command: "ls" } },
  },
  {
    work: `run tests and builds: ${BUILDERS.join(", ")}`,
    answers: ["no", "no", "asks you"],
    call: { tool: "shell", input: { command: "npm test" } },
  },
  {
    work: "fetch pages, search the web",
    answers: ["no", "no", "asks you"],
    call: { tool: "web_fetch", input: { url: "https://example.com/" } },
  },
];

/** Promises that hold with every preset. */
export const PRESET_PROMISES = [
  "Never: secret files (.env, keys, credentials), other folders, Postern's own configuration and records.",
  "Commands of code run in the sandbox alone: no network, and no files but those of the folder.",
  "Once the agent has read something from outside, such as a web page, what changes files asks you.",
] as const;

/** Returns the table of what each preset opens and never opens, for a terminal. @param columns width in characters. Undefined: any */
export function presetTable(columns: number | undefined): string {
  const rows = PRESET_ROWS.map(({ work, answers }) => [work, ...answers]);
  return [
    toTable(["the agent may", ...PRESETS], rows, columns),
    "",
    ...PRESET_PROMISES.flatMap((line) => wrapText(line, columns)),
  ]
    .join("\n");
}

/** Returns the same table as Markdown, for docs/configuration.md. */
export function presetMarkdown(): string {
  const rows = [["the agent may", ...PRESETS.map((name) => `\`${name}\``)], ["---", "---", "---", "---"]];
  const table = [...rows, ...PRESET_ROWS.map(({ work, answers }) => [work, ...answers])];
  return [...table.map((cells) => `| ${cells.join(" | ")} |`), "", ...PRESET_PROMISES.map((line) => `- ${line}`)].join(
    "\n",
  );
}

/** Returns the keys of a preset with their values. */
export function presetSettings(preset: Preset): readonly (readonly [key: KeyPath, value: unknown])[] {
  return SETTINGS.map(([key, values]) => [key, values[PRESETS.indexOf(preset)]] as const);
}

/** Returns the preset that a configuration is like. Undefined: it is like none. */
export function presetOf(config: Config): Preset | undefined {
  return PRESETS.find((name) =>
    presetSettings(name).every(([key, value]) => isDeepStrictEqual(valueAt(config, key), value))
  );
}

/**
 * Changes the text of a configuration to a preset: the keys whose value is another one, and nothing else.
 * @throws {ConfigError} the text cannot be used, or edited in place
 */
export async function applyPreset(text: string, preset: Preset): Promise<string> {
  const config = await checkConfigText(text, "postern.toml");
  const { security } = parseToml(text, "postern.toml");
  let changed = text;
  for (const [key, value] of presetSettings(preset)) {
    if (isDeepStrictEqual(valueAt(config, key), value)) continue;
    // A switch may stand in two places, which must agree
    const isInSecurity = key.length === 1 && isTable(security) && Object.hasOwn(security, String(key[0]));
    changed = await setConfigValue(changed, isInSecurity ? ["security", ...key] : key, value);
  }
  return changed;
}

function valueAt(config: Config, key: KeyPath): unknown {
  let value: unknown = config;
  for (const part of key) value = (value as Readonly<Record<string, unknown>>)[String(part)];
  return value;
}
