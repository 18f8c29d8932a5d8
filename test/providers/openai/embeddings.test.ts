import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { startEmbeddingsUpstream, vectorOf } from "../../../fixtures/upstream/embeddings_upstream.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { KEY, NEVER, setUp } from "../support/provider_setup.ts";

async function start(context: TestContext) {
  const upstream = await startEmbeddingsUpstream();
  context.after(() => upstream.close());
  const { providers } = await setUp(context, { base_url: upstream.baseUrl, api_key_env: "UP_KEY" }, {
    env: { UP_KEY: KEY },
  });
  const { embed } = providers.resolve("").provider;
  assert.ok(embed !== undefined);
  return { upstream, embed: (input: readonly string[], signal = NEVER) => embed({ model: "embedder", input }, signal) };
}

test("vectors come in the order of the texts, whatever the order of the reply", async (t) => {
  const { upstream, embed } = await start(t);
  const texts = ["a car", "an invoice and a bill"];
  assert.deepEqual(
    (await embed(texts)).vectors,
    texts.map((text) => vectorOf(text)),
  );
  const [request] = upstream.requests;
  assert.equal(request?.path, "/v1/embeddings");
  assert.deepEqual(request?.json, { model: "embedder", input: texts, encoding_format: "float" });
  assert.equal(request?.headers["authorization"], `Bearer ${KEY}`);
});

test("a reply that has not one vector for each text is an error, and nothing is made of it", async (t) => {
  const { upstream, embed } = await start(t);
  const entry = (embedding: unknown, index: unknown = 0) => ({ embedding, index });
  const bad: readonly unknown[] = [
    {},
    [],
    { data: [] },
    { data: [entry([1]), entry([1], 1)] },
    { data: [entry([])] },
    { data: [entry("AAAA")] },
    { data: [entry([1, null])] },
    { data: [entry([1e300])] },
    { data: [entry([1], 1)] },
    { data: [entry([1], -1)] },
    { data: [entry([1], "length")] },
    { data: [entry([1], 4_000_000_000)] },
    { data: [entry(Array(8193).fill(1))] },
  ];
  for (const body of bad) {
    upstream.answer = () => ({ status: 200, body });
    await assert.rejects(embed(["x"]), (error) => {
      assert.ok(error instanceof ProviderError, `${error}`);
      assert.equal(error.code, "provider_error", JSON.stringify(body).slice(0, 100));
      return true;
    });
  }
  upstream.answer = () => ({ status: 200, body: { data: [entry([1]), entry([1, 2], 1)] } });
  await assert.rejects(embed(["x", "y"]), ProviderError);
  upstream.answer = () => ({ status: 200, body: { data: [entry([1]), entry([1])] } });
  await assert.rejects(embed(["x", "y"]), ProviderError);
});

test("a refusal has its code, and never the key", async (t) => {
  const { upstream, embed } = await start(t);
  for (const [status, code] of [[400, "provider_rejected"], [429, "provider_rate_limited"], [500, "provider_error"]]) {
    upstream.answer = () => ({ status: Number(status), body: { error: { message: `no, ${KEY}` } } });
    await assert.rejects(embed(["x"]), (error) => {
      assert.ok(error instanceof ProviderError);
      assert.equal(error.code, code);
      assert.equal(error.message.includes(KEY), false);
      return true;
    });
  }
});

test("a cancelled request ends with CancelError", async (t) => {
  const { upstream, embed } = await start(t);
  upstream.answer = () => "hang";
  const controller = new AbortController();
  const asked = embed(["x"], controller.signal);
  controller.abort(new CancelError("cancelled"));
  await assert.rejects(asked, CancelError);
});
