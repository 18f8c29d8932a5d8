import { type Command, shortOf, shownFlag } from "./command.ts";
import { toDefinitions, wrapText } from "./terminal/terminal_text.ts";
import { HELP_GROUPS, VERBS } from "./verbs.ts";

/** Flags of every command, with what they do. */
export const GLOBAL_FLAGS = [
  ["--config <file>", "Use this configuration file"],
  ["--data-dir <folder>", "Keep records in this folder"],
  ["--workspace <folder>", "The folder the agent works in (default: the current one)"],
  ["--json", "Print data for programs"],
  ["--help, --version", ""],
] as const;

/**
 * Returns the help that lists all nouns with their verbs in groups, or the verbs of one noun, such as `config`.
 * @param columns width of the terminal in characters. Undefined: nothing is wrapped
 */
export function helpText(columns: number | undefined, noun?: string): string {
  if (noun !== undefined) {
    const rows = verbsOf(noun).map(([name, { summary }]) => [name, summary] as const);
    return `Usage: postern ${noun} <command> [flags]\n\n${toDefinitions(rows, columns)}\n\n${globalFlags(columns)}`;
  }
  const width = Math.max(...Object.keys(VERBS).map((name) => (name.split(" ", 1)[0] ?? "").length));
  const groups = HELP_GROUPS.map(({ heading, words }) => {
    const rows = Object.entries(words).map(([word, about]) => [word.padEnd(width), aboutOf(word, about)] as const);
    return `${heading}:\n${toDefinitions(rows, columns)}`;
  });
  return `Postern: a small, locked side gate to your agents.\n\nUsage: postern <command> [flags]\n\n${
    groups.join("\n\n")
  }\n\n${globalFlags(columns)}\nStart with: postern init\nHelp on a command: postern <command> --help\n`;
}

/** Returns the verbs of a noun, and the verb of this very name. */
function verbsOf(noun: string) {
  return Object.entries(VERBS).filter(([name]) => name === noun || name.startsWith(`${noun} `));
}

/** Returns what a noun is about with its verbs, or the summary of a single command. */
function aboutOf(noun: string, about: string | undefined): string {
  const verbs = verbsOf(noun).flatMap(([name]) => (name === noun ? [] : [name.slice(noun.length + 1)]));
  const own = VERBS[noun]?.summary;
  if (verbs.length === 0) return own ?? "";
  return own === undefined ? `${about}: ${verbs.join(", ")}` : `${own} (also ${verbs.join(", ")})`;
}

function globalFlags(columns: number | undefined): string {
  const heading = wrapText("Flags for every command, before or after the verb:", columns).join("\n");
  return `${heading}\n${toDefinitions(GLOBAL_FLAGS, columns)}\n`;
}

/** Returns the help of every verb, by its name, without the flags that all of them have. */
export async function helpOfEach(): Promise<ReadonlyMap<string, string>> {
  const texts = await Promise.all(
    Object.entries(VERBS).map(async ([name, verb]) => {
      return [name, ownHelp(name, await verb.load(), undefined)] as const;
    }),
  );
  return new Map(texts);
}

/**
 * Returns the help on one verb: its arguments and an example.
 * @param columns width of the terminal in characters. Undefined: nothing is wrapped
 */
export function commandHelpText(name: string, command: Command, columns?: number | undefined): string {
  return `${ownHelp(name, command, columns)}\n\n${globalFlags(columns)}`;
}

/** Returns the help on one verb without the flags that all of them have. */
function ownHelp(name: string, command: Command, columns: number | undefined): string {
  const args = Object.entries(command.args);
  const positionals = args.filter(([, arg]) => arg.type === "positional").map(([key, arg]) => {
    const shown = key.startsWith("...") ? `<${key.slice(3)}>...` : `<${key}>`;
    return arg.required === false ? `[${shown}]` : shown;
  });
  const rows = args.map(([key, arg]): [string, string] => {
    const description = arg.description ?? (arg.type === "boolean" ? arg.negativeDescription : undefined) ?? "";
    if (arg.type === "positional") return [`<${key.replace("...", "")}>`, description];
    const value = arg.type === "boolean" ? "" : ` <${arg.valueHint ?? "value"}>`;
    const short = shortOf(arg);
    return [`${short === undefined ? "" : `-${short}, `}--${shownFlag(key, arg)}${value}`, description];
  });
  const table = rows.length === 0 ? "" : `\n${toDefinitions(rows, columns)}\n`;
  const flags = rows.some(([left]) => left.startsWith("-")) ? " [flags]" : "";
  const summary = wrapText(VERBS[name]?.summary ?? "", columns).join("\n");
  // The example stays one line, to be copied
  return `${summary}\n\nUsage: postern ${
    [name, ...positionals].join(" ")
  }${flags}\n${table}\nExample:\n  ${command.example}`;
}
