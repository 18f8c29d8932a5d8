import { hash } from "node:crypto";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ProviderError } from "../../base/errors.ts";
import { firstBytes } from "../../base/text.ts";
import { lazily } from "../../base/lazily.ts";
import { type Message, textOf } from "../../base/records/message.ts";
import type { FinishReason } from "../../base/records/agent_event.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import type { Usage } from "../../base/records/usage.ts";
import type { OfflineCall, OfflineReply } from "./offline_reply.ts";
import { type ModelParameters, parameterIgnored, type Provider, type ProviderRequest } from "../provider.ts";

const PIECE_CHARS = 24;
const MAX_PIECES = 64;

/** The clock, the help texts, and whether another model is in use. */
export interface OfflineOptions {
  readonly now: Clock["now"];
  /** Text of each command's `--help`, by its name. Default: none */
  readonly help?: (() => Promise<ReadonlyMap<string, string>>) | undefined;
  /** Tells whether the agent has a tool that is off: a call of it is answered with the way to turn it on. Default: it has none */
  readonly isToolOff?: ((name: string) => boolean) | undefined;
  /** Tells whether another model is in use: answers then do not say how to connect one. Default: none is in use */
  readonly hasModel?: (() => boolean) | undefined;
}

/**
 * Creates the embedded default provider. It has no model and says so. It searches with the agent's read tools, knows Postern's own
 * documentation, and quotes what it finds.
 *
 * Takes any model name: resolve_model.ts decides which names reach it. The same request gives the same events, except for
 * the time of day. `max_tokens` counts four bytes as a token, usage is estimated likewise; `stop` and `response_format` of type
 * `json_object` (`{"answer": text}`) are honoured.
 * @throws {ProviderError} `provider_rejected` for a `json_schema` format: nothing here can follow a schema
 * Source: docs/design/providers.md "Offline assistant"
 */
export function createOfflineProvider(
  { now, help, isToolOff = () => false, hasModel = () => false }: OfflineOptions,
): Provider {
  const documentation = lazily(async () => (await import("./documentation.ts")).readDocumentation(help));
  return {
    name: "offline",
    toolsAreFree: true,
    async *stream(request, { signal }) {
      if (signal.aborted) throw cancelError(signal);
      refuseSchema(request.parameters);
      const { passed } = request.parameters;
      if (passed !== undefined) yield passed.names.map(parameterIgnored);
      const { offlineReply } = await import("./offline_reply.ts");
      const reply = await offlineReply(request, { now, documentation, isToolOff, hints: !hasModel() });
      for (const events of toArrays(request, reply)) {
        yield events;
        if (signal.aborted) throw cancelError(signal);
      }
    },
    listModels: () => Promise.resolve([{ id: "assistant", object: "model", created: 0, owned_by: "postern" }]),
    close: () => Promise.resolve(),
  };
}

function refuseSchema(parameters: ModelParameters): void {
  if (parameters.response_format?.["type"] !== "json_schema") return;
  throw new ProviderError(
    "provider_rejected",
    'Cannot honour response_format "json_schema": the offline provider has no model, connect one or ask for "json_object"',
    { provider: "offline", status: 400, upstreamCode: "unsupported_parameter", param: "response_format" },
  );
}

function* toArrays(request: ProviderRequest, reply: OfflineReply): Generator<readonly ProviderEvent[]> {
  const promptBytes = sizeOf(request);
  if (reply.kind === "calls") {
    const calls = reply.calls.map((call, index) => toEvent(call, index, request.messages));
    yield calls;
    yield [finish("tool_calls", request, promptBytes, bytesOf(JSON.stringify(reply.calls)))];
    return;
  }
  const { text, reason } = bounded(reply.text, request.parameters);
  for (const piece of pieces(text)) yield [{ type: "text_delta", delta: piece }];
  yield [finish(reason, request, promptBytes, bytesOf(text))];
}

function toEvent(call: OfflineCall, index: number, messages: readonly Message[]): ProviderEvent {
  // Bound to the conversation so far: equal requests give equal ids, and no id comes twice within a conversation
  const id = hash("sha256", JSON.stringify([messages, index])).slice(0, 24);
  return { type: "tool_call_delta", index, call_id: `call_${id}`, name: call.name, arguments_delta: call.arguments };
}

function finish(
  reason: FinishReason,
  request: ProviderRequest,
  promptBytes: number,
  replyBytes: number,
): ProviderEvent {
  const prompt = Math.ceil(promptBytes / 4);
  const completion = Math.ceil(replyBytes / 4);
  const usage: Usage = {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    estimated: true,
    estimated_by: "bytes",
  };
  return { type: "finish", finish_reason: reason, usage, model: request.model === "" ? "assistant" : request.model };
}

function bounded(answer: string, parameters: ModelParameters): { text: string; reason: FinishReason } {
  const json = parameters.response_format?.["type"] === "json_object";
  const text = cutAtStop(json ? JSON.stringify({ answer }) : answer, parameters.stop);
  const maxTokens = parameters.max_completion_tokens ?? parameters.max_tokens;
  const first = maxTokens === undefined ? text : firstBytes(text, maxTokens * 4);
  return { text: first, reason: first === text ? "stop" : "length" };
}

function cutAtStop(text: string, stop: ModelParameters["stop"]): string {
  const sequences = (typeof stop === "string" ? [stop] : stop ?? []).filter((sequence) => sequence !== "");
  const found = sequences.map((sequence) => text.indexOf(sequence)).filter((at) => at >= 0);
  return found.length === 0 ? text : text.slice(0, Math.min(...found));
}

/** Small pieces that end after white space where they can, so that a reader sees the reply arrive. */
function* pieces(text: string): Generator<string> {
  const size = Math.max(PIECE_CHARS, Math.ceil(text.length / MAX_PIECES));
  let start = 0;
  while (start < text.length) {
    let end = start + size;
    while (end < text.length && end < start + 2 * size && !/\s/.test(text.charAt(end - 1))) end++;
    if (/[\uD800-\uDBFF]/.test(text.charAt(end - 1))) end++;
    yield text.slice(start, end);
    start = end;
  }
}

function sizeOf(request: ProviderRequest): number {
  let bytes = request.tools.length === 0 ? 0 : bytesOf(JSON.stringify(request.tools));
  for (const message of request.messages) {
    bytes += bytesOf(textOf(message.content));
    if (message.role === "assistant" && message.tool_calls) bytes += bytesOf(JSON.stringify(message.tool_calls));
  }
  return bytes;
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}
