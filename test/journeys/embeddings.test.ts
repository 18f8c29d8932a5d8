import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { type EmbeddingsUpstream, startEmbeddingsUpstream } from "../../fixtures/upstream/embeddings_upstream.ts";
import { type RunningGateway, until, withWorld, type World } from "../support/world.ts";

const MODEL = "local/embedder";

const configOf = ({ baseUrl }: EmbeddingsUpstream) => ({
  providers: { local: { base_url: baseUrl } },
  embedding_routes: [{ hint: "meaning", provider: "local", model: "embedder" }],
  memory: { embedding_route: "meaning" },
});

async function callTool({ call }: RunningGateway, name: string, input: object) {
  const reply = await call(`/v1/tools/${name}/call`, { body: { input } });
  const { output, is_error: isError } = await reply.json() as { output: string; is_error: boolean };
  assert.equal(isError, false, output);
  return output;
}

const missing = async ({ services }: RunningGateway) =>
  (await services.store.vectorless("memory", { model: MODEL, limit: 100 })).records.length;

async function startUpstream(world: World): Promise<EmbeddingsUpstream> {
  const upstream = await startEmbeddingsUpstream();
  world.onEnd(() => upstream.close());
  return upstream;
}

test("memory_recall finds a memory by its meaning, and a restart keeps the vectors", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const folder = await world.folder();
    const options = { config: configOf(upstream), dataDir: join(folder, "data") };
    await world.during(world.gateway(options), async (gateway) => {
      await callTool(gateway, "memory_store", { key: "yard", value: "An automobile is in the yard" });
      await callTool(gateway, "memory_store", { key: "food", value: "The canteen closes at two" });
      await until(async () => await missing(gateway) === 0);
      assert.match(await callTool(gateway, "memory_recall", { query: "my car" }), /^yard: /);
      const listed = await (await gateway.call("/v1/memory?query=meal")).json() as { data: { key: string }[] };
      assert.equal(listed.data[0]?.key, "food");
    });
    const asked = upstream.asked.length;
    await world.during(world.gateway(options), async (gateway) => {
      assert.match(await callTool(gateway, "memory_recall", { query: "which vehicle" }), /^yard: /);
    });
    assert.deepEqual(upstream.asked.slice(asked), ["which vehicle"]);
  }));

test("memories are stored and found by words while the server of embeddings says no", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    upstream.answer = () => ({ status: 500, body: { error: { message: "out of memory" } } });
    const gateway = await world.gateway({ config: configOf(upstream) });
    await callTool(gateway, "memory_store", { key: "yard", value: "An automobile is in the yard" });
    await until(() => upstream.asked.length > 0);
    assert.match(await callTool(gateway, "memory_recall", { query: "automobile" }), /^yard: /);
    assert.equal(await callTool(gateway, "memory_recall", { query: "car" }), "No memory matches");
    assert.equal(await missing(gateway), 1);
    assert.ok(gateway.log.some(({ message }) => message.startsWith("Memories could not be embedded")));
  }));

test("without a route nothing is sent", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const config = { ...configOf(upstream), memory: {} };
    await world.during(world.gateway({ config }), async (gateway) => {
      await callTool(gateway, "memory_store", { key: "yard", value: "An automobile is in the yard" });
      assert.match(await callTool(gateway, "memory_recall", { query: "automobile" }), /^yard: /);
    });
    assert.deepEqual(upstream.requests, []);
  }));

test("a route whose provider cannot embed is said once, and words find memories", () =>
  withWorld(async (world) => {
    const upstream = await startUpstream(world);
    const embedding_routes = [{ hint: "meaning", provider: "openai", model: "embedder" }];
    const gateway = await world.gateway({ config: { ...configOf(upstream), embedding_routes } });
    await callTool(gateway, "memory_store", { key: "yard", value: "An automobile is in the yard" });
    assert.match(await callTool(gateway, "memory_recall", { query: "automobile" }), /^yard: /);
    const said = gateway.log.filter(({ message }) => message.includes('"openai/embedder" of the route "meaning"'));
    assert.equal(said.length, 1);
  }));
