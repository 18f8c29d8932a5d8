import { isWholeJson, type JsonSchema } from "../../base/json.ts";
import { type Content, type Message, saidParts, textOf } from "../../base/records/message.ts";
import type { Clock } from "../../base/clock.ts";
import type { ProviderRequest, ToolDeclaration } from "../provider.ts";
import { answerFrom, fenced, filesToRead, hitsOf, type ToolAnswer } from "./answer.ts";
import type { Passage } from "./passages.ts";
import { SELF, smallTalk } from "./small_talk.ts";
import { significantWords, stemOf } from "./words.ts";

/** A tool call the offline assistant wants; `arguments` is a JSON object as text. */
export interface OfflineCall {
  readonly name: string;
  readonly arguments: string;
}

/** Reply of the offline assistant: a text, or tool calls that it wants first. */
export type OfflineReply =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "calls"; readonly calls: readonly OfflineCall[] };

/** Knowledge that the offline assistant has beside the request. */
export interface OfflineKnowledge {
  readonly now: Clock["now"];
  /** Reads Postern's own documentation */
  readonly documentation: () => Promise<readonly Passage[]>;
  /** Tells whether the agent has a tool that is off */
  readonly isToolOff: (name: string) => boolean;
  /** Tells whether the reply says how to connect a model: true while none is in use. */
  readonly hints: boolean;
}

const MAX_QUESTION = 1_000;
const MAX_MATCHES = 400;
/** Files that are read for one question */
const READ = { prose: 5, code: 2 };
const PROSE_GLOB = "**/*.{md,mdx,markdown,txt,rst,adoc}";
const MAX_FILES = 50;
const GREETING =
  /^(hi|hello|hey|hallo|good (morning|afternoon|evening)|help|what can you do)\b[^\p{L}]*(there)?[.!?\s]*$/iu;
const LISTING = /^(list|show|which|what)\b.*\b(files|folder|directory|workspace)\b/i;
const FILE_NAME = /(?:^|[\s"'`(])((?:[\w@.-]+\/)*[\w@-][\w@.-]*\.[A-Za-z]\w{0,9})(?=$|[\s"'`),?!:;]|\.(?:\s|$))/g;

/**
 * Says what the offline assistant says or calls next, from the messages since the last one of the user.
 *
 * `/name {json or text}` calls that tool, whosever it is. Any other text is answered by itself where it needs no search, else by the
 * four read tools alone, in two rounds: what holds the question's words, then the files that hold most of them.
 */
export async function offlineReply(request: ProviderRequest, knowledge: OfflineKnowledge): Promise<OfflineReply> {
  const tools = request.toolChoice === "none" ? [] : request.tools;
  const { question, results, rounds } = lastExchange(request.messages);
  const { hints } = knowledge;
  // Patterns read it some times over, and a question has its words early
  const asked = question.slice(0, MAX_QUESTION);
  const command = parseCommand(question);
  const answer = async () =>
    text(
      answerFrom({
        question: asked,
        topic: topicOf(asked),
        results,
        documentation: await knowledge.documentation(),
        hints,
      }),
    );
  // The door of the agent's tools says how to turn it on; a client's own tools have no such door
  const hasDoor = tools.length > 0 && (request.stableTools ?? 0) > 0;
  if (command !== undefined && rounds === 0 && hasDoor && knowledge.isToolOff(command.name)) {
    const { name, input } = command;
    return { kind: "calls", calls: [{ name, arguments: isJsonObject(input) ? input : "{}" }] };
  }
  if (command !== undefined) return rounds > 0 ? text(showResults(results)) : callByName(command, { tools, hints });
  if (rounds > 0) return rounds === 1 ? readFound(asked, results, tools) ?? await answer() : await answer();
  const forced = typeof request.toolChoice === "object" ? request.toolChoice.name : undefined;
  if (forced !== undefined) return callByName({ name: forced, input: question }, { tools, hints });
  if (question === "" || GREETING.test(asked)) return text(introduction(tools, hints));
  const said = smallTalk(question, knowledge);
  if (said !== undefined) return text(said);
  return search(asked, tools) ?? await answer();
}

/** `rounds`: how often tools were called since the question. */
function lastExchange(
  messages: readonly Message[],
): { readonly question: string; readonly results: readonly ToolAnswer[]; readonly rounds: number } {
  const asked = messages.findLastIndex((message) => message.role === "user");
  const question = messages[asked];
  const names = new Map<string, { name: string; input: string }>();
  const results: ToolAnswer[] = [];
  let rounds = 0;
  for (const message of messages.slice(asked + 1)) {
    if (message.role === "assistant" && (message.tool_calls?.length ?? 0) > 0) {
      rounds++;
      for (const call of message.tool_calls ?? []) {
        names.set(call.id, { name: call.function.name, input: call.function.arguments });
      }
    }
    if (message.role === "tool") {
      const call = names.get(message.tool_call_id) ?? { name: "tool", input: "" };
      results.push({ ...call, output: textOf(message.content), isError: message.is_error === true });
    }
  }
  return { question: question === undefined ? "" : spoken(question.content), results, rounds };
}

/** The last part with text: parts before it are context that came with the question, as of `/api/chat`, and documents come behind it. */
function spoken(content: Content | null): string {
  return saidParts(content).map((part) => part.trim()).findLast((part) => part !== "") ?? "";
}

interface Command {
  readonly name: string;
  readonly input: string;
}

function parseCommand(question: string): Command | undefined {
  const match = /^\/([A-Za-z0-9_-]{1,64})(?:\s+([\s\S]*))?$/.exec(question);
  return match === null ? undefined : { name: match[1] ?? "", input: (match[2] ?? "").trim() };
}

function callByName(
  command: Command,
  { tools, hints }: { readonly tools: readonly ToolDeclaration[]; readonly hints: boolean },
): OfflineReply {
  const tool = tools.find(({ name }) => name === command.name);
  if (tool !== undefined) {
    return { kind: "calls", calls: [{ name: tool.name, arguments: toArguments(tool, command.input) }] };
  }
  if (command.name === "help") return text(introduction(tools, hints));
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
  return input.startsWith("{") && isWholeJson(input);
}

function firstProperty(schema: JsonSchema | undefined): string | undefined {
  const properties = schema?.["properties"];
  return typeof properties === "object" && properties !== null ? Object.keys(properties)[0] : undefined;
}

/** The question without the files that it names. */
function topicOf(question: string): string {
  return question.replaceAll(FILE_NAME, " ");
}

/** undefined: there is nothing to search for, or no tool to do it. */
function search(question: string, tools: readonly ToolDeclaration[]): OfflineReply | undefined {
  const calls: OfflineCall[] = [];
  const add = (name: string, input: Record<string, unknown>) => {
    if (tools.some((tool) => tool.name === name)) calls.push({ name, arguments: JSON.stringify(input) });
  };
  const files = [...question.matchAll(FILE_NAME)].map((match) => match[1] ?? "");
  const [file] = files;
  if (file !== undefined) add("read_file", { path: file });
  if (file !== undefined && !file.includes("/")) add("glob_search", { pattern: `**/${file}`, limit: 20 });
  if (file === undefined && LISTING.test(question)) add("glob_search", { pattern: "**/*", limit: MAX_FILES });
  const words = significantWords(topicOf(question));
  if (words.length > 0) {
    const pattern = [...new Set(words.map(stemOf))].map(toPattern).join("|");
    const lines = { pattern, case_insensitive: true, limit: MAX_MATCHES };
    add("content_search", { ...lines, glob: PROSE_GLOB });
    add("content_search", lines);
    add("memory_recall", { query: words.join(" "), limit: 5 });
  }
  return calls.length > 0 ? { kind: "calls", calls } : undefined;
}

/** The files of a search that are worth reading; undefined where there are none. */
function readFound(
  question: string,
  results: readonly ToolAnswer[],
  tools: readonly ToolDeclaration[],
): OfflineReply | undefined {
  if (!tools.some(({ name }) => name === "read_file")) return undefined;
  const hits = results.filter(({ name, isError }) => name === "content_search" && !isError)
    .flatMap(({ output }) => hitsOf(output));
  const read = results.filter(({ name }) => name === "read_file").map(({ input }) => input);
  const calls = filesToRead(topicOf(question), hits, READ).map((path) => JSON.stringify({ path }))
    .filter((input) => !read.includes(input)).map((input) => ({ name: "read_file", arguments: input }));
  return calls.length === 0 ? undefined : { kind: "calls", calls };
}

/** RE2, whose word boundary knows ASCII alone. */
function toPattern(word: string): string {
  const escaped = word.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return /^[a-z0-9_]/.test(word) ? `\\b${escaped}` : escaped;
}

function showResults(results: readonly ToolAnswer[]): string {
  return results.map(({ name, output }) => `${name}:\n\n${fenced(output)}`).join("\n\n");
}

function listTools(tools: readonly ToolDeclaration[]): string {
  if (tools.length === 0) return "No tools are switched on for this request.";
  const lines = tools.map(({ name, description }) => `- /${name}: ${firstSentence(description)}`);
  return `Tools of this request:\n\n${lines.join("\n")}`;
}

function firstSentence(description: string): string {
  return /^[\s\S]*?[.!?](?=\s|$)/.exec(description)?.[0] ?? description;
}

function introduction(tools: readonly ToolDeclaration[], hints: boolean): string {
  const example = tools.some(({ name }) => name === "read_file")
    ? "/read_file README.md"
    : '/tool_name {"key": "value"}';
  const use = `${SELF} I have no language model, so I cannot reason or write.

- Ask about your files or about Postern, and I quote the paragraphs that fit best.
- ${example} runs a tool and shows its result.
- /tools lists the tools (${tools.length} in this request).`;
  return hints ? `${use}\n\n${CONNECT}` : use;
}

const CONNECT = `To connect a real model, do one of these and restart the gateway:

- Set OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY in its environment.
- Start a local model server: Ollama, LM Studio, llama.cpp, vLLM or SGLang are found by themselves.
- Name one in postern.toml:

    [provider]
    kind = "openai_compatible"
    base_url = "http://127.0.0.1:8000/v1"
    model = "the-model"`;

function text(value: string): OfflineReply {
  return { kind: "text", text: value };
}
