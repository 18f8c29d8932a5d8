import { ProviderError } from "../base/errors.ts";
import { isRecord } from "../base/json.ts";
import { type keptTurnSchema, toAiSdkCall } from "./ai_sdk_call.ts";
import type { ProgramProvider, ProgramProviderEvent, ProgramProviderRequest } from "./program_provider.ts";
import type * as v from "valibot";

/**
 * Language model of the AI SDK, as `openai("gpt-5")` of `@ai-sdk/openai` gives it: of specification v2, v3 or v4, which is AI SDK 5 to 7. The
 * type stands alone, so that the package needs none of theirs.
 */
export interface AiSdkModel {
  /** `v2`, `v3` or `v4` */
  readonly specificationVersion: string;
  /** Name of the vendor in the AI SDK, such as `openai.chat` */
  readonly provider: string;
  /** Name of the model, by which requests ask for it: `<provider>/<modelId>` */
  readonly modelId: string;
  /** Starts one turn, and gives the parts of its reply as they come */
  readonly doStream: (options: never) => PromiseLike<{ readonly stream: ReadableStream }>;
}

const VERSIONS = ["v2", "v3", "v4"];
/** Longest metadata that comes back with a turn, in UTF-16 units. */
const MAX_KEPT = 1_000_000;
const MAX_NOTICE = 1_000;
const MAX_NAME = 256;

/**
 * Makes a provider of language models of the AI SDK. Each is named by its `modelId`.
 * @throws {TypeError} something that is no such model
 */
export function fromAiSdk(
  given: AiSdkModel | readonly AiSdkModel[],
  options: Pick<ProgramProvider, "sees" | "timeoutMs" | "maxRetries"> = {},
): ProgramProvider {
  const list: readonly AiSdkModel[] = Array.isArray(given) ? given : [given];
  for (const model of list) {
    if (typeof model?.doStream !== "function" || !VERSIONS.includes(model.specificationVersion)) {
      const found = isRecord(model) ? `specification ${model["specificationVersion"]}` : typeof model;
      throw new TypeError(
        `Cannot use a model of the AI SDK (${found}): give a language model of specification ${
          VERSIONS.join(", ")
        }, such as openai("gpt-5")`,
      );
    }
  }
  const models = new Map(list.map((model) => [model.modelId, model]));
  return {
    ...options,
    models: list.map(({ modelId }) => modelId),
    stream: (request, { signal }) => streamTurn(models.get(request.model), request, signal),
  };
}

async function* streamTurn(
  model: AiSdkModel | undefined,
  request: ProgramProviderRequest,
  signal: AbortSignal,
): AsyncGenerator<readonly ProgramProviderEvent[], void, undefined> {
  // The gateway asks for models of the list alone
  if (model === undefined) throw new TypeError("No model of the AI SDK has this name");
  try {
    const { stream } = await model.doStream(toAiSdkCall(request, model, signal) as never); // each version takes its own type
    const turn = new Turn(model.provider);
    // After its "finish" a stream ends by itself, which lets its connection go
    for await (const part of stream) {
      const events = turn.take(part as StreamPart); // the gateway checks each event, so that a part of another form fails the turn
      if (events.length > 0) yield events;
    }
  } catch (error) {
    throw signal.aborted ? error : await toProviderError(error, model.provider);
  }
}

/** Part of a stream: the fields of all kinds, of which each has some. */
interface StreamPart {
  readonly type: string;
  readonly id: string;
  readonly delta: string;
  readonly toolName: string;
  readonly toolCallId: string;
  readonly input: unknown;
  readonly inputEncoding?: string;
  readonly providerExecuted?: boolean;
  readonly providerMetadata?: unknown;
  readonly modelId?: unknown;
  readonly mediaType?: unknown;
  readonly warnings?: unknown;
  readonly usage?: unknown;
  readonly finishReason?: unknown;
  readonly error?: unknown;
}

type Finish = Extract<ProgramProviderEvent, { type: "finish" }>;

/** Turn on its way from the parts of the AI SDK to events. */
class Turn {
  readonly #provider: string;
  /** Calls by their ids. `isText`: parts of the input come as plain text and not as JSON, so that the whole call is waited for */
  readonly #calls = new Map<string, { readonly index: number; readonly isText: boolean; hasInput: boolean }>();
  /** Reasoning that its metadata belongs to, by the ids of the blocks */
  readonly #reasoning = new Map<string, { text: string; metadata: unknown }>();
  readonly #kept: { text?: unknown; readonly calls: Record<string, unknown> } = { calls: {} };
  #model: string | undefined = undefined;

  constructor(provider: string) {
    this.#provider = provider;
  }

  /** Returns the events of one part. Parts of tools that the vendor runs itself, sources and raw ones give none. */
  take(part: StreamPart): readonly ProgramProviderEvent[] {
    const { type, id, delta, providerMetadata: metadata } = part;
    switch (type) {
      case "stream-start":
        return noticeOf(part.warnings);
      case "response-metadata":
        this.#model = nameOf(part.modelId);
        return [];
      case "text-start":
      case "text-end":
        if (metadata !== undefined) this.#kept.text = metadata;
        return [];
      case "text-delta":
        return [{ type: "text_delta", delta }];
      case "reasoning-start":
      case "reasoning-delta":
      case "reasoning-end":
        return this.#reason(part);
      case "tool-input-start":
        return part.providerExecuted === true ? [] : this.#begin(part, id);
      case "tool-input-delta":
        return this.#inputPart(id, delta);
      case "tool-call":
        return part.providerExecuted === true ? [] : this.#call(part);
      case "file":
        return [notice(`The model gave a file of type ${part.mediaType}, which is left out`)];
      case "finish":
        return [this.#finish(part)];
      case "error":
        throw part.error;
      default:
        return [];
    }
  }

  #reason({ type, id, delta, providerMetadata }: StreamPart): readonly ProgramProviderEvent[] {
    const block = this.#reasoning.get(id) ?? { text: "", metadata: undefined };
    this.#reasoning.set(id, block);
    block.metadata = providerMetadata ?? block.metadata;
    if (type !== "reasoning-delta") return [];
    block.text += delta;
    return [{ type: "reasoning_delta", delta }];
  }

  #begin({ toolName: name, inputEncoding }: StreamPart, id: string): readonly ProgramProviderEvent[] {
    // A second beginning would share its index with the next call, whose tool would get nothing
    if (this.#calls.has(id)) return [];
    const index = this.#calls.size;
    this.#calls.set(id, { index, isText: inputEncoding === "text", hasInput: false });
    return [{ type: "tool_call_delta", index, call_id: id, name, arguments_delta: "" }];
  }

  #inputPart(id: string, delta: string): readonly ProgramProviderEvent[] {
    const call = this.#calls.get(id);
    if (call === undefined || call.isText || delta === "") return [];
    call.hasInput = true;
    return [{ type: "tool_call_delta", index: call.index, arguments_delta: delta }];
  }

  #call(part: StreamPart): readonly ProgramProviderEvent[] {
    const { toolCallId: id, input, providerMetadata } = part;
    if (providerMetadata !== undefined) this.#kept.calls[id] = providerMetadata;
    const begun = this.#begin(part, id);
    const call = this.#calls.get(id);
    if (call === undefined || call.hasInput) return begun;
    call.hasInput = true;
    const whole = typeof input === "string" ? input : JSON.stringify(input);
    return [...begun, { type: "tool_call_delta", index: call.index, arguments_delta: whole === "" ? "{}" : whole }];
  }

  #finish({ usage, finishReason }: StreamPart): Finish {
    const reason = isRecord(finishReason) ? finishReason["unified"] : finishReason;
    if (reason === "error") throw new Error("The model ended with an error");
    const opaque = this.#opaque();
    return {
      type: "finish",
      finish_reason: reason === "length"
        ? "length"
        : reason === "content-filter"
        ? "content_filter"
        : this.#calls.size > 0
        ? "tool_calls"
        : "stop",
      usage: toUsage(usage),
      model: this.#model,
      ...(opaque === undefined ? {} : { opaque }),
    };
  }

  #opaque(): v.InferOutput<typeof keptTurnSchema> | undefined {
    const reasoning = [...this.#reasoning.values()].filter(({ metadata }) => metadata !== undefined)
      .map(({ text, metadata }) => ({ text, providerOptions: metadata }));
    const kept = { ai_sdk: this.#provider, reasoning, ...this.#kept };
    const isEmpty = reasoning.length === 0 && kept.text === undefined && Object.keys(kept.calls).length === 0;
    return isEmpty || JSON.stringify(kept).length > MAX_KEPT ? undefined : kept;
  }
}

function notice(message: string): ProgramProviderEvent {
  return { type: "notice", code: "ai_sdk", message: message.slice(0, MAX_NOTICE) };
}

/** Returns the name of the model that answers. Servers leave it empty, which must not cost the turn: then the asked one counts. */
function nameOf(modelId: unknown): string | undefined {
  return typeof modelId === "string" && modelId !== "" && modelId.length <= MAX_NAME ? modelId : undefined;
}

/** Returns what the model says of the call's settings, in one sentence. */
function noticeOf(warnings: unknown): readonly ProgramProviderEvent[] {
  if (!Array.isArray(warnings) || warnings.length === 0) return [];
  const told = warnings.filter(isRecord).map(({ type, feature, setting, message, details }) =>
    [type, feature ?? setting ?? message, details].filter((word) => typeof word === "string").join(" ")
  );
  return [notice(`The model warns: ${told.join("; ")}`)];
}

/** Returns the tokens of a turn. undefined where a count is missing: the gateway estimates them. */
function toUsage(usage: unknown): Finish["usage"] {
  if (!isRecord(usage)) return undefined;
  const { inputTokens: input, outputTokens: output } = usage;
  const [prompt_tokens, completion_tokens] = [countOf(input), countOf(output)];
  if (prompt_tokens === undefined || completion_tokens === undefined) return undefined;
  const cached = countOf(isRecord(input) ? input["cacheRead"] : usage["cachedInputTokens"]);
  const reasoning = countOf(isRecord(output) ? output["reasoning"] : usage["reasoningTokens"]);
  return {
    prompt_tokens,
    completion_tokens,
    ...(cached === undefined ? {} : { prompt_tokens_details: { cached_tokens: cached } }),
    ...(reasoning === undefined ? {} : { completion_tokens_details: { reasoning_tokens: reasoning } }),
  };
}

function countOf(value: unknown): number | undefined {
  const count = isRecord(value) ? value["total"] : value;
  return typeof count === "number" && Number.isInteger(count) && count >= 0 ? count : undefined;
}

/** Fields of an APICallError of the AI SDK. */
type AiSdkErrorFields = Partial<
  Record<"statusCode" | "responseBody" | "responseHeaders" | "isRetryable", unknown>
>;

/** Returns an error of a call by HTTP as that of any upstream, and any other one as it is. The AI SDK marks its errors by name. */
async function toProviderError(error: unknown, provider: string): Promise<unknown> {
  if (error instanceof ProviderError || !(error instanceof Error)) return error;
  // Any error may have fields of these names
  const { statusCode, responseBody, responseHeaders, isRetryable } = error as Error & AiSdkErrorFields;
  if (typeof statusCode === "number") {
    const { toUpstreamError } = await import("./upstream/upstream_error.ts");
    const keySource = "the key that the program made its model with";
    const header = (name: string) =>
      isRecord(responseHeaders) ? String(responseHeaders[name] ?? "") || undefined : undefined;
    return toUpstreamError(
      { name: provider, keySource, key: undefined, now: () => Number.NaN },
      { status: statusCode, body: typeof responseBody === "string" ? responseBody : "", header },
    );
  }
  // A connection that failed has no status
  if (isRetryable !== true) return error;
  return new ProviderError("provider_error", `Provider "${provider}" could not be reached`, {
    ...{ provider, retryable: true, cause: error },
  });
}
