import { type ArgDef, type ArgsDef, parseArgs } from "citty";
import { nearest } from "../lib/config/nearest.ts";
import { GLOBAL_ARGS, type GlobalFlags, shortOf, shownFlag, UsageError } from "./command.ts";

/** Arguments of a command and the flags of every command, each written so that citty can read them in one way only. */
export interface CheckedArguments {
  readonly own: string[];
  readonly global: string[];
}

/**
 * Checks a command's arguments. Refuses what citty alone would accept in silence: unknown flags, a value for a switch, a missing
 * value, a missing positional and too many positionals.
 * @param verb name of the command, for error messages
 * @throws {UsageError} with the nearest known flag
 */
export function checkArguments(verb: string, raw: readonly string[], args: ArgsDef): CheckedArguments {
  const positionals = Object.keys(args).filter((name) => args[name]?.type === "positional");
  const checked: CheckedArguments = { own: [], global: [] };
  const values: string[] = [];
  /** Positionals that were given by their names, such as `--name=pdf-forms` */
  const named = new Map<string, string>();
  for (let index = 0; index < raw.length; index++) {
    // The index is below the length
    const token = raw[index] as string;
    if (token === "--") {
      values.push(...raw.slice(index + 1));
      break;
    }
    if (!token.startsWith("-") || token === "-") {
      values.push(token);
      continue;
    }
    const shown = token.split("=", 1)[0] ?? "";
    const ofAll = findFlag(shown, GLOBAL_ARGS);
    const word = shown.replace(/^--?/, "");
    const [name, flag] = ofAll ?? findFlag(shown, args) ??
      [word, positionals.includes(word) ? args[word] : undefined];
    if (flag === undefined) throw unknownFlag(verb, shown, args);
    const given = token === shown ? undefined : token.slice(shown.length + 1);
    const list = ofAll === undefined ? checked.own : checked.global;
    if (flag.type === "boolean") {
      if (given !== undefined) throw new UsageError(`Cannot use "${shown}": it takes no value`);
      list.push(`--${shownFlag(name, flag)}`);
      continue;
    }
    const next = raw[index + 1];
    const value = given ?? (next === undefined || (next.startsWith("-") && next !== "-") ? undefined : raw[++index]);
    if (value === undefined || (value === "" && ofAll !== undefined)) {
      throw new UsageError(`Cannot use "${shown}": it needs a value, such as ${shown}=<${flag.valueHint ?? "value"}>`);
    }
    if (flag.type === "enum" && !flag.options?.includes(value)) {
      throw new UsageError(`Cannot use "${shown}": it must be one of ${flag.options?.join(", ")}, not "${value}"`);
    }
    if (flag.type === "positional") named.set(name, value);
    else list.push(`--${name}=${value}`);
  }
  let missing: string | undefined;
  for (const [index, name] of positionals.entries()) {
    const value = named.get(name);
    if (value === undefined) continue;
    if (values.length < index) missing ??= positionals[values.length];
    values.splice(index, 0, value);
  }
  missing ??= positionals.filter((name) => args[name]?.required !== false)[values.length];
  if (missing !== undefined) {
    throw new UsageError(`Cannot run "${verb}": <${missing.replace("...", "")}> is missing; see ${helpOf(verb)}`);
  }
  const extra = positionals.some((name) => name.startsWith("...")) ? undefined : values[positionals.length];
  if (extra !== undefined) {
    throw new UsageError(`Cannot run "${verb || "postern"}": "${extra}" is one argument too many; see ${helpOf(verb)}`);
  }
  checked.own.push("--", ...values);
  return checked;
}

/** Reads the flags that every command takes out of an argument list. */
export function readGlobalFlags(argv: readonly string[]): GlobalFlags {
  const { config, "data-dir": dataDir, workspace, json } = parseArgs<typeof GLOBAL_ARGS>([...argv], GLOBAL_ARGS);
  return { config, dataDir, workspace, json };
}

/** Finds a flag by how it is written, such as `--port`, `-f` or `--no-open`. */
export function findFlag(shown: string, args: ArgsDef): readonly [name: string, flag: ArgDef] | undefined {
  const word = shown.replace(/^--?/, "");
  return Object.entries(args).find(([name, arg]) =>
    arg.type !== "positional" && (shownFlag(name, arg) === word || shortOf(arg) === word)
  );
}

/** Returns the error for an unknown flag, with the nearest known one. */
function unknownFlag(verb: string, shown: string, args: ArgsDef): UsageError {
  const flags = [...Object.entries(args), ...Object.entries(GLOBAL_ARGS)].filter(([, { type }]) =>
    type !== "positional"
  );
  const known = flags.map(([name, arg]) => shownFlag(name, arg));
  const meant = nearest(shown.replace(/^--?/, ""), [...known, "help", "version"]);
  const hint = meant === undefined ? `see ${helpOf(verb)}` : `did you mean --${meant}?`;
  return new UsageError(`Cannot use "${shown}": there is no such flag; ${hint}`);
}

/** @param verb empty: the program */
function helpOf(verb: string): string {
  return verb === "" ? "postern --help" : `postern ${verb} --help`;
}
