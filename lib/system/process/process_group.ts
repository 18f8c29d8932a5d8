import { type ChildProcess, spawn } from "node:child_process";
import process from "node:process";
import type { Readable, Writable } from "node:stream";
import { systemCodeOf, ToolError } from "../../base/errors.ts";
import type { WatchCovers } from "./cover_watch.ts";

/** A program as the operating system starts it: no shell reads its words. */
export interface CommandLine {
  /** Absolute path */
  readonly file: string;
  readonly args: readonly string[];
  /** Absolute path of the working folder */
  readonly cwd: string;
  /** The whole environment: nothing is inherited */
  readonly env: Readonly<Record<string, string>>;
  /** Contents of the descriptors from FIRST_GIVEN on, which the program reads to their ends. With a channel: from FIRST_GIVEN + 2 on. Default: none */
  readonly given?: readonly Uint8Array[];
  /** True: the first two descriptors from FIRST_GIVEN on are a channel. The program reads from the first and writes to the second. Default false */
  readonly hasChannel?: boolean;
  /** True: the program reads its input from a pipe. Default false: there is nothing on it */
  readonly hasInput?: boolean;
  /** Begins the watch that ends the program when a cover of its sandbox is lost. Default: none */
  readonly watchCovers?: WatchCovers | undefined;
}

/** Pipes to and from a program beside its outputs. */
export interface ProcessChannel {
  /** The program reads what is written here. */
  readonly input: Writable;
  /** Gives what the program writes. */
  readonly output: Readable;
}

/** How a program ended by itself or by a signal. */
export type Exit =
  | { readonly kind: "exit"; readonly code: number }
  | { readonly kind: "signal"; readonly name: string };

/** How a program ended, or was ended since its sandbox lost a cover: `path`, relative to the workspace, was replaced. */
export type ProgramEnd = Exit | { readonly kind: "uncovered"; readonly path: string };

/** Says how a program ended, for the middle of a sentence. */
export function howEnded(end: ProgramEnd): string {
  switch (end.kind) {
    case "exit":
      return `it ended with the code ${end.code}`;
    case "signal":
      return `${end.name} ended it`;
    case "uncovered":
      return `${
        JSON.stringify(end.path)
      } was replaced while the program ran and would have become readable, so it was ended`;
  }
}

/** A started program, the leader of a process group of its own. */
export interface ProcessGroup {
  /** Present when the command line asks for an input, and the program could be started */
  readonly stdin: Writable | undefined;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Present when the command line asks for a channel, and the program could be started */
  readonly channel: ProcessChannel | undefined;
  /** undefined when it could not be started */
  readonly pid: number | undefined;
  /** Rejects with a ToolError `command_not_started` */
  readonly exited: Promise<ProgramEnd>;
  /** After the exit, when nothing holds its output open any more */
  readonly closed: Promise<"closed">;
  /** Sends a signal to all that is left in the group; nothing when there is nobody. Default SIGKILL */
  kill(signal?: "SIGTERM" | "SIGKILL"): void;
}

/**
 * Starts a program in a process group of its own.
 * @throws {ToolError} `command_not_started`, when the operating system refuses at once; `sandbox_unavailable`, when covers cannot be watched
 */
export function startGroup(line: CommandLine): ProcessGroup {
  const { promise: exited, resolve, reject } = Promise.withResolvers<ProgramEnd>();
  let child: Child;
  let end: ProgramEnd | undefined;
  const covers = line.watchCovers?.((lost) => {
    if (typeof lost === "string") end = { kind: "uncovered", path: lost };
    else reject(lost);
    killGroup(child.pid);
  });
  // Whoever waits is told; nobody has to wait
  exited.catch(() => {}).finally(() => covers?.close());
  try {
    child = start(line);
  } catch (error) {
    reject(error);
    throw error;
  }
  child.once("error", (error) => reject(notStarted(line.file, error)));
  child.once("exit", (code, name) => {
    resolve(end ?? (name === null ? { kind: "exit", code: code ?? 0 } : { kind: "signal", name }));
  });
  // A pipe that breaks has ended; how the program ended says why
  child.stdin?.on("error", () => {});
  return {
    stdin: child.stdin ?? undefined,
    stdout: child.stdout,
    stderr: child.stderr,
    channel: line.hasChannel === true ? channelOf(child) : undefined,
    pid: child.pid,
    exited,
    closed: new Promise((resolve) => child.once("close", () => resolve("closed"))),
    kill: (signal) => killGroup(child.pid, signal),
  };
}

function killGroup(pid: number | undefined, signal: "SIGTERM" | "SIGKILL" = "SIGKILL"): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // Nobody is left in it
  }
}

type Child = ChildProcess & { readonly stdout: Readable; readonly stderr: Readable };

/** First descriptor after input, output and errors. */
export const FIRST_GIVEN = 3;

function channelOf(child: Child): ProcessChannel | undefined {
  // Each descriptor from the first on is a pipe, which is a socket: it is read and written
  const [input, output] = child.stdio.slice(FIRST_GIVEN) as unknown as [Writable?, Readable?];
  if (input === undefined || output === undefined) return undefined;
  // A pipe that breaks has ended; how the program ended says why
  for (const pipe of [input, output]) pipe.on("error", () => {});
  return { input, output };
}

function start({ file, args, cwd, env, given = [], hasChannel = false, hasInput = false }: CommandLine): Child {
  try {
    const skipped = hasChannel ? 2 : 0;
    const pipes = Array.from({ length: skipped + given.length }, () => "pipe" as const);
    const stdio = [hasInput ? "pipe" : "ignore", "pipe", "pipe", ...pipes] as const;
    // The two outputs are pipes
    const child = spawn(file, args, { cwd, env, detached: true, shell: false, stdio: [...stdio] }) as Child;
    for (const [index, content] of given.entries()) {
      // Each descriptor from the first on is a pipe, which is a socket and writable
      const pipe = child.stdio[FIRST_GIVEN + skipped + index] as Writable | null | undefined;
      // A program that ends early reads nothing. How it ended says why
      pipe?.on("error", () => {});
      pipe?.end(content);
    }
    return child;
  } catch (error) {
    throw notStarted(file, error);
  }
}

function notStarted(file: string, error: unknown): ToolError {
  const reason = systemCodeOf(error) ?? "an unknown error";
  return new ToolError("command_not_started", `Cannot start "${file}": the operating system says ${reason}`, {
    cause: error,
  });
}
