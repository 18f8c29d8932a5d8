import type { ArgDef, ArgsDef, CommandDef, ParsedArgs } from "citty";
import type { LoadedConfig, LoadOptions } from "../lib/config/load_config.ts";
import type { LineReader } from "./terminal/line_reader.ts";

/** Variable whose value `stdin` tells a process to read its real environment from standard input, as one JSON object. */
export const HANDOVER_VARIABLE = "POSTERN_ENVIRONMENT";

/** Streams, signals and environment of the process, as a command sees them. Tests hand in their own. */
export interface CliIo {
  /** Writes results */
  readonly stdout: (text: string) => void;
  /** Resolves when standard output has room. What is written before waits in memory */
  readonly stdoutReady: () => Promise<void>;
  /** Writes messages, questions and log lines */
  readonly stderr: (text: string) => void;
  /** Reads all of standard input as text. Undefined when it is a terminal */
  readonly readStdin: () => Promise<string | undefined>;
  /** Opens standard input as it comes, for a command that another program speaks to */
  readonly openStdin: () => AsyncIterable<Uint8Array>;
  /** Tells whether somebody at a terminal can be asked */
  readonly canAsk: boolean;
  /**
   * Asks for a line at the terminal. Undefined at Ctrl-C, at the end of input, or without a terminal. With `isHidden` the line is a secret:
   * it is neither shown nor remembered
   */
  readonly ask: (question: string, options?: { readonly isHidden?: boolean }) => Promise<string | undefined>;
  /** Opens a line reader that keeps the terminal for a whole conversation. Undefined without a terminal */
  readonly openReader: (history: readonly string[]) => Promise<LineReader | undefined>;
  /** Calls back at each SIGINT and SIGTERM. Returns a function that removes the listener */
  readonly onInterrupt: (listener: () => void) => () => void;
  /**
   * Calls back at each SIGHUP, except one that comes because the terminal was closed. Returns a function that removes the
   * listener. While there is no such listener, a SIGHUP counts as an interrupt
   */
  readonly onReload: (listener: () => void) => () => void;
  /** Calls back with an error that nothing caught, then ends the process. The listener alone reports the error */
  readonly onCrash: (listener: (error: unknown) => void) => void;
  /** Ends the process at once */
  readonly exit: (code: number) => void;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly home: string;
  /** True in a process that `daemon start` launched: nobody reads what it prints */
  readonly isLaunched: boolean;
  /** Tells which stream is a terminal: control characters in text from outside are then escaped, and colour is allowed */
  readonly isTerminal: { readonly stdout: boolean; readonly stderr: boolean };
  /** Width of the terminal on stdout, in characters. Undefined where stdout is no terminal */
  readonly columns?: number | undefined;
}

/** Flags that every command takes, before or after the verb. `--help` and `--version` are asked for before them. */
export const GLOBAL_ARGS = {
  config: { type: "string", valueHint: "file", description: "Use this configuration file" },
  "data-dir": { type: "string", valueHint: "folder", description: "Keep records in this folder" },
  workspace: {
    type: "string",
    valueHint: "folder",
    description: "The folder the agent works in (default: the current one)",
  },
  json: { type: "boolean", default: false, description: "Print data for programs" },
} as const satisfies ArgsDef;

/** Values of the flags that every command takes. */
export interface GlobalFlags {
  readonly config: string | undefined;
  readonly dataDir: string | undefined;
  readonly workspace: string | undefined;
  readonly json: boolean;
}

/** Everything that a command gets beside its own arguments: the process, the global flags and ways to print. */
export interface CommandContext {
  readonly io: CliIo;
  readonly flags: GlobalFlags;
  /** Flags, environment and folders that decide which configuration file is used */
  readonly loadOptions: LoadOptions;
  /** Loads the configuration. @param keys values from the command's own flags, by configuration key. @throws {ConfigError} */
  readonly loadConfig: (keys?: Readonly<Record<string, unknown>>) => Promise<LoadedConfig>;
  /** Prints `data` as JSON with --json, else `text`. Adds a newline where it is missing */
  readonly print: (data: unknown, text: string) => void;
  /** Writes a message to stderr */
  readonly say: (message: string) => void;
  /** Returns a message with each `postern <command>` in it as the person here has to type it; `say` does so by itself */
  readonly named: (message: string) => string;
  /** Nouns and single commands, by their words */
  readonly nouns: Readonly<Record<string, Verb | Noun>>;
  /** Returns the help of every verb, by its name */
  readonly help: () => Promise<ReadonlyMap<string, string>>;
}

/** Arguments and work of a verb. The file with it is loaded when the verb is used. */
export interface Command<A extends ArgsDef = ArgsDef> {
  /** Flags and positionals. A positional whose name begins with `...` takes all remaining words */
  readonly args: A;
  /** Command line that works as it stands, shown in the help */
  readonly example: string;
  /** Does the work. @returns the exit code */
  readonly run: (context: CommandContext, args: ParsedArgs<A>) => Promise<number>;
}

/** Verb as citty takes it. The file of its command is loaded when its arguments are needed. */
export interface Verb extends CommandDef {
  readonly meta: { readonly description: string };
  readonly args: () => Promise<ArgsDef>;
  /** Further verbs below a command that is a noun too, as `models trust` */
  readonly subCommands?: Readonly<Record<string, Verb>>;
  readonly load: () => Promise<Command>;
}

/** Noun as citty takes it: what it is about, and its verbs. */
export interface Noun extends CommandDef {
  readonly meta: { readonly description: string };
  /** Flags that may stand before the verb too */
  readonly args?: ArgsDef;
  readonly subCommands: Readonly<Record<string, Verb>>;
}

/** Types a command's arguments by their definition. */
export function defineCliCommand<const A extends ArgsDef>(command: Command<A>): Command<A> {
  return command;
}

/** Returns a flag's name on the command line: a switch that is on by default is turned off by `no-` and its name. */
export function shownFlag(name: string, arg: ArgDef): string {
  return arg.type === "boolean" && arg.default === true ? `no-${name}` : name;
}

/** Returns the one letter that stands for a flag, such as `f` for `-f`. */
export function shortOf(arg: ArgDef): string | undefined {
  return "alias" in arg && typeof arg.alias === "string" ? arg.alias : undefined;
}

/**
 * Exit codes of the process (docs/design/processes.md "Command line"): done, refused or failed, wrong command line, a bug of this program,
 * and a configuration that cannot be used.
 */
export const EXIT = { ok: 0, failed: 1, usage: 2, internal: 70, config: 78 } as const;

/** Wrong command line: exit code 2. The message names what is wrong and, where there is one, the nearest right word. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** Refusal or failure of a command: exit code 1. The message gives the reason and the way out. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}
