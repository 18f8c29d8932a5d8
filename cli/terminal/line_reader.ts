import { createInterface, type Interface } from "node:readline";
import { PassThrough, Writable } from "node:stream";
import { createPasteSplitter } from "./paste_splitter.ts";

/** Members of a terminal that the reader uses. */
export interface ReaderTerminal {
  /** Calls back with the bytes that are typed, and with undefined at the end of input. Returns a function that removes the listener */
  readonly onKeys: (listener: (keys: Uint8Array | undefined) => void) => () => void;
  /** Switches raw mode: keys arrive one by one and are not echoed, and Ctrl-C is a key */
  readonly setRawMode: (on: boolean) => void;
  readonly write: (text: string) => void;
  readonly columns: () => number | undefined;
  /** Calls back when the size of the terminal changes. Returns a function that removes the listener */
  readonly onResize: (listener: () => void) => () => void;
}

/**
 * Only reader of a terminal for as long as a chat lasts, so that nothing that is typed or pasted between two lines is lost.
 *
 * A paste stays in one piece (bracketed paste): its lines are not sent one by one. Text that is typed while nothing is read is not
 * shown, and becomes part of the next line.
 */
export interface LineReader {
  /** Reads a message. Lines that arrived earlier are returned first. @returns undefined at Ctrl-D, or at Ctrl-C on an empty line */
  read(prompt: string): Promise<string | undefined>;
  /**
   * Asks a question. Text that was typed before the question, and pasted text, do not answer it.
   * @returns undefined at Ctrl-C and Ctrl-D
   */
  ask(question: string): Promise<string | undefined>;
  /** Returns the pasted texts with an `@`: what they name was typed by nobody. */
  pastes(): readonly string[];
  /** Calls back at each Ctrl-C while nothing is read. Returns a function that removes the listener */
  onInterrupt(listener: () => void): () => void;
  /**
   * Offers each line that comes while nothing is read. A listener that takes it returns true; else it waits for the next read. Returns a
   * function that removes the listener.
   */
  onLine(listener: (line: string) => boolean): () => void;
  /** Gives the terminal back. A second call does nothing */
  close(): void;
}

/** Most lines that wait for a read. Further lines are dropped, and the next read says so */
const MAX_WAITING = 1_000;
const HISTORY_SIZE = 1_000;
/** Most characters of a paste that is shown as text. A longer paste, or one with line breaks or tabs, is shown as a mark */
const MAX_PLAIN_PASTE = 500;
const PASTES_ON = "\x1b[?2004h";
const PASTES_OFF = "\x1b[?2004l";
const MARK = /\[Pasted text #(\d+): [^\]]*\]/g;

/** Read or question that waits for its line. */
interface Waiting {
  readonly kind: "read" | "ask";
  readonly resolve: (line: string | undefined) => void;
}

/** The reader of a person's terminal, which it takes over until `close`. */
export class TerminalLineReader implements LineReader {
  readonly #terminal: ReaderTerminal;
  /** Keys on their way to readline */
  readonly #keys = new PassThrough();
  readonly #lines: Interface;
  /** Removes the listeners on the terminal */
  readonly #stop: () => void;
  /** Lines that arrived while nothing was read */
  readonly #queue: string[] = [];
  /** Texts of pastes that are shown as marks, by the number in the mark */
  readonly #pastes = new Map<string, string>();
  /** Pasted texts with an `@` */
  readonly #naming = new Set<string>();
  readonly #onInterrupt = new Set<() => void>();
  #onLine: ((line: string) => boolean) | undefined = undefined;
  #waiting: Waiting | undefined;
  /** Number of lines that were dropped since the last read */
  #dropped = 0;
  #ended = false;
  #closed = false;

  /** @param history messages of earlier chats, the newest first */
  constructor(terminal: ReaderTerminal, history: readonly string[]) {
    this.#terminal = terminal;
    // readline then edits the line itself, and gives the terminal back while the process is stopped by Ctrl-Z
    Object.assign(this.#keys, { isTTY: true, setRawMode: (on: boolean) => terminal.setRawMode(on) });
    const screen = this.#screen();
    this.#lines = createInterface({
      input: this.#keys,
      output: screen,
      terminal: true,
      history: [...history],
      historySize: HISTORY_SIZE,
      removeHistoryDuplicates: true,
    });
    this.#lines.on("line", (line) => this.#take(line));
    // An answer to a question is no message, and not kept
    this.#lines.on("history", (newest: string[]) => void (this.#waiting?.kind === "ask" && newest.shift()));
    this.#lines.on("SIGINT", () => this.#interrupt());
    this.#lines.on("close", () => this.#end());
    const splitter = createPasteSplitter({
      onKeys: (text) => void this.#keys.write(text),
      onPaste: (text) => this.#paste(text),
    });
    const stopKeys = terminal.onKeys((typed) => (typed === undefined ? this.#keys.end() : splitter.push(typed)));
    const stopResize = terminal.onResize(() => void screen.emit("resize"));
    this.#stop = () => {
      stopKeys();
      stopResize();
    };
    terminal.setRawMode(true);
    terminal.write(PASTES_ON);
  }

  async read(prompt: string): Promise<string | undefined> {
    const { write } = this.#terminal;
    if (this.#dropped > 0) write(`More than ${MAX_WAITING} lines waited: ${this.#dropped} are left out\n`);
    this.#dropped = 0;
    const next = this.#queue.shift();
    if (next !== undefined) {
      write(`${prompt}${next}\n`);
      return this.#withPastes(next);
    }
    const line = await this.#next("read", prompt);
    return line === undefined ? undefined : this.#withPastes(line);
  }

  async ask(question: string): Promise<string | undefined> {
    if (this.#ended) return undefined;
    const typed = this.#takeTyped();
    const answer = await this.#next("ask", question);
    if (typed !== "" && !this.#ended) this.#lines.write(typed);
    return answer;
  }

  pastes(): readonly string[] {
    return [...this.#naming];
  }

  onInterrupt(listener: () => void): () => void {
    this.#onInterrupt.add(listener);
    return () => void this.#onInterrupt.delete(listener);
  }

  onLine(listener: (line: string) => boolean): () => void {
    this.#onLine = listener;
    return () => void (this.#onLine = undefined);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stop();
    if (!this.#ended) this.#lines.close();
    this.#terminal.write(PASTES_OFF);
    this.#terminal.setRawMode(false);
  }

  /** Returns a screen for readline, which shows what is typed only while a line is read. */
  #screen(): Writable {
    const screen = new Writable({
      write: (chunk, _encoding, done) => {
        if (this.#waiting !== undefined) this.#terminal.write(String(chunk));
        done();
      },
    });
    Object.defineProperty(screen, "columns", { get: this.#terminal.columns });
    return screen;
  }

  /** Shows a prompt and waits for the next line. @returns undefined at the end of input and at Ctrl-C */
  #next(kind: Waiting["kind"], prompt: string): Promise<string | undefined> {
    if (this.#ended) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      this.#waiting = { kind, resolve };
      // Text that was typed unseen has not moved the cursor, so that the new prompt begins on the cursor's row
      Object.assign(this.#lines, { prevRows: 0 });
      this.#lines.setPrompt(prompt);
      this.#lines.prompt(true);
    });
  }

  #settle(line: string | undefined): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.resolve(line);
  }

  #take(line: string): void {
    if (this.#waiting !== undefined) return this.#settle(line);
    if (this.#onLine?.(this.#withPastes(line)) === true) return;
    if (this.#queue.length < MAX_WAITING) this.#queue.push(line);
    else this.#dropped++;
  }

  /** Handles Ctrl-C: empties the line, ends the read or question, or drops waiting lines and calls the listeners. */
  #interrupt(): void {
    if (this.#waiting?.kind === "read" && this.#lines.line !== "") return void this.#takeTyped();
    if (this.#waiting !== undefined) {
      this.#terminal.write("\n");
      return this.#settle(undefined);
    }
    if (this.#queue.length > 0) this.#terminal.write(`\nLines that waited are left out: ${this.#queue.length}\n`);
    this.#queue.length = 0;
    this.#takeTyped();
    for (const listener of [...this.#onInterrupt]) listener();
  }

  #end(): void {
    this.#ended = true;
    if (this.#waiting !== undefined) this.#terminal.write("\n");
    this.#settle(undefined);
  }

  /** Empties the line that is being typed. @returns its text */
  #takeTyped(): string {
    const typed = this.#lines.line;
    this.#lines.write(null, { ctrl: true, name: "e" });
    this.#lines.write(null, { ctrl: true, name: "u" });
    return typed;
  }

  /** Inserts a paste into the line, a long one as a mark. Refuses it with a bell as the answer to a question. */
  #paste(pasted: string): void {
    if (this.#waiting?.kind === "ask") return this.#terminal.write("\x07");
    const text = pasted.replace(/\r\n?/g, "\n");
    if (text.includes("@")) this.#naming.add(text);
    // deno-lint-ignore no-control-regex -- a key in it would edit the line
    if (text.length <= MAX_PLAIN_PASTE && !/[\x00-\x1f\x7f]/.test(text)) return void this.#keys.write(text);
    const number = String(this.#pastes.size + 1);
    this.#pastes.set(number, text);
    const count = text.split("\n").length;
    this.#keys.write(`[Pasted text #${number}: ${count === 1 ? `${text.length} characters` : `${count} lines`}]`);
  }

  /** Replaces the marks in a line by the pasted texts. */
  #withPastes(line: string): string {
    return line.replace(MARK, (mark, number: string) => this.#pastes.get(number) ?? mark);
  }
}
