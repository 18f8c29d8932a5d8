import { type Command, shownFlag } from "./command.ts";
import { toDefinitions, wrapText } from "./terminal/terminal_text.ts";
import { VERBS } from "./verbs.ts";

const GLOBAL_FLAGS = [
  ["--config <file>", "Use this configuration file"],
  ["--data-dir <folder>", "Keep records in this folder"],
  ["--workspace <folder>", "The folder the agent works in (default: the current one)"],
  ["--json", "Print data for programs"],
  ["--help, --version", ""],
] as const;

/**
 * Returns the help that lists all verbs, or the verbs of one group, such as `config`.
 * @param columns width of the terminal in characters. Undefined: nothing is wrapped
 */
export function helpText(columns: number | undefined, group?: string): string {
  const verbs = Object.entries(VERBS).filter(([name]) =>
    group === undefined || name === group || name.startsWith(`${group} `)
  );
  const list = toDefinitions(verbs.map(([name, { summary }]) => [name, summary] as const), columns);
  const usage = `Usage: postern ${group ?? "<command>"}${group === undefined ? "" : " <command>"} [flags]`;
  const intro = group === undefined ? "Postern: a small, locked side gate to your agents.\n\n" : "";
  const start = group === undefined
    ? "\nStart with: postern gateway\nHelp on a command: postern <command> --help\n"
    : "";
  return `${intro}${usage}\n\n${list}\n\n${globalFlags(columns)}${start}`;
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
    return [`--${shownFlag(key, arg)}${value}`, description];
  });
  const table = rows.length === 0 ? "" : `\n${toDefinitions(rows, columns)}\n`;
  const flags = rows.some(([left]) => left.startsWith("--")) ? " [flags]" : "";
  const summary = wrapText(VERBS[name]?.summary ?? "", columns).join("\n");
  // The example stays one line, to be copied
  return `${summary}\n\nUsage: postern ${
    [name, ...positionals].join(" ")
  }${flags}\n${table}\nExample:\n  ${command.example}`;
}
