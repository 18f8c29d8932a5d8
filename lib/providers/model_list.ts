import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import type { ModelEntry } from "../base/records/model.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Documents } from "../storage/documents.ts";
import type { Provider } from "./provider.ts";

/** The models of one provider, kept for a minute. */
export interface ModelList {
  /** Never throws: the old list when the provider fails or `signal` aborts, an empty one when there is none */
  read(signal: AbortSignal): Promise<readonly ModelEntry[]>;
  /** Returns the last list without asking: empty before the first one */
  known(): readonly ModelEntry[];
}

export interface ModelListOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Keeps the last list beyond a restart. Default: none is kept */
  readonly documents?: Documents | undefined;
  /** Key of its document: another address is another list */
  readonly key: string;
}

const keptSchema = v.array(
  v.object({
    id: v.string(),
    object: v.literal("model"),
    created: v.number(),
    owned_by: v.string(),
    context_length: v.optional(v.number()),
  }),
);
const KEPT_MS = 60_000;
const TIMEOUT_MS = 10_000;

/** A cache over `listModels` with a single flight: callers at the same time share one request, which none of them can cancel. */
export function createModelList(provider: Provider, { clock, log, documents, key }: ModelListOptions): ModelList {
  let kept: readonly ModelEntry[] | undefined;
  let freshUntil = Number.NEGATIVE_INFINITY;
  let flight: Promise<void> | undefined;

  const refresh = async () => {
    const timeout = clock.timeoutSignal(TIMEOUT_MS);
    try {
      kept = (await provider.listModels(timeout.signal)).map(toShown);
      await documents?.set(key, kept).catch((error) => log.warn("The list of models could not be kept", { error }));
    } catch (error) {
      log.warn(`Cannot list the models of provider "${provider.name}": the last list stays`, { error });
      kept ??= await readKept();
    } finally {
      timeout.clear();
      freshUntil = clock.monotonic() + KEPT_MS;
      flight = undefined;
    }
  };
  const readKept = async (): Promise<readonly ModelEntry[]> => {
    const stored = v.safeParse(keptSchema, await documents?.get(key).catch(() => undefined));
    return stored.success ? stored.output : [];
  };
  return {
    async read(signal) {
      if (clock.monotonic() >= freshUntil) await firstOf(flight ??= refresh(), signal);
      return kept ?? [];
    },
    known: () => kept ?? [],
  };
}

function toShown({ id, object, created, owned_by, context_length }: ModelEntry): ModelEntry {
  const shown = { id, object, created, owned_by };
  return context_length === undefined ? shown : { ...shown, context_length };
}

function firstOf(work: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const settle = () => {
      signal.removeEventListener("abort", settle);
      resolve();
    };
    signal.addEventListener("abort", settle, { once: true });
    work.then(settle);
  });
}
