import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { PROJECT_ROOT } from "../../support/source_files.ts";
import { VENDOR_ROWS, VendorForms } from "../../../lib/providers/vendors/vendor_forms.ts";

/** Servers and models with the row that counts for them. */
const ROWS: readonly (readonly [kind: string, origin: string, model: string, vendor: string, limit: string])[] = [
  ["anthropic", "https://api.anthropic.com", "claude-sonnet-4-5", "Anthropic from 4.1", "max_tokens"],
  ["openai", "https://api.openai.com", "gpt-5-mini", "OpenAI", "max_completion_tokens"],
  ["openai", "http://127.0.0.1:4000", "gpt-4o", "OpenAI", "max_completion_tokens"],
  ["openai_compatible", "https://api.openai.com", "o3", "OpenAI", "max_completion_tokens"],
  ["openai_compatible", "https://api.openai.com.evil.test", "o3", "all others", "max_tokens"],
  ["openai_compatible", "https://me.openai.azure.com", "o4-mini", "Azure, reasoning models", "max_completion_tokens"],
  ["openai_compatible", "https://me.openai.azure.com", "gpt-5", "Azure, reasoning models", "max_completion_tokens"],
  ["openai_compatible", "https://me.openai.azure.com", "gpt-4o", "Azure", "max_tokens"],
  ["openai_compatible", "https://generativelanguage.googleapis.com", "any", "Gemini", "max_tokens"],
  ["openrouter", "https://openrouter.ai", "google/gemini-2.5-pro", "Gemini", "max_tokens"],
  ["openrouter", "https://openrouter.ai", "anthropic/claude-sonnet-4.5", "OpenRouter", "max_tokens"],
  ["openrouter", "https://openrouter.ai", "openai/gpt-5", "OpenRouter", "max_tokens"],
  ["openrouter", "https://openrouter.ai", "moonshotai/kimi-k2", "Kimi", "max_tokens"],
  ["openai_compatible", "http://127.0.0.1:4000", "openai/gpt-5", "OpenAI behind another server", "max_tokens"],
  ["openai_compatible", "http://127.0.0.1:4000", "openai/gpt-oss-120b", "all others", "max_tokens"],
  ["openai_compatible", "https://api.mistral.ai", "any", "Mistral", "max_tokens"],
  ["ollama", "http://127.0.0.1:11434", "mistral-small3.1:24b", "Mistral", "max_tokens"],
  ["openai_compatible", "http://127.0.0.1:4000", "anthropic/claude-x", "Claude behind another server", "max_tokens"],
  ["ollama", "http://127.0.0.1:11434", "qwen3", "all others", "max_tokens"],
];

test("kind, host and model decide which row counts", () => {
  for (const [kind, origin, model, vendor, limit] of ROWS) {
    const form = new VendorForms({ kind, origin }).of(model);
    assert.deepEqual([form.vendor, form.limit], [vendor, limit], `${kind} ${origin} ${model}`);
  }
});

test("each row that counts is laid over those before it", () => {
  const { dialect, instructions } = new VendorForms({ kind: "openrouter", origin: "https://openrouter.ai" }).of(
    "anthropic/claude-sonnet-4.5",
  );
  assert.deepEqual([dialect, instructions], ["portable_claude", "as_sent"]);
  const claude = new VendorForms({ kind: "anthropic", origin: "https://api.anthropic.com" }).of("claude-opus-4-7");
  assert.deepEqual([claude.dialect, claude.sampling, claude.thinking, claude.takesPrefill], [
    "anthropic",
    "none",
    "adaptive",
    false,
  ]);
});

test("what is learnt counts for one model of one server, and models that clients make up push out the oldest", () => {
  const server = { kind: "openai_compatible", origin: "http://127.0.0.1:8080" };
  const forms = new VendorForms(server);
  forms.learn("a", { takesReasoning: false });
  forms.learn("a", { limit: "max_completion_tokens" });
  assert.deepEqual([forms.of("a").takesReasoning, forms.of("a").limit], [false, "max_completion_tokens"]);
  assert.equal(forms.of("b").takesReasoning, true);
  assert.equal(new VendorForms(server).of("a").takesReasoning, true);
  for (let i = 0; i < 98; i++) forms.of(`made-up-${i}`);
  assert.equal(forms.of("a").takesReasoning, false);
  forms.of("one more");
  assert.equal(forms.of("a").takesReasoning, true);
});

test("docs/http.md tells of every row, and of no vendor that has none", () => {
  const text = readFileSync(join(PROJECT_ROOT, "docs/http.md"), "utf8");
  const part = text.slice(text.indexOf("### What is changed on the way"), text.indexOf("## When the provider refuses"));
  const cells = part.split("\n").filter((line) => line.startsWith("|")).slice(2).flatMap((line) =>
    line.split("|")[2]?.split("; ").map((name) => name.trim().replace(/, (in|and) a.*/, "")) ?? []
  );
  const told = new Set(cells.filter((name) => name !== "all"));
  assert.deepEqual([...told].sort(), VENDOR_ROWS.map(({ vendor }) => vendor).sort());
});
