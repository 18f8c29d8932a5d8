import { Buffer } from "node:buffer";
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";
import { type Clock, withTimeout } from "../../base/clock.ts";
import type { RunningProgram } from "../../system/process/prepare_program.ts";
import { howEnded } from "../../system/process/process_group.ts";
import { type MendResult, MessageFault, MessageFilter } from "./message_filter.ts";
import { McpError } from "./mcp_error.ts";
import { OutputBrake } from "./output_brake.ts";

/** Options of a StdioTransport. */
export interface StdioTransportOptions {
  /** Name of the server in the configuration */
  readonly server: string;
  readonly clock: Clock;
  /** Mends results before the SDK checks them. */
  readonly mend: MendResult;
  /** Takes lines of the output that are no messages, as banners. */
  readonly onNoise: (line: Uint8Array) => void;
}

/** Bytes of one line. */
const MAX_LINE_BYTES = 10 * 1_048_576;
/** Bytes that may wait for a server that does not read its input. */
const MAX_UNREAD_BYTES = 16 * 1_048_576;
/** Milliseconds for a server to end by itself once its input has ended, and again after SIGTERM. */
const EXIT_MS = 1_000;
/** Lines that are taken in 100 ms. */
const MAX_LINES = 500;
const NEWLINE = 0x0a;

/**
 * Messages to and from a program: each is a line of JSON. Replaces the SDK's own transport, which starts programs by itself.
 *
 * The SDK takes a transport with `pid` and `stderr` for one over standard input and output.
 */
export class StdioTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  readonly pid = null;
  readonly stderr = null;
  readonly #program: RunningProgram;
  readonly #options: StdioTransportOptions;
  readonly #filter: MessageFilter;
  readonly #brake: OutputBrake;
  #parts: Uint8Array[] = [];
  #bytes = 0;
  #isStarted = false;
  #closing: Promise<void> | undefined;
  #isClosed = false;
  #fault: string | undefined;

  constructor(program: RunningProgram, options: StdioTransportOptions) {
    this.#program = program;
    this.#options = options;
    this.#filter = new MessageFilter(options.clock, options.mend);
    this.#brake = new OutputBrake(program.stdout, { clock: options.clock, most: MAX_LINES });
  }

  /** Reason of the end as the rest of a sentence about the server. Undefined while it runs, and when the gateway ended it. */
  get fault(): string | undefined {
    return this.#fault;
  }

  /** Begins to read. Repeating it does nothing: the program runs already. */
  start(): Promise<void> {
    if (this.#isStarted) return Promise.resolve();
    this.#isStarted = true;
    const { stdout, exited } = this.#program;
    stdout.on("data", (chunk: Uint8Array) => this.#take(chunk));
    stdout.on("error", () => {});
    stdout.on("end", () => void this.#ended());
    exited.then(() => this.#ended(), (error: Error) => this.#fail(error.message));
    return Promise.resolve();
  }

  /** Writes a message. @throws {McpError} `mcp_lost` for one of which nothing was written */
  send(message: JSONRPCMessage): Promise<void> {
    const { stdin } = this.#program;
    if (this.#isClosed || !stdin.writable) return Promise.reject(this.#unsent(this.#fault ?? "its session has ended"));
    if (stdin.writableLength > MAX_UNREAD_BYTES) return Promise.reject(this.#unsent("it does not read its input"));
    this.#filter.sent(message);
    stdin.write(`${JSON.stringify(message)}\n`);
    return Promise.resolve();
  }

  /** Ends the input, then the program with all it started. */
  close(): Promise<void> {
    return this.#closing ??= this.#close();
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    const { stdin, exited, stdout } = this.#program;
    const { clock } = this.#options;
    stdin.end();
    // Nobody reads what it still says, and a full pipe would keep it from ending
    this.#brake.release();
    stdout.resume();
    const gone = exited.then(() => true, () => true);
    if (await withTimeout(gone, { ms: EXIT_MS, clock }) === undefined) {
      this.#program.terminate();
      await withTimeout(gone, { ms: EXIT_MS, clock });
    }
    await this.#program.end();
    this.#tellClosed();
  }

  #tellClosed(): void {
    const { onclose } = this;
    delete this.onclose;
    onclose?.();
  }

  #take(chunk: Uint8Array): void {
    let rest = chunk;
    for (let end = rest.indexOf(NEWLINE); end !== -1 && !this.#isClosed; end = rest.indexOf(NEWLINE)) {
      this.#brake.take(1);
      this.#takeLine(this.#joined(rest.subarray(0, end)));
      rest = rest.subarray(end + 1);
    }
    if (this.#isClosed || rest.length === 0) return;
    this.#parts.push(rest);
    this.#bytes += rest.length;
    if (this.#bytes > MAX_LINE_BYTES) this.#fail(`it sent a line of over ${MAX_LINE_BYTES} bytes`);
  }

  #joined(end: Uint8Array): Uint8Array {
    if (this.#parts.length === 0) return end;
    const line = Buffer.concat([...this.#parts, end]);
    this.#parts = [];
    this.#bytes = 0;
    return line;
  }

  #takeLine(line: Uint8Array): void {
    if (line.length > MAX_LINE_BYTES) return this.#fail(`it sent a line of over ${MAX_LINE_BYTES} bytes`);
    if (line.length <= 1 && line[0] !== 0x7b) return;
    try {
      const value = parse(line);
      if (value === undefined) {
        this.#options.onNoise(line);
        return this.#filter.useless();
      }
      const message = this.#filter.received(value);
      if (message === undefined) return;
      if ("method" in message) return this.onmessage?.(message);
      // The SDK hands notifications on in a microtask, and forgets the request of a reply at once: its last progress would be lost
      queueMicrotask(() => this.onmessage?.(message));
    } catch (error) {
      if (error instanceof MessageFault) this.#fail(error.message);
      else this.onerror?.(error instanceof Error ? error : new Error(String(error)));
    }
  }

  /** Waits for the rest of the output, then says how the program ended. */
  async #ended(): Promise<void> {
    if (this.#isClosed) return;
    const { stdout, exited } = this.#program;
    const { clock } = this.#options;
    const drained = stdout.readableEnded ? undefined : new Promise<void>((resolve) => stdout.once("end", resolve));
    const [exit] = await Promise.all([
      withTimeout(exited.catch(() => undefined), { ms: EXIT_MS, clock }),
      drained && withTimeout(drained, { ms: EXIT_MS, clock }),
    ]);
    this.#fail(exit === undefined ? "it closed its output" : howEnded(exit));
  }

  #fail(fault: string): void {
    if (this.#isClosed) return;
    this.#fault = fault;
    this.#parts = [];
    void this.close();
    // Requests that wait for an answer fail now, before the program has ended
    this.#tellClosed();
  }

  #unsent(reason: string): McpError {
    const { server } = this.#options;
    return new McpError("mcp_lost", `Cannot ask the MCP server "${server}": ${reason}`, { server, written: false });
  }
}

function parse(line: Uint8Array): unknown {
  try {
    // Bytes that are no UTF-8 become U+FFFD: a name in another encoding must not cost the whole answer
    const value: unknown = JSON.parse(new TextDecoder().decode(line));
    return value !== null && typeof value === "object" ? value : undefined;
  } catch {
    return undefined;
  }
}
