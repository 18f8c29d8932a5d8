import * as v from "valibot";
import { cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { ConfigError, ProviderError } from "../base/errors.ts";
import { isRecord } from "../base/json.ts";
import type { Message } from "../base/records/message.ts";
import type { ModelEntry } from "../base/records/provider_event.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { PLAIN_PROVIDER, PROVIDER_KINDS } from "../config/schema/provider.ts";
import { MAX_DIMENSIONS } from "../storage/vectors.ts";
import type { ProgramModel, ProgramProvider, ProgramProviderCall } from "./program_provider.ts";
import { BoundedWait, broken, streamTurn } from "./program_stream.ts";
import type { Provider, ProviderRequest } from "./provider.ts";
import type { ProviderSettings } from "./provider_settings.ts";
import { fitCallIds } from "./vendors/fit_messages.ts";

/** Provider of a program that was checked, and how it is opened. */
export interface OwnProvider {
  readonly settings: ProviderSettings;
  readonly open: (services: { readonly clock: Clock; readonly log: Logger }) => Provider;
}

/** Providers of a program by their names. The first one is the default of `kind = "auto"`. */
export type OwnProviders = ReadonlyMap<string, OwnProvider>;

const NAME = /^[a-z0-9_-]{1,64}$/;
/** Names that mean something else in the name of a model or as a kind. */
const RESERVED: readonly string[] = [...PROVIDER_KINDS, PLAIN_PROVIDER, "auto", "none", "default", "assistant"];
const MAX_PROVIDERS = 100;
const MAX_MODELS = 1_000;
const MAX_MODEL_NAME = 256;
const MAX_TIMEOUT_MS = 3_600_000;
const MAX_RETRIES = 10;
const OPTIONS = ["models", "stream", "embed", "sees", "timeoutMs", "maxRetries"];
/** Milliseconds that a list of models may take. */
const LIST_MS = 10_000;

/**
 * Returns the providers that a program gave, checked.
 * @param taken names of `[providers.<name>]`
 * @throws {ConfigError} `provider_invalid`, `provider_name_taken`
 */
export function toOwnProviders(given: unknown, taken: readonly string[]): OwnProviders {
  if (!isRecord(given)) {
    throw invalid('Cannot use the option "providers": it must be an object of providers by their names');
  }
  const entries = Object.entries(given);
  if (entries.length > MAX_PROVIDERS) throw invalid(`Cannot use the option "providers": it may have ${MAX_PROVIDERS}`);
  return new Map(entries.map(([name, provider]) => {
    const quoted = JSON.stringify(name.slice(0, 100));
    if (!NAME.test(name)) throw invalid(`Cannot add the provider ${quoted}: its name must match ${NAME.source}`);
    if (RESERVED.includes(name) || taken.includes(name)) {
      const owner = taken.includes(name)
        ? `[providers.${name}] of the configuration has it`
        : "a built-in provider has it";
      throw new ConfigError("provider_name_taken", `Cannot add the provider ${quoted}: ${owner}; take another name`);
    }
    return [name, toOwnProvider(name, checkProvider(name, provider))];
  }));
}

function toOwnProvider(name: string, given: ProgramProvider): OwnProvider {
  const [first] = typeof given.models === "function" ? [] : given.models.map(idOf);
  const settings: ProviderSettings = {
    kind: name,
    model: first ?? "",
    base_url: "",
    api_key_env: "",
    api_key_file: "",
    timeout_secs: (given.timeoutMs ?? 120_000) / 1000,
    silence_secs: 0,
    max_retries: given.maxRetries ?? 2,
    fallback: [],
    vision: given.sees === true ? "on" : "off",
  };
  return {
    settings,
    open: (services) => openOwn(name, given, { ...services, timeoutMs: settings.timeout_secs * 1000 }),
  };
}

function checkProvider(name: string, given: unknown): ProgramProvider {
  const wrong = (reason: string) => invalid(`Cannot add the provider "${name}": ${reason}`);
  if (!isRecord(given)) throw wrong("it must be an object with models and stream");
  const unknown = Object.keys(given).find((key) => !OPTIONS.includes(key));
  if (unknown !== undefined) {
    throw wrong(`there is no option ${JSON.stringify(unknown.slice(0, 100))}; the options are ${OPTIONS.join(", ")}`);
  }
  const { models, stream, embed, sees, timeoutMs, maxRetries } = given;
  if (typeof stream !== "function") throw wrong("stream must be a function");
  if (embed !== undefined && typeof embed !== "function") throw wrong("embed must be a function");
  if (sees !== undefined && typeof sees !== "boolean") throw wrong("sees must be true or false");
  if (!isWithin(timeoutMs, 1, MAX_TIMEOUT_MS)) {
    throw wrong(`timeoutMs must be a whole number from 1 to ${MAX_TIMEOUT_MS}`);
  }
  if (!isWithin(maxRetries, 0, MAX_RETRIES)) throw wrong(`maxRetries must be a whole number from 0 to ${MAX_RETRIES}`);
  if (typeof models !== "function") {
    const fault = modelsFault(models);
    if (fault !== undefined) throw wrong(`models ${fault}`);
  }
  // Each part was checked above. Lists are copied and functions bound: what the program changes later does not count
  return {
    models: typeof models === "function" ? models.bind(given) : structuredClone(models),
    stream: stream.bind(given),
    ...(embed === undefined ? {} : { embed: embed.bind(given) }),
    sees,
    timeoutMs,
    maxRetries,
  } as ProgramProvider;
}

const modelsSchema = v.array(v.union([
  v.string(),
  v.strictObject({
    id: v.string(),
    context_length: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
  }),
]));

function modelsFault(models: unknown): string | undefined {
  const result = v.safeParse(modelsSchema, models, { abortEarly: true });
  if (!result.success) return "must be a function, or a list of names or of { id, context_length }";
  const ids = result.output.map(idOf);
  if (ids.length === 0 || ids.length > MAX_MODELS) return `must be 1 to ${MAX_MODELS}`;
  if (ids.some((id) => id === "" || id.length > MAX_MODEL_NAME)) {
    return `must have names of 1 to ${MAX_MODEL_NAME} characters`;
  }
  return new Set(ids).size < ids.length ? "has a name twice" : undefined;
}

function idOf(model: ProgramModel): string {
  return typeof model === "string" ? model : model.id;
}

function openOwn(
  name: string,
  given: ProgramProvider,
  services: { readonly clock: Clock; readonly log: Logger; readonly timeoutMs: number },
): Provider {
  const { models, stream, embed, sees } = given;
  const { clock, log, timeoutMs } = services;
  const within = async <T>(
    ms: number,
    signal: AbortSignal,
    work: (call: ProgramProviderCall) => T | PromiseLike<T>,
  ) => {
    const waiting = new BoundedWait({ provider: name, signal, clock, timeoutMs: ms });
    try {
      const result = await waiting.for((async () => await work({ signal: waiting.signal }))());
      waiting.end();
      return result;
    } catch (error) {
      waiting.abandon();
      throw toProgramError(error, { name, signal, log });
    }
  };
  async function* asked(given: ProviderRequest, call: ProgramProviderCall) {
    const fitted = fitCallIds(given, { provider: name, ids: "any" });
    const request = sees === true ? fitted : { ...fitted, pictures: undefined };
    if (typeof models !== "function" && !models.some((model) => idOf(model) === request.model)) {
      throw unknown(name, request);
    }
    const onLateError = (error: unknown) =>
      log.error("A provider of the program failed after its turn", { provider: name, error });
    const open = (signal: AbortSignal) =>
      stream(structuredClone({ ...request, messages: request.messages.map(withoutSource) }), {
        signal,
        requestId: call.requestId,
      });
    try {
      yield* streamTurn({ provider: name, open, signal: call.signal, clock, timeoutMs, onLateError });
    } catch (error) {
      throw toProgramError(error, { name, signal: call.signal, log });
    }
  }
  return {
    name,
    stream: (request, { signal, requestId }) => asked(request, { signal, requestId }),
    async listModels(signal) {
      if (typeof models !== "function") return models.map((model) => toEntry(name, model));
      const listed = await within(LIST_MS, signal, models);
      const fault = modelsFault(listed);
      if (fault !== undefined) throw broken(name, `its list of models ${fault}`);
      return listed.map((model) => toEntry(name, model));
    },
    embed: embed && (async (request, signal) => {
      const { model, input, dimensions, passed = {} } = request;
      const texts = input.filter((text) => typeof text === "string");
      if (texts.length < input.length) throw rejected(name, "input", "it takes texts alone");
      if (dimensions !== undefined) throw rejected(name, "dimensions", "its vectors have one length");
      const vectors = await within(timeoutMs, signal, (call) => embed({ model, texts }, call));
      return { vectors: toVectors(name, vectors, texts.length), ignored: Object.keys(passed) };
    }),
    sees: () => sees === true,
    close: () => Promise.resolve(),
  };
}

/** Returns a message as `ProgramMessage` has it: who denied a call, and how files are called, is for people. */
function withoutSource(message: Message): Message {
  if (message.role === "user") {
    const { files: _, ...said } = message;
    return said;
  }
  if (message.role !== "tool" || message.denied_by === undefined) return message;
  const { denied_by: _, ...told } = message;
  return told;
}

function toEntry(name: string, model: ProgramModel): ModelEntry {
  const { context_length } = typeof model === "string" ? {} : model;
  const entry = { id: idOf(model), object: "model", created: 0, owned_by: name } as const;
  return context_length === undefined ? entry : { ...entry, context_length };
}

function unknown(name: string, { model }: ProviderRequest): ProviderError {
  return new ProviderError(
    "model_not_found",
    `Provider "${name}" does not know the model ${JSON.stringify(model.slice(0, MAX_MODEL_NAME))}`,
    { provider: name, status: 404, param: "model" },
  );
}

function rejected(name: string, param: string, reason: string): ProviderError {
  const message = `Provider "${name}" cannot embed with "${param}": ${reason}`;
  return new ProviderError("provider_rejected", message, { provider: name, status: 400, param });
}

function toVectors(name: string, given: unknown, count: number): readonly Float32Array[] {
  if (!Array.isArray(given) || given.length !== count) throw broken(name, "embed() must give one vector for each text");
  const vectors = given.map((vector: unknown) => {
    const isList = vector instanceof Float32Array || Array.isArray(vector);
    const isVector = isList && vector.length >= 1 && vector.length <= MAX_DIMENSIONS &&
      vector.every((number: unknown) => Number.isFinite(number));
    if (!isVector) throw broken(name, `a vector of embed() must be 1 to ${MAX_DIMENSIONS} finite numbers`);
    return Float32Array.from(vector as ArrayLike<number>); // each of its items is a number
  });
  if (vectors.some(({ length }) => length !== vectors[0]?.length)) {
    throw broken(name, "the vectors of embed() must have one length");
  }
  return vectors;
}

const CODES: readonly string[] = [
  "provider_error",
  "provider_timeout",
  "provider_rejected",
  "provider_rate_limited",
  "model_not_found",
];
const MAX_MESSAGE = 500;

/**
 * Returns the error to give on. A ProviderError of the program is kept with its code and its bounds checked. Any other error is a bug of
 * the program: logged whole, and shown as one fixed sentence.
 */
function toProgramError(
  error: unknown,
  { name, signal, log }: { readonly name: string; readonly signal: AbortSignal; readonly log: Logger },
): Error {
  if (signal.aborted) return cancelError(signal);
  if (error instanceof ProviderError && CODES.includes(error.code)) {
    const { code, message, status, upstreamCode, param, retryAfterSeconds, retryable, cause } = error;
    return new ProviderError(code, String(message).slice(0, MAX_MESSAGE), {
      provider: name,
      status: isWithin(status, 400, 599) ? status : undefined,
      upstreamCode: textOf(upstreamCode),
      param: textOf(param),
      retryAfterSeconds: isWithin(retryAfterSeconds, 0, 86_400) ? retryAfterSeconds : undefined,
      retryable: retryable === true,
      cause,
    });
  }
  log.error("A provider of the program failed", { provider: name, error });
  return new ProviderError("provider_error", `Provider "${name}" failed: the log of the gateway has its error`, {
    provider: name,
    cause: error,
  });
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value.slice(0, MAX_MODEL_NAME) : undefined;
}

/** Tells whether an option is absent, or a whole number within these bounds. */
function isWithin(value: unknown, min: number, max: number): boolean {
  return value === undefined || (Number.isInteger(value) && Number(value) >= min && Number(value) <= max);
}

function invalid(message: string): ConfigError {
  return new ConfigError("provider_invalid", message);
}
