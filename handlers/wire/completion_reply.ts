import { isRecord } from "../../lib/base/json.ts";
import type { HttpError } from "../../lib/base/errors.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { Fields } from "../../lib/base/join_fields.ts";
import { type EventEncoder, restarted } from "./event_stream.ts";
import { errorBody } from "./http_errors.ts";
import type { Usage } from "../../lib/base/records/usage.ts";
import type { CollectedReply } from "./collect_reply.ts";

/** Members that all chunks of one reply share. */
export interface CompletionHead {
  /** `chatcmpl-` and the characters of the run's own id */
  readonly id: string;
  /** Seconds since the epoch */
  readonly created: number;
  readonly model: string;
}

/**
 * Returns the JSON reply of a completion. The JSON is written by hand around its texts: `JSON.stringify` of the whole takes twice as long.
 * `content` is null beside tool calls or a refusal without text.
 * Source: docs/design/completions.md "Replies and streams"
 */
export function completionJson(head: CompletionHead, reply: CollectedReply): string {
  const { text, reasoning, refusal, toolCalls, fields } = reply;
  const content = text === "" && (toolCalls.length > 0 || refusal !== "") ? null : text;
  const thought = reasoning === "" ? "" : `,"reasoning_content":${JSON.stringify(reasoning)}`;
  const calls = toolCalls.length === 0 ? "" : `,"tool_calls":${JSON.stringify(toolCalls)}`;
  const said = `"content":${JSON.stringify(content)},"refusal":${refusal === "" ? null : JSON.stringify(refusal)}`;
  const message = `{"role":"assistant",${said}${thought}${calls}${following(members(fields?.message))}}`;
  const logprobs = fields?.choice?.["logprobs"] === undefined ? `"logprobs":null,` : "";
  const reason = `"finish_reason":"${reply.finishReason}"`;
  const choice = `{"index":0,"message":${message},${logprobs}${reason}${following(members(fields?.choice))}}`;
  const { id, created, model } = head;
  return (
    `{"id":${JSON.stringify(id)},"object":"chat.completion","created":${created},"model":${JSON.stringify(model)},` +
    `"choices":[${choice}],"usage":${usageJson(reply.usage)}${following(members(fields?.reply))}}`
  );
}

/** Returns the JSON of a usage, with the vendor's own figures beside the counts. */
export function usageJson(usage: Usage): string {
  if (usage.vendor === undefined) return JSON.stringify(usage);
  const { vendor, ...known } = usage;
  return JSON.stringify({ ...vendor, ...known });
}

/** Options of `CompletionChunks`. */
export interface CompletionChunksOptions extends CompletionHead {
  /** Model of the first chunk, where a fallback answers from the start. Default: `model` */
  readonly firstModel?: string | undefined;
  /** `stream_options.include_usage`: a last chunk with the usage, and `"usage":null` in the others */
  readonly includeUsage: boolean;
  /** Tells whether an earlier stream of this run may have shown text of a turn that the model answers again. Default: none did */
  readonly interrupts?: ((turn: number) => boolean) | undefined;
  /** The error shape of a run's `error` event */
  readonly toError: (event: Extract<AgentEvent, { type: "error" }>) => HttpError;
}

/**
 * Writes events as chunks of a streamed completion: the role first, deltas, the finish reason, the usage on request, `[DONE]`.
 * A chunk of text is one JSON string between a prefix and a suffix that are made once for each reply. Tool calls of the agent, notices and
 * the like have no place in this format and give no text, but a notice of a fallback changes the chunks' `model`; reasoning goes out as
 * `reasoning_content`. Fields that the gateway does not know stand where the model's vendor has them.
 * Source: the chat-completions streaming format
 * Source: docs/design/completions.md "Replies and streams"
 */
export class CompletionChunks implements EventEncoder {
  ended = false;
  /** Text before the choices of each chunk */
  #head: string;
  /** Begin of a chunk, up to its delta */
  #open: string;
  /** Text before a delta's text, as one flat string: a string made with + would be flattened again for every chunk */
  #content: string;
  readonly #close: string;
  /** Indexes of the client's calls whose id and name were sent; made with the first */
  #told: Set<number> | undefined = undefined;
  #lastDelta = 0;
  #model: string;
  /** Fields of the reply that the gateway does not know: they stand in each chunk */
  #reply: Fields | undefined = undefined;
  /** Members that go into the next chunk, of its delta and of its choice */
  #next = NOTHING;
  readonly #options: CompletionChunksOptions;

  constructor(options: CompletionChunksOptions) {
    this.#options = options;
    this.#model = options.firstModel ?? options.model;
    this.#head = headOf(options, { model: this.#model });
    this.#open = `${this.#head}${DELTA}`;
    this.#content = [this.#open, CONTENT].join("");
    this.#close = options.includeUsage ? CLOSE_WITH_USAGE : CLOSE;
  }

  start(): string {
    return `${this.#open}"role":"assistant",${CONTENT}""${this.#close}`;
  }

  encode(events: readonly AgentEvent[]): string {
    let text = "";
    for (let i = 0; i < events.length && !this.ended; i++) {
      // The index is below the length
      const event = events[i] as AgentEvent;
      switch (event.type) {
        case "text_delta":
          text += this.#next === NOTHING
            ? this.#content + JSON.stringify(event.delta) + this.#close
            : this.#chunk(CONTENT + JSON.stringify(event.delta));
          this.#lastDelta = event.seq;
          break;
        case "reasoning_delta":
          text += this.#chunk(`"reasoning_content":${JSON.stringify(event.delta)}`);
          this.#lastDelta = event.seq;
          break;
        case "refusal_delta":
          text += this.#chunk(`"refusal":${JSON.stringify(event.delta)}`);
          this.#lastDelta = event.seq;
          break;
        case "client_tool_call_delta":
          text += this.#toolCall(event);
          this.#lastDelta = event.seq;
          break;
        case "turn_restart":
          // This format cannot take sent text back, so the stream ends with an error: going on would repeat text
          if (event.from_seq <= this.#lastDelta || this.#options.interrupts?.(event.turn)) {
            const { seq, time } = event;
            text += this.fail(this.#options.toError({ seq, time, type: "error", ...RESTARTED }));
          } else this.#answerBy(this.#options.model);
          break;
        case "notice":
          // From this chunk on another model answers
          if (event.model !== undefined) this.#answerBy(event.model);
          break;
        case "turn_start":
          // A notice names the fallback of each turn, so a turn without a notice is the model's own
          this.#answerBy(this.#options.model);
          break;
        case "reply_fields":
          text += this.#take(event);
          this.#lastDelta = event.seq;
          break;
        case "done":
          text += this.#done(event);
          break;
        case "error":
          text += this.fail(this.#options.toError(event));
          break;
      }
    }
    // Fields of the choice alone came beside the finish reason, so they go into the last chunk
    return this.#next.delta === "" ? text : text + this.#rest();
  }

  fail(error: HttpError): string {
    this.ended = true;
    return `data: ${JSON.stringify(errorBody(error))}\n\ndata: [DONE]\n\n`;
  }

  #answerBy(model: string): void {
    if (model === this.#model) return;
    this.#model = model;
    this.#newHead();
  }

  #newHead(): void {
    this.#head = headOf(this.#options, { model: this.#model, reply: this.#reply });
    this.#open = `${this.#head}${DELTA}`;
    this.#content = [this.#open, CONTENT].join("");
  }

  /** Fields that came with a part of the reply go into the chunk of that part's first delta. */
  #take({ reply, choice, message }: Extract<AgentEvent, { type: "reply_fields" }>): string {
    if (reply !== undefined) {
      this.#reply = { ...this.#reply, ...reply };
      this.#newHead();
    }
    if (choice === undefined && message === undefined) return "";
    const rest = this.#rest();
    this.#next = { delta: members(message), choice: members(choice) };
    return rest;
  }

  /** Returns a chunk with the fields that no delta followed. */
  #rest(): string {
    return this.#next === NOTHING ? "" : this.#chunk("");
  }

  #chunk(said: string): string {
    if (this.#next === NOTHING) return `${this.#open}${said}${this.#close}`;
    const { delta, choice } = this.#next;
    this.#next = NOTHING;
    const usage = this.#options.includeUsage ? NO_USAGE : "";
    return `${this.#open}${list(delta, said)}},${list(`"finish_reason":null`, choice)}}]${usage}}\n\n`;
  }

  #toolCall({ index, call_id, name = "", arguments_delta, extra }: ClientCallDelta): string {
    const told = (this.#told ??= new Set());
    const isFirst = !told.has(index);
    told.add(index);
    const head = isFirst ? `"id":${JSON.stringify(call_id)},"type":"function",` : "";
    const named = isFirst ? `"name":${JSON.stringify(name)},` : "";
    const { own, inner } = extra === undefined ? NO_EXTRA : callMembers(extra);
    const called = `${named}"arguments":${JSON.stringify(arguments_delta)}${inner}`;
    return this.#chunk(`"tool_calls":[{"index":${index},${head}"function":{${called}}${own}}]`);
  }

  #done(event: Extract<AgentEvent, { type: "done" }>): string {
    this.ended = true;
    const { includeUsage } = this.#options;
    const noUsage = includeUsage ? NO_USAGE : "";
    const { delta, choice } = this.#next;
    this.#next = NOTHING;
    const reason = list(`"finish_reason":"${event.finish_reason}"`, choice);
    const last = `${this.#open}${delta}},${reason}}]${noUsage}}\n\n`;
    const usage = includeUsage ? `${this.#head}],"usage":${usageJson(event.usage)}}\n\n` : "";
    return `${last}${usage}data: [DONE]\n\n`;
  }
}

function headOf(
  { id, created }: CompletionHead,
  { model, reply }: { readonly model: string; readonly reply?: Fields | undefined },
): string {
  return [
    `data: {"id":${JSON.stringify(id)},"object":"chat.completion.chunk","created":${created},`,
    `"model":${JSON.stringify(model)},${reply === undefined ? "" : `${members(reply)},`}"choices":[`,
  ].join("");
}

/** The members of a tool call beside the known ones, and of its function; each begins with a comma. */
function callMembers({ function: inner, ...own }: Fields) {
  return { own: following(members(own)), inner: isRecord(inner) ? following(members(inner)) : "" };
}

function following(text: string): string {
  return text === "" ? "" : `,${text}`;
}

/** JSON of the members without the braces; empty when there is none. */
function members(fields: Fields | undefined): string {
  return fields === undefined ? "" : JSON.stringify(fields).slice(1, -1);
}

function list(a: string, b: string): string {
  return a === "" || b === "" ? a + b : `${a},${b}`;
}

const NOTHING = { delta: "", choice: "" };
const NO_EXTRA = { own: "", inner: "" };

type ClientCallDelta = Extract<AgentEvent, { type: "client_tool_call_delta" }>;

const DELTA = `{"index":0,"delta":{`;
const CONTENT = `"content":`;
const NO_USAGE = `,"usage":null`;
const CLOSE = `},"finish_reason":null}]}\n\n`;
const CLOSE_WITH_USAGE = `},"finish_reason":null}]${NO_USAGE}}\n\n`;

const RESTARTED = restarted("this stream", "chatcmpl-");
