/**
 * Measures the cost of a whole reply without sockets, in microseconds of CPU, on each wire: `node test/bench/completions.bench.ts`, with words
 * such as `large message` for the rows that have all of them. The real services, router, run, retries and decoder work for 32 clients at once;
 * the provider's reply, whole or in 20 chunks, comes in one read. The rows take turns, so that they meet the same machine; the ratio is that
 * of the same request as a chat completion.
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

const ROUNDS = 20;
/** Requests of a round: of a small body, and of a large one */
const REQUESTS = { small: 256, large: 32 };
const CLIENTS = 32;
/** The first rounds warm up */
const WARMING = 6;
/** Calls of a tool in the history of a large body, each with its result, and tools that it declares */
const CALLS = 100;
const TOOLS = 20;
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

interface Work {
  readonly path: string;
  readonly body: object;
}

/** The same work in the words of each wire. */
const WIRES: Readonly<Record<string, (size: Size) => Work>> = {
  completion: (size) => ({
    path: "/v1/chat/completions",
    body: size === "small" ? { messages: [INSTRUCTIONS, ASKED] } : {
      messages: [
        INSTRUCTIONS,
        ASKED,
        ...history(({ id, given, result }) => [
          {
            role: "assistant",
            content: SAID,
            tool_calls: [{ id, type: "function", function: { name: "look", arguments: JSON.stringify(given) } }],
          },
          { role: "tool", tool_call_id: id, content: result },
        ]),
        ASKED,
      ],
      tools: tools.map(({ name, description, schema }) => ({
        type: "function",
        function: { name, description, parameters: schema },
      })),
    },
  }),
  response: (size) => ({
    path: "/v1/responses",
    body: size === "small" ? { instructions: INSTRUCTIONS.content, input: ASKED.content, store: false } : {
      instructions: INSTRUCTIONS.content,
      store: false,
      input: [
        toItem("user", "input_text", ASKED.content),
        ...history(({ id, given, result }) => [
          toItem("assistant", "output_text", SAID),
          { type: "function_call", call_id: id, name: "look", arguments: JSON.stringify(given) },
          { type: "function_call_output", call_id: id, output: result },
        ]),
        toItem("user", "input_text", ASKED.content),
      ],
      tools: tools.map(({ name, description, schema }) => ({
        type: "function",
        name,
        description,
        parameters: schema,
      })),
    },
  }),
  message: (size) => ({
    path: "/v1/messages",
    body: size === "small" ? { system: INSTRUCTIONS.content, max_tokens: 500, messages: [ASKED] } : {
      system: INSTRUCTIONS.content,
      max_tokens: 500,
      messages: [
        ASKED,
        ...history(({ id, given, result }) => [
          {
            role: "assistant",
            content: [{ type: "text", text: SAID }, { type: "tool_use", id, name: "look", input: given }],
          },
          { role: "user", content: [{ type: "tool_result", tool_use_id: id, content: result }] },
        ]),
        ASKED,
      ],
      tools: tools.map(({ name, description, schema }) => ({ name, description, input_schema: schema })),
    },
  }),
};

const INSTRUCTIONS = { role: "system", content: "You are a helpful assistant." };
const ASKED = { role: "user", content: "Say something." };
const SAID = "I look at the next file to see what it does. ".repeat(3);
const tools = Array.from({ length: TOOLS }, (_, i) => ({
  name: i === 0 ? "look" : `tool_${i}`,
  description: "Looks at a file of the project and says what is in it. ".repeat(4),
  schema: {
    type: "object",
    properties: { path: { type: "string", description: "The file" }, lines: { type: "integer" } },
    required: ["path"],
    additionalProperties: false,
  },
}));

interface PastCall {
  readonly id: string;
  readonly given: object;
  readonly result: string;
}

function history(toTurn: (call: PastCall) => readonly object[]): readonly object[] {
  return Array.from({ length: CALLS }, (_, i) => ({
    id: `call_${String(i).padStart(4, "0")}`,
    given: { path: `src/folder/file_${i}.ts`, lines: 200 },
    result: `export const line = ${i}; // "quoted"\n`.repeat(20),
  })).flatMap(toTurn);
}

function toItem(role: string, type: string, text: string) {
  return { type: "message", role, content: [{ type, text }] };
}

type Size = keyof typeof REQUESTS;

interface Row {
  readonly name: string;
  readonly size: Size;
  readonly ask: () => Promise<void>;
  /** Microseconds of each round */
  readonly rounds: number[];
}

let body = Buffer.alloc(0);
const router = createRouter({
  services,
  routes: ROUTES,
  Response: FastResponse as unknown as ResponseClass, // the same shape, built without the web's copies
  readBody: () => ({ bytes: Promise.resolve(body), fail() {} }),
});

function toRow(name: string, size: Size, { path, body: fields }: Work, more: object): Row {
  const bytes = Buffer.from(JSON.stringify({ model: head.model, ...fields, ...more }));
  const headers = new Map([
    ["authorization", `Bearer ${TOKEN}`],
    ["content-type", "application/json"],
    ...(name.includes("plain") ? [["x-postern-tools", "none"] as const] : []),
    ["host", "127.0.0.1:42617"],
    ["content-length", String(bytes.length)],
  ]);
  const get = (name: string) => headers.get(name) ?? null;
  const has = (name: string) => headers.has(name);
  return {
    name,
    size,
    rounds: [],
    async ask() {
      body = bytes;
      const request = {
        url: `http://127.0.0.1:42617${path}`,
        method: "POST",
        headers: { get, has },
        signal: new AbortController().signal,
      } as unknown as Request; // all that the router reads of a request
      const reply = await router.fetch(request, { remoteAddress: "127.0.0.1" });
      const text = await reply.text();
      if (reply.status !== 200) throw new Error(`Expected status 200, got ${reply.status}: ${text}`);
    },
  };
}

async function measure({ ask, size, rounds }: Row): Promise<void> {
  const start = process.cpuUsage();
  const work = async () => {
    for (let i = 0; i < REQUESTS[size] / CLIENTS; i++) await ask();
  };
  await Promise.all(Array.from({ length: CLIENTS }, work));
  const { user, system } = process.cpuUsage(start);
  rounds.push((user + system) / REQUESTS[size]);
}

const words = process.argv.slice(2);
const all: readonly Row[] = (["small", "large"] as const).flatMap((size) =>
  ["plain", "agent"].flatMap((mode) =>
    ["JSON", "stream"].flatMap((form) => {
      const streams = form === "stream" ? { stream: true } : {};
      const rows = Object.entries(WIRES).map(([wire, toWork]) =>
        toRow(`${wire}, ${size}, ${mode}, ${form}`, size, toWork(size), streams)
      );
      if (mode === "plain" || WIRES["response"] === undefined) return rows;
      const stored = toRow(`response, ${size}, agent stored, ${form}`, size, WIRES["response"](size), {
        ...streams,
        store: true,
      });
      return [...rows, stored];
    })
  )
);
const rows = all.filter(({ name }) =>
  words.every((word) => name.includes(word) || (name.startsWith("completion") && word in WIRES))
);
for (let round = 0; round < ROUNDS; round++) for (const row of rows) await measure(row);
for (const row of rows) {
  const [, size = "", mode = "", form = ""] = row.name.split(", ");
  const base = rows.find(({ name }) => name === `completion, ${size}, ${mode.split(" ")[0]}, ${form}`);
  const warm = row.rounds.slice(WARMING);
  // Ratios are made round by round: other work of the machine meets both
  const ratio = base === undefined ? "" : median(warm.map((us, i) => us / (base.rounds[i + WARMING] ?? us))).toFixed(2);
  const best = Math.min(...warm).toFixed(1);
  console.log(`${row.name.padEnd(36)} ${median(warm).toFixed(1).padStart(8)} us ${ratio}, at best ${best} us`);
}
await services.close();
