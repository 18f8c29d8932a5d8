import { isRecord } from "../../base/json.ts";
import { textOf } from "../../base/records/message.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import type { ProviderLayer, ProviderRequest } from "../provider.ts";

/** Longest reply that is held back while it may be a call, in characters */
const MAX_HELD = 64 * 1024;
/** Begin of a fence with its language, or of a tag around calls */
const AROUND = /^(?:```[a-z_]*\s*|<tool_call>\s*)/;
const HEAD = '{"name":';
const FENCE = "```";
const TAG = "<tool_call>";
const TAG_END = "</tool_call>";
/** Characters of a reply that tell whether it may be a call */
const MAX_HEAD = 512;

/**
 * Makes the layer of a local server by which a reply to a request with tools that is nothing but the JSON of calls of them, by itself, in a fence or
 * in tags, is taken as these calls, with a notice. Small models write their calls so, and their servers pass that on as text. With words
 * beside it, or the name of another tool, a reply stays text: a model may explain a call without making it. So does a reply that is in a
 * result of a tool or in the user's words: a model that is to show a file must not thereby do what the file says.
 */
export function withWrittenCalls(nextId: () => string): ProviderLayer {
  return (provider) => ({
    stream(request, options) {
      const stream = provider.stream(request, options);
      // In plain mode the client gets what the server said
      return mayCall(request) && options.givesFields !== true ? readWritten(stream, { request, nextId }) : stream;
    },
  });
}

/** A request that asks for JSON gets it as text. */
function mayCall({ tools, toolChoice, parameters }: ProviderRequest): boolean {
  return tools.length > 0 && toolChoice !== "none" && parameters.response_format === undefined;
}

interface Written {
  readonly name: string;
  readonly input: string;
}

/** Holds a reply back as long as it may be nothing but calls. What is held when a reply breaks off is given first. */
async function* readWritten(
  stream: AsyncIterable<readonly ProviderEvent[]>,
  { request, nextId }: { readonly request: ProviderRequest; readonly nextId: () => string },
): AsyncGenerator<readonly ProviderEvent[], undefined, undefined> {
  let held = "";
  let isPlain = false;
  const release = (): readonly ProviderEvent[] => {
    isPlain = true;
    return held === "" ? [] : [{ type: "text_delta", delta: held }];
  };
  const take = (event: ProviderEvent): readonly ProviderEvent[] => {
    switch (event.type) {
      case "text_delta":
        held += event.delta;
        return mayBeCalls(held) ? [] : release();
      case "reasoning_delta":
      case "reply_fields":
      case "notice":
        return [event];
      case "finish": {
        const calls = event.finish_reason === "stop" ? readCalls(held, request) : undefined;
        if (calls === undefined) return [...release(), event];
        return [NOTICE, ...calls.map((call, index) => toDelta(call, index, nextId())), {
          ...event,
          finish_reason: "tool_calls",
        }];
      }
      default:
        return [...release(), event];
    }
  };
  try {
    for await (const batch of stream) {
      const out = isPlain ? batch : batch.flatMap((event) => isPlain ? [event] : take(event));
      if (out.length > 0) yield out;
    }
  } catch (error) {
    const rest = isPlain ? [] : release();
    if (rest.length > 0) yield rest;
    throw error;
  }
}

const NOTICE: ProviderEvent = {
  type: "notice",
  code: "tool_call_written",
  message: "The model wrote a tool call as text, which its server passed on: taken as a call",
};

function toDelta({ name, input }: Written, index: number, call_id: string): ProviderEvent {
  return { type: "tool_call_delta", index, call_id, name, arguments_delta: input };
}

/** Returns whether a text, or one that goes on from it, can be nothing but calls. */
function mayBeCalls(text: string): boolean {
  if (text.length > MAX_HELD) return false;
  const begun = text.slice(0, MAX_HEAD).trimStart();
  if (FENCE.startsWith(begun) || TAG.startsWith(begun)) return true;
  const compact = begun.replace(AROUND, "").slice(0, 64).replaceAll(/\s+/g, "").slice(0, HEAD.length);
  return HEAD.startsWith(compact);
}

/** Reads the calls that a whole reply is. @returns undefined when it is anything else */
function readCalls(text: string, { tools, messages }: ProviderRequest): readonly Written[] | undefined {
  const parts = splitCalls(text.trim());
  const calls = parts.map(readCall);
  const isWhole = calls.every((call) => call !== undefined && tools.some(({ name }) => name === call.name));
  // A reply without a word has no part
  if (calls.length === 0 || !isWhole) return undefined;
  const written = parts.map(lettersOf);
  const isShown = messages.some(({ role, content }) => {
    if (role !== "user" && role !== "tool") return false;
    const said = lettersOf(textOf(content));
    return written.some((part) => said.includes(part));
  });
  return isShown ? undefined : calls as readonly Written[]; // each was checked
}

/** Splits a reply into its calls: tags around each, or a fence around all, or one below the other. Whatever else it is stays in a part. */
function splitCalls(whole: string): readonly string[] {
  const isFenced = whole.startsWith(FENCE) && whole.length > FENCE.length && whole.endsWith(FENCE);
  const inner = whole.replace(AROUND, "");
  if (whole.startsWith(FENCE)) return isFenced ? splitObjects(inner.slice(0, -FENCE.length)) : [whole];
  const [first = "", ...others] = inner.split(TAG_END).map((piece) => piece.trim());
  if (others.at(-1) === "") others.pop();
  return [first, ...others.map((piece) => piece.startsWith(TAG) ? piece.slice(TAG.length) : TAG_END + piece)].flatMap(
    splitObjects,
  );
}

/** Splits objects in JSON that stand below each other. */
function splitObjects(text: string): readonly string[] {
  const parts: string[] = [];
  let isEnded = true;
  for (const line of text.split("\n")) {
    const said = line.trim();
    if (said === "") continue;
    if (isEnded && said.startsWith("{")) parts.push(line);
    else parts.push(`${parts.pop() ?? ""}\n${line}`);
    isEnded = said.endsWith("}");
  }
  return parts;
}

/** Returns the letters of a text alone: line numbers, quotes and breaks may stand otherwise where it was quoted. */
function lettersOf(text: string): string {
  return text.replaceAll(/[^\p{L}]+/gu, "");
}

function readCall(json: string): Written | undefined {
  try {
    const call: unknown = JSON.parse(json);
    if (!isRecord(call) || typeof call["name"] !== "string" || !isRecord(call["arguments"])) return undefined;
    return { name: call["name"], input: JSON.stringify(call["arguments"]) };
  } catch {
    return undefined;
  }
}
