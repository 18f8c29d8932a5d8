import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { countInput, loadTokenCounter, maxInputTokens, type TokenCounter } from "../../lib/agent/estimate_tokens.ts";
import { processorMs } from "../support/processor_time.ts";

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
    const start = processorMs();
    for (const text of ["a".repeat(1_000_000), " ".repeat(1_000_000), "😀".repeat(500_000)]) {
      const tokens = count(text);
      assert.ok(tokens > 1000 && tokens <= 1_100_000, String(tokens));
    }
    assert.ok(processorMs() - start < 10_000);
  });
});

test("of an input of many long texts a bounded part is counted, and the rest is like it and no less than bytes/4", () => {
  const messages = Array.from({ length: 300 }, () => ({ role: "user", content: "x".repeat(40_000) }) as const);
  for (const [charsOfToken, expected] of [[2, 300 * 20_004], [100, 16 * 404 + 284 * 10_004]] as const) {
    let counted = 0;
    const tokens = countInput({ model: "m", messages, tools: [], parameters: {} }, (text) => {
      counted++;
      return text.length / charsOfToken;
    });
    assert.equal(counted, 16);
    assert.equal(tokens, expected);
  }
});

test("a picture and a file count as a page each, whatever their bytes", () => {
  const data = "A".repeat(100_000);
  const content = [
    { type: "image_url", image_url: { url: `data:image/png;base64,${data}` } } as const,
    { type: "file", file: { file_data: `data:application/pdf;base64,${data}` } } as const,
    { type: "text", text: "four" } as const,
  ];
  const request = { model: "m", messages: [{ role: "user", content } as const], tools: [], parameters: {} };
  assert.equal(countInput(request, (text) => text.length), 2 * 1_600 + 4 + "four".length);
});

test("the bound of a request that goes out as it came counts what its messages leave out, and no bytes of pictures", () => {
  const picture = { type: "image", source: { type: "base64", data: "A".repeat(100_000) } };
  const boundOf = (...content: readonly object[]) => {
    const sent = { format: "messages", body: { messages: [{ role: "assistant", content }] }, headers: {} } as const;
    return maxInputTokens({
      model: "m",
      messages: [{ role: "user", content: "Hi" }],
      tools: [],
      parameters: { passed: { body: {}, names: [], sent } },
    });
  };
  assert.ok(boundOf(picture) < 10_000);
  assert.ok(boundOf({ type: "web_search_tool_result", content: "x".repeat(20_000) }) > 20_000);
});
