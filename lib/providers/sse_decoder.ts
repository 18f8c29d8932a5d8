/** Turns the bytes of an event stream into the data of its events. */
export interface SseDecoder {
  /**
   * Data of the events that these bytes complete, in order; lines of one event are joined by a newline. Event names, ids and
   * comments are dropped.
   * @throws {RangeError} an event or line longer than the limit
   */
  push(bytes: Uint8Array): readonly string[];
  /** Data of an event that was not closed by an empty line before the stream ended; undefined when nothing is left */
  end(): string | undefined;
}

const LF = 10;
const CR = 13;
const BOM = "\uFEFF";

/**
 * A decoder of one stream. Bytes may be cut anywhere, also inside a character or between CR and LF; broken UTF-8 becomes U+FFFD.
 * Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 * @param maxBytes longest line and longest data of one event
 */
export function createSseDecoder({ maxBytes }: { readonly maxBytes: number }): SseDecoder {
  /** Bytes of the unfinished line */
  let rest: Uint8Array[] = [];
  let restBytes = 0;
  let started = false;
  /** The last byte was a CR: a following LF belongs to it */
  let skipLf = false;
  let data: string | undefined;

  const tooLong = () => new RangeError(`an event of its stream is longer than ${maxBytes} bytes`);
  const dispatch = (out: string[]) => {
    if (data !== undefined) out.push(data);
    data = undefined;
  };
  const line = (text: string, start: number, end: number, out: string[]) => {
    if (start === end) return dispatch(out);
    if (!text.startsWith("data", start)) return;
    let from = start + 4;
    if (from < end) {
      if (text[from] !== ":") return;
      from += text[from + 1] === " " && from + 1 < end ? 2 : 1;
    }
    const value = text.slice(from, end);
    if (data === undefined) data = value;
    else if (data.length + value.length > maxBytes) throw tooLong();
    else data += `\n${value}`;
  };
  const lines = (text: string, out: string[]) => {
    const hasCr = text.includes("\r");
    for (let start = 0; start < text.length;) {
      let end = text.indexOf("\n", start);
      let next = end + 1;
      const cr = hasCr ? text.indexOf("\r", start) : -1;
      if (cr !== -1 && (end === -1 || cr < end)) {
        end = cr;
        next = text[cr + 1] === "\n" ? cr + 2 : cr + 1;
      }
      line(text, start, end, out);
      start = next;
    }
  };
  const decode = (bytes: Uint8Array) => {
    let text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
    if (!started && text.startsWith(BOM)) text = text.slice(1);
    started = true;
    return text;
  };
  return {
    push(bytes) {
      const out: string[] = [];
      const from = skipLf && bytes[0] === LF ? 1 : 0;
      if (bytes.length > 0) skipLf = false;
      const last = Math.max(bytes.lastIndexOf(LF), bytes.lastIndexOf(CR));
      if (last >= from) {
        skipLf = bytes[last] === CR && last === bytes.length - 1;
        let whole = bytes.subarray(from, last + 1);
        if (rest.length > 0) {
          if (restBytes > maxBytes) throw tooLong();
          whole = Buffer.concat([...rest, whole]);
          rest = [];
          restBytes = 0;
        }
        lines(decode(whole), out);
      }
      const tail = bytes.subarray(Math.max(last + 1, from));
      if (tail.length > 0) {
        rest.push(tail);
        restBytes += tail.length;
        if (restBytes > maxBytes) throw tooLong();
      }
      return out;
    },
    end() {
      const out: string[] = [];
      const text = decode(Buffer.concat(rest));
      rest = [];
      if (text !== "") line(text, 0, text.length, out);
      dispatch(out);
      return out[0];
    },
  };
}
