import { element } from "./dom.js";
import { createReply } from "./reply.js";

/** @typedef {import("../../base/records/conversation.ts").ConversationMessage} Message */

/** Why a reply was not said to its end, in plain words */
const CUT = new Map([["cancelled", "Stopped before its end"], ["length", "Cut at the token limit"]]);

/**
 * Stored messages as turns of the chat: questions, and replies with their tool calls.
 * @param {readonly Message[]} messages in their order
 * @returns {HTMLElement[]}
 */
export function pastTurns(messages) {
  /** @type {HTMLElement[]} */
  const turns = [];
  /** @type {ReturnType<typeof createReply> | undefined} */
  let reply;
  let words = "";
  const close = () => {
    reply?.ended(words);
    reply = undefined;
    words = "";
  };
  for (const message of messages) {
    const text = textOf(message);
    if (message.role === "user") {
      close();
      turns.push(askedBefore(message));
      continue;
    }
    if (message.role !== "assistant" && message.role !== "tool") continue;
    if (reply === undefined) {
      // Nobody is told of what was said long ago, and nothing of it waits for an answer
      reply = createReply({ announce: () => {}, onAnswer: () => Promise.resolve(), linksRun: true });
      turns.push(reply.root);
    }
    const shown = reply;
    if (message.cut !== undefined) words = CUT.get(message.cut) ?? `Cut off before its end (${message.cut})`;
    if (message.role === "tool") {
      shown.show({
        type: "tool_end",
        run_id: message.run_id,
        call_id: message.tool_call_id,
        tool: "tool",
        output: text,
        is_error: message.is_error === true,
        denied_by: message.denied_by,
      });
      continue;
    }
    if (text !== "") shown.show({ type: "text_delta", run_id: message.run_id, delta: text });
    for (const { id, function: called } of message.tool_calls ?? []) {
      shown.show({ type: "tool_start", call_id: id, tool: called.name, input: parsed(called.arguments) });
    }
  }
  close();
  return turns;
}

/** A document among the parts of a message, as the gateway shows it to the model. Source: lib/base/records/message.ts */
const DOCUMENT = /^File ("(?:[^"\\]|\\.)*"), mark ([0-9a-f]{24})[^]*\nEnd of the file, mark \2\.$/;

/** @param {Message} message of a person, whose files are named and not shown */
function askedBefore(message) {
  const { content } = message;
  const parts = Array.isArray(content) ? content : [{ type: "text", text: content ?? "" }];
  const { files: names } = message;
  if (names !== undefined) {
    return question(textOf({ ...message, content: parts.slice(0, parts.length - names.length) }), names);
  }
  // An earlier version, or another door, did not say which parts are files
  /** @type {string[]} */
  const files = [];
  const words = parts.filter((part) => {
    const [, name] = (part.type === "text" ? DOCUMENT.exec(String(part.text)) : null) ?? [];
    if (part.type === "image_url") files.push("Picture");
    if (name !== undefined) files.push(String(parsed(name)));
    return part.type !== "image_url" && name === undefined;
  });
  return question(textOf({ ...message, content: words }), files);
}

/**
 * @param {string} text what the person said
 * @param {readonly string[]} [files] names of the files that go with it. Default: none
 */
export function question(text, files = []) {
  return element(
    "li",
    { class: "turn question", "aria-label": "You" },
    element("p", {}, text),
    ...(files.length === 0 ? [] : [element("p", { class: "hint" }, `With ${files.join(", ")}`)]),
  );
}

/** @param {Message} message */
function textOf({ content, refusal }) {
  if (typeof content === "string") return content;
  const parts = (content ?? []).map((part) => part.type === "text" ? part.text ?? "" : `[${part.type}]`);
  return parts.length > 0 ? parts.join("\n") : refusal ?? "";
}

/** @param {string} input a model may have written no JSON */
function parsed(input) {
  try {
    return JSON.parse(input);
  } catch {
    return input;
  }
}
