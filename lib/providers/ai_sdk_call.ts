import * as v from "valibot";
import { ProviderError } from "../base/errors.ts";
import { isRecord } from "../base/json.ts";
import { type Content, type ContentPart, isImagePart, isTextPart, textOf } from "../base/records/message.ts";
import { readDataUrl, splitPictures } from "./picture_parts.ts";
import type { ProgramMessage, ProgramProviderRequest } from "./program_provider.ts";

/** Model of the AI SDK that a call is made for. */
export interface CalledModel {
  readonly specificationVersion: string;
  readonly provider: string;
}

type Part = Readonly<Record<string, unknown>>;
type ToolMessage = Extract<ProgramMessage, { role: "tool" }>;
type AssistantMessage = Extract<ProgramMessage, { role: "assistant" }>;

/** Metadata of a turn that its model wants back, as signatures of its reasoning. It travels as `opaque`. */
export const keptTurnSchema = v.object({
  /** Provider that gave it: another one has nothing for it */
  ai_sdk: v.string(),
  reasoning: v.array(v.object({ text: v.string(), providerOptions: v.unknown() })),
  /** Metadata of the text. Default: none */
  text: v.optional(v.unknown()),
  /** Metadata of the tool calls by their ids */
  calls: v.record(v.string(), v.unknown()),
});

const NOTHING_KEPT: v.InferOutput<typeof keptTurnSchema> = { ai_sdk: "", reasoning: [], calls: {} };

/** Efforts that models of specification v4 take. */
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/**
 * Returns a request as the AI SDK hands it to a language model of specification v2, v3 or v4. What the specification has no field for, as
 * `user`, is left out.
 * @throws {ProviderError} `provider_rejected` for a part of a message that it has nothing for
 * Source: https://github.com/vercel/ai/tree/main/packages/provider/src/language-model
 */
export function toAiSdkCall(request: ProgramProviderRequest, model: CalledModel, abortSignal: AbortSignal): Part {
  const { messages, tools, toolChoice, parameters } = request;
  const { max_tokens, max_completion_tokens = max_tokens, stop, response_format, reasoning_effort = "" } = parameters;
  const names = new Map(
    messages.flatMap((message) => message.role === "assistant" ? message.tool_calls ?? [] : []).map((
      call,
    ) => [call.id, call.function.name]),
  );
  return {
    prompt: messages.map((message) => toMessage(message, { request, model, names })),
    maxOutputTokens: max_completion_tokens,
    temperature: parameters.temperature,
    topP: parameters.top_p,
    stopSequences: typeof stop === "string" ? [stop] : stop,
    presencePenalty: parameters.presence_penalty,
    frequencyPenalty: parameters.frequency_penalty,
    seed: parameters.seed,
    responseFormat: toFormat(response_format),
    ...(EFFORTS.includes(reasoning_effort) ? { reasoning: reasoning_effort } : {}),
    ...(tools.length === 0 ? {} : {
      tools: tools.map((
        { name, description, parameters: inputSchema = { type: "object", properties: {} }, strict },
      ) => ({
        ...{ type: "function", name, description, inputSchema },
        ...(strict === undefined ? {} : { strict }),
      })),
      toolChoice: typeof toolChoice === "object"
        ? { type: "tool", toolName: toolChoice.name }
        : { type: toolChoice ?? "auto" },
    }),
    abortSignal,
  };
}

function toFormat(format: Part | undefined): Part | undefined {
  if (format === undefined) return undefined;
  if (format["type"] === "json_object") return { type: "json" };
  const { json_schema: given } = format;
  if (format["type"] !== "json_schema" || !isRecord(given)) return { type: "text" };
  return { type: "json", schema: given["schema"], name: given["name"], description: given["description"] };
}

interface MessageParts {
  readonly request: ProgramProviderRequest;
  readonly model: CalledModel;
  /** Names of the tools by the ids of their calls */
  readonly names: ReadonlyMap<string, string>;
}

function toMessage(message: ProgramMessage, parts: MessageParts): Part {
  switch (message.role) {
    case "system":
    case "developer":
      return { role: "system", content: textOf(asContent(message.content)) };
    case "user":
      return { role: "user", content: toParts(asContent(message.content), parts.model) };
    case "assistant":
      return { role: "assistant", content: toAssistantParts(message, parts.model) };
    case "tool":
      return { role: "tool", content: [toResult(message, parts)] };
  }
}

/** The types of the package say the same as those of the schemas: a test compares them. */
function asContent(content: ProgramMessage["content"]): Content {
  return (content ?? "") as Content; // see above
}

function toParts(content: Content, model: CalledModel): readonly Part[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return content.map((part) => toPart(part, model));
}

function toPart(part: ContentPart, model: CalledModel): Part {
  if (isTextPart(part)) return { type: "text", text: part.text };
  if (part.type === "refusal") return { type: "text", text: String(part["refusal"] ?? "") };
  if (isImagePart(part)) return toFile(part.image_url.url, model);
  const { file, input_audio: audio } = part as Part; // any part that the client sent
  if (isRecord(file) && typeof file["file_data"] === "string") return toFile(file["file_data"], model);
  if (isRecord(audio) && typeof audio["data"] === "string") {
    return toFile(`data:audio/${audio["format"]};base64,${audio["data"]}`, model);
  }
  throw new ProviderError("provider_rejected", `Cannot send a content part of type "${part.type}" to the AI SDK`, {
    ...{ provider: model.provider, status: 400, param: "messages" },
  });
}

function toFile(address: string, { specificationVersion, provider }: CalledModel): Part {
  const held = readDataUrl(address);
  const url = held === undefined ? URL.parse(address) : null;
  if (held === undefined && url === null) {
    throw new ProviderError("provider_rejected", "Cannot send a picture: its address is no URL", {
      ...{ provider, status: 400, param: "messages" },
    });
  }
  const data = specificationVersion !== "v4"
    ? held?.data ?? url
    : held === undefined
    ? { type: "url", url }
    : { type: "data", data: held.data };
  return { type: "file", mediaType: held?.media_type ?? "image/*", data };
}

function toAssistantParts(message: AssistantMessage, { provider }: CalledModel): readonly Part[] {
  const kept = Object.values(message.opaque ?? {}).map((value) => v.safeParse(keptTurnSchema, value))
    .find((one) => one.success && one.output.ai_sdk === provider);
  const { reasoning, text: textOptions, calls } = kept?.success === true ? kept.output : NOTHING_KEPT;
  const optionsOf = (given: unknown) => given === undefined ? {} : { providerOptions: given };
  const text = textOf(asContent(message.content)) || (message.refusal ?? "");
  return [
    ...reasoning.map((part) => ({ type: "reasoning", ...part })),
    ...(text === "" ? [] : [{ type: "text", text, ...optionsOf(textOptions) }]),
    ...(message.tool_calls ?? []).map(({ id, function: { name, arguments: given } }) => ({
      ...{ type: "tool-call", toolCallId: id, toolName: name, input: toInput(given) },
      ...optionsOf(Object.hasOwn(calls, id) ? calls[id] : undefined),
    })),
  ];
}

/** Returns the input of a call. Vendors take objects alone: what the model wrote as none is an empty one. */
function toInput(text: string): unknown {
  try {
    const input: unknown = JSON.parse(text);
    return isRecord(input) ? input : {};
  } catch {
    return {};
  }
}

function toResult(message: ToolMessage, { request, model: { specificationVersion }, names }: MessageParts): Part {
  // As asContent
  const { shown, plain } = splitPictures(
    { ...message, content: asContent(message.content) } as Parameters<
      typeof splitPictures
    >[0],
    request.pictures,
  );
  const text = textOf(plain.content);
  const pictures = shown.map(({ media_type: mediaType, base64: data }) =>
    specificationVersion === "v4"
      ? { type: "file", mediaType, data: { type: "data", data } }
      : { type: specificationVersion === "v3" ? "image-data" : "media", mediaType, data }
  );
  return {
    type: "tool-result",
    toolCallId: message.tool_call_id,
    toolName: names.get(message.tool_call_id) ?? "unknown",
    output: message.is_error === true
      ? { type: "error-text", value: text }
      : pictures.length === 0
      ? { type: "text", value: text }
      : { type: "content", value: [{ type: "text", text }, ...pictures] },
  };
}
