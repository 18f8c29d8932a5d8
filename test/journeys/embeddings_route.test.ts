import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import {
  type EmbeddingsUpstream,
  startEmbeddingsUpstream,
  vectorOf,
} from "../../fixtures/upstream/embeddings_upstream.ts";
import { type RunningGateway, withWorld, type World } from "../support/world.ts";

const configOf = ({ baseUrl }: EmbeddingsUpstream, more: object = {}) => ({
  providers: { local: { base_url: baseUrl } },
  embedding_routes: [{ hint: "meaning", provider: "local", model: "embedder" }],
  ...more,
});

async function startUpstream(world: World): Promise<EmbeddingsUpstream> {
  const upstream = await startEmbeddingsUpstream();
  world.onEnd(() => upstream.close());
  return upstream;
}

async function embed({ call }: RunningGateway, body: object) {
  const reply = await call("/v1/embeddings", { body });
  // deno-lint-ignore no-explicit-any -- replies of several forms
  return { status: reply.status, headers: reply.headers, body: await reply.json() as any };
}

test("OpenAI's client gets the vectors of its texts, as base64 and as numbers", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const { url, token } = await world.gateway({ config: configOf(upstream) });
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0 });
    const input = ["a car", "an invoice and a bill"];
    // The client asks for base64 by itself
    const { data, model } = await client.embeddings.create({ model: "local/embedder", input });
    assert.equal(model, "local/embedder");
    assert.deepEqual(data.map(({ index }) => index), [0, 1]);
    assert.deepEqual(
      data.map(({ embedding }) => [...embedding]),
      input.map((text) => [...Float32Array.from(vectorOf(text))]),
    );
    const numbers = await client.embeddings.create({ model: "local/embedder", input, encoding_format: "float" });
    assert.deepEqual(numbers.data.map(({ embedding }) => embedding), input.map((text) => vectorOf(text)));
  }));

test("tokens, dimensions and unknown fields reach the provider, which is asked for numbers", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    upstream.answer = (texts) => ({
      status: 200,
      body: {
        data: texts.map((_, index) => ({ index, embedding: [0.1, index] })),
        usage: { prompt_tokens: 7, total_tokens: 7 },
      },
    });
    const gateway = await world.gateway({ config: configOf(upstream) });
    const asked = { input: [[1, 2], [3]], dimensions: 2, user: "someone", truncate: true };
    const { status, body, headers } = await embed(gateway, { ...asked, model: "hint:meaning", encoding_format: null });
    assert.equal(status, 200);
    assert.deepEqual(upstream.requests.at(-1)?.json, { ...asked, model: "embedder", encoding_format: "float" });
    assert.deepEqual(body, {
      object: "list",
      data: [
        { object: "embedding", index: 0, embedding: [0.1, 0] },
        { object: "embedding", index: 1, embedding: [0.1, 1] },
      ],
      model: "hint:meaning",
      usage: { prompt_tokens: 7, total_tokens: 7 },
    });
    assert.equal(headers.get("x-postern-ignored"), null);
    await embed(gateway, { model: "local/embedder", input: [1, 2, 3] });
    assert.deepEqual(upstream.requests.at(-1)?.json, {
      model: "embedder",
      input: [[1, 2, 3]],
      encoding_format: "float",
    });
    const metrics = await (await gateway.call("/metrics")).text();
    assert.match(metrics, /postern_provider_requests_total\{provider="local",status="200"\} 2/);
    assert.match(metrics, /postern_provider_tokens_total\{provider="local",kind="prompt"\} 14/);
  }));

test("vectors that a server writes as base64 whatever it is asked for are read", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const base64 = Buffer.from(Float32Array.of(0.5, -2).buffer).toString("base64");
    upstream.answer = () => ({ status: 200, body: { data: [{ embedding: base64 }] } });
    const gateway = await world.gateway({ config: configOf(upstream) });
    const numbers = await embed(gateway, { model: "local/embedder", input: "a car" });
    assert.deepEqual(numbers.body.data[0].embedding, [0.5, -2]);
    const again = await embed(gateway, { model: "local/embedder", input: "a car", encoding_format: "base64" });
    assert.equal(again.body.data[0].embedding, base64);
    assert.equal("usage" in again.body, false);
  }));

test("a model without embeddings, and input that none takes, are refused by name", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const gateway = await world.gateway({ config: configOf(upstream) });
    const cases: readonly (readonly [body: object, status: number, param: string, message: RegExp])[] = [
      [{ model: "default", input: "x" }, 404, "model", /"offline": it has no embeddings; name a model/],
      [{ model: "nobody/model", input: "x" }, 404, "model", /nobody\/model/],
      [{ input: "x" }, 400, "model", /model/],
      [{ model: "local/embedder" }, 400, "input", /input/],
      [{ model: "local/embedder", input: [] }, 400, "input", /it takes a text/],
      [
        { model: "local/embedder", input: ["x", 1] },
        400,
        "input",
        /it takes a text, a list of tokens, or a list of 1 to 2048/,
      ],
      [
        { model: "local/embedder", input: [-1] },
        400,
        "input[0]",
        /input\[0\]/,
      ],
      [{ model: "local/embedder", input: Array(2049).fill("x") }, 400, "input", /1 to 2048/],
      [{ model: "local/embedder", input: "x", dimensions: 0 }, 400, "dimensions", /dimensions/],
      [{ model: "local/embedder", input: "x", encoding_format: "hex" }, 400, "encoding_format", /encoding_format/],
    ];
    for (const [body, status, param, message] of cases) {
      const reply = await embed(gateway, body);
      assert.equal(reply.status, status, JSON.stringify(reply.body));
      assert.equal(reply.body.error.param, param);
      assert.match(reply.body.error.message, message);
    }
    assert.equal(upstream.requests.length, 0);
  }));

test("texts for a hint go to the provider of its route alone, and a plain name is the model without its prefix", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const { baseUrl } = upstream;
    const embedding_routes = [{ hint: "elsewhere", provider: "openai", model: "embedder" }];
    const gateway = await world.gateway({
      config: { provider: { kind: "openai_compatible", base_url: baseUrl }, embedding_routes },
    });
    for (
      const [hint, reason] of [["elsewhere", /provider "openai" is not in use/], [
        "none",
        /the hints are elsewhere$/,
      ]] as const
    ) {
      const { status, body } = await embed(gateway, { model: `hint:${hint}`, input: "a car" });
      assert.deepEqual([status, body.error.code, body.error.param], [404, "model_not_found", "model"]);
      assert.match(body.error.message, reason);
    }
    assert.equal(upstream.requests.filter(({ path }) => path === "/v1/embeddings").length, 0);
    const { status, body } = await embed(gateway, { model: "plain/embedder", input: "a car" });
    assert.deepEqual([status, body.model], [200, "plain/embedder"]);
    assert.equal((upstream.requests.at(-1)?.json as { model: string }).model, "embedder");
  }));

test("a refusal of the server keeps its status, and a limit says when to come again", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const gateway = await world.gateway({ config: configOf(upstream) });
    upstream.answer = () => ({ status: 400, body: { error: { message: "too many dimensions", param: "dimensions" } } });
    const rejected = await embed(gateway, { model: "local/embedder", input: "x", dimensions: 9000 });
    assert.equal(rejected.status, 400);
    assert.match(rejected.body.error.message, /too many dimensions/);
    upstream.answer = () => ({ status: 500, body: {} });
    assert.equal((await embed(gateway, { model: "local/embedder", input: "x" })).status, 502);
  }));

test("vectors count in the budget of the day, and what was never made is given back", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const usage = { prompt_tokens: 30, total_tokens: 30 };
    upstream.answer = () => ({ status: 200, body: { data: [{ embedding: [1] }], usage } });
    const gateway = await world.gateway({ config: configOf(upstream, { budget: { tokens_per_day: 100 } }) });
    const of = (letters: number) => embed(gateway, { model: "local/embedder", input: "x".repeat(letters) });
    assert.equal((await of(90)).status, 200);
    upstream.answer = () => ({ status: 400, body: { error: { message: "no" } } });
    assert.equal((await of(60)).status, 400);
    upstream.answer = () => ({ status: 200, body: { data: [{ embedding: [1] }], usage } });
    assert.equal((await of(60)).status, 200);
    const used = await of(60);
    assert.equal(used.status, 429, JSON.stringify(used.body));
    assert.equal(upstream.requests.length, 3);
  }));
