import assert from "node:assert/strict";
import { performance } from "node:perf_hooks";
import { describe, test } from "node:test";
import { loadTokenCounter, type TokenCounter } from "../../lib/agent/estimate_tokens.ts";

async function counterOf(model: string): Promise<TokenCounter> {
  const counter = await loadTokenCounter(model);
  assert.ok(counter !== undefined, "gpt-tokenizer is a development dependency");
  return counter;
}

describe("a token counter", () => {
  test("counts as the model's vocabulary does", async () => {
    assert.equal((await counterOf("gpt-4o-mini"))("Hello, world!"), 4);
    assert.equal((await counterOf("gpt-4"))("Hello, world!"), 4);
    assert.equal((await counterOf("any/local-model"))(""), 0);
  });

  test("knows two vocabularies, by the model's name", async () => {
    const text = "Ünïcödé naïve façade 日本語のテキスト";
    const [newer, older] = [(await counterOf("gpt-4o"))(text), (await counterOf("gpt-3.5-turbo"))(text)];
    assert.notEqual(newer, older);
    for (const model of ["gpt-4.1-mini", "o3", "llama3.2", "openai/gpt-5"]) {
      assert.equal((await counterOf(model))(text), newer);
    }
    for (const model of ["gpt-4-turbo", "gpt-4-0613", "openai/gpt-4"]) {
      assert.equal((await counterOf(model))(text), older);
    }
  });

  test("takes what looks like a special token as text", async () => {
    assert.ok((await counterOf("gpt-4o"))("<|endoftext|> and <|im_start|>") > 2);
  });

  test("is not slowed down by texts made for it, and counts the rest of a long one by its beginning", async () => {
    const count = await counterOf("gpt-4o");
    const start = performance.now();
    for (const text of ["a".repeat(1_000_000), " ".repeat(1_000_000), "😀".repeat(500_000)]) {
      const tokens = count(text);
      assert.ok(tokens > 1000 && tokens <= 1_100_000, String(tokens));
    }
    assert.ok(performance.now() - start < 10_000);
  });
});
