import { Buffer } from "node:buffer";
import { Backoff, type Clock } from "../../base/clock.ts";
import type { RedactPart } from "../../base/redact.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { createOutputRing, type OutputRing } from "../../system/process/command_output.ts";
import type { McpStatus } from "./mcp_connection.ts";
import { foreignWords, McpError } from "./mcp_error.ts";
import type { McpServerSettings } from "./start_program.ts";

/** Options of a ServerDiary. */
export interface ServerDiaryOptions {
  /** Name of the server in the configuration */
  readonly name: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Masks secrets in what the server says of itself. */
  readonly redact: RedactPart;
  /** Settings of the server: one by `url` has no error output. */
  readonly settings: Pick<McpServerSettings, "url">;
}

/** Bytes of the error output and the log of a server that are kept. */
const MAX_TAIL_BYTES = 65_536;
/** Lines of a server that go into the gateway's log within a minute. The others are counted. */
const MAX_LINES = 60;
const MINUTE_MS = 60_000;
const MAX_LAST_WORDS = 1_000;

/** Words of a server about itself, as its error output, and its last error. All of it is masked and bounded. */
export class ServerDiary {
  readonly #options: ServerDiaryOptions;
  readonly #tail: OutputRing;
  /** Place in the tail where the newest start begins */
  #began = 0;
  /** Place in the tail up to which lines were logged */
  #logged = 0;
  #lines = 0;
  #leftOut = 0;
  #minute = 0;
  #lastError: McpStatus["lastError"];

  constructor(options: ServerDiaryOptions) {
    this.#options = options;
    this.#tail = createOutputRing(MAX_TAIL_BYTES, options.redact);
    this.#minute = options.clock.monotonic();
  }

  get lastError(): McpStatus["lastError"] {
    return this.#lastError;
  }

  /** Takes error output, or whole lines. */
  write(words: Uint8Array | string): void {
    this.#tail.write(typeof words === "string" ? Buffer.from(`${words}\n`) : words);
    this.#logLines();
  }

  /** Returns the end of what was written, masked: at most 64 KiB. */
  tail(): string {
    return this.#tail.read(0, MAX_TAIL_BYTES).text;
  }

  /** Begins the words of another start. */
  begin(): void {
    this.#began = this.#tail.read(Number.MAX_SAFE_INTEGER, 0).total;
  }

  /** Returns the last words since the start, as the rest of a sentence about a failure. */
  lastWords(): string {
    const words = this.#tail.read(this.#began, MAX_TAIL_BYTES).text.trim().slice(-MAX_LAST_WORDS);
    if (words === "" && this.#options.settings.url !== "") return "";
    return words === "" ? "; it wrote no error output" : `; the end of its error output: ${words}`;
  }

  /** Keeps an error of a request for the status and the log. A refusal of the server is no failure. @returns the error */
  noted(error: unknown): unknown {
    if (error instanceof McpError && error.code !== "mcp_refused") this.note(error);
    return error;
  }

  /** Keeps an error for the status and the log. */
  note(error: unknown): void {
    if (!(error instanceof McpError) || error === this.#newest) return;
    this.#newest = error;
    const { name, clock, log } = this.#options;
    this.#lastError = { code: error.code, message: error.message, at: clock.now() };
    log.warn("An MCP server has failed", { server: name, code: error.code, reason: error.message });
  }

  /** Forgets the last error: the server works again. */
  recovered(): void {
    this.#lastError = undefined;
  }

  #newest: McpError | undefined;

  #logLines(): void {
    const { text, nextOffset } = this.#tail.read(this.#logged, MAX_TAIL_BYTES);
    const end = text.lastIndexOf("\n");
    if (end === -1 && text.length < MAX_TAIL_BYTES / 2) return;
    const whole = end === -1 ? text : text.slice(0, end + 1);
    this.#logged = nextOffset - Buffer.byteLength(text.slice(whole.length));
    for (const line of whole.split("\n")) {
      if (line.trim() !== "") this.#logLine(line);
    }
  }

  #logLine(line: string): void {
    const { name, clock, log } = this.#options;
    if (clock.monotonic() - this.#minute >= MINUTE_MS) {
      if (this.#leftOut > 0) log.info("Lines of an MCP server are left out", { server: name, lines: this.#leftOut });
      this.#minute = clock.monotonic();
      this.#lines = this.#leftOut = 0;
    }
    if (++this.#lines > MAX_LINES) this.#leftOut++;
    else log.info("An MCP server says", { server: name, line: foreignWords(line) });
  }
}

/** Milliseconds before a server is started again that failed twice in a row. They double up to the last. After the first failure: none. */
const PAUSES = { firstMs: 1_000, mostMs: 60_000 } as const;

/** Pause between a failure of a server and its next start: longer each time, until it works again. */
export class RestartPause {
  readonly #clock: Clock;
  /** Undefined before the first failure */
  #backoff: Backoff | undefined;
  /** Monotonic time */
  #until = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds that are left. Not above 0: the server may be started. */
  get leftMs(): number {
    return this.#until - this.#clock.monotonic();
  }

  /** Begins a pause. */
  begin(): void {
    this.#until = this.#clock.monotonic() + (this.#backoff?.next() ?? 0);
    this.#backoff ??= new Backoff(PAUSES);
  }

  /** Ends the pause, and begins with the shortest again. */
  reset(): void {
    this.#backoff = undefined;
    this.#until = -Infinity;
  }
}
