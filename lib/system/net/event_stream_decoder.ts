import { createParser, type EventSourceParser } from "eventsource-parser";

const LF = 10;
const CR = 13;
const EMPTY_LINE = new Uint8Array([LF, LF]);

/**
 * Turns the bytes of one event stream into the data of its events. Bytes may be cut anywhere, also inside a character or between CR
 * and LF; broken UTF-8 becomes U+FFFD.
 *
 * The decoder holds an unfinished line back, so that the parser gets whole lines: the limit of a line counts bytes, and the
 * parser's own buffer holds nothing but the data of one event.
 * Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 */
export class EventStreamDecoder {
  #unfinishedLine: Uint8Array[] = [];
  #unfinishedBytes = 0;
  #events: string[] = [];
  readonly #parser: EventSourceParser;
  readonly #maxBytes: number;

  /** @param maxBytes longest unfinished line, in bytes, and longest data of an event with several lines, in characters */
  constructor({ maxBytes }: { readonly maxBytes: number }) {
    this.#maxBytes = maxBytes;
    this.#parser = createParser({
      // The newline before the last line of data does not count
      maxBufferSize: maxBytes + 1,
      onEvent: ({ data }) => {
        this.#events.push(data);
      },
    });
  }

  /**
   * Returns the data of the events that these bytes complete, in order. A newline joins the lines of one event. Event names, ids
   * and comments are dropped.
   * @throws {RangeError} an event or line longer than the limit
   */
  push(bytes: Uint8Array): readonly string[] {
    const end = Math.max(bytes.lastIndexOf(LF), bytes.lastIndexOf(CR)) + 1;
    if (end > 0) this.#feed(end === bytes.length ? bytes : bytes.subarray(0, end));
    if (end < bytes.length) this.#holdBack(bytes.subarray(end));
    const events = this.#events;
    if (events.length > 0) this.#events = [];
    return events;
  }

  /** Returns the data of an event that no empty line closed before the stream ended. Undefined when nothing is left. */
  end(): string | undefined {
    return this.push(EMPTY_LINE)[0];
  }

  #holdBack(bytes: Uint8Array): void {
    this.#unfinishedLine.push(bytes);
    this.#unfinishedBytes += bytes.length;
    if (this.#unfinishedBytes > this.#maxBytes) throw this.#tooLong();
  }

  /** Gives the parser whole lines. The unfinished one goes before them. */
  #feed(bytes: Uint8Array): void {
    let lines = bytes;
    if (this.#unfinishedBytes > 0) {
      lines = Buffer.concat([...this.#unfinishedLine, bytes]);
      this.#unfinishedLine = [];
      this.#unfinishedBytes = 0;
    }
    try {
      this.#parser.feed(Buffer.from(lines.buffer, lines.byteOffset, lines.byteLength).toString("utf8"));
      // After an event that is too long the parser refuses all text. Its callback `onError` tells that too, but makes an error with
      // a stack for each line of an unknown field: 64 KiB of short lines would block the process for half a second.
      this.#parser.feed("");
    } catch (cause) {
      throw this.#tooLong(cause);
    }
  }

  #tooLong(cause?: unknown): RangeError {
    return new RangeError(`an event of its stream is longer than ${this.#maxBytes} bytes`, { cause });
  }
}
