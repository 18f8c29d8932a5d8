/**
 * Measures the cost of a whole completion without sockets, in microseconds of CPU: `node test/bench/completions.bench.ts`. The real services,
 * router, run, retries and decoder work for 32 clients at once; the provider's reply, whole or in 20 chunks, comes in one read.
 */
import process from "node:process";
import { FastResponse } from "srvx";
import type { ResponseClass } from "../../handlers/route.ts";
import { createRouter } from "../../handlers/router.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";
import { createServices } from "../../lib/gateway.ts";
import { createOpenAiCompatible } from "../../lib/providers/openai/openai_compatible.ts";
import { createProviderMetrics, withRetries } from "../../lib/providers/retry.ts";
import { VendorForms } from "../../lib/providers/vendors/vendor_forms.ts";
import type { Providers } from "../../lib/providers/provider.ts";
import type { HttpExchange } from "../../lib/system/net/http_exchange.ts";
import type { ProviderClient } from "../../lib/system/net/provider_client.ts";
import { median } from "./median.ts";

const ROUNDS = 6;
const REQUESTS = 16_000;
const CLIENTS = 32;
const CHUNKS = 20;
const TOKEN = "bench-token";

const head = { id: "chatcmpl-bench", created: 1700000000, model: "bench-model", object: "chat.completion.chunk" };
const chunk = (fields: object) => `data: ${JSON.stringify({ ...head, ...fields })}\n\n`;
const delta = (delta: object, finish_reason: string | null = null) =>
  chunk({ choices: [{ index: 0, delta, finish_reason }] });
const upstreamReply = Buffer.from(
  delta({ role: "assistant", content: "" }) + delta({ content: "token " }).repeat(CHUNKS) + delta({}, "stop") +
    chunk({ choices: [], usage: { prompt_tokens: 12, completion_tokens: CHUNKS, total_tokens: 32 } }) +
    "data: [DONE]\n\n",
);

const wholeReply = Buffer.from(JSON.stringify({
  ...head,
  object: "chat.completion",
  choices: [{ index: 0, message: { role: "assistant", content: "token ".repeat(CHUNKS) }, finish_reason: "stop" }],
  usage: { prompt_tokens: 12, completion_tokens: CHUNKS, total_tokens: 32 },
}));

/** The upstream's reply, one turn of the event loop after it was asked for. */
function answer(stream: boolean): HttpExchange {
  let unread: Uint8Array | undefined = upstreamReply;
  return {
    status: 200,
    header: () => (stream ? "text/event-stream" : "application/json"),
    read() {
      const bytes = unread;
      unread = undefined;
      return Promise.resolve(bytes);
    },
    whole: () => Promise.resolve(wholeReply),
    text: () => Promise.resolve({ text: "", cut: false }),
    said() {},
    hurry() {},
    release() {},
    drain() {},
  };
}

function createProviders(): Providers {
  const client: ProviderClient = {
    origin: "http://upstream.test",
    send: ({ body = "" }) =>
      new Promise((resolve) => setImmediate(() => resolve(answer(body.includes('"stream":true'))))),
    close: () => Promise.resolve(),
  };
  const upstream = { name: "bench", keySource: undefined, key: undefined, now: () => 0 };
  const settings = {
    upstream,
    client,
    basePath: "/v1",
    timeoutMs: 120_000,
    silenceMs: 1_200_000,
    nextId: () => "call_bench",
  };
  const provider = withRetries([{
    provider: createOpenAiCompatible(settings, new VendorForms({ kind: "openai_compatible", origin: "" })),
    model: undefined,
    maxRetries: 2,
  }], {
    clock: systemClock,
    random: createSystemRandom(),
    log: SILENT,
    observer: createProviderMetrics(createMetrics()),
  });
  return {
    resolve: (model) => ({ provider, model: model ?? head.model }),
    inUse: { name: "bench", model: head.model, reason: "" },
    listModels: () => Promise.resolve([]),
    close: () => Promise.resolve(),
  };
}

const checked = validateConfig([{ storage: { driver: "memory" }, gateway: { rate_limit_max: 0 } }]);
if (!("config" in checked)) throw new Error("The configuration of the bench is not valid");
const services = await createServices({
  config: checked.config,
  folders: { dataDir: "", workspaceRoot: process.cwd(), home: process.cwd() },
  environment: { POSTERN_TOKEN: TOKEN },
  about: { version: "0.0.0" },
  models: { providers: createProviders() },
  log: { sink: () => {} },
});

let body = Buffer.alloc(0);
const router = createRouter({
  services,
  routes: ROUTES,
  Response: FastResponse as unknown as ResponseClass, // the same shape, built without the web's copies
  readBody: () => ({ bytes: Promise.resolve(body), fail() {} }),
});

async function measure(name: string, fields: object): Promise<void> {
  body = Buffer.from(JSON.stringify({
    model: head.model,
    messages: [{ role: "system", content: "You are a helpful assistant." }, {
      role: "user",
      content: "Say something.",
    }],
    ...fields,
  }));
  const headers = new Map([
    ["authorization", `Bearer ${TOKEN}`],
    ["content-type", "application/json"],
    ["x-postern-tools", "none"],
    ["host", "127.0.0.1:42617"],
    ["content-length", String(body.length)],
  ]);
  const get = (name: string) => headers.get(name) ?? null;
  const has = (name: string) => headers.has(name);
  const ask = async () => {
    const request = {
      url: "http://127.0.0.1:42617/v1/chat/completions",
      method: "POST",
      headers: { get, has },
      signal: new AbortController().signal,
    } as unknown as Request; // all that the router reads of a request
    const reply = await router.fetch(request, { remoteAddress: "127.0.0.1" });
    const text = await reply.text();
    if (reply.status !== 200) throw new Error(`Expected status 200, got ${reply.status}: ${text}`);
  };
  const work = async () => {
    for (let i = 0; i < REQUESTS / CLIENTS; i++) await ask();
  };
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const start = process.cpuUsage();
    await Promise.all(Array.from({ length: CLIENTS }, work));
    const { user, system } = process.cpuUsage(start);
    rounds.push((user + system) / REQUESTS);
  }
  // The first rounds warm up
  const warm = median(rounds.slice(2));
  const all = rounds.map((us) => us.toFixed(1)).join(" ");
  console.log(`${name.padEnd(20)} ${warm.toFixed(1)} us (from the first round on: ${all})`);
}

await measure("completion, JSON", {});
await measure("completion, stream", { stream: true });
await services.close();
