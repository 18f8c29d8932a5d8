/**
 * Serves one GGUF model in the chat-completions format: `node model_server.ts <node_modules> <model.gguf> <threads>`.
 *
 * Runs llama.cpp by node-llama-cpp, which is no dependency of the project, with the chat template of the model. The likeliest token is taken
 * always, so that two clients with the same words get the same reply. As in most servers a call is what is in the tags of the template, as
 * JSON with a name; everything else stays text. Two conversations keep their place: what a prompt has in common with the last one is not read
 * again. Replies are whole: a stream gets its text in one part.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { readCalls } from "../support/models/read_calls.ts";

/** The parts of node-llama-cpp that are used. */
interface Llama {
  loadModel(options: { readonly modelPath: string }): Promise<Model>;
}
interface Model {
  readonly fileInfo: { readonly metadata: { readonly tokenizer: { readonly chat_template: string } } };
  createContext(options: Readonly<Record<string, unknown>>): Promise<{ getSequence(): Sequence }>;
  tokenize(text: string, special: boolean): readonly number[];
  detokenize(tokens: readonly number[], special: boolean): string;
}
interface Sequence {
  readonly contextTokens: readonly number[];
  adaptStateToTokens(tokens: readonly number[]): Promise<void>;
  evaluate(tokens: readonly number[], options: { readonly temperature: 0 }): AsyncIterable<number>;
}
interface ChatRequest {
  readonly stream?: boolean;
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly unknown[];
}
interface ChatMessage {
  readonly role: string;
  readonly content?: string | null | readonly { readonly text?: string }[];
  readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: string } }[];
}

const MODEL = "small";
const CONTEXT_TOKENS = 8_192;
/** Longest reply */
const REPLY_TOKENS = 160;
const MAX_BODY_BYTES = 4 * 1024 * 1024;

const [modules = "", modelPath = "", threads = "1"] = process.argv.slice(2);
const load = (path: string) => import(pathToFileURL(join(modules, path)).href);
const { getLlama, LlamaLogLevel } = await load("node-llama-cpp/dist/index.js");
const { Template } = await load("@huggingface/jinja/dist/index.js");
const llama: Llama = await getLlama({ build: "never", gpu: false, logLevel: LlamaLogLevel.error, maxThreads: 0 });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
  contextSize: CONTEXT_TOKENS,
  sequences: 2,
  threads: { ideal: Number(threads), min: 1 },
});
const sequences = [context.getSequence(), context.getSequence()];
const template = new Template(model.fileInfo.metadata.tokenizer.chat_template);

/** Makes the prompt of a request, as the template of the model has it. */
function toPrompt({ messages, tools }: ChatRequest): readonly number[] {
  const plain = messages.map(({ role, content, tool_calls }) => ({
    role: role === "developer" ? "system" : role,
    content: typeof content === "string" ? content : (content ?? []).map(({ text = "" }) => text).join("\n"),
    ...tool_calls === undefined ? {} : { tool_calls: tool_calls.map((call) => ({ function: toTemplateCall(call) })) },
  }));
  const text: string = template.render({
    messages: plain,
    add_generation_prompt: true,
    ...tools === undefined || tools.length === 0 ? {} : { tools },
  });
  return model.tokenize(text, true);
}

function toTemplateCall({ function: { name, arguments: text } }: NonNullable<ChatMessage["tool_calls"]>[number]) {
  try {
    return { name, arguments: JSON.parse(text) };
  } catch {
    return { name, arguments: text };
  }
}

function sharedTokens(sequence: Sequence, prompt: readonly number[]): number {
  const end = prompt.findIndex((token, index) => sequence.contextTokens[index] !== token);
  return end < 0 ? prompt.length : end;
}

/** Has the model reply. @returns its text, and why it ended. Undefined: the prompt is longer than the context */
async function reply(prompt: readonly number[], isWanted: () => boolean) {
  if (prompt.length + REPLY_TOKENS > CONTEXT_TOKENS) return undefined;
  // The first request of each client gets a sequence of its own
  const [best] = sequences.toSorted((a, b) => sharedTokens(b, prompt) - sharedTokens(a, prompt));
  const fresh = sequences.find(({ contextTokens }) => contextTokens.length === 0);
  const known = best === undefined ? 0 : sharedTokens(best, prompt);
  const sequence = (known < 64 ? fresh : undefined) ?? best as Sequence;
  await sequence.adaptStateToTokens(prompt.slice(0, -1));
  const rest = prompt.slice(sequence.contextTokens.length);
  const tokens: number[] = [];
  // Ends at the token that ends the reply, which is not given
  for await (const token of sequence.evaluate(rest, { temperature: 0 })) {
    tokens.push(token);
    if (tokens.length >= REPLY_TOKENS || !isWanted()) break;
  }
  return {
    text: model.detokenize(tokens, true),
    isCut: tokens.length >= REPLY_TOKENS,
    read: rest.length,
    tokens: tokens.length,
  };
}

/** Ends when the request before it has: one reply is made at a time. */
let last: ReturnType<typeof reply> | undefined;

async function complete(request: ChatRequest, response: ServerResponse): Promise<void> {
  const prompt = toPrompt(request);
  const began = performance.now();
  const before = last ?? Promise.resolve(undefined);
  last = before.catch(() => undefined).then(() => reply(prompt, () => !response.destroyed));
  const made = await last;
  if (made === undefined) {
    const message = `the request exceeds the available context size (${CONTEXT_TOKENS} tokens)`;
    return send(response, 400, { error: { code: 400, type: "exceed_context_size_error", message } });
  }
  console.log(JSON.stringify({ prompt: prompt.length, ...made, ms: Math.round(performance.now() - began) }));
  const { text, calls } = request.tools === undefined ? { text: made.text, calls: [] } : readCalls(made.text);
  const tool_calls = calls.map(({ name, input }, index) => ({
    index,
    id: `call_${began.toFixed(0)}_${index}`,
    type: "function",
    function: { name, arguments: JSON.stringify(input) },
  }));
  const message = { role: "assistant", content: text, ...calls.length === 0 ? {} : { tool_calls } };
  const finish_reason = calls.length > 0 ? "tool_calls" : made.isCut ? "length" : "stop";
  const usage = {
    prompt_tokens: prompt.length,
    completion_tokens: made.tokens,
    total_tokens: prompt.length + made.tokens,
  };
  const head = { id: `chatcmpl-${began.toFixed(0)}`, created: Math.floor(Date.now() / 1000), model: MODEL };
  if (request.stream !== true) {
    const choices = [{ index: 0, message, finish_reason }];
    return send(response, 200, { ...head, object: "chat.completion", choices, usage });
  }
  const chunks = [
    { choices: [{ index: 0, delta: message, finish_reason: null }] },
    { choices: [{ index: 0, delta: {}, finish_reason }], usage },
  ];
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const chunk of chunks) {
    response.write(`data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", ...chunk })}\n\n`);
  }
  response.end("data: [DONE]\n\n");
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

async function bodyOf(request: IncomingMessage): Promise<ChatRequest> {
  let body = "";
  for await (const part of request.setEncoding("utf8")) {
    body += part;
    if (body.length > MAX_BODY_BYTES) throw new Error("The request is too long");
  }
  return JSON.parse(body);
}

const server = createServer(async (request, response) => {
  try {
    if (request.url === "/v1/models") {
      send(response, 200, { object: "list", data: [{ id: MODEL, object: "model", owned_by: "small" }] });
    } else if (request.url === "/v1/chat/completions") await complete(await bodyOf(request), response);
    else send(response, 404, { error: { message: "There is no such path" } });
  } catch (error) {
    console.error(error);
    if (!response.headersSent) send(response, 500, { error: { message: String(error) } });
    else response.destroy();
  }
});
// Replies take minutes on a slow machine
server.requestTimeout = 0;
server.listen(0, "127.0.0.1", () => {
  console.log(`model at http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
});
