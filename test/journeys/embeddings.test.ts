import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { type EmbeddingsUpstream, startEmbeddingsUpstream } from "../../fixtures/upstream/embeddings_upstream.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

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

async function withUpstream(use: (upstream: EmbeddingsUpstream) => Promise<void>): Promise<void> {
  const upstream = await startEmbeddingsUpstream();
  try {
    await use(upstream);
  } finally {
    await upstream.close();
  }
}

test("memory_recall finds a memory by its meaning, and a restart keeps the vectors", async () => {
  await withUpstream((upstream) =>
    withTemporaryFolder(async (folder) => {
      const options = { config: configOf(upstream), dataDir: join(folder, "data") };
      await withRunningGateway(options, async (gateway) => {
        await callTool(gateway, "memory_store", { key: "yard", value: "An automobile stands in the yard" });
        await callTool(gateway, "memory_store", { key: "food", value: "The canteen closes at two" });
        await until(async () => await missing(gateway) === 0);
        assert.match(await callTool(gateway, "memory_recall", { query: "my car" }), /^yard: /);
        const listed = await (await gateway.call("/v1/memory?query=meal")).json() as { data: { key: string }[] };
        assert.equal(listed.data[0]?.key, "food");
      });
      const asked = upstream.asked.length;
      await withRunningGateway(options, async (gateway) => {
        assert.match(await callTool(gateway, "memory_recall", { query: "which vehicle" }), /^yard: /);
      });
      assert.deepEqual(upstream.asked.slice(asked), ["which vehicle"]);
    })
  );
});

test("memories are stored and found by words while the server of embeddings says no", async () => {
  await withUpstream(async (upstream) => {
    upstream.answer = () => ({ status: 500, body: { error: { message: "out of memory" } } });
    await withRunningGateway({ config: configOf(upstream) }, async (gateway) => {
      await callTool(gateway, "memory_store", { key: "yard", value: "An automobile stands in the yard" });
      await until(() => upstream.asked.length > 0);
      assert.match(await callTool(gateway, "memory_recall", { query: "automobile" }), /^yard: /);
      assert.equal(await callTool(gateway, "memory_recall", { query: "car" }), "No memory matches");
      assert.equal(await missing(gateway), 1);
      assert.ok(gateway.log.some(({ message }) => message.startsWith("Memories could not be embedded")));
    });
  });
});

test("without a route nothing is sent", async () => {
  await withUpstream(async (upstream) => {
    const config = { ...configOf(upstream), memory: {} };
    await withRunningGateway({ config }, async (gateway) => {
      await callTool(gateway, "memory_store", { key: "yard", value: "An automobile stands in the yard" });
      assert.match(await callTool(gateway, "memory_recall", { query: "automobile" }), /^yard: /);
    });
    assert.deepEqual(upstream.requests, []);
  });
});

test("a route whose provider cannot embed is said once, and words find memories", async () => {
  await withUpstream(async (upstream) => {
    const embedding_routes = [{ hint: "meaning", provider: "openai", model: "embedder" }];
    await withRunningGateway({ config: { ...configOf(upstream), embedding_routes } }, async (gateway) => {
      await callTool(gateway, "memory_store", { key: "yard", value: "An automobile stands in the yard" });
      assert.match(await callTool(gateway, "memory_recall", { query: "automobile" }), /^yard: /);
      const said = gateway.log.filter(({ message }) => message.includes('"openai/embedder" of the route "meaning"'));
      assert.equal(said.length, 1);
    });
  });
});
