const LF = 10;
const CR = 13;
const BOM = "\uFEFF";

/**
 * Turns the bytes of one event stream into the data of its events. Bytes may be cut anywhere, also inside a character or between CR
 * and LF; broken UTF-8 becomes U+FFFD.
 * Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 */
export class SseDecoder {
  /** Bytes of the unfinished line; undefined: none */
  #rest: Uint8Array[] | undefined = undefined;
  #restBytes = 0;
  #started = false;
  /** The last byte was a CR: a following LF belongs to it */
  #skipLf = false;
  #data: string | undefined = undefined;
  readonly #maxBytes: number;

  /** @param maxBytes longest line and longest data of one event */
  constructor({ maxBytes }: { readonly maxBytes: number }) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Data of the events that these bytes complete, in order; lines of one event are joined by a newline. Event names, ids and
   * comments are dropped.
   * @throws {RangeError} an event or line longer than the limit
   */
  push(bytes: Uint8Array): readonly string[] {
    const out: string[] = [];
    const from = this.#skipLf && bytes[0] === LF ? 1 : 0;
    if (bytes.length > 0) this.#skipLf = false;
    const last = Math.max(bytes.lastIndexOf(LF), bytes.lastIndexOf(CR));
    if (last >= from) {
      this.#skipLf = bytes[last] === CR && last === bytes.length - 1;
      let whole = bytes.subarray(from, last + 1);
      if (this.#rest !== undefined) {
        if (this.#restBytes > this.#maxBytes) throw this.#tooLong();
        whole = Buffer.concat([...this.#rest, whole]);
        this.#rest = undefined;
        this.#restBytes = 0;
      }
      this.#lines(this.#decode(whole), out);
    }
    const begun = Math.max(last + 1, from);
    if (begun < bytes.length) {
      const tail = bytes.subarray(begun);
      (this.#rest ??= []).push(tail);
      this.#restBytes += tail.length;
      if (this.#restBytes > this.#maxBytes) throw this.#tooLong();
    }
    return out;
  }

  /** Data of an event that was not closed by an empty line before the stream ended; undefined when nothing is left */
  end(): string | undefined {
    const out: string[] = [];
    const text = this.#decode(Buffer.concat(this.#rest ?? []));
    this.#rest = undefined;
    if (text !== "") this.#line(text, 0, text.length, out);
    this.#dispatch(out);
    return out[0];
  }

  #decode(bytes: Uint8Array): string {
    let text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
    if (!this.#started && text.startsWith(BOM)) text = text.slice(1);
    this.#started = true;
    return text;
  }

  #lines(text: string, out: string[]): void {
    const hasCr = text.includes("\r");
    for (let start = 0; start < text.length;) {
      let end = text.indexOf("\n", start);
      let next = end + 1;
      const cr = hasCr ? text.indexOf("\r", start) : -1;
      if (cr !== -1 && (end === -1 || cr < end)) {
        end = cr;
        next = text[cr + 1] === "\n" ? cr + 2 : cr + 1;
      }
      this.#line(text, start, end, out);
      start = next;
    }
  }

  #line(text: string, start: number, end: number, out: string[]): void {
    if (start === end) return this.#dispatch(out);
    if (!text.startsWith("data", start)) return;
    let from = start + 4;
    if (from < end) {
      if (text[from] !== ":") return;
      from += text[from + 1] === " " && from + 1 < end ? 2 : 1;
    }
    const value = text.slice(from, end);
    if (this.#data === undefined) this.#data = value;
    else if (this.#data.length + value.length > this.#maxBytes) throw this.#tooLong();
    else this.#data += `\n${value}`;
  }

  #dispatch(out: string[]): void {
    if (this.#data !== undefined) out.push(this.#data);
    this.#data = undefined;
  }

  #tooLong(): RangeError {
    return new RangeError(`an event of its stream is longer than ${this.#maxBytes} bytes`);
  }
}
