import type { Clock } from "../../base/clock.ts";
import type { ProviderError } from "../../base/errors.ts";
import type { Provider } from "../provider.ts";
import { mayBeTooLong, saysTooLong, toldWindow } from "../vendors/too_long.ts";

/** Context windows of models, in tokens, as their providers say. */
export interface ContextWindows {
  /**
   * Returns the window of input and output together: the lesser of the list of models, which is read once an hour, and of a refusal within
   * the last hour, but a quarter of the list at least. 0 when neither is known. Never throws
   * @param configured window that the configuration gives, in place of the list's; 0: it gives none
   */
  of(provider: Provider, model: string, configured?: number): Promise<number>;
  /** Returns the window that the list of models gives. 0 when the list does not say. Never throws */
  listed(provider: Provider, model: string): Promise<number>;
  /** Returns the lesser of a window that is known and of a refusal within the last hour, as `of` */
  within(provider: Provider, model: string, window: number): number;
  /**
   * Learns the window from a provider that refuses a request as too long.
   * @param tokens tokens of that request as Postern measures them. When the request should have fitted, the measure is off for this model
   * @returns the window by Postern's measure. 0 for any other error
   */
  learn(provider: Provider, model: string, refusal: { readonly error: ProviderError; readonly tokens: number }): number;
  /**
   * Guesses that a request was too long, which a provider refuses without a reason: one beyond half of the listed window, else of
   * `UNKNOWN_WINDOW`, and of what the configuration gives.
   * @param configured as in `of`
   * @returns undefined for any other error. `window` is to be tried by Postern's measure; `taken` is called when that was right
   */
  guess(
    provider: Provider,
    model: string,
    refusal: { readonly error: ProviderError; readonly tokens: number; readonly configured: number },
  ): Promise<{ readonly window: number; readonly taken: () => void } | undefined>;
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

/** Window of a model of which nobody says anything, for a guess. */
export const UNKNOWN_WINDOW = 32_768;

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
  const lessonOf = (provider: Provider, model: string) => {
    const { window, until } = learnt.get(provider)?.get(model) ?? NO_LESSON;
    return clock.monotonic() < until ? window : 0;
  };
  const within = (provider: Provider, model: string, named: number) => {
    const lesson = lessonOf(provider, model);
    // A client may have brought the refusal about, even its words: it makes a window that is known no less than a part of itself
    return lesson > 0 ? Math.min(named || lesson, Math.max(lesson, named * MIN_PART)) : named;
  };
  const keep = (provider: Provider, model: string, window: number) => {
    const windows = learnt.get(provider) ?? new Map<string, Lesson>();
    const [oldest] = windows.keys();
    if (!windows.has(model) && windows.size >= MAX_LEARNT && oldest !== undefined) windows.delete(oldest);
    learnt.set(provider, windows.set(model, { window, until: clock.monotonic() + KEPT_MS }));
  };
  const of = async (provider: Provider, model: string, configured = 0) =>
    within(provider, model, configured || await listed(provider, model));
  return {
    listed,
    within,
    of,
    learn(provider, model, { error, tokens }) {
      const { code, message, upstreamCode = "" } = error;
      if (code !== "provider_rejected" || !saysTooLong(`${upstreamCode} ${message}`)) return 0;
      const { window: named, counted } = toldWindow(message);
      const window = toMeasure({ named, counted, tokens });
      // Too short by far: something else than its messages made the request too long, as its format, and others do not send that
      if (window >= Math.max(MIN_LEARNT, named * MIN_PART)) keep(provider, model, window);
      return window;
    },
    async guess(provider, model, { error, tokens, configured }) {
      if (!mayBeTooLong(error)) return undefined;
      // The configuration may be wrong about it
      const named = Math.min(configured || Infinity, await listed(provider, model) || UNKNOWN_WINDOW);
      const window = Math.floor(within(provider, model, named) / 2);
      if (tokens <= window) return undefined;
      return { window, taken: () => keep(provider, model, Math.max(window, Math.floor(tokens * NEXT_TRY))) };
    },
  };
}

const NO_LESSON: Lesson = { window: 0, until: 0 };

/** Returns the window to try by Postern's measure, from what the vendor named and counted (0: nothing) and the tokens of the refused request. */
function toMeasure(
  { named, counted, tokens }: { readonly named: number; readonly counted: number; readonly tokens: number },
): number {
  // No token has less than a byte: a higher number counts something else
  if (counted > 0 && counted <= tokens / MIN_PART) return Math.min(named, Math.floor((tokens * named) / counted));
  return named > 0 && named < tokens ? named : Math.floor(tokens * NEXT_TRY);
}
