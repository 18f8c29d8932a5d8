import type { ProviderEvent } from "../../lib/base/records/provider_event.ts";
import type { Provider } from "../../lib/providers/provider.ts";

const CHUNKS = 20;

/** Says 20 chunks without waiting, so that a benchmark measures what is around it. */
export const chunkProvider: Provider = {
  name: "bench",
  async *stream(): AsyncGenerator<readonly ProviderEvent[]> {
    for (let i = 0; i < CHUNKS; i++) yield [{ type: "text_delta", delta: "chunk of text " }];
    const usage = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 };
    yield [{ type: "finish", finish_reason: "stop", usage }];
  },
  listModels: () => Promise.resolve([]),
  close: () => Promise.resolve(),
};
