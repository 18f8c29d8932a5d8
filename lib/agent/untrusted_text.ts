import type { Random } from "../base/random.ts";
import type { Taint } from "../base/taint.ts";

/** Origins of the content of an envelope, and the source of its mark. */
export interface Envelope {
  /** Origins of the content, as `web_fetch example.com` */
  readonly origin: Taint;
  readonly random: Random;
}

/**
 * Wraps what came from outside for the model's messages, so that it can tell data from instructions.
 *
 * The closing line carries a random mark: content cannot end its own envelope. Events and records keep the plain output.
 * Source: docs/design/network.md "Text from outside"
 */
export function wrapUntrusted(source: string, content: string, { origin, random }: Envelope): string {
  const mark = random.id("");
  const from = `source=${JSON.stringify(source)} origin=${JSON.stringify(origin.join(", "))}`;
  return `<untrusted ${from} mark="${mark}">\n${neutralized(content)}\n</untrusted mark="${mark}">`;
}

/**
 * Tokens by which models and servers tell system, user and assistant apart, and the envelope's own tags. A server that does not escape
 * them would take a page's text for the user's word.
 */
const CONTROL_TOKENS = new RegExp(
  [
    // ChatML, Llama 3, Phi, GPT-OSS: <|im_start|>; DeepSeek: <｜User｜>
    "<[|\uff5c]",
    "[|\uff5c]>",
    // Llama 2 and Mistral
    "\\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|IMG|PREFIX|SUFFIX|MIDDLE)\\]",
    "<</?SYS>>",
    // Gemma, and the marks of begin and end of a text
    "</?(?:start_of_turn|end_of_turn|bos|eos|s|unk|pad)>",
    // GLM, Cohere, and the tags of tool calls of Hermes and Qwen
    "\\[gMASK\\]",
    "</?(?:tool_call|tool_response|tool_calls|think|untrusted)\\b",
  ].join("|"),
  "giu",
);

/**
 * Tag characters and runs of variation selectors: a text within the text that models read and nobody sees. Tags stay in the flag of a
 * region, and one selector stays with its character.
 */
const HIDDEN_TEXT =
  /(\u{1f3f4}[\u{e0030}-\u{e0039}\u{e0061}-\u{e007a}]{3,6}\u{e007f})|[\u{e0000}-\u{e007f}]+|([\ufe00-\ufe0f\u{e0100}-\u{e01ef}])[\ufe00-\ufe0f\u{e0100}-\u{e01ef}]+/gu;

/** Leaves out hidden text, and puts a blank into each control token, so that it stays readable and is no token any more. */
function neutralized(content: string): string {
  return content.replace(HIDDEN_TEXT, (_, flag?: string, selector?: string) => flag ?? selector ?? "")
    .replace(CONTROL_TOKENS, (token) => `${token.slice(0, 1)} ${token.slice(1)}`);
}
