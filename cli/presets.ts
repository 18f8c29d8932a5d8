import { isRecord } from "../lib/base/json.ts";
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

/** Value of a key, or for a list what becomes of its present one. */
type Wanted = string | boolean | ((now: readonly string[]) => readonly string[]);

const FEW_COMMANDS = defaultConfig().security.allowed_commands;
const ANY_COMMAND = ["*"];
/** Returns the commands that were allowed. A list of any command becomes the default */
const notAny = (now: readonly string[]) => now.includes("*") ? FEW_COMMANDS : now;

const CONTAINED_TOOLS = ["shell", "process_tool"];
/** Takes the tools of contained commands out of `auto_approve` */
const asked = (now: readonly string[]) => now.filter((name) => !CONTAINED_TOOLS.includes(name));

/** Keys that a preset decides. All presets have all of them, so that each takes back what another opened. */
const SETTINGS: readonly (readonly [key: KeyPath, values: ByPreset<Wanted>])[] = [
  [["autonomy", "level"], ["supervised", "supervised", "supervised"]],
  [["enable_git"], [false, true, true]],
  [["security", "write_file", "enabled"], [false, true, true]],
  [["autonomy", "auto_approve"], [asked, asked, (now) => [...asked(now), ...CONTAINED_TOOLS]]],
  [["security", "allowed_commands"], [notAny, notAny, () => ANY_COMMAND]],
  [["security", "shell", "syntax"], ["plain", "plain", "contained"]],
  [["security", "shell", "network"], ["none", "none", "none"]],
  [["web_fetch", "enabled"], [false, false, true]],
  [["web_search", "enabled"], [false, false, true]],
];

/** Kinds of work, what each preset says to it, and a call that stands for it: a test asks the policy about that call under each preset. */
export const PRESET_ROWS: readonly (readonly [
  work: string,
  answers: ByPreset<PresetAnswer>,
  tool: string,
  input: Readonly<Record<string, unknown>>,
])[] = [
  ["read and search files of the folder", ["yes", "yes", "yes"], "read_file", { path: "a.md" }],
  ["remember, plan", ["yes", "yes", "yes"], "memory_store", { key: "colour", value: "blue" }],
  ["write, edit and patch files", ["no", "asks you", "asks you"], "write_file", { path: "a.md", content: "a" }],
  ["look at history and changes with git", ["no", "yes", "yes"], "git_operations", { op: "status" }],
  ["commit, switch and push with git", ["no", "asks you", "asks you"], "git_operations", {
    op: "commit",
    message: "a",
  }],
  [`run ${FEW_COMMANDS.join(", ")}`, ["asks you", "asks you", "yes"], "shell", { command: "ls" }],
  ["run tests, builds and any other program", ["no", "no", "yes"], "shell", { command: "npm test && git log | head" }],
  ["fetch pages, search the web", ["no", "no", "asks you"], "web_fetch", { url: "https://example.com/" }],
];

/** Promises that hold with every preset. */
export const PRESET_PROMISES = [
  "Never: secret files (.env, keys, credentials), other folders, Postern's own configuration and records.",
  "Under code, commands run in the sandbox alone: no network, and no files but those of the folder, which they change unasked.",
  "A line of commands that Postern cannot read asks you.",
  "Once the agent has read something from outside, such as a web page, what changes files asks you.",
] as const;

/** Returns the table of what each preset opens and never opens, for a terminal. @param columns width in characters. Undefined: any */
export function presetTable(columns: number | undefined): string {
  // The last column is the one that is wrapped
  const rows = PRESET_ROWS.map(([work, answers]) => [...answers, work]);
  const promises = PRESET_PROMISES.flatMap((line) => wrapText(line, columns));
  return [toTable([...PRESETS, "the agent may"], rows, columns), "", ...promises].join("\n");
}

/** Returns the same table as Markdown, for docs/configuration.md. */
export function presetMarkdown(): string {
  const head = [["the agent may", ...PRESETS.map((name) => `\`${name}\``)], ["---", "---", "---", "---"]];
  const rows = [...head, ...PRESET_ROWS.map(([work, answers]) => [work, ...answers])];
  return [...rows.map((cells) => `| ${cells.join(" | ")} |`), "", ...PRESET_PROMISES.map((line) => `- ${line}`)].join(
    "\n",
  );
}

/** Returns the keys of a preset with the values that they get in a configuration. */
export function presetSettings(
  preset: Preset,
  config: Config,
): readonly (readonly [key: KeyPath, value: unknown])[] {
  return SETTINGS.map(([key, values]) => {
    const wanted = values[PRESETS.indexOf(preset)];
    // A list is what the functions are for
    return [key, typeof wanted === "function" ? wanted(valueAt(config, key) as readonly string[]) : wanted] as const;
  });
}

/** Returns the preset that a configuration is like. Undefined: it is like none. */
export function presetOf(config: Config): Preset | undefined {
  return PRESETS.find((name) =>
    presetSettings(name, config).every(([key, value]) => isDeepStrictEqual(valueAt(config, key), value))
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
  for (const [key, value] of presetSettings(preset, config)) {
    if (isDeepStrictEqual(valueAt(config, key), value)) continue;
    // A switch may stand in two places, which must agree
    const isInSecurity = key.length === 1 && isTable(security) && Object.hasOwn(security, String(key[0]));
    changed = await setConfigValue(changed, isInSecurity ? ["security", ...key] : key, value);
  }
  return changed;
}

function valueAt(config: Config, key: KeyPath): unknown {
  return key.reduce<unknown>((value, part) => isRecord(value) ? value[String(part)] : undefined, config);
}
