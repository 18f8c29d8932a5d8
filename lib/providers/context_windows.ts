import type { Clock } from "../base/clock.ts";
import type { ProviderError } from "../base/errors.ts";
import type { Provider } from "./provider.ts";

/** How many tokens models take, as their providers say. */
export interface ContextWindows {
  /**
   * Of input and output together: as the list of models has it, read once an hour, else as an earlier refusal said; 0 where neither
   * is known. Never throws
   */
  of(provider: Provider, model: string): Promise<number>;
  /** Notes the window that a provider names when it refuses what is too long; any other error says nothing */
  learn(provider: Provider, model: string, error: ProviderError): void;
}

interface Known {
  readonly windows: Promise<ReadonlyMap<string, number>>;
  /** By the monotonic clock */
  readonly until: number;
}

const KEPT_MS = 3_600_000;
/** The list is read before a reply: a slow provider must not hold it up. */
const TIMEOUT_MS = 3_000;
/** Models learnt of, for each provider: names come from clients */
const MAX_LEARNT = 100;

/** What OpenAI and vLLM, Anthropic, Mistral, llama.cpp and Google say. */
const REFUSALS = [
  /maximum context length is (\d+)/i,
  /tokens > (\d+) maximum/i,
  /with (\d+) maximum context length/i,
  /context size \((\d+)/i,
  /maximum number of tokens allowed \((\d+)/i,
];

export function createContextWindows(clock: Clock): ContextWindows {
  const known = new WeakMap<Provider, Known>();
  const learnt = new WeakMap<Provider, Map<string, number>>();
  const read = async (provider: Provider) => {
    const timeout = clock.timeoutSignal(TIMEOUT_MS);
    try {
      const models = await provider.listModels(timeout.signal);
      return new Map(models.map(({ id, context_window = 0 }) => [id, context_window]));
    } catch {
      return new Map<string, number>();
    } finally {
      timeout.clear();
    }
  };
  return {
    async of(provider, model) {
      let found = known.get(provider);
      if (found === undefined || clock.monotonic() >= found.until) {
        found = { windows: read(provider), until: clock.monotonic() + KEPT_MS };
        known.set(provider, found);
      }
      const listed = (await found.windows).get(model) ?? 0;
      return listed > 0 ? listed : learnt.get(provider)?.get(model) ?? 0;
    },
    learn(provider, model, { code, message }) {
      if (code !== "provider_rejected") return;
      const window = REFUSALS.map((pattern) => Number(pattern.exec(message)?.[1] ?? 0)).find((tokens) => tokens > 0);
      if (window === undefined) return;
      const windows = learnt.get(provider) ?? new Map<string, number>();
      const [oldest] = windows.keys();
      if (windows.size >= MAX_LEARNT && oldest !== undefined) windows.delete(oldest);
      learnt.set(provider, windows.set(model, window));
    },
  };
}
