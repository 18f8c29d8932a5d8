import { Buffer } from "node:buffer";
import type { ConnectOverCDPTransport } from "playwright-core";
import { nextTick } from "../../base/tick.ts";
import type { ProcessChannel } from "../process/process_group.ts";

/** Longest message of a browser: a picture of a page is a few megabytes. A longer one ends the connection */
const MAX_MESSAGE_BYTES = 67_108_864;

/**
 * The DevTools protocol over the pipes of a browser: JSON messages, each with a NUL byte at its end.
 *
 * Each message is delivered in a task of its own, also when several come at once: the driver goes on with the answer to one command before
 * it hears of the next event. Otherwise it drops the events of a window that it does not know yet, and waits for them later.
 *
 * A message that is no JSON, or is too long, ends the connection: the browser is not one that can be trusted any more.
 * Source: Chromium, content/browser/devtools/devtools_pipe_handler.cc
 */
export class PipeTransport implements ConnectOverCDPTransport {
  onmessage?: (message: object) => void;
  onclose?: (reason?: string) => void;
  readonly #channel: ProcessChannel;
  readonly #onClose: () => void;
  #parts: Uint8Array[] = [];
  #bytes = 0;
  readonly #waiting: Uint8Array[] = [];
  #isOver = false;

  constructor(channel: ProcessChannel, onClose: () => void) {
    this.#channel = channel;
    this.#onClose = onClose;
    channel.output.on("data", (chunk: Uint8Array) => this.#take(chunk));
    for (const event of ["end", "close", "error"]) channel.output.on(event, () => this.close());
  }

  send(message: object): void {
    if (!this.#isOver) this.#channel.input.write(`${JSON.stringify(message)}\0`);
  }

  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#parts = [];
    this.#waiting.length = 0;
    this.#onClose();
    this.onclose?.("the browser has ended");
  }

  #take(chunk: Uint8Array): void {
    let rest = chunk;
    while (!this.#isOver) {
      const end = rest.indexOf(0);
      this.#keep(end < 0 ? rest : rest.subarray(0, end));
      if (end < 0) return;
      rest = rest.subarray(end + 1);
      this.#complete();
    }
  }

  #keep(part: Uint8Array): void {
    this.#bytes += part.length;
    this.#parts.push(part);
    if (this.#bytes > MAX_MESSAGE_BYTES) this.close();
  }

  #complete(): void {
    this.#waiting.push(Buffer.concat(this.#parts));
    this.#parts = [];
    this.#bytes = 0;
    if (this.#waiting.length > 1) return;
    // The pipe holds back further bytes while messages wait
    this.#channel.output.pause();
    void this.#deliver();
  }

  async #deliver(): Promise<void> {
    while (this.#waiting.length > 0) {
      await nextTick();
      const [next] = this.#waiting;
      if (next === undefined) return;
      const message = parse(next.toString());
      if (message === undefined) return this.close();
      this.onmessage?.(message);
      this.#waiting.shift();
    }
    this.#channel.output.resume();
  }
}

function parse(text: string): object | undefined {
  try {
    const message: unknown = JSON.parse(text);
    return typeof message === "object" && message !== null ? message : undefined;
  } catch {
    return undefined;
  }
}
