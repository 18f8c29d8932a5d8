import type { Clock } from "../../base/clock.ts";
import type { ProviderError } from "../../base/errors.ts";
import type { Provider } from "../provider.ts";
import { TOO_LONG } from "../upstream/upstream_error.ts";

/** Context windows of models, in tokens, as their providers say. */
export interface ContextWindows {
  /**
   * Returns the window of input and output together: the lesser of the list of models, which is read once an hour, and of a refusal within
   * the last hour, but a quarter of the list at least. 0 when neither is known. Never throws
   */
  of(provider: Provider, model: string): Promise<number>;
  /** Returns the window that the list of models gives. 0 when the list does not say. Never throws */
  listed(provider: Provider, model: string): Promise<number>;
  /**
   * Learns the window from a provider that refuses a request as too long.
   * @param tokens tokens of that request as Postern measures them. When the request should have fitted, the measure is off for this model
   * @returns the window by Postern's measure. 0 for any other error
   */
  learn(provider: Provider, model: string, refusal: { readonly error: ProviderError; readonly tokens: number }): number;
}

interface Known {
  readonly windows: Promise<ReadonlyMap<string, number>>;
  /** By the monotonic clock */
  readonly until: number;
}

/** Window that was learnt from a refusal. */
interface Lesson {
  readonly window: number;
  /** By the monotonic clock */
  readonly until: number;
}

const KEPT_MS = 3_600_000;
/** The list is read before a reply: a slow provider must not hold it up. */
const TIMEOUT_MS = 3_000;
/** Models of one provider whose windows were learnt. The bound is there since names come from clients */
const MAX_LEARNT = 100;
/** Tokens of the smallest window that is kept. */
const MIN_LEARNT = 1_500;
/** Least part of a named window that is kept: the measure counts four bytes as a token, and no token has fewer than one */
const MIN_PART = 1 / 4;
/** Share of a refused request's tokens to try next. Used when the refusal names no window, or names one that the request fits. */
const NEXT_TRY = 0.6;

/** Refusals of OpenAI and vLLM, Anthropic, Mistral, llama.cpp and Google. */
const REFUSALS = [
  /maximum context length is (\d+)/i,
  /tokens > (\d+) maximum/i,
  /with (\d+) maximum context length/i,
  /context size \((\d+)/i,
  /maximum number of tokens allowed \((\d+)/i,
];

/** Creates the context windows, empty at first. */
export function createContextWindows(clock: Clock): ContextWindows {
  const known = new WeakMap<Provider, Known>();
  const learnt = new WeakMap<Provider, Map<string, Lesson>>();
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
      const { window = 0, until = 0 } = learnt.get(provider)?.get(model) ?? {};
      const lesson = clock.monotonic() < until ? window : 0;
      // A client may have brought the refusal about, even its words: it makes a window that is known no less than a part of itself
      return lesson > 0 ? Math.min(named || lesson, Math.max(lesson, named * MIN_PART)) : named;
    },
    learn(provider, model, { error, tokens }) {
      const { code, message, upstreamCode = "" } = error;
      if (code !== "provider_rejected" || !TOO_LONG.test(`${upstreamCode} ${message}`)) return 0;
      const named = REFUSALS.map((pattern) => Number(pattern.exec(message)?.[1] ?? 0)).find((count) => count > 0);
      const window = named !== undefined && named < tokens ? named : Math.floor(tokens * NEXT_TRY);
      // Too short by far: something else than its messages made the request too long, as its format, and others do not send that
      if (window < Math.max(MIN_LEARNT, (named ?? 0) * MIN_PART)) return window;
      const windows = learnt.get(provider) ?? new Map<string, Lesson>();
      const [oldest] = windows.keys();
      if (!windows.has(model) && windows.size >= MAX_LEARNT && oldest !== undefined) windows.delete(oldest);
      learnt.set(provider, windows.set(model, { window, until: clock.monotonic() + KEPT_MS }));
      return window;
    },
  };
}
