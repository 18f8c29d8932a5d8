/**
 * Measures the cost of decoding a chunk: `node test/bench/providers.bench.ts`. Prints microseconds per chunk for the fast scan and for
 * JSON.parse, at one chunk a read and at many.
 */
import type { ProviderEvent } from "../../lib/base/records/provider_event.ts";
import { OpenAiDecoder } from "../../lib/providers/openai/openai_decoder.ts";
import { EventStreamDecoder } from "../../lib/system/net/event_stream_decoder.ts";
import { median } from "./median.ts";

const CHUNKS = 100;
const ROUNDS = 7;
const STREAMS = 300;
const upstream = { name: "bench", keySource: undefined, key: undefined, now: () => 0 };
const toEvent = (delta: object, finish_reason: string | null) =>
  `data: ${
    JSON.stringify({
      id: "chatcmpl-bench0000000000000000",
      created: 1700000000,
      model: "bench-model",
      object: "chat.completion.chunk",
      choices: [{ index: 0, delta, finish_reason }],
    })
  }\n\n`;
const TEXTS: Readonly<Record<string, string>> = {
  plain: "token ",
  escaped: 'a "quoted"\n line',
  unicode: "für 你好 😀",
};

function readsOf(text: string, perRead: number): Uint8Array[] {
  const encoder = new TextEncoder();
  const reads: Uint8Array[] = [];
  for (let sent = 0; sent < CHUNKS; sent += perRead) {
    reads.push(encoder.encode(toEvent({ content: text }, null).repeat(perRead)));
  }
  reads.push(encoder.encode(`${toEvent({}, "stop")}data: [DONE]\n\n`));
  return reads;
}

function decode(reads: readonly Uint8Array[], fastScan: boolean): { events: number; arrays: number } {
  const stream = new EventStreamDecoder({ maxBytes: 1_000_000 });
  const decoder = new OpenAiDecoder({ upstream, nextId: () => "call", fastScan });
  let events = 0;
  let arrays = 0;
  for (const read of reads) {
    const out: ProviderEvent[] = [];
    for (const data of stream.push(read)) decoder.push(data, out);
    events += out.length;
    arrays++;
  }
  return { events, arrays };
}

function medianMicroseconds(run: () => void): number {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    for (let i = 0; i < STREAMS; i++) run();
    times.push(((performance.now() - start) * 1000) / (STREAMS * CHUNKS));
  }
  return median(times);
}

for (const [name, text] of Object.entries(TEXTS)) {
  for (const perRead of [1, 20]) {
    const reads = readsOf(text, perRead);
    const { events, arrays } = decode(reads, true);
    const scan = medianMicroseconds(() => decode(reads, true));
    const parse = medianMicroseconds(() => decode(reads, false));
    console.log(
      `${name.padEnd(8)} ${String(perRead).padStart(2)} chunks a read: scan ${scan.toFixed(2)} us, parse ${
        parse.toFixed(2)
      } us a chunk, ` +
        `${(events / arrays).toFixed(1)} events an array`,
    );
  }
}
