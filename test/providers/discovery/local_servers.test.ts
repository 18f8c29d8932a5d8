import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { type LocalServerName, startLocalServer } from "../../../fixtures/upstream/local_servers.ts";
import { startOpenAiUpstream } from "../../../fixtures/upstream/openai_upstream.ts";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { discoverLocalServers, type DiscoveryOptions } from "../../../lib/providers/discovery/local_servers.ts";
import { ollamaAddress } from "../../../lib/providers/provider_settings.ts";
import { createProviderClients } from "../../../lib/system/net/provider_client.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { until } from "../../support/until.ts";

/** Stands still: the 2 s of a search end for none of the servers that answer, however late */
const clock = createFakeClock();
const net = createProviderClients({ clock });

const ownerOf = () => Promise.resolve({ accepted: true, owner: "run by you", identity: "test" } as const);

/** The servers that are taken where every owner is accepted. */
async function discover(options: Omit<DiscoveryOptions, "ownerOf">) {
  return (await discoverLocalServers({ ...options, ownerOf })).servers;
}

async function originOf(t: TestContext, name: LocalServerName): Promise<string> {
  const server = await startLocalServer(name);
  t.after(() => server.close());
  return server.origin;
}

for (
  const [name, software, kind, model] of [
    ["ollama", "Ollama", "ollama", "nomic-embed-text:latest"],
    ["lm_studio", "LM Studio", "openai_compatible", "qwen3-8b"],
    ["llama_cpp", "llama.cpp", "openai_compatible", "gemma.gguf"],
    ["vllm", "vLLM", "openai_compatible", "meta-llama/Llama-3.1-8B"],
    ["sglang", "SGLang", "openai_compatible", "Qwen/Qwen3-8B"],
  ] as const
) {
  test(`${software} is known by its answers on any port`, async (t) => {
    const origin = await originOf(t, name);
    const [found] = await discover({ net, clock, env: {}, origins: [origin] });
    assert.deepEqual([found?.software, found?.kind, found?.baseUrl, found?.models[0]], [
      software,
      kind,
      `${origin}/v1`,
      model,
    ]);
  });
}

test("a server of unknown make that lists models is taken", async (t) => {
  const upstream = await startOpenAiUpstream();
  t.after(() => upstream.close());
  const [found] = await discover({ net, clock, env: {}, origins: [upstream.origin] });
  assert.equal(found?.software, "a model server");
});

test("a web page, a server without models and a closed port are not taken", async (t) => {
  const origins = [await originOf(t, "web_app"), await originOf(t, "empty"), "http://127.0.0.1:9"];
  assert.deepEqual(await discover({ net, clock, env: {}, origins }), []);
});

test("another Postern is not taken, whatever models it lists", async (t) => {
  const origins = [await originOf(t, "postern")];
  assert.deepEqual(await discover({ net, clock, env: {}, origins }), []);
});

test("the gateway does not ask itself", async (t) => {
  const server = await startLocalServer("vllm");
  t.after(() => server.close());
  const env = { OLLAMA_HOST: new URL(server.origin).host };
  const options = { net, clock, env, origins: [server.origin] };
  assert.deepEqual(await discover({ ...options, isOwn: (origin) => origin === server.origin }), []);
  assert.deepEqual(server.requests, []);
});

test("a server that still loads its model, as llama.cpp does with 503, is found once it is ready", async (t) => {
  let ready = false;
  const models = { object: "list", data: [{ id: "gemma.gguf", object: "model", owned_by: "llamacpp" }] };
  const loading = { error: { message: "Loading model", type: "unavailable_error", code: 503 } };
  const server = await startFakeServer((_, response) => {
    response.writeHead(ready ? 200 : 503, { "content-type": "application/json" });
    response.end(JSON.stringify(ready ? models : loading));
  });
  t.after(() => server.close());
  const look = () => discover({ net, clock, env: {}, origins: [server.origin] });
  assert.deepEqual(await look(), []);
  ready = true;
  assert.deepEqual((await look()).map(({ software }) => software), ["llama.cpp"]);
});

test("a port of this machine where nothing listens is asked nothing", async () => {
  const asked: string[] = [];
  const watched = ({ origin }: { readonly origin: string }) => {
    asked.push(origin);
    throw new Error("A request would load the HTTP client");
  };
  const options = { net: watched, clock, env: {}, origins: ["http://127.0.0.1:9"] };
  assert.deepEqual(await discover(options), []);
  assert.deepEqual(asked, []);
});

test("the order is that of the places, OLLAMA_HOST first", async (t) => {
  const [vllm, lmStudio, ollama] = [
    await originOf(t, "vllm"),
    await originOf(t, "lm_studio"),
    await originOf(t, "ollama"),
  ];
  const env = { OLLAMA_HOST: new URL(ollama).host };
  const found = await discover({ net, clock, env, origins: [lmStudio, vllm] });
  assert.deepEqual(found.map(({ software }) => software), ["Ollama", "LM Studio", "vLLM"]);
});

test("a server that never answers costs 2 s in total, and the others are still found", async (t) => {
  const clock = createFakeClock();
  const silent = await startFakeServer(() => {});
  t.after(() => silent.close());
  const vllm = await startLocalServer("vllm");
  t.after(() => vllm.close());
  const origins = [silent.origin, vllm.origin];
  let open = true;
  const work = discover({ net: createProviderClients({ clock }), clock, env: {}, origins }).finally(() => open = false);
  await until(() => silent.requests.length === 3 && vllm.requests.length === 3);
  // One timer for the whole and one for each of the three requests without an answer
  await until(() => clock.pending() === 4);
  await clock.advance(1_999);
  assert.equal(open, true);
  await clock.advance(1);
  assert.deepEqual((await work).map(({ software }) => software), ["vLLM"]);
  assert.equal(clock.pending(), 0);
});

for (
  const [host, address] of [
    ["", undefined],
    ["0.0.0.0", "http://127.0.0.1:11434"],
    ["box:9999", "http://box:9999"],
    ["box", "http://box:11434"],
    ["https://box.example/", "https://box.example"],
    ["http://[bad", undefined],
  ] as const
) {
  test(`OLLAMA_HOST "${host}" means ${address}`, () => assert.equal(ollamaAddress(host), address));
}
