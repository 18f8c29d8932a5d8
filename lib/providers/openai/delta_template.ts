import type { ProviderEvent } from "../../base/records/provider_event.ts";

type StringDelta = Extract<ProviderEvent, { type: "text_delta" | "reasoning_delta" }>;

/** Learning costs two parses; a stream whose chunks keep changing elsewhere (a timestamp, a filler) stops paying for it. */
const MAX_USELESS_LESSONS = 4;
const SENTINEL = "\u0001postern\u0002";
const ENCODED_SENTINEL = JSON.stringify(SENTINEL);

/**
 * Recognises chunks that differ from an earlier one in a single string: chunks of one stream are the same text except for the delta.
 * Once one was parsed, a chunk with the same text before and after the delta's string is decoded by cutting the string out. It agrees
 * with JSON.parse because everything outside the string is equal, and the string itself is either free of quotes, backslashes and
 * control characters or parsed as JSON.
 */
export class DeltaTemplate {
  #prefix = "";
  #suffix = "";
  #type: StringDelta["type"] = "text_delta";
  #known = false;
  #useful = true;
  #useless = 0;
  readonly #read: (chunk: unknown) => ProviderEvent | undefined;

  /** @param read the decoder's own reading of a parsed chunk: used to prove that the string found is the delta and nothing else */
  constructor(read: (chunk: unknown) => ProviderEvent | undefined) {
    this.#read = read;
  }

  /** The event of a chunk of the learned shape; undefined for anything else: parse it as JSON */
  scan(data: string): ProviderEvent | undefined {
    const prefix = this.#prefix;
    const suffix = this.#suffix;
    if (!this.#known || data.length < prefix.length + suffix.length) return undefined;
    // Comparing slices is three times as fast as startsWith and endsWith
    const end = data.length - suffix.length;
    if (data.slice(0, prefix.length) !== prefix || data.slice(end) !== suffix) return undefined;
    const inner = data.slice(prefix.length, end);
    const delta = isPlain(inner) ? inner : parseString(inner);
    if (delta === undefined || delta === "") return undefined;
    this.#useful = true;
    this.#useless = 0;
    return { type: this.#type, delta };
  }

  /**
   * Learns from a chunk that was parsed and gave exactly this one event.
   * @param data the chunk's text
   */
  learn(data: string, event: ProviderEvent): void {
    if (event.type !== "text_delta" && event.type !== "reasoning_delta") return;
    if (!this.#useful && ++this.#useless > MAX_USELESS_LESSONS) return;
    const encoded = JSON.stringify(event.delta);
    const start = data.indexOf(`:${encoded}`);
    if (start === -1) return;
    const before = data.slice(0, start + 1);
    const after = data.slice(start + 1 + encoded.length);
    const proof = this.#read(parse(before + ENCODED_SENTINEL + after));
    if (proof?.type !== event.type || proof.delta !== SENTINEL) return;
    // Cut out of the data, quotes included: strings put together by + are slow to compare
    this.#prefix = data.slice(0, before.length + 1);
    this.#suffix = data.slice(data.length - after.length - 1);
    this.#type = event.type;
    this.#known = true;
    this.#useful = false;
  }
}

function isPlain(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code < 32 || code === 34 || code === 92) return false;
  }
  return true;
}

function parseString(inner: string): string | undefined {
  const value = parse(`"${inner}"`);
  return typeof value === "string" ? value : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
