import type { ArgsDef } from "citty";
import { GLOBAL_ARGS, shortOf, shownFlag, type Verb } from "./command.ts";
import { toDefinitions, wrapText } from "./terminal/terminal_text.ts";
import { HELP_GROUPS, NOUNS, VERBS } from "./verbs.ts";

/** Flags of every command, each as it is written, with what it does. */
export const GLOBAL_FLAGS = [...rowsOf(GLOBAL_ARGS), ["--help, --version", ""] as const];

/**
 * Returns the help that lists all nouns with their verbs in groups, or the verbs of one noun, such as `config`.
 * @param columns width of the terminal in characters. Undefined: nothing is wrapped
 */
export function helpText(columns: number | undefined, noun?: string): string {
  if (noun !== undefined) {
    const rows = Object.entries(NOUNS[noun]?.subCommands ?? {}).map(([verb, { meta }]) =>
      [`${noun} ${verb}`, meta.description] as const
    );
    return `Usage: postern ${noun} <command> [flags]\n\n${toDefinitions(rows, columns)}\n\n${globalFlags(columns)}`;
  }
  const width = Math.max(...Object.keys(NOUNS).map((word) => word.length));
  const groups = Object.entries(HELP_GROUPS).map(([heading, nouns]) => {
    const rows = Object.entries(nouns).map(([word, { meta, subCommands, ...command }]) => {
      const verbs = Object.keys(subCommands ?? {}).join(", ");
      const more = verbs === "" ? "" : "load" in command ? ` (also ${verbs})` : `: ${verbs}`;
      return [word.padEnd(width), `${meta.description}${more}`] as const;
    });
    return `${heading}:\n${toDefinitions(rows, columns)}`;
  });
  return `Postern: a small, locked side gate to your agents.\n\nUsage: postern <command> [flags]\n\n${
    groups.join("\n\n")
  }\n\n${globalFlags(columns)}\nStart with: postern init\nHelp on a command: postern <command> --help\n`;
}

/** Returns the help of every verb, by its name, without the flags that all of them have. */
export async function helpOfEach(): Promise<ReadonlyMap<string, string>> {
  return new Map(
    await Promise.all(
      Object.entries(VERBS).map(async ([name, verb]) => [name, await ownHelp(name, verb, undefined)] as const),
    ),
  );
}

/**
 * Returns the help on one verb: its arguments and an example.
 * @param columns width of the terminal in characters. Undefined: nothing is wrapped
 */
export async function commandHelpText(name: string, verb: Verb, columns?: number | undefined): Promise<string> {
  return `${await ownHelp(name, verb, columns)}\n\n${globalFlags(columns)}`;
}

function globalFlags(columns: number | undefined): string {
  const heading = wrapText("Flags for every command, before or after the verb:", columns).join("\n");
  return `${heading}\n${toDefinitions(GLOBAL_FLAGS, columns)}\n`;
}

/** Returns the help on one verb without the flags that all of them have. */
async function ownHelp(name: string, { meta, load }: Verb, columns: number | undefined): Promise<string> {
  const { args, example } = await load();
  const words = Object.entries(args).filter(([, { type }]) => type === "positional").map(([key, { required }]) => {
    const shown = key.startsWith("...") ? `<${key.slice(3)}>...` : `<${key}>`;
    return required === false ? `[${shown}]` : shown;
  });
  const rows = rowsOf(args);
  const table = rows.length === 0 ? "" : `\n${toDefinitions(rows, columns)}\n`;
  const usage = [name, ...words, ...words.length < rows.length ? ["[flags]"] : []].join(" ");
  // The example stays one line, to be copied
  return `${
    wrapText(meta.description, columns).join("\n")
  }\n\nUsage: postern ${usage}\n${table}\nExample:\n  ${example}`;
}

/** Returns each argument as it is written, with what it is. */
function rowsOf(args: ArgsDef): readonly (readonly [string, string])[] {
  return Object.entries(args).map(([name, arg]) => {
    const about = arg.description ?? (arg.type === "boolean" ? arg.negativeDescription : undefined) ?? "";
    if (arg.type === "positional") return [`<${name.replace("...", "")}>`, about];
    const short = shortOf(arg);
    const value = arg.type === "boolean" ? "" : ` <${arg.valueHint ?? "value"}>`;
    return [`${short === undefined ? "" : `-${short}, `}--${shownFlag(name, arg)}${value}`, about];
  });
}
