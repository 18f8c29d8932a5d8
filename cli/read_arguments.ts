import { type ArgsDef, parseArgs, type ParsedArgs } from "citty";
import { nearest } from "../lib/config/nearest.ts";
import { shortOf, shownFlag, UsageError } from "./command.ts";

/**
 * Reads a command's arguments. Refuses what citty alone would accept in silence: unknown flags, a value for a switch, a missing
 * value, a missing positional and too many positionals.
 * @param verb name of the command, for error messages
 * @throws {UsageError} with the nearest known flag
 */
export function readArguments<A extends ArgsDef>(verb: string, raw: readonly string[], args: A): ParsedArgs<A> {
  const flags = Object.entries(args).filter(([, arg]) => arg.type !== "positional");
  const positionals = Object.keys(args).filter((name) => args[name]?.type === "positional");
  const rest = positionals.find((name) => name.startsWith("..."));
  const checked: string[] = [];
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
    const [name, given] = splitFlag(token);
    const [key, flag] = flags.find(([known, arg]) => shownFlag(known, arg) === name || shortOf(arg) === name) ??
      [name, positionals.includes(name) ? args[name] : undefined];
    if (flag === undefined) throw unknownFlag(verb, token, flags.map(([known, arg]) => shownFlag(known, arg)));
    if (flag.type === "boolean") {
      if (given !== undefined) throw new UsageError(`Cannot use "--${name}": it takes no value`);
      checked.push(`--${shownFlag(key, flag)}`);
      continue;
    }
    const next = raw[index + 1];
    const value = given ?? (next === undefined || (next.startsWith("-") && next !== "-") ? undefined : raw[++index]);
    if (value === undefined) {
      throw new UsageError(
        `Cannot use "--${name}": it needs a value, such as --${name}=<${flag.valueHint ?? "value"}>`,
      );
    }
    if (flag.type === "enum" && !flag.options?.includes(value)) {
      throw new UsageError(`Cannot use "--${name}": it must be one of ${flag.options?.join(", ")}, not "${value}"`);
    }
    if (flag.type === "positional") named.set(key, value);
    else checked.push(`--${key}=${value}`);
  }
  const required = positionals.filter((name) => args[name]?.required !== false);
  let missing: string | undefined;
  for (const [index, name] of positionals.entries()) {
    const value = named.get(name);
    if (value === undefined) continue;
    if (values.length < index) missing ??= positionals[values.length];
    values.splice(index, 0, value);
  }
  missing ??= required[values.length];
  if (missing !== undefined) {
    throw new UsageError(
      `Cannot run "${verb}": <${missing.replace("...", "")}> is missing; see postern ${verb} --help`,
    );
  }
  const extra = rest === undefined ? values[positionals.length] : undefined;
  if (extra !== undefined) {
    throw new UsageError(`Cannot run "${verb}": "${extra}" is one argument too many; see postern ${verb} --help`);
  }
  return parseArgs<A>([...checked, "--", ...values], args);
}

/** Returns the error for an unknown flag, with the nearest known one. @param known flags of the command, without dashes */
export function unknownFlag(verb: string, token: string, known: readonly string[]): UsageError {
  const [name] = splitFlag(token);
  const meant = nearest(name, [...known, "config", "data-dir", "workspace", "json", "help", "version"]);
  const hint = meant === undefined
    ? `see ${["postern", verb, "--help"].filter(Boolean).join(" ")}`
    : `did you mean --${meant}?`;
  return new UsageError(`Cannot use "${token.split("=", 1)[0]}": there is no such flag; ${hint}`);
}

/** Splits `--name=value` into name and value. The value of `--name` is undefined. */
function splitFlag(token: string): readonly [name: string, value: string | undefined] {
  const bare = token.replace(/^--?/, "");
  const equals = bare.indexOf("=");
  return equals < 0 ? [bare, undefined] : [bare.slice(0, equals), bare.slice(equals + 1)];
}
