import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { createScriptedProvider, createScriptedProviders } from "../../fixtures/scripted_provider.ts";
import { startOpenAiUpstream } from "../../fixtures/upstream/openai_upstream.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { ProviderError } from "../../lib/base/errors.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { type AgentProviderSettings, createAgentProviders } from "../../lib/providers/agent_providers.ts";
import { createProviderMetrics } from "../../lib/providers/retry.ts";
import { createProviderClients } from "../../lib/system/net/provider_client.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { collect, KEY, textOf } from "./support/provider_setup.ts";

async function setUp(context: Pick<TestContext, "after">, env: Record<string, string | undefined> = {}) {
  const upstream = await startOpenAiUpstream();
  const secrets: string[] = [];
  const metrics = createMetrics();
  const origins: string[] = [];
  const net = createProviderClients({ clock: systemClock });
  const agents = createAgentProviders({
    providers: createScriptedProviders(createScriptedProvider(() => "from the default")),
    env,
    net(options) {
      origins.push(options.origin);
      return net(options);
    },
    onSecret: (secret) => void secrets.push(secret),
    observer: createProviderMetrics(metrics),
    clock: systemClock,
    random: createSeededRandom(),
    log: SILENT,
  });
  context.after(async () => {
    await agents.close();
    await upstream.close();
  });
  return { agents, upstream, secrets, metrics, origins };
}

const agent = (changes: Partial<AgentProviderSettings> = {}): AgentProviderSettings => ({
  provider: "",
  model: "",
  api_key_env: "",
  ...changes,
});

test("an agent with an address of its own is answered from there, with its model and its key", async (t) => {
  const { agents, upstream, secrets, metrics } = await setUp(t, { HELPER_KEY: KEY });
  upstream.script({ kind: "text", chunks: ["Hel", "lo"] });
  const settings = agent({ provider: upstream.baseUrl, model: "own-model", api_key_env: "HELPER_KEY" });
  const { provider, model } = await agents.of("helper", settings);
  assert.deepEqual([provider.name, model], ["agents.helper", "own-model"]);
  assert.equal(textOf(await collect(provider, { model })), "Hello");
  assert.equal((upstream.requests[0]?.json as { model: string }).model, "own-model");
  assert.equal(upstream.requests[0]?.headers["authorization"], `Bearer ${KEY}`);
  assert.deepEqual(secrets, [KEY]);
  assert.match(metrics.render(), /postern_provider_requests_total\{provider="agents.helper",status="200"\} 1/);
});

test("nothing is opened before the first use, and then once", async (t) => {
  const { agents, upstream, origins } = await setUp(t);
  assert.deepEqual(origins, []);
  const settings = agent({ provider: upstream.baseUrl });
  const [first, second] = await Promise.all([agents.of("helper", settings), agents.of("helper", settings)]);
  assert.equal(first.provider, second.provider);
  assert.equal(origins.length, 1);
});

test("without a model the server's first one answers; without an address the default provider does", async (t) => {
  const { agents, upstream } = await setUp(t);
  upstream.script({ kind: "text", chunks: ["hi"] });
  const own = await agents.of("helper", agent({ provider: upstream.baseUrl }));
  await collect(own.provider, { model: own.model });
  const asked = upstream.requests.find((request) => request.path.endsWith("/chat/completions"));
  assert.equal((asked?.json as { model: string }).model, "upstream-model");
  const other = await agents.of("other", agent({ model: "small" }));
  assert.deepEqual([other.provider.name, other.model], ["scripted", "small"]);
});

test("a vendor's own address speaks the vendor's format", async (t) => {
  const { agents, origins } = await setUp(t, { ANTHROPIC_API_KEY: KEY });
  const { model } = await agents.of("helper", agent({ provider: "https://api.anthropic.com" }));
  assert.match(model, /^claude/);
  assert.deepEqual(origins, ["https://api.anthropic.com"]);
});

test("a key that is missing is named, and found once it is there", async (t) => {
  const env: Record<string, string | undefined> = {};
  const { agents, upstream } = await setUp(t, env);
  const settings = agent({ provider: upstream.baseUrl, api_key_env: "HELPER_KEY" });
  await assert.rejects(
    agents.of("helper", settings),
    (error) => error instanceof ProviderError && /\[agents.helper\].*"HELPER_KEY" is not set/.test(error.message),
  );
  env["HELPER_KEY"] = KEY;
  assert.equal((await agents.of("helper", settings)).provider.name, "agents.helper");
});
