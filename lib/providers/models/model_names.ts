import { ProviderError } from "../../base/errors.ts";
import type { ModelList } from "./model_list.ts";
import type { Provider, ResolvedModel } from "../provider.ts";
import type { ProviderMemory } from "../discovery/provider_memory.ts";
import { PLAIN_PROVIDER } from "../../config/schema/provider.ts";

/** A configured provider, ready to be asked. */
export interface ProviderEntry {
  /** With its fallbacks. Answers for its default model */
  readonly provider: Provider;
  /** Without them. Answers for every other model */
  readonly alone: Provider;
  /** Default model of the provider. Empty: the server is asked for it when it is needed */
  model: string;
  readonly models: ModelList;
  /** The built-in assistant under a configured name, which has one model whatever it is asked for. */
  readonly isOffline: boolean;
}

/** The configured providers, and the choice among them. */
export interface ModelNamesOptions {
  readonly entries: ReadonlyMap<string, ProviderEntry>;
  /** `[provider]`; undefined for the kind `none` */
  readonly standard: ProviderEntry | undefined;
  readonly inUse: { readonly name: string; readonly reason: string };
  /** Tells whether `[provider]` says `auto`: the offline assistant then replaces a model that was not found. */
  readonly isGuess: boolean;
  /** Tells whether the provider of `[provider]` depends on which local servers answer. */
  readonly isFound: boolean;
  /** Address and models of the local server in use; undefined for every other provider */
  readonly server: { readonly baseUrl: string; readonly models: readonly string[] } | undefined;
  readonly memory: ProviderMemory;
  /** Names of models by other names, see `[provider.aliases]`. Default: there are none */
  readonly aliases?: Readonly<Record<string, string>> | undefined;
  /** Runs when a request names a model whose local server is gone. */
  readonly onLost?: (() => void) | undefined;
}

/** The names of models, as requests and lists have them. */
export interface ModelNames {
  resolve(wanted: string | undefined): ResolvedModel;
  /** Returns the id under which a model of a provider is listed, and by which it can be asked for. */
  idOf(name: string, model: string): string;
  /** Returns the names known without asking anybody. */
  known(): readonly string[];
  /** Returns the error for a model that none of the providers has. */
  missing(wanted: string, more?: readonly string[]): ProviderError;
}

/**
 * Gives each model name to the model it names, or an error (docs/design/providers.md "Which model answers").
 *
 * The default model may be served by a configured fallback, and by the offline assistant where `auto` finds no local server any
 * more; both say so. The offline assistant answers any other name only while the data directory never knew a real model.
 */
export function createModelNames(options: ModelNamesOptions): ModelNames {
  const { entries, standard, inUse, isFound, server, memory, aliases = {} } = options;
  const offline = standard?.isOffline && options.isGuess ? offlineFor(standard, inUse) : undefined;

  const idOf = (name: string, model: string) => {
    const slash = model.indexOf("/");
    const isPlain = entries.get(name) === standard && !(slash !== -1 && entries.has(model.slice(0, slash)));
    return isPlain ? model : `${name}/${model}`;
  };
  const known = () => [
    ...(server?.models ?? []),
    ...[...entries].flatMap(([name, { model, models }]) =>
      [...(model === "" ? [] : [model]), ...models.known().map(({ id }) => id)].map((id) => idOf(name, id))
    ),
  ];
  /** Only where local servers are looked for: elsewhere one that was in use before says nothing about a name */
  const gone = (wanted: string) =>
    !isFound ? undefined : memory.servers().find(({ kind, baseUrl, models }) =>
      baseUrl !== server?.baseUrl &&
      models.some((id) => isSameModel(wanted, id) || isSameModel(wanted, `${kind}/${id}`))
    );
  const missing = (wanted: string, more: readonly string[] = []) => {
    const lost = gone(wanted);
    if (lost === undefined) return unknownModel(wanted, [...known(), ...more], inUse.name);
    options.onLost?.();
    return lostModel(wanted, lost);
  };
  const ofOffline = (entry: ProviderEntry, wanted: string): ResolvedModel => {
    if (memory.known()) throw missing(wanted);
    return { provider: entry.provider, model: entry.model, shown: entry.model };
  };
  const ofDefault = (): ResolvedModel => {
    if (standard === undefined) throw noProvider();
    const { provider, model, isOffline } = standard;
    if (!isOffline) return { provider, model };
    if (offline !== undefined && memory.known()) return { provider: offline, model, shown: `${inUse.name}/${model}` };
    return { provider, model, shown: model };
  };
  const resolve = (wanted = ""): ResolvedModel => {
    if (isDefaultModel(wanted)) return ofDefault();
    const slash = wanted.indexOf("/");
    const named = slash === -1 ? undefined : entries.get(wanted.slice(0, slash));
    const entry = named ?? standard;
    if (entry === undefined) throw noProvider();
    const model = named === undefined ? wanted : wanted.slice(slash + 1);
    if (model === entry.model || model === "") return { provider: entry.provider, model: entry.model };
    if (entry.isOffline) return ofOffline(entry, wanted);
    // Models of the server in use are looked through first: `gone` compares many more names
    if (isFound && !server?.models.includes(model) && gone(wanted) !== undefined) throw missing(wanted);
    return { provider: entry.alone, model };
  };
  return {
    idOf,
    known,
    missing,
    resolve: Object.keys(aliases).length === 0 ? resolve : (wanted = "") => {
      const meant = aliasedModel(aliases, wanted);
      if (meant === undefined) return resolve(wanted);
      const found = resolve(meant);
      return { ...found, shown: found.shown ?? (isDefaultModel(meant) ? found.model || undefined : meant) };
    },
  };
}

/** Returns the model that another name stands for: that of the name itself, else of the longest beginning with a `*`. */
export function aliasedModel(aliases: Readonly<Record<string, string>>, wanted: string): string | undefined {
  if (wanted === "") return undefined;
  if (Object.hasOwn(aliases, wanted)) return aliases[wanted];
  const [longest] = Object.keys(aliases)
    .filter((name) => name.endsWith("*") && wanted.startsWith(name.slice(0, -1)))
    .toSorted((a, b) => b.length - a.length);
  return longest === undefined ? undefined : aliases[longest];
}

/** The offline assistant in place of the default model: each of its streams begins with a notice that says so. */
function offlineFor(
  { provider, model }: ProviderEntry,
  { name, reason }: { readonly name: string; readonly reason: string },
): Provider {
  const shown = `${name}/${model}`;
  const notice = {
    type: "notice",
    code: "provider_fallback",
    message: `The model "${shown}" answers in place of the default one: ${reason}`,
    model: shown,
  } as const;
  return {
    ...provider,
    async *stream(request, options) {
      let first = true;
      for await (const batch of provider.stream(request, options)) {
        yield first ? [notice, ...batch] : batch;
        first = false;
      }
    },
  };
}

/** Ollama takes a name without a tag for the one with `:latest`. */
function isSameModel(wanted: string, id: string): boolean {
  return wanted === id || `${wanted}:latest` === id;
}

function noProvider(): ProviderError {
  return new ProviderError("provider_error", `Cannot choose a provider: [provider] has the kind "none"`, {
    provider: "none",
  });
}

const PLAIN_PREFIX = `${PLAIN_PROVIDER}/`;

/** Returns whether a request asks for plain mode by its model, `plain/<id>`: for a client that cannot set a header. */
export function isPlainModel(wanted: string | undefined): wanted is string {
  return wanted?.startsWith(PLAIN_PREFIX) === true;
}

/** Returns the model `<id>` of `plain/<id>`, with the prefix taken off once. */
export function plainModelOf(wanted: string): string {
  return wanted.slice(PLAIN_PREFIX.length);
}

/**
 * Returns whether a request leaves the choice of the model to the gateway: it names none, or says `default` or `assistant`.
 * `null` arrives here as undefined.
 */
export function isDefaultModel(wanted: string | undefined): boolean {
  switch (wanted) {
    case undefined:
    case "":
    case "default":
    case "assistant":
      return true;
    default:
      return false;
  }
}

const MAX_NAMES = 10;
const MAX_SHOWN = 128;

/** Says which model names would work, such as `the models are "default", "llama3.2" and 4 others of GET /v1/models`. */
export function namesThatWork(names: Iterable<string>): string {
  const all = [...new Set(["default", ...names])].filter((name) => name !== "");
  const shown = all.slice(0, MAX_NAMES).map(quoted);
  const others = all.length - shown.length;
  const more = others === 0
    ? "; GET /v1/models lists them"
    : ` and ${others} ${others === 1 ? "other" : "others"} of GET /v1/models`;
  return `${INTRODUCTION} ${shown.join(", ")}${more}`;
}

const INTRODUCTION = "the models are";

/** The error of a model name that no provider in use has. */
export function unknownModel(wanted: string, names: Iterable<string>, provider = "none"): ProviderError {
  const message = `Cannot use the model ${quoted(wanted)}: no provider in use has it; ${namesThatWork(names)}`;
  return new ProviderError("model_not_found", message, { provider, status: 404, param: "model" });
}

/** The same error of an upstream, with the names that would work; one that names them already as it is. */
export function withNames(error: ProviderError, names: Iterable<string>): ProviderError {
  if (error.message.includes(INTRODUCTION)) return error;
  const { provider, status, upstreamCode, param } = error;
  return new ProviderError("model_not_found", `${error.message}; ${namesThatWork(names)}`, {
    provider,
    status,
    upstreamCode,
    param,
    cause: error,
  });
}

/** The error of a model whose local server was in use and answers no more. It counts as a server that cannot be reached. */
export function lostModel(
  wanted: string,
  server: { readonly software: string; readonly baseUrl: string; readonly kind: string },
): ProviderError {
  const place = `${server.software} at ${new URL(server.baseUrl).host}`;
  const message =
    `Cannot reach the model ${quoted(wanted)}: its server, ${place}, stopped answering; start it again, ` +
    `or ask for the model "default"`;
  return new ProviderError("provider_error", message, { provider: server.kind, param: "model" });
}

function quoted(name: string): string {
  return JSON.stringify(name.length > MAX_SHOWN ? `${name.slice(0, MAX_SHOWN)}...` : name);
}
