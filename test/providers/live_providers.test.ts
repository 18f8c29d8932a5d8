import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { createScriptedProvider } from "../../fixtures/scripted_provider.ts";
import { type LocalServerName, startLocalServer } from "../../fixtures/upstream/local_servers.ts";
import { startOpenAiUpstream } from "../../fixtures/upstream/openai_upstream.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { createLogger, type LogRecord } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { type Config, defaultConfig } from "../../lib/config/config.ts";
import {
  createLiveProviders,
  type LiveProviders,
  type LiveProvidersOptions,
} from "../../lib/providers/live_providers.ts";
import { createProviderMetrics } from "../../lib/providers/retry.ts";
import { createProviderClients } from "../../lib/system/net/provider_client.ts";
import { createFakeClock, type FakeClock } from "../support/fake_clock.ts";
import { freePort } from "../support/free_port.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { collect, KEY, textOf } from "./support/provider_setup.ts";
import { until } from "../support/until.ts";

interface Live {
  readonly providers: LiveProviders;
  readonly clock: FakeClock;
  readonly logged: LogRecord[];
  /** Origins that were asked over HTTP, each time */
  readonly asked: string[];
  /** Looks for servers that have ended: each sets the time of the next one */
  looked(): number;
}

const CALM_MS = 30_000;

function configOf(provider: Partial<Config["provider"]> = {}, others: Partial<Config> = {}): Config {
  const config = defaultConfig();
  return { ...config, provider: { ...config.provider, max_retries: 0, ...provider }, ...others };
}

async function live(
  t: TestContext,
  config: Config,
  changes: Partial<LiveProvidersOptions> & { readonly origins?: readonly string[] } = {},
): Promise<Live> {
  const still = createFakeClock();
  let scheduled = 0;
  const clock: FakeClock = {
    ...still,
    after(ms, fn) {
      if (ms === CALM_MS) scheduled++;
      return still.after(ms, fn);
    },
  };
  const metrics = createMetrics();
  const logged: LogRecord[] = [];
  const asked: string[] = [];
  const clients = createProviderClients({ clock });
  const providers = await createLiveProviders({
    kit: {
      clock,
      random: createSeededRandom(),
      log: createLogger({
        level: "info",
        now: clock.now,
        sink: (line) => void logged.push(line),
        redact: (text) => text,
      }),
      metrics,
    },
    config,
    env: {},
    observer: createProviderMetrics(metrics),
    offline: createScriptedProvider(() => "offline says hello", { name: "offline", models: ["assistant"] }),
    netOf: () => (client) => {
      asked.push(client.origin);
      return clients(client);
    },
    search: { origins: changes.origins ?? [] },
    owners: { sockets: () => Promise.resolve([{ uid: 1000, inode: "1" }]), ownUid: 1000 },
    ...changes,
  });
  t.after(() => providers.close());
  return { providers, clock, logged, asked, looked: () => scheduled - 1 };
}

/** @param port default: one that stays free when the server is closed */
const started = async (t: TestContext, name: LocalServerName, port?: number) => {
  const server = await startLocalServer(name, port ?? await freePort());
  t.after(() => server.close());
  return server;
};

test("a server that appears while the gateway runs is used for new runs, with a log line and why", async (t) => {
  const port = await freePort();
  const { providers, clock, logged } = await live(t, configOf(), { origins: [`http://127.0.0.1:${port}`] });
  assert.equal(providers.inUse.name, "offline");
  const before = providers.resolve("");
  await started(t, "ollama", port);
  await clock.advance(29_999);
  assert.equal(providers.inUse.name, "offline");
  await clock.advance(1);
  await until(() => providers.inUse.name === "ollama");
  assert.deepEqual(providers.inUse, {
    name: "ollama",
    model: "llama3.2:latest",
    reason: `Ollama answers at 127.0.0.1:${port}, run by you`,
  });
  assert.equal(providers.resolve("").provider.name, "ollama");
  assert.equal(textOf(await collect(before.provider)), "offline says hello");
  const [line] = logged;
  assert.equal(line?.level, "info");
  assert.equal(line?.message, `Ollama answers at 127.0.0.1:${port}, run by you: new runs use ollama/llama3.2:latest`);
  const models = await providers.listModels(new AbortController().signal);
  assert.deepEqual(models.map(({ id }) => id), ["nomic-embed-text:latest", "llama3.2:latest"]);
});

test("a server that goes is noticed, and the next one used, then the offline provider", async (t) => {
  const [ollama, vllm] = [await started(t, "ollama"), await started(t, "vllm")];
  const { providers, clock, logged, looked } = await live(t, configOf(), { origins: [ollama.origin, vllm.origin] });
  assert.equal(providers.inUse.name, "ollama");
  await ollama.close();
  await clock.advance(30_000);
  await until(() => providers.inUse.name !== "ollama");
  assert.match(providers.inUse.reason, /^vLLM answers at/);
  await vllm.close();
  await until(() => looked() === 1);
  await clock.advance(30_000);
  await until(() => providers.inUse.name === "offline");
  assert.deepEqual(logged.map(({ level, message }) => [level, message]), [
    ["info", `Ollama answers at ${new URL(ollama.origin).host}, run by you: new runs use ollama/llama3.2:latest`],
    [
      "warn",
      `No model server answers at ${ollama.origin}/v1 any more: new runs use openai_compatible/meta-llama/Llama-3.1-8B`,
    ],
    ["warn", `No model server answers at ${vllm.origin}/v1 any more: new runs use offline/assistant`],
  ]);
});

test("one that cannot be reached by a run is looked after at once, not after 30 s", async (t) => {
  const server = await started(t, "llama_cpp");
  const { providers, clock } = await live(t, configOf(), { origins: [server.origin] });
  await server.close();
  await assert.rejects(collect(providers.resolve("").provider), { code: "provider_error" });
  await clock.advance(0);
  await until(() => providers.inUse.name === "offline");
});

test("one that is back is found as soon as a request names its model, not after 30 s", async (t) => {
  const port = await freePort();
  const server = await started(t, "llama_cpp", port);
  const { providers, clock } = await live(t, configOf(), { origins: [server.origin] });
  const { model } = providers.inUse;
  await server.close();
  await assert.rejects(collect(providers.resolve("").provider), { code: "provider_error" });
  await clock.advance(0);
  await until(() => providers.inUse.name === "offline");
  await started(t, "llama_cpp", port);
  assert.throws(() => providers.resolve(model), { code: "provider_error" });
  await clock.advance(1_000);
  await until(() => providers.inUse.model === model);
});

test("a server that answers with errors is there, and what does not listen is not asked over HTTP", async (t) => {
  const server = await started(t, "vllm");
  const { providers, clock, asked, looked } = await live(t, configOf(), { origins: [server.origin] });
  const { provider, model } = providers.resolve("");
  await server.close();
  const page = await started(t, "web_app", Number(new URL(server.origin).port));
  await collect(provider, { model }).catch(() => {});
  await clock.advance(0);
  await until(() => page.requests.length === 4, "the look asks the page three times");
  await until(() => looked() === 1, "the look has ended");
  assert.equal(providers.inUse.name, "openai_compatible");
  await page.close();
  const before = asked.length;
  await collect(provider, { model }).catch(() => {});
  await clock.advance(1_000);
  await until(() => providers.inUse.name === "offline");
  assert.equal(asked.length, before);
});

test("one that listens and does not answer is left once before it is given up: it may be busy", async (t) => {
  const server = await started(t, "vllm");
  const { providers, clock, looked } = await live(t, configOf(), { origins: [server.origin] });
  await server.close();
  const page = await started(t, "web_app", Number(new URL(server.origin).port));
  await clock.advance(30_000);
  await until(() => looked() === 1);
  assert.equal(page.requests.length, 3);
  assert.equal(providers.inUse.name, "openai_compatible");
  await clock.advance(30_000);
  await until(() => providers.inUse.name === "offline");
});

test("a server that stays is kept although one before it in the order appears", async (t) => {
  const port = await freePort();
  const vllm = await started(t, "vllm");
  const origins = [`http://127.0.0.1:${port}`, vllm.origin];
  const { providers, clock, looked } = await live(t, configOf(), { origins });
  const ollama = await started(t, "ollama", port);
  await clock.advance(30_000);
  await until(() => looked() === 1);
  assert.equal(ollama.requests.length, 3);
  assert.equal(providers.inUse.name, "openai_compatible");
});

test("a server that comes and goes is opened once", async (t) => {
  const first = await started(t, "vllm");
  const port = Number(new URL(first.origin).port);
  const { providers, clock, looked } = await live(t, configOf(), { origins: [first.origin] });
  const { provider } = providers.resolve("");
  await first.close();
  await clock.advance(30_000);
  await until(() => looked() === 1);
  assert.equal(providers.inUse.name, "offline");
  await started(t, "vllm", port);
  await clock.advance(30_000);
  await until(() => providers.inUse.name === "openai_compatible");
  assert.equal(providers.resolve("").provider, provider);
});

for (
  const [title, config, env] of [
    ["a provider that the configuration names", configOf({ kind: "offline" }), {}],
    ["an address", configOf({ base_url: "http://127.0.0.1:9/v1", model: "m" }), {}],
    ["a key", configOf({}), { OPENAI_API_KEY: KEY }],
  ] as const
) {
  test(`with ${title} nothing is looked for, at the start or later`, async (t) => {
    const server = await started(t, "ollama");
    const { clock } = await live(t, config, { env, origins: [server.origin] });
    assert.equal(clock.pending(), 0);
    assert.deepEqual(server.requests, []);
  });
}

test("close() ends the watch", async (t) => {
  const { providers, clock } = await live(t, configOf());
  assert.equal(clock.pending(), 1);
  await providers.close();
  assert.equal(clock.pending(), 0);
});

test("a configuration that is taken over after close() begins no watch", async (t) => {
  const { providers, clock } = await live(t, configOf({ kind: "offline" }));
  const commit = await providers.prepare(configOf());
  await providers.close();
  commit();
  assert.equal(clock.pending(), 0);
});

test("another configuration counts from its commit on, for what is resolved then", async (t) => {
  const upstream = await startOpenAiUpstream();
  t.after(() => upstream.close());
  const { providers, clock } = await live(t, configOf());
  const before = providers.resolve("");
  const next = configOf({ kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model" }, {
    model_routes: [{ hint: "fast", provider: "openai_compatible", model: "upstream-small" }],
  });
  const commit = await providers.prepare(next);
  assert.equal(providers.inUse.name, "offline");
  commit();
  assert.equal(providers.inUse.name, "openai_compatible");
  assert.equal(providers.resolve("hint:fast").model, "upstream-small");
  assert.equal(textOf(await collect(providers.resolve("").provider)), "Hello from upstream");
  assert.equal(textOf(await collect(before.provider)), "offline says hello");
  // The end of the reply may come a moment after its [DONE]
  await until(() => clock.pending() === 0, "nothing is watched any more");
});

test("a configuration that cannot be opened changes nothing", async (t) => {
  const { providers } = await live(t, configOf({ kind: "offline" }));
  await assert.rejects(providers.prepare(configOf({ kind: "openai" })), ConfigError);
  assert.equal(providers.inUse.name, "offline");
});

test("what a server's refusals have taught is forgotten when the configuration is loaded again", async (t) => {
  const message =
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
  const upstream = await startOpenAiUpstream(
    { kind: "status", status: 400, body: { error: { message, param: "max_tokens" } } },
    { kind: "text", chunks: ["ok"] },
  );
  t.after(() => upstream.close());
  const config = configOf({ kind: "openai_compatible", base_url: upstream.baseUrl, model: "m" });
  const { providers } = await live(t, config);
  const ask = () => collect(providers.resolve("").provider, { parameters: { max_tokens: 5 } });
  await ask();
  await ask();
  (await providers.prepare(structuredClone(config)))();
  await ask();
  const limits = upstream.requests.map(({ json }) => "max_tokens" in (json as object));
  assert.deepEqual(limits, [true, false, false, true]);
});
