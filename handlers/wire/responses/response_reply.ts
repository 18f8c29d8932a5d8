import type { HttpError } from "../../../lib/base/errors.ts";
import { type Fields, joinFields } from "../../../lib/base/join_fields.ts";
import { lazily } from "../../../lib/base/lazily.ts";
import { isRecord, isWholeJson } from "../../../lib/base/json.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import type { Usage } from "../../../lib/base/records/usage.ts";
import { RUN_ID } from "../../../lib/base/records/run.ts";
import type { AnswerHead, StreamHead } from "../answer_by_run.ts";
import { type EventEncoder, restarted } from "../event_stream.ts";
import { parseJsonBytes } from "../read_json.ts";
import { seal } from "../sealed_fields.ts";
import { CLIENT_SEARCH, CUSTOM_INPUT } from "./response_tools.ts";
import type { ResponseForm } from "./to_response_input.ts";

type Event<T extends AgentEvent["type"]> = Extract<AgentEvent, { type: T }>;

/** An item of the output that is not whole yet. */
interface OpenItem {
  readonly kind: "message" | "reasoning" | "call" | "own_call" | "compaction";
  readonly id: string;
  readonly place: number;
  /** Members of the item that do not change */
  readonly base: Fields;
  /** JSON of these and of the id, without the closing brace */
  readonly baseJson: string;
  /** Text of the part that is open, or the arguments of the call */
  text: string;
  /** JSON of the part's place, behind the number of each of its events. Empty where no stream is told */
  placeJson: string;
  /** Kind of the part of a message that is open */
  part: "output_text" | "refusal" | undefined;
  /** JSON of whole parts of a message */
  readonly parts: string[];
}

/** Returns the id of the reply of a run. */
export function toResponseId(runId: string): string {
  return `resp_${runId.slice("run_".length)}`;
}

/** Returns the id of the run of a reply; undefined for an id that no reply has. */
export function toRunId(responseId: string): string | undefined {
  const id = responseId.replace(/^resp_/, "run_");
  return id !== responseId && RUN_ID.test(id) ? id : undefined;
}

/**
 * Numbers of a stored reply for each `seq` of its run: an event of the run is told as some streaming events, which begin at its `seq` times this
 * number. So each number is told again in each stream of the reply, also after a restart, which leaves a gap in `seq`. Where an event is
 * told as more of them, those of the next one follow without a gap.
 */
const NUMBERS_A_SEQ = 1024;

/** Returns the `seq` of the run's event that the streaming event with this number told of. */
export function seqOf(number: number): number {
  return Math.floor(number / NUMBERS_A_SEQ);
}

/** Returns the JSON reply to work in the background, which has begun. */
export function acceptedJson(head: AnswerHead, form: ResponseForm): string {
  return silent(head, form).json("queued");
}

/** Returns the whole reply: the same items that a stream of these events ends with. */
export function toResponse(head: AnswerHead, said: readonly AgentEvent[], form: ResponseForm): Fields {
  return silent(head, form, said).response();
}

/** Returns the JSON of the whole reply. */
export function responseJson(head: AnswerHead, said: readonly AgentEvent[], form: ResponseForm): string {
  return silent(head, form, said).json();
}

function silent(head: AnswerHead, form: ResponseForm, said: readonly AgentEvent[] = []): ResponseEvents {
  const items = new ResponseEvents(
    { ...head, firstModel: head.model, interrupts: undefined, toError: undefined },
    form,
  );
  items.encode(said);
  return items;
}

/** Options of `ResponseEvents`: without `toError` only the reply is made, and no text of a stream. */
type ResponseHead = Omit<StreamHead, "toError"> & {
  readonly toError: StreamHead["toError"] | undefined;
  /** Number of the last streaming event that the reader has. Default: none */
  readonly after?: number | undefined;
};

/**
 * Writes the events of a run as streaming events of Responses, each with its `sequence_number`, and makes the items of the reply.
 *
 * Every item and every part that is begun is ended, also where the run fails: its status is then `incomplete`. Calls of the agent's own
 * tools are shown as items `postern:tool_call` where the request asks for them, since a client would answer calls of functions.
 * Source: the Open Responses specification of 2026-04-24
 */
export class ResponseEvents implements EventEncoder {
  ended = false;
  readonly #head: ResponseHead;
  readonly #form: ResponseForm;
  readonly #tail: string;
  readonly #after: number;
  #number = 0;
  #model: string;
  #lastDelta = 0;
  /** JSON of whole items: a stream tells them twice */
  readonly #output: string[] = [];
  /** Message or reasoning that is open */
  #said: OpenItem | undefined = undefined;
  /** Calls that are open: those of the client by their index, those of the agent by their id */
  readonly #calls = new Map<number | string, OpenItem>();
  #count = 0;
  #status = "in_progress";
  #reason: string | null = null;
  #error: Fields | null = null;
  #usage: Usage | undefined = undefined;
  #turnIsOver = false;
  #completedAt: number | null = null;
  /** The vendor's own fields of the reasoning */
  #thought: Fields | undefined = undefined;
  /** JSON of the members that repeat what was asked for, which no event changes, behind the opening brace */
  #askedJson: string | undefined = undefined;
  /** Summary that the reply is, where it is a compaction */
  #summary = "";

  constructor(head: ResponseHead, form: ResponseForm) {
    this.#head = head;
    this.#form = form;
    this.#tail = head.runId.slice("run_".length);
    // Each stream of a stored reply begins with the same events
    this.#model = form.isStored ? head.model : head.firstModel;
    this.#after = head.after ?? -1;
  }

  /** Returns the reply as far as it has come. */
  response(): Fields {
    // The text is of an object
    return JSON.parse(this.json()) as Fields;
  }

  /** Returns the JSON of the reply as far as it has come. */
  json(status = this.#status): string {
    const { runId, created } = this.#head;
    const reason = this.#reason === null ? null : `{"reason":"${this.#reason}"}`;
    this.#askedJson ??= this.#asked();
    return `{"id":${JSON.stringify(toResponseId(runId))},"object":"response","created_at":${JSON.stringify(created)},` +
      `"completed_at":${JSON.stringify(this.#completedAt)},"status":"${status}","error":${
        JSON.stringify(this.#error)
      },` +
      `"incomplete_details":${reason},"model":${JSON.stringify(this.#model)},` +
      `"output":[${this.#output.filter(Boolean).join()}],"usage":${usageJson(this.#usage)},${this.#askedJson}`;
  }

  /** Returns the JSON of the members that repeat what was asked for, behind the opening brace. */
  #asked(): string {
    const { body, isStored } = this.#form;
    const { conversationId = null } = this.#head;
    const place = isStored && conversationId !== null
      ? `"conversation":${JSON.stringify({ id: conversationId })},`
      : "";
    const instructions = JSON.stringify(body.instructions ?? null);
    const usual = isStored ? USUAL_STORED : USUAL;
    const settings = Object.keys(body).every((name) => BESIDE_SETTINGS.has(name))
      ? usual()
      : settingsJson(body, isStored);
    return `"background":${body.background === true},${place}"instructions":${instructions},${settings}`;
  }

  start(): string {
    const reply = this.json();
    return this.#tellReply("created", reply) + this.#tellReply("in_progress", reply);
  }

  encode(events: readonly AgentEvent[]): string {
    let text = "";
    for (const event of events) {
      if (this.ended) break;
      if (this.#form.isStored) this.#number = Math.max(this.#number, event.seq * NUMBERS_A_SEQ);
      text += this.#encode(event);
    }
    return text;
  }

  fail(error: HttpError): string {
    // A shutdown ends the stream, and not the run
    if (this.#form.isStored && this.#head.goesOn && error.code === "shutting_down") {
      return ": no more now, come back with starting_after\n\n";
    }
    return this.#fail(error);
  }

  #errorOf(event: Event<"error">, toError: StreamHead["toError"]): Pick<HttpError, "code" | "message"> {
    const { code, message } = toError(event);
    return { code: event.code === "cancelled" ? event.code : code, message };
  }

  #fail({ code, message }: Pick<HttpError, "code" | "message">): string {
    return this.#endTurn() + this.#end("failed", { status: "incomplete", error: { code, message } });
  }

  /** Ends the items of a turn that is over. */
  #endTurn(): string {
    const isOver = this.#turnIsOver;
    this.#turnIsOver = false;
    return isOver ? this.#closeAll("completed") : "";
  }

  #encode(event: AgentEvent): string {
    // Only the end of the run says whether the last turn was cut off at a limit
    return event.type === "done" ? this.#done(event) : this.#endTurn() + this.#encodeInTurn(event);
  }

  #encodeInTurn(event: Exclude<AgentEvent, Event<"done">>): string {
    switch (event.type) {
      case "text_delta":
        if (this.#form.condenses) {
          this.#summary += event.delta;
          return "";
        }
        this.#lastDelta = event.seq;
        return this.#say("output_text", event.delta);
      case "refusal_delta":
        this.#lastDelta = event.seq;
        return this.#say("refusal", event.delta);
      case "reasoning_delta":
        this.#lastDelta = event.seq;
        return this.#think(event.delta);
      case "client_tool_call_delta":
        this.#lastDelta = event.seq;
        return this.#callDelta(event);
      case "reply_fields":
        this.#addThought(event);
        return "";
      case "tool_start":
        return this.#form.showsOwnCalls ? this.#ownCall(event) : "";
      case "tool_end":
        return this.#endOwnCall(event);
      case "turn_start":
        this.#model = this.#head.model;
        this.#thought = undefined;
        return "";
      case "turn_end":
        this.#turnIsOver = true;
        return "";
      case "turn_restart":
        if (event.from_seq <= this.#lastDelta || this.#hasPassed(event) || this.#head.interrupts?.(event.turn)) {
          return this.#failRestarted();
        }
        this.#summary = "";
        this.#thought = undefined;
        this.#model = this.#head.model;
        return "";
      case "notice":
        if (event.model !== undefined) this.#model = event.model;
        return "";
      case "error":
        return this.#head.toError === undefined ? "" : this.#fail(this.#errorOf(event, this.#head.toError));
      default:
        return "";
    }
  }

  #done({ finish_reason: reason, usage, time }: Event<"done">): string {
    this.#usage = usage;
    if (reason === "length" || reason === "content_filter") {
      this.#reason = reason === "length" ? "max_output_tokens" : reason;
      return this.#end("incomplete", { status: "incomplete", error: null });
    }
    this.#completedAt = Math.floor(Date.parse(time) / 1000);
    return this.#compaction() + this.#end("completed", { status: "completed", error: null });
  }

  #end(
    status: "completed" | "incomplete" | "failed",
    { status: ofItems, error }: { readonly status: ItemStatus; readonly error: Fields | null },
  ): string {
    const closing = this.#closeAll(ofItems);
    this.ended = true;
    this.#status = error?.["code"] === "cancelled" ? "cancelled" : status;
    this.#error = error;
    return this.#head.toError === undefined ? "" : `${closing}${this.#tellReply(status, this.json())}data: [DONE]\n\n`;
  }

  /** Tells whether the reader has text that a restart takes back: it is at a place before the restart. */
  #hasPassed({ seq, from_seq: from }: Event<"turn_restart">): boolean {
    const place = seqOf(this.#after);
    return place >= from && place < seq;
  }

  #failRestarted(): string {
    const { toError } = this.#head;
    return toError === undefined ? "" : this.#fail(toError(RESTARTED));
  }

  /** Returns one event of the stream; nothing where only the reply is made. */
  #tell(type: string, fields: Fields): string {
    if (this.#head.toError === undefined) return "";
    return this.#line(`event: ${type}\ndata: {"type":"${type}","sequence_number":`, JSON.stringify(fields).slice(1));
  }

  #tellReply(status: string, reply: string): string {
    const type = `response.${status}`;
    return this.#line(`event: ${type}\ndata: {"type":"${type}","sequence_number":`, `"response":${reply}}`);
  }

  #textDelta(item: OpenItem, delta: string): string {
    const number = this.#number++;
    if (number <= this.#after) return "";
    const line = `${TEXT_DELTA}${number},${item.placeJson}"delta":${JSON.stringify(delta)}${DELTA_END}`;
    return this.#form.isStored ? `id: ${number}\n${line}` : line;
  }

  /** Returns one event of a part of a message, whose JSON is ready. */
  #tellPart(item: OpenItem, type: string, members: string): string {
    return this.#line(`event: ${type}\ndata: {"type":"${type}","sequence_number":`, `${item.placeJson}${members}}`);
  }

  /** Returns an event whose number stands between two texts; nothing where the reader has it. */
  #line(before: string, behind: string): string {
    const number = this.#number++;
    if (number <= this.#after) return "";
    const line = `${before}${number},${behind}\n\n`;
    return this.#form.isStored ? `id: ${number}\n${line}` : line;
  }

  #open(kind: OpenItem["kind"], prefix: string, base: Fields): OpenItem {
    const id = `${prefix}_${this.#tail}_${this.#count}`;
    return {
      kind,
      id,
      place: this.#count++,
      base,
      baseJson: `${JSON.stringify(base).slice(0, -1)},"id":${JSON.stringify(id)}`,
      text: "",
      placeJson: "",
      part: undefined,
      parts: [],
    };
  }

  /** @param members JSON of members beside those that do not change */
  #added({ place, baseJson }: OpenItem, members: string): string {
    if (this.#head.toError === undefined) return "";
    return this.#line(ITEM_ADDED, `"output_index":${place},"item":${baseJson},${members}}}`);
  }

  #whole(item: OpenItem, fields: Fields): string {
    return this.#wholeJson(item, `${item.baseJson},${JSON.stringify(fields).slice(1)}`);
  }

  #wholeJson({ place }: OpenItem, json: string): string {
    this.#output[place] = json;
    return this.#head.toError === undefined ? "" : this.#line(ITEM_DONE, `"output_index":${place},"item":${json}}`);
  }

  #say(part: "output_text" | "refusal", delta: string): string {
    let told = "";
    let item = this.#said;
    if (item?.kind !== "message") {
      told = this.#closeSaid("completed") + this.#closeWholeCalls();
      item = this.#said = this.#open("message", "msg", { type: "message", role: "assistant" });
      told += this.#added(item, `"status":"in_progress","content":[]`);
    }
    if (item.part !== part) {
      told += this.#closePart(item);
      item.part = part;
      if (this.#head.toError !== undefined) {
        // Made by join(): V8 would flatten a text that + puts together again for every delta
        item.placeJson = [
          `"item_id":${JSON.stringify(item.id)},"output_index":${item.place},"content_index":${item.parts.length},`,
        ].join("");
        told += this.#tellPart(item, "response.content_part.added", `"part":${partJson(part, '""')}`);
      }
    }
    item.text += delta;
    if (this.#head.toError === undefined) return "";
    return told +
      (part === "refusal"
        ? this.#tellPart(item, "response.refusal.delta", `"delta":${JSON.stringify(delta)}`)
        : this.#textDelta(item, delta));
  }

  /** Tells the one item of a compaction, whose text is no text for people. */
  #compaction(): string {
    if (!this.#form.condenses) return "";
    const item = this.#open("compaction", "cmp", { type: "compaction" });
    return this.#added(item, `"encrypted_content":""`) +
      this.#whole(item, { encrypted_content: seal({ summary: this.#summary }) });
  }

  #closePart(item: OpenItem): string {
    const { part } = item;
    if (part === undefined) return "";
    // A long text is told four times
    const text = JSON.stringify(item.text);
    const whole = partJson(part, text);
    item.parts.push(whole);
    item.part = undefined;
    item.text = "";
    if (this.#head.toError === undefined) return "";
    const said = part === "refusal" ? `"refusal":${text}` : `"text":${text},"logprobs":[]`;
    return this.#tellPart(item, `response.${part}.done`, said) +
      this.#tellPart(item, "response.content_part.done", `"part":${whole}`);
  }

  #think(delta: string): string {
    let told = "";
    let item = this.#said;
    if (item?.kind !== "reasoning") {
      told = this.#closeSaid("completed") + this.#closeWholeCalls();
      item = this.#said = this.#open("reasoning", "rs", { type: "reasoning" });
      told += this.#added(item, `"summary":[]`) +
        this.#tell("response.reasoning_summary_part.added", { ...summaryOf(item), part: toSummary("") });
    }
    item.text += delta;
    return told + this.#tell("response.reasoning_summary_text.delta", { ...summaryOf(item), delta });
  }

  #callDelta({ index, call_id, name, arguments_delta: delta }: Event<"client_tool_call_delta">): string {
    let told = "";
    let item = this.#calls.get(index);
    if (item === undefined) {
      // Behind a whole call nothing can follow that means anything
      if (name === undefined) return "";
      told = this.#closeSaid("completed");
      item = this.#openCall(call_id, name);
      this.#calls.set(index, item);
      told += this.#added(item, `"status":"in_progress",${EMPTY[String(item.base["type"])]}`);
    }
    item.text += delta;
    // The text of a custom tool and what to search for are known when their JSON is whole
    if (delta === "" || item.base["type"] !== "function_call") return told;
    return told + this.#tell("response.function_call_arguments.delta", {
      item_id: item.id,
      output_index: item.place,
      delta,
    });
  }

  #openCall(callId: string, told: string): OpenItem {
    const { kind, name, namespace } = this.#form.named.get(told) ??
      { kind: "function", name: told, namespace: undefined };
    const own = { call_id: callId, name, ...(namespace === undefined ? {} : { namespace }) };
    if (kind === CLIENT_SEARCH) {
      return this.#open("call", "tsc", { type: "tool_search_call", call_id: callId, execution: "client" });
    }
    return kind === "custom"
      ? this.#open("call", "ctc", { type: "custom_tool_call", ...own })
      : this.#open("call", "fc", { type: "function_call", ...own });
  }

  #closeCall(item: OpenItem, status: ItemStatus): string {
    const place = { item_id: item.id, output_index: item.place };
    if (item.base["type"] === "tool_search_call") {
      return this.#whole(item, { arguments: searchArguments(item.text), status });
    }
    if (!isCustom(item)) {
      const { text } = item;
      const done = { ...place, name: item.base["name"], arguments: text };
      return this.#tell("response.function_call_arguments.done", done) + this.#whole(item, { arguments: text, status });
    }
    const input = customInput(item.text);
    return this.#tell("response.custom_tool_call_input.delta", { ...place, delta: input }) +
      this.#tell("response.custom_tool_call_input.done", { ...place, input }) + this.#whole(item, { input, status });
  }

  #ownCall({ call_id, tool, input }: Event<"tool_start">): string {
    const told = this.#closeSaid("completed");
    const given = JSON.stringify(input);
    const item = this.#open("own_call", "ptc", { type: "postern:tool_call", call_id, name: tool, arguments: given });
    this.#calls.set(call_id, item);
    return told + this.#added(item, `"status":"in_progress","output":null`);
  }

  #endOwnCall({ call_id, output, is_error }: Event<"tool_end">): string {
    const item = this.#calls.get(call_id);
    if (item === undefined) return "";
    this.#calls.delete(call_id);
    return this.#whole(item, { status: is_error ? "failed" : "completed", output });
  }

  /** A stream tells of the vendor's details in pieces. */
  #addThought({ message, provider }: Event<"reply_fields">): void {
    const details = message?.["reasoning_details"];
    if (details === undefined) return;
    this.#thought = { ...joinFields(this.#thought, { reasoning_details: details }), provider };
  }

  #closeSaid(status: ItemStatus): string {
    const item = this.#said;
    if (item === undefined) return "";
    this.#said = undefined;
    if (item.kind === "message") {
      const told = this.#closePart(item);
      return told + this.#wholeJson(item, `${item.baseJson},"status":"${status}","content":[${item.parts.join()}]}`);
    }
    const { text } = item;
    const part = toSummary(text);
    const sealed = this.#form.sealsReasoning
      ? { encrypted_content: seal({ reasoning_content: text, ...this.#thought }) }
      : {};
    // Details belong to one item
    this.#thought = undefined;
    return this.#tell("response.reasoning_summary_text.done", { ...summaryOf(item), text }) +
      this.#tell("response.reasoning_summary_part.done", { ...summaryOf(item), part }) +
      this.#whole(item, { summary: [part], content: [{ type: "reasoning_text", text }], ...sealed });
  }

  /** Ends the client's calls whose arguments have all come. One in the middle of its arguments goes on behind what is said. */
  #closeWholeCalls(): string {
    let told = "";
    for (const [key, item] of this.#calls) {
      if (item.kind === "own_call" || !isWholeJson(item.text)) continue;
      told += this.#closeCall(item, "completed");
      this.#calls.delete(key);
    }
    return told;
  }

  #closeAll(status: ItemStatus): string {
    let told = this.#closeSaid(status);
    for (const [key, item] of this.#calls) {
      if (item.kind === "own_call" && status === "completed") continue;
      told += item.kind === "own_call" ? this.#whole(item, { status, output: null }) : this.#closeCall(item, status);
      this.#calls.delete(key);
    }
    return told;
  }
}

/** Text before the number of a delta, the event that comes by the hundred. */
const TEXT_DELTA = 'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":';
const DELTA_END = ',"logprobs":[]}\n\n';
const ITEM_ADDED = 'event: response.output_item.added\ndata: {"type":"response.output_item.added","sequence_number":';
const ITEM_DONE = 'event: response.output_item.done\ndata: {"type":"response.output_item.done","sequence_number":';

type ItemStatus = "completed" | "incomplete";

/** Fields of a request that settings do not show. */
const BESIDE_SETTINGS: ReadonlySet<string> = new Set([
  "background",
  "conversation",
  "include",
  "input",
  "instructions",
  "model",
  "store",
  "stream",
]);

/** Returns the JSON of the settings of a request, behind the opening brace. */
function settingsJson(body: ResponseForm["body"], isStored: boolean): string {
  return JSON.stringify({
    max_output_tokens: body.max_output_tokens ?? null,
    max_tool_calls: body.max_tool_calls ?? null,
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    previous_response_id: body.previous_response_id ?? null,
    prompt_cache_key: body.prompt_cache_key ?? null,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    safety_identifier: body.safety_identifier ?? null,
    service_tier: body.service_tier ?? "default",
    store: isStored,
    temperature: body.temperature ?? 1,
    text: { ...body.text, format: body.text?.format ?? { type: "text" } },
    tool_choice: body.tool_choice ?? "auto",
    tools: (body.tools ?? []).map(toShownTool),
    top_logprobs: 0,
    top_p: body.top_p ?? 1,
    presence_penalty: body.presence_penalty ?? 0,
    frequency_penalty: body.frequency_penalty ?? 0,
    truncation: "disabled",
    user: body.user ?? null,
    metadata: body.metadata ?? {},
  }).slice(1);
}

/** Settings of the many requests that name none: they are half of a short reply, and a stream tells them three times. */
const USUAL = lazily(() => settingsJson({}, false));
const USUAL_STORED = lazily(() => settingsJson({}, true));

function isCustom(item: OpenItem): boolean {
  return item.base["type"] === "custom_tool_call";
}

function summaryOf({ id, place }: OpenItem) {
  return { item_id: id, output_index: place, summary_index: 0 };
}

function toSummary(text: string) {
  return { type: "summary_text", text };
}

/** @param text as JSON */
function partJson(part: "output_text" | "refusal", text: string): string {
  return part === "refusal"
    ? `{"type":"${part}","refusal":${text}}`
    : `{"type":"${part}","text":${text},"annotations":[],"logprobs":[]}`;
}

/** JSON of the member of a call in which the model has said nothing yet, by the type of its item. */
const EMPTY: Readonly<Record<string, string>> = {
  function_call: `"arguments":""`,
  custom_tool_call: `"input":""`,
  tool_search_call: `"arguments":{}`,
};

/** Returns what the model searches for; its text, where that is no JSON of a bounded depth. */
function searchArguments(given: string): unknown {
  try {
    return parseJsonBytes(Buffer.from(given || "{}"));
  } catch {
    return given;
  }
}

/** Returns the text that the model gave a custom tool; all that it wrote, where that is not the JSON that it was asked for. */
function customInput(given: string): string {
  try {
    const fields: unknown = JSON.parse(given);
    const input = isRecord(fields) ? fields[CUSTOM_INPUT] : undefined;
    return typeof input === "string" ? input : given;
  } catch {
    return given;
  }
}

function toShownTool(tool: Fields): Fields {
  if (tool["type"] !== "function") return tool;
  const { description = null, parameters = null, strict = null } = tool;
  return { ...tool, description, parameters, strict };
}

function usageJson(usage: Usage | undefined): string {
  if (usage === undefined) return "null";
  const { prompt_tokens: input, completion_tokens: output, total_tokens: total } = usage;
  const { cached_tokens: cached } = usage.prompt_tokens_details ?? {};
  const { reasoning_tokens: thought } = usage.completion_tokens_details ?? {};
  return `{"input_tokens":${input},"input_tokens_details":{"cached_tokens":${
    typeof cached === "number" ? cached : 0
  }},` +
    `"output_tokens":${output},"output_tokens_details":{"reasoning_tokens":${
      typeof thought === "number" ? thought : 0
    }},` +
    `"total_tokens":${total}}`;
}

const RESTARTED = restarted("this response", "resp_");
