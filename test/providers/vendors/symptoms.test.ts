import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

/**
 * Symptoms that people report of gateways and agents when a vendor, a server, a page or a file has a form of its own, each with the test
 * that shows that it does not happen here: the file below `test/`, and a part of the test's name.
 */
const SYMPTOMS: readonly (readonly [symptom: string, file: string, name: string])[] = [
  ["a limit of 5 tokens gives 3,000", "providers/vendors/learnt_forms", "is sent under the other name at once"],
  [
    "one model's refusal of a field changes every model",
    "providers/vendors/learnt_forms",
    "is not held against the others",
  ],
  [
    "two messages of the user after each other are refused for ever",
    "providers/vendors/learnt_history",
    "a refusal of the history teaches",
  ],
  [
    "a conversation cannot change to DeepSeek or Gemini",
    "providers/vendors/learnt_history",
    "a refusal of the history teaches",
  ],
  ["each second turn with Mistral is 400", "journeys/call_ids", "to another vendor go ids of its form"],
  ["Kimi stops to call tools", "journeys/call_ids", "the agent sends the ids of"],
  ["a history with one id twice is 400 with Claude", "journeys/call_ids", "with one id twice reaches Claude"],
  ["a client's own ids come back as the gateway's", "journeys/call_ids", "hands the ids of"],
  ["a conversation that outgrew the model is stuck for ever", "journeys/context_overflow", "goes on, whatever it says"],
  ["a limit of output is taken for a long history", "providers/vendors/too_long", "not too long, "],
  ["the error is a web page, or empty", "providers/vendors/error_body", "the words are found in an error body"],
  [
    "a fault in a tool's schema is an unknown model",
    "providers/vendors/error_body",
    "a fault in a schema that names a model",
  ],
  ["a quota that is used up is asked for again", "providers/vendors/error_body", "a quota that is used up is 429"],
  ["a finished stream hangs until the timeout", "providers/openai/stream_ends", "and is left open, ends at once"],
  [
    "a stream that broke after its last word is lost",
    "providers/openai/stream_ends",
    "after its finish reason is whole",
  ],
  ["a long event is asked for, and paid, three times", "providers/openai/stream_ends", "beyond that nobody asks again"],
  ["keep-alive comments hold a run for ever", "providers/openai/stream_ends", "says nothing ends after silence_secs"],
  [
    "a reply of blanks makes a conversation unusable",
    "journeys/blank_texts",
    "a reply of blanks leaves a conversation",
  ],
  ["Claude refuses temperature, top_p or thinking budgets", "providers/vendors/claude", "what is left out is named"],
  ["Claude refuses a beginning of its reply", "providers/vendors/claude", "is refused early"],
  ["a picture with a wrong label is refused", "providers/vendors/claude", "is ${media_type}"],
  ["a model without tools in its template invents answers", "providers/vendors/tool_support", "says so in a notice"],
  [
    "any reply makes the next message fail",
    "providers/vendors/reply_fuzz",
    "after any reply a plain message is answered",
  ],
  [
    "a job of 23:30 never runs on the night of the change",
    "automation/cron/firing_times",
    "a gap that ends or begins at midnight",
  ],
  ["an MCP server that was restarted leaves calls unknown", "extensions/mcp/http_server", "over a new session"],
  ["one bad tool hides all tools of a server", "extensions/mcp/mend_reply", "do not hide the others"],
  ["a browser of an MCP server cannot start", "system/process/temporary_folder", "under the longest data directory"],
  ["a client gets 157 tools at once", "handlers/mcp/many_tools", "gets few, finds the others"],
  ["a fetched page is without the section it was fetched for", "web/page_kinds", "has what its readers come for"],
  ["git finds no repository in a linked working tree", "tools/git/outside_worktree", "is read and not changed"],
];

test("each symptom that people report has a test of its own", () => {
  assert.equal(new Set(SYMPTOMS.map(([symptom]) => symptom)).size, SYMPTOMS.length);
  const missing = SYMPTOMS.filter(([, file, name]) => {
    const text = readFileSync(new URL(`../../${file}.test.ts`, import.meta.url), "utf8");
    return !text.split("\n").some((line) => /\btest\(|^\s+["`]/.test(line) && line.includes(name));
  });
  assert.deepEqual(missing, []);
});
