import { closeSync, openSync } from "node:fs";
import { homedir } from "node:os";
import { type CliIo, EXIT } from "./command.ts";
import type { LineReader } from "./terminal/line_reader.ts";

const SIGNALS = ["SIGINT", "SIGTERM"] as const;
const MAX_INPUT_BYTES = 16_777_216;

/** Returns the real process as commands see it. */
export function processIo(): CliIo {
  const history: string[] = [];
  const hadTerminal = [process.stdin, process.stdout, process.stderr].some((stream) => stream.isTTY);
  let reloaders = 0;
  const reloads = () => reloaders > 0 && !(hadTerminal && hasLostTerminal());
  return {
    stdout: (text) => void process.stdout.write(text),
    stdoutReady: () =>
      process.stdout.writableNeedDrain
        ? new Promise((resolve) => process.stdout.once("drain", resolve))
        : Promise.resolve(),
    stderr: (text) => void process.stderr.write(text),
    readStdin: () => (process.stdin.isTTY ? Promise.resolve(undefined) : readAll()),
    openStdin: () => process.stdin,
    // Questions go to stderr
    canAsk: process.stdin.isTTY === true && process.stderr.isTTY === true,
    ask: (question, { isHidden = false } = {}) =>
      process.stdin.isTTY ? askLine(question, { history, isHidden }) : Promise.resolve(undefined),
    openReader: (history) => (process.stdin.isTTY ? openReader(history) : Promise.resolve(undefined)),
    onInterrupt(listener) {
      const onHangup = () => void (reloads() || listener());
      for (const signal of SIGNALS) process.on(signal, listener);
      process.on("SIGHUP", onHangup);
      return () => {
        for (const signal of SIGNALS) process.removeListener(signal, listener);
        process.removeListener("SIGHUP", onHangup);
      };
    },
    onReload(listener) {
      const onHangup = () => void (reloads() && listener());
      reloaders++;
      process.on("SIGHUP", onHangup);
      return () => {
        reloaders--;
        process.removeListener("SIGHUP", onHangup);
      };
    },
    onCrash(listener) {
      const crash = (error: unknown) => {
        try {
          listener(error);
        } finally {
          process.exit(EXIT.internal);
        }
      };
      // Runs before the handlers of main.ts, which show the error unmasked and end the process
      process.prependListener("unhandledRejection", crash);
      process.prependListener("uncaughtException", crash);
    },
    exit: (code) => process.exit(code),
    env: process.env,
    cwd: process.cwd(),
    home: homedir(),
    isLaunched: false,
    isTerminal: { stdout: process.stdout.isTTY === true, stderr: process.stderr.isTTY === true },
    // A terminal without a known size reports 0
    columns: process.stdout.columns || undefined,
  };
}

async function readAll(): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  // No encoding is set, so that it gives bytes
  for await (const part of process.stdin as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > MAX_INPUT_BYTES) {
      const { CommandError } = await import("./command.ts");
      throw new CommandError(`Cannot read standard input: it is larger than ${MAX_INPUT_BYTES} bytes`);
    }
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

/**
 * Reads a line that the person edits with the terminal's keys. Each question has its own readline, so that signals reach the command in
 * between. What was typed behind the line waits for the next question.
 * @param options.isHidden true: the line is not shown
 */
async function askLine(
  question: string,
  { history, isHidden }: { readonly history: string[]; readonly isHidden: boolean },
): Promise<string | undefined> {
  const [{ createInterface }, { PassThrough, Writable }] = await Promise.all([
    import("node:readline"),
    import("node:stream"),
  ]);
  const { stdin, stderr } = process;
  const keys = Object.assign(new PassThrough(), { isTTY: true, setRawMode: (on: boolean) => stdin.setRawMode(on) });
  const lines = createInterface({
    input: keys,
    output: isHidden ? new Writable({ write: (_part, _encoding, done) => done() }) : stderr,
    terminal: true,
    ...(isHidden ? { historySize: 0 } : { history, removeHistoryDuplicates: true }),
  });
  const onEnd = () => void keys.end();
  const stop = () => {
    stdin.off("data", onKeys).off("end", onEnd).off("close", onEnd).pause();
  };
  let isAnswered = false;
  const onKeys = (typed: Buffer) => {
    let rest = typed;
    // Readline takes keys at once, and alone knows which Enter ends an answer: behind Escape it is another key
    while (rest.length > 0 && !isAnswered) {
      const end = endOfAnswer(rest);
      keys.emit("data", rest.subarray(0, end));
      rest = rest.subarray(end);
    }
    if (!isAnswered) return;
    stop();
    if (rest.length > 0) stdin.unshift(rest);
  };
  try {
    return await new Promise((resolve) => {
      const answer = (line?: string) => {
        isAnswered = true;
        resolve(line);
      };
      lines.on("history", (newest: string[]) => void (isHidden || history.splice(0, history.length, ...newest)));
      for (const event of ["SIGINT", "close"]) lines.once(event, () => answer());
      if (isHidden) stderr.write(question);
      lines.question(isHidden ? "" : question, answer);
      stdin.on("data", onKeys).on("end", onEnd).on("close", onEnd).resume();
    });
  } finally {
    stop();
    lines.close();
    if (isHidden) stderr.write("\n");
  }
}

/** Returns the place behind the first key that may end an answer: Enter or Ctrl-C. Behind all keys where there is none. */
function endOfAnswer(typed: Buffer): number {
  const end = typed.findIndex((key) => key === 13 || key === 10 || key === 3);
  return end === -1 ? typed.length : end + (typed[end] === 13 && typed[end + 1] === 10 ? 2 : 1);
}

/** Opens the line reader over the terminal of this process: keys from stdin, output on stderr. */
async function openReader(history: readonly string[]): Promise<LineReader> {
  const { TerminalLineReader } = await import("./terminal/line_reader.ts");
  const { stdin, stderr } = process;
  // Without a listener, a closed terminal would end the process before the chat has cancelled its run and its question
  stderr.on("error", () => {});
  const reader = new TerminalLineReader({
    onKeys(listener) {
      const onData = (keys: Buffer) => listener(keys);
      const onEnd = () => listener(undefined);
      stdin.on("data", onData);
      for (const event of ["end", "close", "error"] as const) stdin.on(event, onEnd);
      stdin.resume();
      return () => {
        stdin.off("data", onData);
        for (const event of ["end", "close", "error"] as const) stdin.off(event, onEnd);
        stdin.pause();
      };
    },
    setRawMode(on) {
      try {
        stdin.setRawMode(on);
      } catch {
        // The terminal was closed
      }
    },
    write: (text) => void stderr.write(text),
    columns: () => stderr.columns || undefined,
    onResize(listener) {
      stderr.on("resize", listener);
      return () => stderr.off("resize", listener);
    },
  }, history);
  // Gives the terminal back to the shell also after a crash
  const restore = () => reader.close();
  process.once("exit", restore);
  return {
    read: (prompt) => reader.read(prompt),
    pastes: () => reader.pastes(),
    ask: (question) => reader.ask(question),
    onInterrupt: (listener) => reader.onInterrupt(listener),
    onLine: (listener) => reader.onLine(listener),
    close() {
      process.off("exit", restore);
      reader.close();
    },
  };
}

/** Tells whether the terminal of this process was closed. A SIGHUP then ends the process, and does not reload the configuration. */
export function hasLostTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return false;
  } catch {
    return true;
  }
}

/**
 * Returns `io` with the environment that `daemon start` hands over through standard input. Keys in it are then in this process's
 * memory alone, and not in the environment that other programs of the user can read.
 * @throws {Error} the text on standard input is no environment
 */
export async function withHandedEnvironment(io: CliIo): Promise<CliIo> {
  const handed: unknown = JSON.parse(await io.readStdin() ?? "");
  if (handed === null || typeof handed !== "object") throw new Error("The environment on standard input is no object");
  const texts = Object.entries(handed).filter((entry): entry is [string, string] => typeof entry[1] === "string");
  return { ...io, env: Object.fromEntries(texts), readStdin: () => Promise.resolve(undefined), isLaunched: true };
}
