import type { Clock } from "../../base/clock.ts";
import type { ProviderError } from "../../base/errors.ts";
import type { Provider } from "../provider.ts";
import { TOO_LONG } from "../upstream/upstream_error.ts";

/** How many tokens models take, as their providers say. */
export interface ContextWindows {
  /**
   * Of input and output together: as the list of models has it, read once an hour, or as an earlier refusal said, whichever is
   * less; 0 where neither is known. Never throws
   */
  of(provider: Provider, model: string): Promise<number>;
  /** As the list of models has it; 0 where it does not say. Never throws */
  listed(provider: Provider, model: string): Promise<number>;
  /**
   * Takes the provider's word when it refuses a request as too long.
   * @param tokens of that request as we measure them: where it should have fitted, the measure is that much off for this model
   * @returns the window by our measure; 0 for any other error
   */
  learn(provider: Provider, model: string, refusal: { readonly error: ProviderError; readonly tokens: number }): number;
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
/** Of a refused request's tokens: tried next, where the window is not named, or by its name the request had fitted. */
const NEXT_TRY = 0.6;

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
      return new Map(models.map(({ id, context_length = 0 }) => [id, context_length]));
    } catch {
      return new Map<string, number>();
    } finally {
      timeout.clear();
    }
  };
  const listed = async (provider: Provider, model: string) => {
    let found = known.get(provider);
    if (found === undefined || clock.monotonic() >= found.until) {
      found = { windows: read(provider), until: clock.monotonic() + KEPT_MS };
      known.set(provider, found);
    }
    return (await found.windows).get(model) ?? 0;
  };
  return {
    listed,
    async of(provider, model) {
      const named = await listed(provider, model);
      const lesson = learnt.get(provider)?.get(model) ?? 0;
      return named > 0 && lesson > 0 ? Math.min(named, lesson) : Math.max(named, lesson);
    },
    learn(provider, model, { error, tokens }) {
      const { code, message, upstreamCode = "" } = error;
      if (code !== "provider_rejected" || !TOO_LONG.test(`${upstreamCode} ${message}`)) return 0;
      const named = REFUSALS.map((pattern) => Number(pattern.exec(message)?.[1] ?? 0)).find((count) => count > 0);
      const window = named !== undefined && named < tokens ? named : Math.floor(tokens * NEXT_TRY);
      const windows = learnt.get(provider) ?? new Map<string, number>();
      const [oldest] = windows.keys();
      if (!windows.has(model) && windows.size >= MAX_LEARNT && oldest !== undefined) windows.delete(oldest);
      learnt.set(provider, windows.set(model, window));
      return window;
    },
  };
}
