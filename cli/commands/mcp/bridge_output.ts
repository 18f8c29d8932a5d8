/** Options of `BridgeOutput`. */
export interface BridgeOutputOptions {
  /** Writes one message to the client of MCP. Resolves when there is room for the next one */
  readonly write: (line: string) => Promise<void>;
}

/** Characters of messages that may wait for a client that does not read. From there on, nothing more is read from it. */
const MAX_WAITING = 1_048_576;

/** Output of a bridge. Writes one message after the other, at the pace of the client that reads them. */
export class BridgeOutput {
  readonly #write: BridgeOutputOptions["write"];
  #last: Promise<void> = Promise.resolve();
  #lastTurn: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  constructor({ write }: BridgeOutputOptions) {
    this.#write = write;
  }

  /** Writes a message. Resolves when the messages before it were taken, and there is room for the next one. */
  write(text: string): Promise<void> {
    // A message is one line: JSON has no line break that means anything
    const line = text.includes("\n") ? text.replaceAll(/[\r\n]+/g, " ") : text;
    this.#waiting += line.length;
    const written = this.#last.then(() => this.#write(line)).finally(() => this.#waiting -= line.length);
    this.#last = written.catch(() => {});
    return written;
  }

  /** Does one piece of work after the other, for answers that are in memory as a whole: a client that does not read keeps one of them there. */
  inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#lastTurn.then(work);
    this.#lastTurn = done.catch(() => {});
    return done;
  }

  /** Resolves when little waits for the client. A client may write much before it reads: its input is read until then. */
  async room(): Promise<void> {
    while (this.#waiting > MAX_WAITING) await this.#last;
  }
}
