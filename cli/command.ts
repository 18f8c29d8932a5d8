import type { ArgDef, ArgsDef, ParsedArgs } from "citty";
import type { LoadedConfig, LoadOptions } from "../lib/config/load_config.ts";

import type { LineReader, LineReaderOptions } from "./terminal/line_reader.ts";

/** The process as a command sees it; tests hand in their own. */
export interface CliIo {
  /** Data */
  readonly stdout: (text: string) => void;
  /** Messages, questions and log lines */
  readonly stderr: (text: string) => void;
  /** All of standard input as text; undefined when it is a terminal */
  readonly readStdin: () => Promise<string | undefined>;
  /** Tells whether somebody at a terminal can be asked */
  readonly canAsk: boolean;
  /** Asks for a line on the terminal; undefined at its end, or when there is no terminal */
  readonly ask: (question: string) => Promise<string | undefined>;
  /** Opens the reader of a terminal for a whole conversation; undefined when there is no terminal */
  readonly openReader: (options: LineReaderOptions) => Promise<LineReader | undefined>;
  /** Calls back at each SIGINT or SIGTERM; gives the way to stop that */
  readonly onInterrupt: (listener: () => void) => () => void;
  /**
   * Calls back at each SIGHUP but one whose reason is that the terminal was closed; until the way to stop that is used, no other
   * SIGHUP is an interrupt
   */
  readonly onReload: (listener: () => void) => () => void;
  /** Calls back with an error that nothing caught, and ends the process: what is told of the error is the listener's to say */
  readonly onCrash: (listener: (error: unknown) => void) => void;
  /** Ends the process at once */
  readonly exit: (code: number) => void;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly home: string;
  /** Whether `daemon start` launched this process: nobody reads what it prints */
  readonly isLaunched: boolean;
  /** Whether stdout, or stderr, is a terminal: text from outside is then made harmless, and colour is allowed */
  readonly isTerminal: { readonly stdout: boolean; readonly stderr: boolean };
  /** Characters of a line of the terminal on stdout; undefined or absent where there is none */
  readonly columns?: number | undefined;
}

/** Flags that every command takes, before or after the verb. */
export interface GlobalFlags {
  readonly config: string | undefined;
  readonly dataDir: string | undefined;
  readonly workspace: string | undefined;
  readonly json: boolean;
}

export interface CommandContext {
  readonly io: CliIo;
  readonly flags: GlobalFlags;
  /** What the configuration is looked for by */
  readonly loadOptions: LoadOptions;
  /** @param keys further keys from the command's own flags. @throws {ConfigError} */
  readonly loadConfig: (keys?: Readonly<Record<string, unknown>>) => Promise<LoadedConfig>;
  /** Data for programs with --json, else text for people; a newline is added where it is missing */
  readonly print: (data: unknown, text: string) => void;
  /** A message on stderr */
  readonly say: (message: string) => void;
}

/** One verb. Its file is loaded when it is used. */
export interface Command<A extends ArgsDef = ArgsDef> {
  /** Flags and positionals; a positional called `...rest` takes all that are left */
  readonly args: A;
  /** One line that works as it is */
  readonly example: string;
  /** @returns the exit code */
  readonly run: (context: CommandContext, args: ParsedArgs<A>) => Promise<number>;
}

/** Types a command's arguments by their definition. */
export function defineCliCommand<const A extends ArgsDef>(command: Command<A>): Command<A> {
  return command;
}

/** The name a flag is given by: a switch that is on by default is turned off by `no-` and its name. */
export function shownFlag(name: string, arg: ArgDef): string {
  return arg.type === "boolean" && arg.default === true ? `no-${name}` : name;
}
