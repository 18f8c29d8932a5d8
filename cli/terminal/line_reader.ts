import { createInterface } from "node:readline";
import { PassThrough, Writable } from "node:stream";
import { createPasteSplitter } from "./paste_splitter.ts";

/** The terminal as the reader needs it. */
export interface ReaderTerminal {
  /** Calls back with what is typed, and with undefined at its end. @returns what ends that */
  readonly onKeys: (listener: (keys: Uint8Array | undefined) => void) => () => void;
  /** Keys come one by one, unseen, and Ctrl-C is a key */
  readonly setRawMode: (on: boolean) => void;
  readonly write: (text: string) => void;
  readonly columns: () => number | undefined;
  /** Calls back when the terminal has another size; gives the way to stop that */
  readonly onResize: (listener: () => void) => () => void;
}

/**
 * The one reader of a terminal for as long as a chat lasts: nothing that is typed or pasted between two lines is lost.
 *
 * A paste is one piece (bracketed paste): its lines are not sent one by one. What is typed while nothing is read is not shown, and
 * stands in the next line.
 */
export interface LineReader {
  /** Reads a message; lines that came before are given first. @returns undefined at Ctrl-D, or at Ctrl-C on an empty line */
  read(prompt: string): Promise<string | undefined>;
  /**
   * Asks a question. What was typed before it does not answer it, and neither does what is pasted.
   * @returns undefined at Ctrl-C and Ctrl-D
   */
  ask(question: string): Promise<string | undefined>;
  /** Calls back at each Ctrl-C while nothing is read; gives the way to stop that */
  onInterrupt(listener: () => void): () => void;
  /** Gives the terminal back. Repeating it does nothing */
  close(): void;
}

export interface LineReaderOptions {
  /** Messages of earlier chats, the newest first */
  readonly history: readonly string[];
}

/** Lines that wait; more are left out, and that is said */
const MAX_WAITING = 1_000;
const HISTORY_SIZE = 1_000;
/** A paste that is longer, or has line breaks or tabs, stands in the line as a mark */
const MAX_PLAIN_PASTE = 500;
const PASTES_ON = "\x1b[?2004h";
const PASTES_OFF = "\x1b[?2004l";
const MARK = /\[Pasted text #(\d+): [^\]]*\]/g;

interface Waiting {
  readonly kind: "read" | "ask";
  readonly resolve: (line: string | undefined) => void;
}

export function createLineReader(terminal: ReaderTerminal, { history }: LineReaderOptions): LineReader {
  const keys = new PassThrough();
  // readline then edits the line itself, and gives the terminal back while the process is stopped by Ctrl-Z
  Object.assign(keys, { isTTY: true, setRawMode: (on: boolean) => terminal.setRawMode(on) });
  let visible = false;
  const screen = new Writable({
    write(chunk, _encoding, done) {
      if (visible) terminal.write(String(chunk));
      done();
    },
  });
  Object.defineProperty(screen, "columns", { get: terminal.columns });
  const lines = createInterface({
    input: keys,
    output: screen,
    terminal: true,
    history: [...history],
    historySize: HISTORY_SIZE,
    removeHistoryDuplicates: true,
  });
  const queue: string[] = [];
  const pastes = new Map<string, string>();
  const interrupted = new Set<() => void>();
  let waiting: Waiting | undefined;
  let leftOut = 0;
  let ended = false;
  let closed = false;

  const settle = (line: string | undefined) => {
    const { resolve } = waiting ?? {};
    waiting = undefined;
    visible = false;
    resolve?.(line);
  };
  /** Empties the line that is being typed. @returns what stood there */
  const takeTyped = (): string => {
    const typed = lines.line;
    lines.write(null, { ctrl: true, name: "e" });
    lines.write(null, { ctrl: true, name: "u" });
    return typed;
  };
  const prompt = (text: string) => {
    visible = true;
    // Text that was typed unseen has not moved the cursor, so that the new prompt begins on the cursor's row
    Object.assign(lines, { prevRows: 0 });
    lines.setPrompt(text);
    lines.prompt(true);
  };

  lines.on("line", (line) => {
    if (waiting !== undefined) return settle(line);
    if (queue.length < MAX_WAITING) queue.push(line);
    else leftOut++;
  });
  // An answer is no message
  lines.on("history", (newest: string[]) => void (waiting?.kind === "ask" && newest.shift()));
  lines.on("SIGINT", () => {
    if (waiting?.kind === "read" && lines.line !== "") {
      takeTyped();
      return;
    }
    if (waiting !== undefined) {
      terminal.write("\n");
      return settle(undefined);
    }
    if (queue.length > 0) terminal.write(`\nLines that waited are left out: ${queue.length}\n`);
    queue.length = 0;
    takeTyped();
    for (const listener of [...interrupted]) listener();
  });
  lines.on("close", () => {
    ended = true;
    if (waiting !== undefined) terminal.write("\n");
    settle(undefined);
  });

  const insert = (pasted: string) => {
    const text = pasted.replace(/\r\n?/g, "\n");
    if (waiting?.kind === "ask") return terminal.write("\x07");
    // deno-lint-ignore no-control-regex -- a key in it would edit the line
    if (text.length <= MAX_PLAIN_PASTE && !/[\x00-\x1f\x7f]/.test(text)) return void keys.write(text);
    const number = String(pastes.size + 1);
    pastes.set(number, text);
    const count = text.split("\n").length;
    keys.write(`[Pasted text #${number}: ${count === 1 ? `${text.length} characters` : `${count} lines`}]`);
  };
  const splitter = createPasteSplitter({ onKeys: (text) => void keys.write(text), onPaste: insert });
  const stopKeys = terminal.onKeys((typed) => {
    if (typed === undefined) keys.end();
    else splitter.push(typed);
  });
  const stopResize = terminal.onResize(() => void screen.emit("resize"));
  terminal.setRawMode(true);
  terminal.write(PASTES_ON);

  const whole = (line: string) => line.replace(MARK, (mark, number: string) => pastes.get(number) ?? mark);

  return {
    async read(text) {
      if (leftOut > 0) terminal.write(`More than ${MAX_WAITING} lines waited: ${leftOut} are left out\n`);
      leftOut = 0;
      const next = queue.shift();
      if (next !== undefined) {
        terminal.write(`${text}${next}\n`);
        return whole(next);
      }
      if (ended) return undefined;
      const line = await new Promise<string | undefined>((resolve) => {
        waiting = { kind: "read", resolve };
        prompt(text);
      });
      return line === undefined ? undefined : whole(line);
    },
    async ask(question) {
      if (ended) return undefined;
      const typed = takeTyped();
      const answer = await new Promise<string | undefined>((resolve) => {
        waiting = { kind: "ask", resolve };
        prompt(question);
      });
      if (typed !== "" && !ended) lines.write(typed);
      return answer;
    },
    onInterrupt(listener) {
      interrupted.add(listener);
      return () => void interrupted.delete(listener);
    },
    close() {
      if (closed) return;
      closed = true;
      stopKeys();
      stopResize();
      if (!ended) lines.close();
      terminal.write(PASTES_OFF);
      terminal.setRawMode(false);
    },
  };
}
