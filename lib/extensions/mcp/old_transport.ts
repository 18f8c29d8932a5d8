import type { FetchLike } from "@modelcontextprotocol/client";
import type { Clock } from "../../base/clock.ts";

/** Milliseconds for a server to begin its stream. */
const STREAM_MS = 3_000;
/** Beginning of the first event of a stream of MCP 2024-11-05, which has the address for messages. */
const FIRST_EVENT = /^(?::[^\n]*\n|\s)*event:\s*endpoint\s/;
/** Characters of a stream in which its first event begins. */
const MAX_START = 4_096;

/** Returns the rest of a sentence about a server whose transport Postern does not speak. */
export function transportNotSpoken(transport: string): string {
  return `its transport is "${transport}", and Postern speaks streamable HTTP alone; ask its maker for that address`;
}

/**
 * Tells whether a server speaks HTTP with SSE alone, the transport of 2024-11-05: it begins a stream with the address for messages. Never
 * throws: a server that cannot be asked is not known to be one.
 */
export async function speaksSseAlone(
  url: URL,
  { fetch: reach, clock, signal }: { readonly fetch: FetchLike; readonly clock: Clock; readonly signal: AbortSignal },
): Promise<boolean> {
  const limit = clock.timeoutSignal(STREAM_MS);
  try {
    const headers = { accept: "text/event-stream" };
    const { ok, headers: given, body } = await reach(url, { headers, signal: AbortSignal.any([signal, limit.signal]) });
    const isStream = ok && given.get("content-type")?.startsWith("text/event-stream") === true;
    if (!isStream || body === null) {
      await body?.cancel();
      return false;
    }
    let start = "";
    // Leaving the loop cancels the stream
    for await (const part of body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>)) {
      start = `${start}${part}`.replaceAll("\r\n", "\n");
      if (FIRST_EVENT.test(start)) return true;
      if (start.length > MAX_START || start.includes("data:")) return false;
    }
    return false;
  } catch {
    return false;
  } finally {
    limit.clear();
  }
}
