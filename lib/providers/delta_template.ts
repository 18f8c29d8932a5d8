import type { ProviderEvent } from "../base/records/provider_event.ts";

/** Recognises chunks that differ from an earlier one in a single string. */
export interface DeltaTemplate {
  /** The event of a chunk of the learned shape; undefined for anything else: parse it as JSON */
  scan(data: string): ProviderEvent | undefined;
  /**
   * Learns from a chunk that was parsed and gave exactly this one event.
   * @param parsed what JSON.parse made of `data`
   */
  learn(data: string, event: ProviderEvent): void;
}

type StringDelta = Extract<ProviderEvent, { type: "text_delta" | "reasoning_delta" }>;

/** Learning costs two parses; a stream whose chunks keep changing elsewhere (a timestamp, a filler) stops paying for it. */
const MAX_USELESS_LESSONS = 4;
const SENTINEL = "\u0001postern\u0002";
const ENCODED_SENTINEL = JSON.stringify(SENTINEL);

/**
 * Chunks of one stream are the same text except for the delta. Once one was parsed, a chunk with the same text before and after
 * the delta's string is decoded by cutting the string out. It agrees with JSON.parse because everything outside the string is
 * equal, and the string itself is either free of quotes, backslashes and control characters or parsed as JSON.
 * @param read the decoder's own reading of a parsed chunk: used to prove that the string found is the delta and nothing else
 */
export function createDeltaTemplate(read: (chunk: unknown) => ProviderEvent | undefined): DeltaTemplate {
  let prefix = "";
  let suffix = "";
  let type: StringDelta["type"] = "text_delta";
  let known = false;
  let useful = true;
  let useless = 0;
  return {
    scan(data) {
      if (!known || data.length < prefix.length + suffix.length) return undefined;
      // Comparing slices is three times as fast as startsWith and endsWith
      const end = data.length - suffix.length;
      if (data.slice(0, prefix.length) !== prefix || data.slice(end) !== suffix) return undefined;
      const inner = data.slice(prefix.length, end);
      const delta = isPlain(inner) ? inner : parseString(inner);
      if (delta === undefined || delta === "") return undefined;
      useful = true;
      useless = 0;
      return { type, delta };
    },
    learn(data, event) {
      if (event.type !== "text_delta" && event.type !== "reasoning_delta") return;
      if (!useful && ++useless > MAX_USELESS_LESSONS) return;
      const encoded = JSON.stringify(event.delta);
      const start = data.indexOf(`:${encoded}`);
      if (start === -1) return;
      const before = data.slice(0, start + 1);
      const after = data.slice(start + 1 + encoded.length);
      const proof = read(parse(before + ENCODED_SENTINEL + after));
      if (proof?.type !== event.type || proof.delta !== SENTINEL) return;
      // Cut out of the data, quotes included: strings put together by + are slow to compare
      prefix = data.slice(0, before.length + 1);
      suffix = data.slice(data.length - after.length - 1);
      type = event.type;
      known = true;
      useful = false;
    },
  };
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
