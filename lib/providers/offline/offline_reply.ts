import type { JsonSchema } from "../../base/records/json_schema.ts";
import { type Content, type Message, textOf } from "../../base/records/message.ts";
import type { ProviderRequest, ToolDeclaration } from "../provider.ts";
import { quotePassages, type ToolAnswer } from "./quote_passages.ts";
import { significantWords } from "./significant_words.ts";

/** A tool call the offline assistant wants; `arguments` is a JSON object as text. */
export interface OfflineCall {
  readonly name: string;
  readonly arguments: string;
}

export type OfflineReply =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "calls"; readonly calls: readonly OfflineCall[] };

const MAX_MATCHES = 200;
const MAX_FILES = 50;
const GREETING =
  /^(hi|hello|hey|hallo|good (morning|afternoon|evening)|help|who are you|what can you do)\b[^\p{L}]*(there)?[.!?\s]*$/iu;
const LISTING = /^(list|show|which|what)\b.*\b(files|folder|directory|workspace)\b/i;
const FILE_NAME = /(?:^|[\s"'`(])((?:[\w@.-]+\/)*[\w@-][\w@.-]*\.[A-Za-z]\w{0,9})(?=$|[\s"'`),?!:;]|\.(?:\s|$))/g;

/**
 * What the offline assistant says or calls next, from the messages since the last one of the user.
 *
 * `/name {json or text}` calls that tool, whosever it is. Any other text calls only the four read tools it knows, each once,
 * and quotes from their results.
 */
export function offlineReply(request: ProviderRequest): OfflineReply {
  const tools = request.toolChoice === "none" ? [] : request.tools;
  const { question, results } = lastExchange(request.messages);
  const command = parseCommand(question);
  if (results.length > 0) return text(command === undefined ? quotePassages(question, results) : showResults(results));
  if (command !== undefined) return callByName(command, tools);
  const forced = typeof request.toolChoice === "object" ? request.toolChoice.name : undefined;
  if (forced !== undefined) return callByName({ name: forced, input: question }, tools);
  if (question === "" || GREETING.test(question)) return text(introduction(tools));
  return search(question, tools);
}

function lastExchange(messages: readonly Message[]): { question: string; results: readonly ToolAnswer[] } {
  const asked = messages.findLastIndex((message) => message.role === "user");
  const question = messages[asked];
  const names = new Map<string, { name: string; input: string }>();
  const results: ToolAnswer[] = [];
  for (const message of messages.slice(asked + 1)) {
    if (message.role === "assistant") {
      for (const call of message.tool_calls ?? []) {
        names.set(call.id, { name: call.function.name, input: call.function.arguments });
      }
    }
    if (message.role === "tool") {
      const call = names.get(message.tool_call_id) ?? { name: "tool", input: "" };
      results.push({ ...call, output: textOf(message.content) });
    }
  }
  return { question: question === undefined ? "" : spoken(question.content), results };
}

/** The last part with text: parts before it are context that came with the question, as of `/api/chat`. */
function spoken(content: Content | null): string {
  const parts = typeof content === "string"
    ? [content]
    : (content ?? []).map((part) => (part.type === "text" ? part.text : ""));
  return parts.map((part) => part.trim()).findLast((part) => part !== "") ?? "";
}

interface Command {
  readonly name: string;
  readonly input: string;
}

function parseCommand(question: string): Command | undefined {
  const match = /^\/([A-Za-z0-9_-]{1,64})(?:\s+([\s\S]*))?$/.exec(question);
  return match === null ? undefined : { name: match[1] ?? "", input: (match[2] ?? "").trim() };
}

function callByName(command: Command, tools: readonly ToolDeclaration[]): OfflineReply {
  const tool = tools.find(({ name }) => name === command.name);
  if (tool !== undefined) {
    return { kind: "calls", calls: [{ name: tool.name, arguments: toArguments(tool, command.input) }] };
  }
  if (command.name === "help") return text(introduction(tools));
  if (command.name === "tools") return text(listTools(tools));
  return text(`There is no tool "${command.name}" in this request.\n\n${listTools(tools)}`);
}

/** A JSON object is passed on; other text becomes the property that stands first in the tool's schema. */
function toArguments(tool: ToolDeclaration, input: string): string {
  if (isJsonObject(input)) return input;
  if (input === "") return "{}";
  return JSON.stringify({ [firstProperty(tool.parameters) ?? "input"]: input });
}

function isJsonObject(input: string): boolean {
  if (!input.startsWith("{")) return false;
  try {
    JSON.parse(input);
    return true;
  } catch {
    return false;
  }
}

function firstProperty(schema: JsonSchema | undefined): string | undefined {
  const properties = schema?.["properties"];
  return typeof properties === "object" && properties !== null ? Object.keys(properties)[0] : undefined;
}

function search(question: string, tools: readonly ToolDeclaration[]): OfflineReply {
  const calls: OfflineCall[] = [];
  const add = (name: string, input: Record<string, unknown>) => {
    if (tools.some((tool) => tool.name === name)) calls.push({ name, arguments: JSON.stringify(input) });
  };
  const files = [...question.matchAll(FILE_NAME)].map((match) => match[1] ?? "");
  const [file] = files;
  if (file !== undefined) add("read_file", { path: file });
  if (file !== undefined && !file.includes("/")) add("glob_search", { pattern: `**/${file}`, limit: 20 });
  if (file === undefined && LISTING.test(question)) add("glob_search", { pattern: "**/*", limit: MAX_FILES });
  const words = significantWords(question).filter((word) => !files.some((name) => name.toLowerCase().includes(word)));
  if (words.length > 0) {
    add("content_search", { pattern: words.map(toPattern).join("|"), case_insensitive: true, limit: MAX_MATCHES });
    add("memory_recall", { query: words.join(" "), limit: 5 });
  }
  return calls.length > 0 ? { kind: "calls", calls } : text(introduction(tools));
}

/** RE2, whose word boundary knows ASCII alone. */
function toPattern(word: string): string {
  const escaped = word.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return /^[a-z0-9_]/.test(word) ? `\\b${escaped}` : escaped;
}

function showResults(results: readonly ToolAnswer[]): string {
  return results.map(({ name, output }) => `${name}:\n\n${fenced(output)}`).join("\n\n");
}

/** As a code block of Markdown, so that nothing in it is taken for formatting. */
function fenced(output: string): string {
  const longest = Math.max(2, ...[...output.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${output}${output.endsWith("\n") ? "" : "\n"}${fence}`;
}

function listTools(tools: readonly ToolDeclaration[]): string {
  if (tools.length === 0) return "No tools are switched on for this request.";
  const lines = tools.map(({ name, description }) => `- /${name}: ${firstSentence(description)}`);
  return `Tools of this request:\n\n${lines.join("\n")}`;
}

function firstSentence(description: string): string {
  return /^[\s\S]*?[.!?](?=\s|$)/.exec(description)?.[0] ?? description;
}

function introduction(tools: readonly ToolDeclaration[]): string {
  const example = tools.some(({ name }) => name === "read_file")
    ? "/read_file README.md"
    : '/tool_name {"key": "value"}';
  return `I am Postern's offline assistant. No language model is connected, so I cannot reason or write; I can search and show.

- Ask with words that stand in your files or in memory, and I quote the best passages with file and line.
- ${example} runs a tool and shows its result.
- /tools lists the tools (${tools.length} in this request).

To connect a real model, do one of these and restart the gateway:

- Set OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY in its environment.
- Start a local model server: Ollama, LM Studio, llama.cpp, vLLM or SGLang are found by themselves.
- Name one in postern.toml:

    [provider]
    kind = "openai_compatible"
    base_url = "http://127.0.0.1:8000/v1"
    model = "the-model"`;
}

function text(value: string): OfflineReply {
  return { kind: "text", text: value };
}
