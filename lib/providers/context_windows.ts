import type { Clock } from "../base/clock.ts";
import type { Provider } from "./provider.ts";

/**
 * How many tokens a model takes, as its provider's list of models says; 0 where it does not say, and when the list cannot be read.
 * Asked for once an hour for each provider. Never throws
 */
export type ContextWindows = (provider: Provider, model: string) => Promise<number>;

interface Known {
  readonly windows: Promise<ReadonlyMap<string, number>>;
  /** By the monotonic clock */
  readonly until: number;
}

const KEPT_MS = 3_600_000;
/** The list is read before a reply: a slow provider must not hold it up. */
const TIMEOUT_MS = 3_000;

export function createContextWindows(clock: Clock): ContextWindows {
  const known = new WeakMap<Provider, Known>();
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
  return async (provider, model) => {
    let found = known.get(provider);
    if (found === undefined || clock.monotonic() >= found.until) {
      found = { windows: read(provider), until: clock.monotonic() + KEPT_MS };
      known.set(provider, found);
    }
    return (await found.windows).get(model) ?? 0;
  };
}
