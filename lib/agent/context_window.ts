import { ProviderError } from "../base/errors.ts";
import { isImagePart, type Message, textOf } from "../base/records/message.ts";
import type { ProviderEvent } from "../base/records/provider_event.ts";
import { describePicture } from "../providers/picture_parts.ts";
import type { Provider, ProviderCallOptions, ProviderRequest } from "../providers/provider.ts";
import { inputBytes, messageBytes, messageTokens, toTokens } from "./estimate_tokens.ts";
import { outputLimit } from "./token_budget.ts";

/** A request, and what it took to make its messages fit the context window. */
export interface FittedRequest {
  readonly request: ProviderRequest;
  readonly shortened: number;
  readonly dropped: number;
}

/**
 * A request whose messages leave room for its tools and for the reply: what the client allows, a quarter of the window at most.
 * @param fixed how many of the first messages belong to a client that keeps its own history: they are never cut
 */
export function fitRequest(request: ProviderRequest, windowTokens: number, fixed: number): FittedRequest {
  const fitted = fitContext(request.messages, windowTokens - tokensAround(request, windowTokens), fixed);
  return { ...fitted, request: { ...request, messages: fitted.messages } };
}

/**
 * Refuses what is longer than the window although nothing more may be cut. Counts the text alone: images, tools and envelopes differ
 * too much between models to refuse a request for them.
 * @throws {ProviderError} `provider_rejected` with the code `context_length_exceeded`
 */
export function checkLength(messages: readonly Message[], windowTokens: number): void {
  let bytes = 0;
  for (const message of messages) {
    bytes += Buffer.byteLength(textOf(message.content));
    if (message.role !== "assistant") continue;
    for (const { function: called } of message.tool_calls ?? []) bytes += Buffer.byteLength(called.arguments);
  }
  const tokens = toTokens(bytes);
  if (tokens > windowTokens) throw contextLengthExceeded(tokens, windowTokens);
}

/** The refusal of a history that is too long, in the words that clients of OpenAI look for. */
function contextLengthExceeded(tokens: number, windowTokens: number): ProviderError {
  const message =
    `This model's maximum context length is ${windowTokens} tokens. However, your messages resulted in about ` +
    `${tokens} tokens: reduce the length of the messages`;
  return new ProviderError("provider_rejected", message, {
    provider: "none",
    status: 400,
    upstreamCode: "context_length_exceeded",
    param: "messages",
  });
}

/** Tokens of a window that a request takes, by the measure it is fitted with. */
export function requestTokens(request: ProviderRequest): number {
  return messageTokens(request.messages) + tokensAround(request, 0);
}

/**
 * Returns the notice that tells the reader what was cut from a request.
 * @param isGuess the provider refused the whole of it without a reason. Default false
 */
export function trimNotice({ shortened, dropped }: FittedRequest, isGuess = false) {
  const why = isGuess ? "Since the provider refused a long request without a reason" : "To fit the context window";
  const message = `${why}, ${shortened} tool results were shortened and ${dropped} messages left out`;
  return { type: "notice", code: "history_trimmed", message, count: shortened + dropped } as const;
}

/**
 * Tokens of a window that are not for messages: those of the tools, and of the reply as far as it is left room for.
 * @param windowTokens 0: unknown
 */
export function tokensAround(
  { parameters, tools }: Pick<ProviderRequest, "parameters" | "tools">,
  windowTokens: number,
): number {
  const output = outputLimit(parameters, windowTokens);
  return toTokens(inputBytes([], tools)) + (windowTokens > 0 ? Math.min(output, Math.ceil(windowTokens / 4)) : output);
}

/** Messages that fit, and what it took. */
export interface FittedContext {
  readonly messages: readonly Message[];
  /** Tool results that were shortened */
  readonly shortened: number;
  /** Messages that were left out */
  readonly dropped: number;
}

/** Tool results are cut to these lengths in characters, one after the other, before any turn is dropped. */
const RESULT_CHARACTERS = [4000, 1000, 200] as const;

/**
 * Makes a history fit the model's window, estimated as bytes/4.
 *
 * Pictures become a line of text first, those of the newest step excepted; then tool results are shortened, the oldest first; then whole turns go from the middle, the oldest after the first one first, and
 * at last the finished steps of the running turn; a marker stands where they were. System messages and the last user message stay
 * as they are; what still does not fit is left to the model to refuse.
 * Source: docs/design/runs.md "Conversations"
 * @param maxTokens tokens the messages may take
 * @param fixed how many of the first messages stay as they are, whatever they take. Default 0
 */
export function fitContext(messages: readonly Message[], maxTokens: number, fixed = 0): FittedContext {
  const sizes = new Map<Message, number>();
  const size = (message: Message) => {
    const known = sizes.get(message) ?? toTokens(messageBytes(message));
    sizes.set(message, known);
    return known;
  };
  let total = messages.reduce((sum, message) => sum + size(message), 0);
  if (total <= maxTokens) return { messages, shortened: 0, dropped: 0 };

  const kept = [...messages];
  const shortened = new Set<number>();
  const lastUser = kept.findLastIndex(({ role }) => role === "user");
  const latest = kept.findLastIndex(({ role }) => role !== "tool");
  for (let i = fixed; i < latest && total > maxTokens; i++) {
    const message = kept[i] as Message; // the index is below the length
    const plain = i === lastUser ? message : withoutPictures(message);
    if (plain === message) continue;
    total += size(plain) - size(message);
    kept[i] = plain;
    shortened.add(i);
  }
  for (const limit of RESULT_CHARACTERS) {
    for (let i = fixed; i < kept.length && total > maxTokens; i++) {
      const message = kept[i];
      if (message?.role !== "tool") continue;
      const text = textOf(message.content);
      if (text.length <= limit + 100) continue;
      const short: Message = { ...message, content: shorten(text, limit) };
      total += size(short) - size(message);
      kept[i] = short;
      shortened.add(i);
    }
  }
  let dropped = 0;
  let marked = -1;
  for (const group of droppable(kept, fixed)) {
    if (total <= maxTokens) break;
    for (const i of group) {
      total -= size(kept[i] as Message); // group indexes `kept`
      dropped++;
      delete kept[i];
    }
    const at = group[0] as number; // groups are never empty
    if (marked < 0 || at < marked) marked = at;
  }
  if (marked >= 0) {
    kept[marked] = {
      role: "user",
      content:
        `[Postern] ${dropped} earlier messages were left out here, because the conversation outgrew the model's context window.`,
    };
  }
  return { messages: kept.filter((message) => message !== undefined), shortened: shortened.size, dropped };
}

/** Puts a line of text in the place of a message's pictures. The message itself when it has none. */
function withoutPictures(message: Message): Message {
  if (message.role === "tool" && message.pictures !== undefined) {
    const { pictures, frame: _, ...rest } = message;
    const lines = pictures.map((picture) => `[Postern] ${describePicture(picture)} was left out here.`);
    return { ...rest, content: [textOf(message.content), ...lines].join("\n") };
  }
  if (message.role !== "user" || typeof message.content === "string" || !message.content.some(isImagePart)) {
    return message;
  }
  const left = { type: "text", text: "[Postern] A picture was left out here." } as const;
  return { ...message, content: message.content.map((part) => isImagePart(part) ? left : part) };
}

/** Groups of indexes that may go, in the order in which they go: whole turns, or a call together with its results. */
function droppable(messages: readonly Message[], fixed: number): readonly (readonly number[])[] {
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  const turns: number[][] = [];
  const steps: number[][] = [];
  messages.forEach((message, i) => {
    if (i < fixed || message.role === "system" || message.role === "developer" || i === lastUser) return;
    const into = i < lastUser ? turns : steps;
    const starts = i < lastUser ? message.role === "user" : message.role === "assistant";
    if (starts || into.length === 0) into.push([i]);
    else into.at(-1)?.push(i);
  });
  const [first, ...middle] = turns;
  // The newest step is what the model is about to answer
  return [...middle, ...(first === undefined ? [] : [first]), ...steps.slice(0, -1)];
}

/** A window to ask again in, after a refusal. */
export interface WindowLesson {
  /** Tokens by the measure requests are fitted with */
  readonly window: number;
  /** Runs when the shorter request was taken, where the refusal named no reason. undefined: the refusal said that it was too long */
  readonly taken?: (() => void) | undefined;
}

/** How a fitting provider learns, and what it may cut. */
export interface FittingOptions {
  /**
   * Returns what a refusal teaches; undefined when the request was not too long.
   * @param tokens those of the refused request, by the measure requests are fitted with
   */
  readonly learn: (error: ProviderError, tokens: number) => Promise<WindowLesson | undefined>;
  /** Returns how many of a request's first messages are never cut; called when a request was refused */
  readonly fixed: () => number;
}

/**
 * A provider that is asked once more, with a request that fits, when it refuses one as too long for its window, or refuses a long one
 * without a reason. A second refusal is the reader's to see.
 */
export function createFittingProvider(provider: Provider, options: FittingOptions): Provider {
  return {
    name: provider.name,
    stream: (request, call) => ({
      [Symbol.asyncIterator]: () => new FittingIterator(provider, { request, call, ...options }),
    }),
    listModels: (signal) => provider.listModels(signal),
    sees: provider.sees,
    close: () => provider.close(),
  };
}

type Result = IteratorResult<readonly ProviderEvent[], undefined>;

interface FittingCall extends FittingOptions {
  readonly request: ProviderRequest;
  readonly call: ProviderCallOptions;
}

/** Stands in the way of the first array alone: all others are handed on as they come. */
class FittingIterator implements AsyncIterator<readonly ProviderEvent[], undefined> {
  #inner: AsyncIterator<readonly ProviderEvent[]>;
  #begun = false;
  readonly #provider: Provider;
  readonly #call: FittingCall;

  constructor(provider: Provider, call: FittingCall) {
    this.#provider = provider;
    this.#call = call;
    this.#inner = this.#ask(call.request);
  }

  next(): Promise<Result> {
    // Any result after the first ends or goes on as the provider's does
    if (this.#begun) return this.#inner.next() as Promise<Result>;
    this.#begun = true;
    return this.#first();
  }

  async return(): Promise<Result> {
    await this.#inner.return?.();
    return { done: true, value: undefined };
  }

  #ask(request: ProviderRequest): AsyncIterator<readonly ProviderEvent[]> {
    return this.#provider.stream(request, this.#call.call)[Symbol.asyncIterator]();
  }

  async #first(): Promise<Result> {
    try {
      return await this.#inner.next() as Result; // its end has no value
    } catch (error) {
      const { request, fixed } = this.#call;
      const lesson = await this.#learn(error, request);
      if (lesson === undefined) throw error;
      const fitted = fitRequest(request, lesson.window, fixed());
      if (fitted.shortened + fitted.dropped === 0) throw error;
      return await this.#again(fitted, lesson);
    }
  }

  async #again(fitted: FittedRequest, lesson: WindowLesson): Promise<Result> {
    this.#inner = this.#ask(fitted.request);
    try {
      const result = await this.#inner.next() as Result; // its end has no value
      lesson.taken?.();
      if (result.done) return result;
      const notice = trimNotice(fitted, lesson.taken !== undefined);
      return { done: false, value: [notice, ...result.value] };
    } catch (error) {
      // The second refusal teaches for the next request
      await this.#learn(error, fitted.request);
      throw error;
    }
  }

  async #learn(error: unknown, request: ProviderRequest): Promise<WindowLesson | undefined> {
    return error instanceof ProviderError ? await this.#call.learn(error, requestTokens(request)) : undefined;
  }
}

/** The head and tail of a text that is longer than `limit` characters, with a line between that says how much is missing. */
export function shorten(text: string, limit: number): string {
  const head = Math.ceil(limit * 0.75);
  const tail = limit - head;
  return `${text.slice(0, head)}\n[Postern] ${text.length - limit} characters were left out here.\n${
    text.slice(text.length - tail)
  }`;
}
