import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import type { SeenRequest } from "../../fixtures/upstream/fake_server.ts";
import { isRecord } from "../../lib/base/json.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { wrongTurn } from "./turn_template.ts";
import { withWorld } from "./world.ts";

/** Formats of providers over HTTP. */
export type ReplyForm = "openai_compatible" | "anthropic";

/** How many replies are tried, in which format, from which seed. */
export interface ReplyFuzz {
  readonly form: ReplyForm;
  readonly replies: number;
  readonly seed: number;
}

type Json = Record<string, unknown>;

/** Replies of one conversation, until the next one begins. */
const REPLIES_OF_ONE = 8;
/** Begins the message after a reply: the server answers it as a strict vendor would. */
const PLAIN = "PLAIN";

/**
 * Lets a provider give random replies of every shape to a conversation: blank, huge, cut, with broken calls, refusals. After each of them
 * a plain message must be answered by a server that refuses what vendors refuse: an empty message, a call without its result, an id
 * that comes twice, arguments that are no object, two messages of one side after each other.
 */
export async function fuzzReplies({ form, replies, seed }: ReplyFuzz): Promise<void> {
  await withWorld(async (world) => {
    const dice = new Dice(seed);
    let shape = "";
    const server = await world.server((seen, response) => {
      if (!seen.path.endsWith("/completions") && !seen.path.endsWith("/messages")) {
        return void response.end('{"data":[]}');
      }
      if (isPlain(seen)) return answer(form, seen, response);
      shape = play(form, dice, response);
    });
    const gateway = await world.gateway({
      files: { "notes.txt": "a note" },
      config: {
        provider: { kind: form, base_url: `${server.origin}/v1`, model: "m", max_retries: 0 },
        gateway: { rate_limit_max: 0 },
        agent: { max_iterations: 3 },
        autonomy: { level: "read_only" },
        logging: { level: "error" },
      },
    });
    const say = (message: string, reply: number) => {
      const talk = Math.floor(reply / REPLIES_OF_ONE);
      const headers = talk % 2 === 0 ? {} : { "x-postern-tools": "none" };
      return gateway.call("/api/chat", { headers, body: { message, conversation_id: `talk-${seed}-${talk}` } });
    };
    for (let reply = 0; reply < replies; reply++) {
      await (await say(`Say something ${reply}`, reply)).text();
      const plain = await say(`${PLAIN} ${reply}`, reply);
      const text = await plain.text();
      const where = `seed ${seed}, reply ${reply}, after ${shape}: ${text}`;
      assert.equal(plain.status, 200, where);
      assert.equal(JSON.parse(text).message, "fine", where);
      server.forget();
    }
  });
}

/** Seeded choices. */
class Dice {
  readonly #bytes: (count: number) => Uint8Array;

  constructor(seed: number) {
    this.#bytes = createSeededRandom(seed).bytes;
  }

  /** Returns a whole number from 0 to below `end`. */
  below(end: number): number {
    const [a = 0, b = 0] = this.#bytes(2);
    return (a * 256 + b) % end;
  }

  one<T>(of: readonly T[]): T {
    return of[this.below(of.length)] as T; // the lists are not empty
  }

  /** Returns the text in up to four pieces. */
  pieces(text: string): string[] {
    const parts: string[] = [];
    let rest = text;
    for (let i = this.below(4); i > 0 && rest.length > 1; i--) {
      const at = 1 + this.below(Math.min(rest.length - 1, 60_000));
      parts.push(rest.slice(0, at));
      rest = rest.slice(at);
    }
    return [...parts, rest];
  }
}

const TEXTS = [
  "",
  " ",
  "\n\n",
  "\t \r\n",
  "\u00a0",
  "fine words",
  "ends in a blank ",
  "\n\nbegins with lines",
  "\ud800 half a character",
  "\u0000\u0001\u001b[0m",
  "\ufeff",
  "[DONE]",
  "data: {}\n\n",
  "</think>",
  "<tool_call>{}</tool_call>",
  '{"error": "no"}',
  "😀".repeat(50),
  "x".repeat(150_000),
];
const ARGUMENTS: readonly unknown[] = [
  "{}",
  "",
  '""',
  "null",
  "[]",
  "7",
  '{"path":"notes.txt"}',
  '{"path":"notes.txt"}{"path":"notes.txt"}',
  '{}""',
  '{}{"path":"notes.txt"}',
  '{"path":',
  "{'path': 'x'}",
  '{"path":"\ud800"}',
  '{"a":"' + "y".repeat(70_000) + '"}',
  { path: "notes.txt" },
  null,
];
const NAMES: readonly unknown[] = [
  "read_file",
  "read_file",
  "write_file",
  "nothing",
  "",
  "with space",
  "ü",
  "n".repeat(90),
  null,
  7,
];
const IDS: readonly unknown[] = [
  "call_1",
  "call_1",
  "",
  null,
  7,
  "functions.read_file:0",
  "id with space",
  "i".repeat(200),
  "toolu_01",
];
const INDEXES: readonly unknown[] = [0, 0, 1, 2, undefined, -1, "0", 1e9, 0.5];
const REASONS: readonly unknown[] = [
  "stop",
  "stop",
  "tool_calls",
  "length",
  "content_filter",
  "sensitive",
  "model_context_window_exceeded",
  "network_error",
  "error",
  "odd",
  "",
  null,
  undefined,
  7,
];
const USAGES: readonly unknown[] = [
  { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
  { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
  { prompt_tokens: -1, completion_tokens: "2" },
  { prompt_tokens: 0, completion_tokens: 0, cost: null, prompt_tokens_details: null },
  [],
  null,
  undefined,
];
const STATUSES = [400, 400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529];
const BODIES: readonly unknown[] = [
  {},
  "",
  "<html><title>Bad gateway</title></html>",
  { error: { message: "prompt is too long: 900 tokens > 800 maximum" } },
  { error: { message: "Range of input length should be [1, 400]" } },
  [{ error: { message: "max_tokens is not supported, use max_completion_tokens", param: "max_tokens" } }],
  { error: { message: "Unsupported parameter: stream_options" } },
  { error: { message: "`temperature` and `top_p` cannot both be specified" } },
  { detail: [{ loc: ["body", "messages", 0], msg: "no" }] },
  { error: { message: "model not found" } },
  { error: { code: "insufficient_quota" } },
  7,
];

/** Answers with a random reply. @returns what it was, for a failure */
function play(form: ReplyForm, dice: Dice, response: ServerResponse): string {
  const kind = dice.one(["reply", "reply", "reply", "reply", "reply", "refusal", "error", "garbage", "reset"] as const);
  // Some servers answer with one piece whatever they are asked
  const isStream = form === "anthropic" || dice.below(6) > 0;
  if (kind === "reset") {
    response.destroy();
    return kind;
  }
  if (kind === "refusal") {
    const [status, body] = [dice.one(STATUSES), dice.one(BODIES)];
    response.writeHead(status, { "content-type": "application/json" });
    response.end(typeof body === "string" ? body : JSON.stringify(body));
    return `${status} ${JSON.stringify(body)}`;
  }
  const events = form === "anthropic" ? messageEvents(dice) : chunks(dice);
  if (kind === "error") {
    events.splice(dice.below(events.length + 1), 0, {
      type: "error",
      error: { type: "overloaded_error", message: "No" },
    });
  }
  const lines = isStream
    ? events.map((event) => `data: ${JSON.stringify(event)}\n\n`)
    : [JSON.stringify(wholeOf(events))];
  if (isStream && form !== "anthropic" && dice.below(4) > 0) lines.push("data: [DONE]\n\n");
  if (kind === "garbage") {
    lines.splice(
      dice.below(lines.length + 1),
      0,
      dice.one(["data: {nope\n\n", ": comment\n\n", "\u0000", "event: ping\n\n", "data: 7\n\n"]),
    );
  }
  const cut = dice.below(5) === 0;
  const sent = cut ? lines.slice(0, dice.below(lines.length + 1)) : lines;
  response.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json" });
  const body = sent.join("");
  if (cut && dice.below(2) === 0) response.write(body, () => response.destroy());
  else response.end(cut ? body.slice(0, dice.below(body.length + 1)) : body);
  return body.slice(0, 3_000);
}

function chunks(dice: Dice): Json[] {
  const chunk = (delta: unknown, finish_reason?: unknown, extra?: Json): Json => ({
    id: "c",
    object: "chat.completion.chunk",
    model: "m",
    choices: [{ index: 0, delta, ...(finish_reason === undefined ? {} : { finish_reason }), ...extra }],
  });
  const events: Json[] = [];
  for (let i = dice.below(4); i > 0; i--) {
    const text = dice.one(TEXTS);
    const name = dice.one(["content", "content", "reasoning_content", "reasoning", "refusal"]);
    for (const piece of dice.pieces(text)) events.push(chunk({ [name]: piece }));
    if (dice.below(6) === 0) events.push(chunk({ content: [{ type: "text", text }, 7] }));
  }
  for (let i = Math.max(0, dice.below(6) - 2); i > 0; i--) {
    events.push(...callChunks(dice).map((call) => chunk({ tool_calls: [call] })));
  }
  const usage = dice.one(USAGES);
  if (dice.below(8) === 0) events.push(chunk({}, dice.one(REASONS), { usage }));
  else if (dice.below(10) > 0) {
    events.push(chunk({}, dice.one(REASONS)), { choices: dice.one([[], null, undefined, {}]), usage });
  }
  return events;
}

function callChunks(dice: Dice): Json[] {
  const [id, index, name, given] = [dice.one(IDS), dice.one(INDEXES), dice.one(NAMES), dice.one(ARGUMENTS)];
  const first = { ...(index === undefined ? {} : { index }), id, type: "function" };
  if (typeof given !== "string") return [{ ...first, function: { name, arguments: given } }];
  const [head = "", ...rest] = dice.pieces(given);
  const tail = rest.map((part) => ({ ...(index === undefined ? {} : { index }), function: { arguments: part } }));
  return [{ ...first, function: { name, arguments: head } }, ...tail];
}

/** The reply in one piece that says what these chunks do. */
function wholeOf(events: readonly Json[]): Json {
  const deltas = events.flatMap(({ choices }) => Array.isArray(choices) ? choices.filter(isRecord) : []);
  const textOf = (name: string) =>
    deltas.map(({ delta }) => isRecord(delta) && typeof delta[name] === "string" ? delta[name] : "").join("");
  const calls = deltas.flatMap(({ delta }) =>
    isRecord(delta) && Array.isArray(delta["tool_calls"]) ? delta["tool_calls"] : []
  );
  const message = {
    role: "assistant",
    content: textOf("content") || null,
    reasoning_content: textOf("reasoning_content"),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
  const finish_reason = deltas.at(-1)?.["finish_reason"] ?? null;
  return {
    id: "c",
    object: "chat.completion",
    model: "m",
    choices: [{ index: 0, message, finish_reason }],
    usage: events.at(-1)?.["usage"],
  };
}

function messageEvents(dice: Dice): Json[] {
  const events: Json[] = [{
    type: "message_start",
    message: { model: "m", usage: dice.one<unknown>([{ input_tokens: 5, output_tokens: 1 }, {}, null]) },
  }];
  for (let count = dice.below(5), index = 0; index < count; index++) {
    const at = dice.below(8) === 0 ? dice.one(INDEXES) : index;
    const type = dice.one(["text", "text", "thinking", "tool_use", "tool_use", "redacted_thinking", "odd"]);
    if (type === "tool_use") {
      const given = dice.one(ARGUMENTS);
      const input = typeof given === "string" ? {} : given;
      events.push({
        type: "content_block_start",
        index: at,
        content_block: { type, id: dice.one(IDS), name: dice.one(NAMES), input },
      });
      for (const partial_json of typeof given === "string" ? dice.pieces(given) : []) {
        events.push({ type: "content_block_delta", index: at, delta: { type: "input_json_delta", partial_json } });
      }
    } else {
      const name = type === "thinking" ? "thinking" : "text";
      events.push({ type: "content_block_start", index: at, content_block: { type, [name]: "", data: "d" } });
      for (const piece of dice.pieces(dice.one(TEXTS))) {
        events.push({ type: "content_block_delta", index: at, delta: { type: `${name}_delta`, [name]: piece } });
      }
      if (type === "thinking") {
        events.push({ type: "content_block_delta", index: at, delta: { type: "signature_delta", signature: "s" } });
      }
    }
    if (dice.below(8) > 0) events.push({ type: "content_block_stop", index: at });
  }
  const stop_reason = dice.one<unknown>(["end_turn", "end_turn", "tool_use", "max_tokens", "refusal", "odd", null, 7]);
  if (dice.below(10) > 0) {
    events.push({
      type: "message_delta",
      delta: { stop_reason },
      usage: dice.one<unknown>([{ output_tokens: 2 }, {}, null]),
    });
  }
  if (dice.below(5) > 0) events.push({ type: "message_stop" });
  return events;
}

function isPlain({ json }: SeenRequest): boolean {
  const messages = isRecord(json) && Array.isArray(json["messages"]) ? json["messages"] : [];
  const last: unknown = messages.at(-1);
  if (!isRecord(last) || last["role"] !== "user") return false;
  const { content } = last;
  const text = Array.isArray(content) ? content.at(-1)?.text : content;
  return typeof text === "string" && text.slice(text.lastIndexOf("\n") + 1).startsWith(PLAIN);
}

/** Answers a plain message, or refuses its history for what vendors refuse. */
function answer(form: ReplyForm, { json, text }: SeenRequest, response: ServerResponse): void {
  const { messages, stream, system } = json as { messages: Json[]; stream?: boolean; system?: unknown };
  const faults = form === "anthropic" ? faultsOfTurns(messages, system) : faultsOfMessages(messages);
  if (/(?<!\\)(?:\\\\)*\\ud[89a-f]/i.test(text)) faults.push("half a character");
  if (faults.length > 0) {
    response.writeHead(400, { "content-type": "application/json" });
    return void response.end(
      JSON.stringify({ error: { message: `messages: ${faults.join("; ")}`, param: "messages" } }),
    );
  }
  const turn = form === "anthropic" ? undefined : wrongTurn(messages);
  if (turn !== undefined) {
    response.writeHead(500, { "content-type": "application/json" });
    const message = `Jinja Exception: conversation roles must alternate user and assistant roles (${turn})`;
    return void response.end(JSON.stringify({ error: { code: 500, message, type: "server_error" } }));
  }
  response.writeHead(200, { "content-type": stream === true ? "text/event-stream" : "application/json" });
  response.end(fine(form, stream === true));
}

function fine(form: ReplyForm, isStream: boolean): string {
  const sse = (events: readonly unknown[]) => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  if (form === "anthropic") {
    return sse([
      { type: "message_start", message: { model: "m", usage: { input_tokens: 5, output_tokens: 1 } } },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "fine" } },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 1 } },
      { type: "message_stop" },
    ]);
  }
  const usage = { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 };
  const said = { role: "assistant", content: "fine" };
  if (!isStream) {
    return JSON.stringify({ model: "m", choices: [{ index: 0, message: said, finish_reason: "stop" }], usage });
  }
  return sse([{ model: "m", choices: [{ index: 0, delta: said, finish_reason: "stop" }], usage }]) + "data: [DONE]\n\n";
}

/** Returns what servers of the chat-completions format refuse. */
function faultsOfMessages(messages: readonly Json[]): string[] {
  const faults: string[] = [];
  const seen = new Set<unknown>();
  let open = new Set<unknown>();
  for (const [i, { role, content, tool_calls: calls, tool_call_id: id }] of messages.entries()) {
    if (role === "tool") {
      if (!open.delete(id)) faults.push(`${i}: a result without its call`);
      continue;
    }
    if (open.size > 0) faults.push(`${i}: a call without its result`);
    open = new Set();
    const isEmpty = content === null || content === undefined || content === "" ||
      (Array.isArray(content) && content.length === 0);
    if (role !== "assistant" || calls === undefined) {
      if (isEmpty) faults.push(`${i}: empty ${role}`);
      continue;
    }
    for (const call of calls as Json[]) faults.push(...faultsOfCall(call, seen).map((fault) => `${i}: ${fault}`));
    open = new Set((calls as Json[]).map((call) => call["id"]));
  }
  if (open.size > 0) faults.push("the last call has no result");
  return faults;
}

function faultsOfCall({ id, function: called }: Json, seen: Set<unknown>): string[] {
  const { name, arguments: given } = called as { name: unknown; arguments: unknown };
  const faults: string[] = [];
  if (typeof id !== "string" || id === "" || seen.has(id)) faults.push(`the id ${JSON.stringify(id)}`);
  seen.add(id);
  if (typeof name !== "string" || !/^[a-zA-Z0-9_-]{1,64}$/.test(name)) faults.push(`the name ${JSON.stringify(name)}`);
  if (typeof given !== "string" || !isObject(given)) {
    faults.push(`the arguments ${JSON.stringify(given)?.slice(0, 80)}`);
  }
  return faults;
}

function isObject(text: string): boolean {
  try {
    return isRecord(JSON.parse(text));
  } catch {
    return false;
  }
}

/** Returns what the Messages API refuses. */
function faultsOfTurns(turns: readonly Json[], system: unknown): string[] {
  const faults: string[] = [];
  if (system !== undefined && JSON.stringify(system).trim() === '""') faults.push("an empty system");
  if (turns[0]?.["role"] !== "user") faults.push("it does not begin with the user");
  const seen = new Set<unknown>();
  let open = new Set<unknown>();
  for (const [i, { role, content }] of turns.entries()) {
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content as Json[];
    if (blocks.length === 0) faults.push(`${i}: no content`);
    const results = blocks.filter(({ type }) => type === "tool_result").map((block) => block["tool_use_id"]);
    for (const id of results) if (!open.delete(id)) faults.push(`${i}: a result without its call`);
    if (open.size > 0) faults.push(`${i}: a call without its result`);
    open = new Set();
    for (const block of blocks) {
      if (block["type"] === "text" && !/\S/.test(String(block["text"]))) faults.push(`${i}: a text of blanks`);
      if (block["type"] !== "tool_use") continue;
      const { id, name, input } = block;
      if (role !== "assistant") faults.push(`${i}: a call of the user`);
      if (typeof id !== "string" || !/^[a-zA-Z0-9_-]+$/.test(id) || seen.has(id)) {
        faults.push(`${i}: the id ${JSON.stringify(id)}`);
      }
      if (typeof name !== "string" || !/^[a-zA-Z0-9_-]{1,128}$/.test(name)) {
        faults.push(`${i}: the name ${JSON.stringify(name)}`);
      }
      if (!isRecord(input)) faults.push(`${i}: the input`);
      seen.add(id);
      open.add(id);
    }
  }
  if (open.size > 0) faults.push("the last call has no result");
  return faults;
}
