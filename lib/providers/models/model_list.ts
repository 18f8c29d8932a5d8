import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import { ProviderError } from "../../base/errors.ts";
import type { ModelEntry } from "../../base/records/provider_event.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { DocumentKey, Documents } from "../../storage/documents.ts";
import type { Provider, ProviderCallOptions, ProviderLayer, ProviderRequest } from "../provider.ts";

/** The models of one provider, kept for a minute. */
export interface ModelList {
  /** Never throws: the old list when the provider fails or `signal` aborts, an empty one when there is none */
  read(signal: AbortSignal): Promise<readonly ModelEntry[]>;
  /** Returns the last list without asking: empty before the first one */
  known(): readonly ModelEntry[];
}

/** Services that a list of models uses. */
export interface ModelListOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Keeps the last list beyond a restart. Default: none is kept */
  readonly documents?: Documents | undefined;
  /** Key of its document: another address is another list */
  readonly key: DocumentKey;
}

const keptSchema = v.array(
  v.object({
    id: v.string(),
    object: v.literal("model"),
    created: v.number(),
    owned_by: v.string(),
    context_length: v.optional(v.number()),
    supports_tools: v.optional(v.boolean()),
  }),
);
const KEPT_MS = 60_000;
const TIMEOUT_MS = 10_000;

/** Creates a cache over `listModels`. Callers at the same time share one request, which none of them can cancel. */
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

function toShown({ id, object, created, owned_by, context_length, supports_tools }: ModelEntry): ModelEntry {
  return {
    ...{ id, object, created, owned_by },
    ...(context_length === undefined ? {} : { context_length }),
    ...(supports_tools === undefined ? {} : { supports_tools }),
  };
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

/**
 * Makes the layer by which a provider takes the model names that it lists and no others. llama.cpp, LM Studio and SGLang answer with the model that
 * is loaded, whatever the request names. The list is read again for a name that is not in it. When the list cannot be read, the
 * server decides.
 */
export function withListedModels({ models, unknown }: {
  /** Models the server had when it was found. */
  readonly models: readonly string[];
  /** The error for a name that the server does not list, with the names that it does. */
  readonly unknown: (wanted: string, listed: readonly string[]) => ProviderError;
}): ProviderLayer {
  let listed = new Set(models);
  const check = async (provider: Provider, model: string, signal: AbortSignal) => {
    let entries: readonly ModelEntry[];
    try {
      entries = await provider.listModels(signal);
    } catch (error) {
      if (error instanceof ProviderError) return;
      throw error;
    }
    listed = new Set(entries.map(({ id }) => id));
    if (!listed.has(model)) throw unknown(model, [...listed]);
  };
  async function* checked(provider: Provider, request: ProviderRequest, options: ProviderCallOptions) {
    await check(provider, request.model, options.signal);
    yield* provider.stream(request, options);
  }
  return (provider) => ({
    stream: (request, options) =>
      request.model === "" || listed.has(request.model)
        ? provider.stream(request, options)
        : checked(provider, request, options),
  });
}

/** Returns the model to use when none is named: the first that is not for embeddings. Undefined for an empty list. */
export function firstChatModel(models: readonly Pick<ModelEntry, "id">[]): string | undefined {
  return (models.find(({ id }) => !/embed|rerank/i.test(id)) ?? models[0])?.id;
}
