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
export function neutralize(content: string): string {
  return content.replace(HIDDEN_TEXT, (_, flag?: string, selector?: string) => flag ?? selector ?? "")
    .replace(CONTROL_TOKENS, (token) => `${token.slice(0, 1)} ${token.slice(1)}`);
}

/** Controls but line ends and tabs, and marks that turn or hide what a person reads. */
// deno-lint-ignore no-control-regex
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Returns a text of somebody else as one line of bounded length, without what nobody sees: data to choose by, never a layout of its own. */
export function neutralLine(text: string, maxLength: number): string {
  // Clean the beginning only: the rest of a long text is cut off
  const line = neutralize(text.slice(0, maxLength * 4).replaceAll(UNSEEN, " ")).replaceAll(/\s+/g, " ").trim();
  return line.length <= maxLength ? line : `${line.slice(0, maxLength).trimEnd()}...`;
}

/** Returns a text of somebody else with its lines, without what nobody sees, cut to a length. */
export function neutralText(text: string, maxLength: number): string {
  const clean = neutralize(text.slice(0, maxLength + 1).replaceAll(UNSEEN, ""));
  return clean.length <= maxLength ? clean : `${clean.slice(0, maxLength).trimEnd()}...`;
}
