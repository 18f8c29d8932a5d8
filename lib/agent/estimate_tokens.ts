import { lazily } from "../base/lazily.ts";
import { isImagePart, isTextPart, type Message, textOf } from "../base/records/message.ts";
import type { Usage } from "../base/records/usage.ts";
import {
  type ModelParameters,
  type ProviderRequest,
  thinkingTokens,
  type ToolDeclaration,
} from "../providers/provider.ts";

/** Tokens counted for an image, whether sent as URL or as data: more than common models count. */
const IMAGE_TOKENS = 4096;
/** The same as bytes of a window, for 1,600 tokens: what a picture costs that fills the resolution of common models */
const PICTURE_BYTES = 6400;
/** A tool result of 200 characters with the line that says so, and its envelope */
const SHORTENED_RESULT_TOKENS = 120;
/** Tokens that the common chat templates put around a message */
const MESSAGE_TOKENS = 4;
/** Bytes that the formats put around a tool, and around both lists */
const TOOL_ENVELOPE = 64;
const LIST_ENVELOPES = 16;
/** Tokens of the vendors' own instructions about tools, which the gateway never sees */
const TOOL_USE_TOKENS = 400;

/** Bytes a request's messages and tools take as JSON: an upper bound of the tokens of its text, since one token is at least one byte. */
export function inputBytes(messages: readonly Message[], tools: readonly ToolDeclaration[]): number {
  let bytes = tools.length === 0 ? 0 : Buffer.byteLength(JSON.stringify(tools));
  for (const message of messages) bytes += messageBytes(message);
  return bytes;
}

/** Bytes of the text that is sent whatever else is shortened or left out: that of the last message. */
export function lastBytes(messages: readonly Message[]): number {
  return Buffer.byteLength(textOf(messages.at(-1)?.content ?? null));
}

/** Bytes of one message as JSON, with a flat sum for each picture in place of its own bytes. */
export function messageBytes(message: Message): number {
  const images = imagesOf(message);
  const own = images.reduce((sum, { image_url: { url } }) => sum + Buffer.byteLength(url), 0);
  return Buffer.byteLength(JSON.stringify(message)) - own + (images.length + picturesOf(message)) * PICTURE_BYTES;
}

function imagesOf({ content }: Message) {
  return Array.isArray(content) ? content.filter(isImagePart) : [];
}

/** Number of parts that are no text, as pictures and files: each has at least the tokens of a page. */
function attachedTo({ content }: Message): number {
  return Array.isArray(content) ? content.filter((part) => !isTextPart(part) && part.type !== "refusal").length : 0;
}

function picturesOf(message: Message): number {
  return message.role === "tool" ? message.pictures?.length ?? 0 : 0;
}

/** Tokens messages take, as a window is counted: bytes/4. */
export function messageTokens(messages: readonly Message[]): number {
  return messages.reduce((sum, message) => sum + toTokens(messageBytes(message)), 0);
}

/** The same with tool results cut as far as `fitContext` cuts them before it leaves anything out. */
export function shortenedTokens(messages: readonly Message[]): number {
  return messages.reduce((sum, message) => {
    const tokens = toTokens(messageBytes(message));
    return sum + (message.role === "tool" ? Math.min(tokens, SHORTENED_RESULT_TOKENS) : tokens);
  }, 0);
}

/** Upper bound of the tokens a request's input may cost: its bytes, and a flat sum for each image in place of those. */
export function maxInputTokens({ messages, tools, parameters }: ProviderRequest): number {
  let tokens = inputBytes(messages, tools) + messages.length + LIST_ENVELOPES;
  if (tools.length > 0) tokens += tools.length * TOOL_ENVELOPE + TOOL_USE_TOKENS;
  for (const message of messages) {
    tokens += (imagesOf(message).length + picturesOf(message)) * (IMAGE_TOKENS - PICTURE_BYTES);
  }
  const { response_format: format, passed } = parameters;
  if (passed !== undefined) tokens += Buffer.byteLength(JSON.stringify(passed.body));
  // The body that is sent counts where it is larger: it may have parts that the messages do not
  if (passed?.sent !== undefined) {
    tokens = Math.max(tokens, Buffer.byteLength(JSON.stringify(passed.sent.body, noData)));
  }
  return format === undefined ? tokens : tokens + Buffer.byteLength(JSON.stringify(format));
}

/** Leaves out the bytes of pictures and files, which are counted by a flat sum. */
function noData(name: string, value: unknown): unknown {
  return name === "data" && typeof value === "string" ? "" : value;
}

/** Upper bound of what the model may say beyond the output limit: some vendors let it think on top of it. */
export function maxThinkingTokens({ reasoning_effort: effort }: ModelParameters): number {
  return effort === undefined ? 0 : thinkingTokens(effort);
}

/** Characters that a token of text has at most on average, of code with deep indents too, and those that a short reply may have beyond that. */
const LONGEST_TOKEN = 8;
const SHORT_REPLY = 256;

/** Returns tokens of output that a reply within its limit has at most, with its thinking. undefined: the request has no limit */
export function mostOutput(parameters: ModelParameters): number | undefined {
  const limit = parameters.max_completion_tokens ?? parameters.max_tokens;
  return limit === undefined ? undefined : limit + maxThinkingTokens(parameters);
}

/** Returns characters that no reply within its limit of output has. undefined: the request has no limit */
export function longestReply(parameters: ModelParameters): number | undefined {
  const most = mostOutput(parameters);
  return most === undefined ? undefined : most * LONGEST_TOKEN + SHORT_REPLY;
}

/** Tokens as bytes/4, rounded up: the common rule of thumb, marked `estimated` wherever it is shown. */
export function toTokens(bytes: number): number {
  return Math.ceil(bytes / 4);
}

/** Tokens of a request's input by a counter, which sees its text alone, and of a very long input its first part. */
export function countInput({ messages, tools }: ProviderRequest, counter: TokenCounter): number {
  const count = withTotal(counter);
  let tokens = tools.length === 0 ? 0 : count(JSON.stringify(tools));
  for (const message of messages) {
    tokens += MESSAGE_TOKENS + count(textOf(message.content));
    tokens += (attachedTo(message) + picturesOf(message)) * toTokens(PICTURE_BYTES);
    if (message.role !== "assistant") continue;
    for (const { function: called } of message.tool_calls ?? []) tokens += count(`${called.name} ${called.arguments}`);
  }
  return tokens;
}

/**
 * The usage of a call whose provider reports none, by a tokenizer where one is installed, else bytes/4; marked.
 * @param countOutput tokens of what the model said
 */
export async function estimateUsage(
  request: ProviderRequest,
  countOutput: (count: TokenCounter) => number,
): Promise<Usage> {
  const counter = await loadTokenCounter(request.model);
  const prompt = counter === undefined
    ? toTokens(inputBytes(request.messages, request.tools))
    : countInput(request, counter);
  const completion = countOutput(counter === undefined ? countBytes : withTotal(counter));
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    estimated: true,
    estimated_by: counter === undefined ? "bytes" : "tokenizer",
  };
}

function countBytes(text: string): number {
  return toTokens(Buffer.byteLength(text));
}

/**
 * Makes a counter for many texts. Those beyond the total are taken to be like the ones before, and no shorter than bytes/4: what was
 * counted may have been chosen to look cheap.
 */
function withTotal(count: TokenCounter): TokenCounter {
  let left = MAX_COUNTED_TOTAL;
  let chars = 0;
  let tokens = 0;
  return (text) => {
    const share = Math.min(text.length, MAX_COUNTED_CHARS);
    if (share > left) return Math.max(countBytes(text), Math.ceil(text.length * (tokens / chars)));
    left -= share;
    chars += text.length;
    const own = count(text);
    tokens += own;
    return own;
  };
}

/** Tokens of a text, by a vocabulary; close to what the model counts, and bounded in time. */
export type TokenCounter = (text: string) => number;

/** Characters given to the vocabulary in one piece: a run without a break costs the square of its length. */
const PIECE_CHARS = 256;
/** Characters of one text that are really counted; the rest is taken to be like them. */
const MAX_COUNTED_CHARS = 32_768;
/** Characters that are really counted of all texts of an input, or of an output: some tenths of a second for the worst of texts. */
const MAX_COUNTED_TOTAL = 16 * MAX_COUNTED_CHARS;
/** Models of the older vocabulary; every other name gets the newer one, which is nearer to most models than bytes are. */
const OLDER_MODELS = /^(?:.*\/)?(?:gpt-4(?!o|\.[1-9])|gpt-3\.5|text-embedding-)/;

const older = lazily(() => load(() => import("gpt-tokenizer/encoding/cl100k_base")));
const newer = lazily(() => load(() => import("gpt-tokenizer/encoding/o200k_base")));

/**
 * The counter for a model, loaded when it is first needed; undefined where the optional package `gpt-tokenizer` is not installed.
 *
 * Vocabulary `cl100k_base` for gpt-4 and gpt-3.5, `o200k_base` for all others. Text that looks like a special token counts as text.
 */
export function loadTokenCounter(model: string): Promise<TokenCounter | undefined> {
  return OLDER_MODELS.test(model) ? older() : newer();
}

interface Encoding {
  countTokens(text: string, options: { readonly disallowedSpecial: Set<string> }): number;
}

async function load(read: () => Promise<Encoding>): Promise<TokenCounter | undefined> {
  try {
    const { countTokens } = await read();
    const options = { disallowedSpecial: new Set<string>() };
    return (text) => {
      const counted = text.length > MAX_COUNTED_CHARS ? text.slice(0, MAX_COUNTED_CHARS) : text;
      let tokens = 0;
      for (let start = 0; start < counted.length;) {
        const end = pieceEnd(counted, start);
        tokens += countTokens(counted.slice(start, end), options);
        start = end;
      }
      return counted.length === text.length ? tokens : Math.ceil(tokens * (text.length / counted.length));
    };
  } catch {
    return undefined;
  }
}

/** Before a space where there is one, since a word's token begins with it. */
function pieceEnd(text: string, start: number): number {
  const end = start + PIECE_CHARS;
  if (end >= text.length) return text.length;
  const space = text.lastIndexOf(" ", end);
  return space > start + PIECE_CHARS / 2 ? space : end;
}
