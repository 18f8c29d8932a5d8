import { type Command, shownFlag } from "./command.ts";
import { VERBS } from "./verbs.ts";

const GLOBAL_FLAGS = `Flags for every command, before or after the verb:
  --config <file>       Use this configuration file
  --data-dir <folder>   Keep records in this folder
  --workspace <folder>  The folder the agent works in (default: the current one)
  --json                Print data for programs
  --help, --version
`;

/** Returns the help that lists all verbs, or the verbs of one group, such as `config`. */
export function helpText(group?: string): string {
  const verbs = Object.entries(VERBS).filter(([name]) =>
    group === undefined || name === group || name.startsWith(`${group} `)
  );
  const width = Math.max(...verbs.map(([name]) => name.length));
  const list = verbs.map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`).join("\n");
  const usage = `Usage: postern ${group ?? "<command>"}${group === undefined ? "" : " <command>"} [flags]`;
  const intro = group === undefined ? "Postern: a small, locked side gate to your agents.\n\n" : "";
  const start = group === undefined
    ? "\nStart with: postern gateway\nHelp on a command: postern <command> --help\n"
    : "";
  return `${intro}${usage}\n\n${list}\n\n${GLOBAL_FLAGS}${start}`;
}

/** Returns the help of every verb, by its name, without the flags that all of them have. */
export async function helpOfEach(): Promise<ReadonlyMap<string, string>> {
  const texts = await Promise.all(
    Object.entries(VERBS).map(async ([name, verb]) => {
      const text = commandHelpText(name, await verb.load());
      return [name, text.replace(GLOBAL_FLAGS, "").trimEnd()] as const;
    }),
  );
  return new Map(texts);
}

/** Returns the help on one verb: its arguments and an example. */
export function commandHelpText(name: string, command: Command): string {
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
  const width = Math.max(0, ...rows.map(([left]) => left.length));
  const table = rows.length === 0
    ? ""
    : `\n${rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join("\n")}\n`;
  const flags = rows.some(([left]) => left.startsWith("--")) ? " [flags]" : "";
  const usage = `Usage: postern ${[name, ...positionals].join(" ")}${flags}`;
  return `${VERBS[name]?.summary ?? ""}\n\n${usage}\n${table}\nExample:\n  ${command.example}\n\n${GLOBAL_FLAGS}`;
}
