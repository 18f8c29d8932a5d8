import type { JsonSchema } from "../base/json.ts";
import type { Message } from "../base/records/message.ts";
import type { ModelEntry, ProviderEvent } from "../base/records/provider_event.ts";

/** A tool as a request declares it. `strict` is the client's wish, and is passed on to vendors that know it. */
export interface ToolDeclaration {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema | undefined;
  readonly strict?: boolean;
  /** Fields of the client's declaration that the gateway does not know, those of its `function` under that name. Default: none */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** The client's wish which tools the model calls; an object names one tool. */
export type ToolChoice = "auto" | "none" | "required" | { readonly name: string };

/** Parameters of the chat-completions format that are handed on as they are. Absent means the vendor's default. */
export interface ModelParameters {
  readonly temperature?: number;
  readonly top_p?: number;
  readonly max_tokens?: number;
  readonly max_completion_tokens?: number;
  readonly stop?: string | readonly string[];
  readonly seed?: number;
  readonly presence_penalty?: number;
  readonly frequency_penalty?: number;
  readonly response_format?: Readonly<Record<string, unknown>>;
  readonly reasoning_effort?: string;
  /** true: the limit of output counts thinking too, as the Messages API does. Default false: a vendor that counts it gets more beside the limit */
  readonly limit_holds_thinking?: boolean;
  readonly user?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Fields that the client sent beside the known parameters, for a provider of the same format. Default: none */
  readonly passed?: PassedFields;
}

/** Fields of a request that the gateway does not know and passes on (docs/design/completions.md "Plain mode"). */
export interface PassedFields {
  /** Unknown fields of the body. Unknown fields of messages, content parts and tools stand where they came */
  readonly body: Readonly<Record<string, unknown>>;
  /** All of them, such as `logit_bias` or `messages[].cache_control`: a provider of another format says that it has nothing for them */
  readonly names: readonly string[];
  /** Names of what a provider of another format gets in another form. Default: none */
  readonly changed?: readonly string[];
  /** The client's request where it came in another format than chat completions: a provider of that format sends it as it is */
  readonly sent?: SentRequest;
}

/** Headers by which a client of the Messages API chooses a version of the format and parts of it. They go on with its request */
export const FORMAT_HEADERS = ["anthropic-beta", "anthropic-version"] as const;

/** A client's request as it came. */
export interface SentRequest {
  /** `messages`: the Messages API of Anthropic */
  readonly format: "messages";
  readonly body: Readonly<Record<string, unknown>>;
  /** Headers that choose a version of the format, in lower case */
  readonly headers: Readonly<Record<string, string>>;
}

/** Returns the notice that a provider has nothing for a parameter of the request. */
export function parameterIgnored(name: string): ProviderEvent {
  return {
    type: "notice",
    code: "parameter_ignored",
    message: `The provider has nothing for the parameter "${name}": left out`,
    param: name,
  };
}

/** Code of the notice of a parameter that the model gets in another form; any other notice with a `param` is of one that it does not get. */
export const PARAMETER_CHANGED = "parameter_changed";

/** Returns the notice that a parameter of the request goes to the model in another form, see docs/http.md. */
export function parameterChanged(name: string): ProviderEvent {
  return {
    type: "notice",
    code: PARAMETER_CHANGED,
    message: `The model gets the parameter "${name}" in another form than the client sent`,
    param: name,
  };
}

/** Wishes of a client for the model's work: the tools that it has itself, and how the model is asked. */
export interface ModelWishes {
  /** Tools of the client. A call to one ends the reply with `tool_calls`. */
  readonly clientTools: readonly ToolDeclaration[];
  readonly toolChoice?: ToolChoice | undefined;
  readonly parallelToolCalls?: boolean | undefined;
  readonly parameters: ModelParameters;
  /** true: thinking is told with the parts that its vendor wants back, for a client that hands them back. Default: plain mode does */
  readonly givesThoughts?: boolean | undefined;
  /** true: the model condenses the messages, and its summary is what the run says. For a run without tools of the agent. Default false */
  readonly condenses?: boolean | undefined;
}

/** A request for one turn, in the words of no vendor. */
export interface ProviderRequest {
  /** The model's name as the provider knows it */
  readonly model: string;
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[];
  /**
   * Number of the first tools that each request of the run begins with, as it does with the same system messages: a provider may keep
   * that beginning. Default 0: nothing is known to come again
   */
  readonly stableTools?: number | undefined;
  readonly toolChoice?: ToolChoice | undefined;
  readonly parallelToolCalls?: boolean | undefined;
  readonly parameters: ModelParameters;
  /**
   * Bytes of pictures in tool results as base64, by SHA-256. A picture that is not among them is told of in words. undefined: the model
   * is shown none
   */
  readonly pictures?: ReadonlyMap<string, string> | undefined;
}

/** Options of one request that are no part of what the model reads. */
export interface ProviderCallOptions {
  readonly signal: AbortSignal;
  readonly requestId?: string | undefined;
  /** Nobody reads along, so the reply may come in one piece: cheaper for everyone. A wish. Default false */
  readonly whole?: boolean | undefined;
  /** Gives the reply's fields beyond the known ones as `reply_fields`, where the provider's format is the client's. Default false */
  readonly givesFields?: boolean | undefined;
  /** Gives thinking as `reply_fields` with the parts that its vendor wants back. Default: as `givesFields` */
  readonly givesThoughts?: boolean | undefined;
  /**
   * Awaited before the request is made again, here or elsewhere, after an attempt that may have been served and cost something; a
   * rejection ends the call with it. Default: nobody counts
   */
  readonly beforeAgain?: (() => Promise<void>) | undefined;
  /** Runs when the request is to be made again after a refusal, and when that has led to an answer. Default: nothing is called */
  readonly onAgain?: ((isAsking: boolean) => void) | undefined;
}

/** Texts, or lists of tokens, whose vectors are asked for. */
export interface EmbedRequest {
  /** The embedding model's name as the provider knows it */
  readonly model: string;
  readonly input: readonly string[] | readonly (readonly number[])[];
  /** Length of the vectors. Default: the model's own */
  readonly dimensions?: number | undefined;
  /** Further fields for a provider of the same format, as they came. Default: none */
  readonly passed?: Readonly<Record<string, unknown>> | undefined;
}

/** Vectors that a provider gave. */
export interface Embeddings {
  /** Vectors of the inputs, in their order, all of one length. Finite numbers, as the provider wrote them */
  readonly vectors: readonly (readonly number[] | Float32Array)[];
  /** Tokens of the input. Undefined where the provider does not say */
  readonly tokens?: number | undefined;
  /** Names of passed fields that the provider has nothing for. Default: none */
  readonly ignored?: readonly string[] | undefined;
}

/** A source of model turns. */
export interface Provider {
  /** Configured name: the kind for `[provider]`, the table's name for `[providers.<name>]` */
  readonly name: string;
  /**
   * Asks for a turn. Every array is one network read. The stream ends with `finish`. An empty array says that the reply has begun,
   * before anything was said. Iterated once.
   * @throws {ProviderError} before or after the first event; {CancelError} when `signal` aborts
   */
  stream(request: ProviderRequest, options: ProviderCallOptions): AsyncIterable<readonly ProviderEvent[]>;
  /** Lists the models that the provider serves now. @throws {ProviderError} */
  listModels(signal: AbortSignal): Promise<readonly ModelEntry[]>;
  /**
   * Returns the vector of each input. Absent where the provider's format has none.
   * @throws {ProviderError}, `provider_rejected` for a request that it cannot take; {CancelError} when `signal` aborts
   */
  readonly embed?: ((request: EmbedRequest, signal: AbortSignal) => Promise<Embeddings>) | undefined;
  /** True when declared tools cost no tokens: such a provider is told of all tools in each turn. Default false */
  readonly toolsAreFree?: boolean | undefined;
  /** Asks whether the chat template of a model knows tools. Absent, or undefined, where the server does not say. Never throws */
  readonly takesTools?: ((model: string, signal: AbortSignal) => Promise<boolean | undefined>) | undefined;
  /** Tells whether a model is shown pictures of tool results. Default: none is */
  readonly sees?: ((model: string) => boolean) | undefined;
  close(): Promise<void>;
}

/**
 * Layer around a provider: it changes requests, streams or both, and may say other things of the provider. What it leaves out is the
 * provider's.
 */
export type ProviderLayer = (inner: Provider) => Pick<Provider, "stream"> & Partial<Provider>;

/** A model name of a request, resolved. */
export interface ResolvedModel {
  readonly provider: Provider;
  /** As the provider knows it */
  readonly model: string;
  /** As replies name it, where that is not the name that was asked for */
  readonly shown?: string | undefined;
}

/** The configured providers as one. */
export interface Providers {
  /**
   * Resolves a model name: `provider/model` when the part before the first slash is a configured provider, else a model of the
   * default provider. undefined, an empty name, `default` and `assistant` mean the configured default, which alone may be served by
   * another one.
   * @throws {ProviderError} `model_not_found` for a name that no provider has, with the names that would work; `provider_error` for a
   * model whose local server is gone
   */
  resolve(model: string | undefined): ResolvedModel;
  /** The model of a request that names none, by its query; undefined: the default. Absent where queries are not classified */
  readonly route?: ((query: string) => ResolvedModel | undefined) | undefined;
  /** For the banner and the status: which provider is in use and why, such as `offline/assistant` and `no API key and no local server was found` */
  readonly inUse: { readonly name: string; readonly model: string; readonly reason: string };
  /** Models of all configured providers, cached 60 s, the old list when a provider fails. Never throws */
  listModels(signal: AbortSignal): Promise<readonly ModelEntry[]>;
  close(): Promise<void>;
}

const THINKING_TOKENS: ReadonlyMap<string, number> = new Map(
  Object.entries({ low: 2_048, medium: 8_192, high: 16_384, xhigh: 32_768 }),
);

/** Tokens a model may think beside its answer at this `reasoning_effort`, where a vendor wants a figure; 0 for none or an unknown one. */
export function thinkingTokens(effort: string): number {
  return THINKING_TOKENS.get(effort) ?? 0;
}
