import { Buffer } from "node:buffer";
import type { Clock } from "../../../base/clock.ts";
import { withTimeout } from "../../../base/clock.ts";
import { ToolError } from "../../../base/errors.ts";
import type { RedactPart } from "../../../base/redact.ts";
import { createOutputRing, type OutputRing } from "../../../system/process/command_output.ts";
import { howEnded } from "../../../system/process/process_group.ts";
import type { RunningProgram } from "../../../system/process/prepare_program.ts";
import { answerTooLarge, invalidAnswer } from "../plugin_wire.ts";

/** Options of a LineChannel. */
export interface LineChannelOptions {
  /** Name of the plugin for errors, such as `plugin "weather"` */
  readonly title: string;
  readonly clock: Clock;
  /** Bytes of one answer */
  readonly maxBytes: number;
  /** Masks secrets in what errors quote of the program's error output. Default: nothing is masked */
  readonly redact?: RedactPart | undefined;
}

/** Bytes of the error output that are kept for the error of a call */
const MAX_STDERR_BYTES = 2_048;
/** Milliseconds in which a program that has answered its only call may end by itself. */
const EXIT_MS = 1_000;
/** Milliseconds for the rest of the error output of a program that has ended. */
const LAST_WORDS_MS = 250;
/** Bytes of error output between two calls, after which a program is ended: each costs the gateway time. */
const MAX_IDLE_ERRORS = 1_048_576;
const NEWLINE = 0x0a;

/** A call that waits for its line. */
interface Waiting {
  resolve(line: Uint8Array): void;
  reject(error: Error): void;
}

/**
 * Lines to and from one program: a line is a call, the next line its answer. A program that writes without being asked, more than
 * one line, or too much, is of no use any more: nobody could say which call a line answers.
 */
export class LineChannel {
  readonly #program: RunningProgram;
  readonly #options: LineChannelOptions;
  readonly #errors: OutputRing;
  #waiting: Waiting | undefined;
  #parts: Uint8Array[] = [];
  #bytes = 0;
  /** Bytes of error output since the last answer */
  #idleErrors = 0;
  #isBroken = false;

  constructor(program: RunningProgram, options: LineChannelOptions) {
    this.#program = program;
    this.#options = options;
    this.#errors = createOutputRing(MAX_STDERR_BYTES, options.redact);
    const { stdout, stderr, exited } = program;
    stdout.on("data", (chunk: Uint8Array) => this.#take(chunk));
    stdout.on("end", () => this.#takeEnd());
    stderr.on("data", (chunk: Uint8Array) => this.#takeErrors(chunk));
    for (const stream of [stdout, stderr]) stream.on("error", () => {});
    exited.then((end) => void this.#ended(howEnded(end)), (error: Error) => this.#fail(error));
  }

  /** True while the program may be given another call. */
  get isUsable(): boolean {
    return !this.#isBroken && this.#waiting === undefined;
  }

  /**
   * Writes a line and waits for the line that answers it.
   * @param options.isLast set when the program gets no other call: its input ends
   * @throws {ToolError} `plugin_failed`, `plugin_answer_invalid`, `plugin_output_too_large`, `command_not_started`
   */
  async ask(line: string, { isLast }: { readonly isLast: boolean }): Promise<Uint8Array> {
    if (!this.isUsable) throw new TypeError("The program cannot be given another call");
    const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
    this.#waiting = { resolve, reject };
    this.#idleErrors = 0;
    const { stdin } = this.#program;
    stdin.write(`${line}\n`);
    if (isLast) stdin.end();
    return await promise;
  }

  /** Waits a moment for the end of a program whose input has ended. @throws {ToolError} `plugin_answer_invalid` when it wrote more than its answer */
  async settle(): Promise<void> {
    const { exited, stdout } = this.#program;
    const drained = new Promise<void>((resolve) => stdout.readableEnded ? resolve() : stdout.once("end", resolve));
    await withTimeout(Promise.all([exited, drained]), { ms: EXIT_MS, clock: this.#options.clock });
    if (this.#bytes > 0) throw this.#tooManyLines();
  }

  #take(chunk: Uint8Array): void {
    if (this.#waiting === undefined) {
      this.#bytes += chunk.length;
      return this.#breakOff();
    }
    const end = chunk.indexOf(NEWLINE);
    const part = end === -1 ? chunk : chunk.subarray(0, end);
    this.#parts.push(part);
    this.#bytes += part.length;
    if (this.#bytes > this.#options.maxBytes) {
      return this.#fail(answerTooLarge(this.#options.title, this.#options.maxBytes));
    }
    if (end === -1) return;
    if (chunk.length > end + 1) return this.#fail(this.#tooManyLines());
    this.#answer();
  }

  #takeErrors(chunk: Uint8Array): void {
    this.#errors.write(chunk);
    if (this.#waiting !== undefined) return;
    this.#idleErrors += chunk.length;
    if (this.#idleErrors > MAX_IDLE_ERRORS) this.#breakOff();
  }

  /** Ends a program that nobody can use, and that may write on and on. */
  #breakOff(): void {
    this.#isBroken = true;
    void this.#program.end();
  }

  /** The last line of an output may have no end. */
  #takeEnd(): void {
    if (this.#waiting !== undefined && this.#bytes > 0) this.#answer();
    this.#isBroken = true;
  }

  #answer(): void {
    const line = Buffer.concat(this.#parts);
    const waiting = this.#waiting;
    this.#parts = [];
    this.#bytes = 0;
    this.#waiting = undefined;
    waiting?.resolve(line);
  }

  async #ended(how: string): Promise<void> {
    this.#isBroken = true;
    const { stdout, stderr } = this.#program;
    const closed = [stdout, stderr].map((stream) =>
      stream.closed || stream.readableEnded ? undefined : new Promise((resolve) => stream.once("close", resolve))
    );
    await withTimeout(Promise.all(closed), { ms: LAST_WORDS_MS, clock: this.#options.clock });
    this.#errors.end();
    if (this.#waiting === undefined) return;
    const said = this.#errors.read(0, MAX_STDERR_BYTES).text.trim();
    const { title } = this.#options;
    const words = said === "" ? "it wrote no error output" : `the end of its error output: ${said}`;
    this.#fail(new ToolError("plugin_failed", `Cannot call ${title}: ${how} without an answer; ${words}`));
  }

  #fail(error: Error): void {
    this.#isBroken = true;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    this.#parts = [];
    waiting?.reject(error);
  }

  #tooManyLines(): ToolError {
    const reason = "it wrote more than one line; what it has to say beside goes to its error output";
    return invalidAnswer(this.#options.title, reason);
  }
}
