/**
 * The types of the package as a strict project uses them: `npm run check:types` compiles this file against the sources, and
 * test/journeys/built_package.system.ts against the package. Each line after `@ts-expect-error` must not compile.
 */
import nodeAdapter from "crossws/adapters/node";
import express from "express";
import { createServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import {
  ConfigError,
  createGateway,
  defineApproval,
  definePrompt,
  defineTool,
  fromAiSdk,
  type Gateway,
  type GatewayConfig,
  type GatewayOptions,
  HttpError,
  type ProgramProvider,
  type ProgramSchema,
  toFetchHandler,
  toNodeHandler,
  toolResult,
} from "../../handlers/mod.ts";

const add = defineTool<{ readonly a: number; readonly b: number }>({
  name: "add",
  description: "Adds two numbers",
  access: "read",
  inputSchema: { type: "object", properties: {}, additionalProperties: false },
  execute: ({ a, b }, { signal, progress }) => {
    progress(`aborted: ${signal.aborted satisfies boolean}`);
    // @ts-expect-error The input has the type that was given
    return a + b + ({ a, b }).c;
  },
});
// @ts-expect-error A tool says what it does to the world
defineTool({ name: "x", description: "x", inputSchema: {}, execute: () => "" });
// @ts-expect-error There are four kinds of access
defineTool({ name: "x", description: "x", access: "everything", inputSchema: {}, execute: () => "" });
// @ts-expect-error A misspelt option is no option
defineTool({ name: "x", description: "x", access: "read", inputSchema: {}, timeout: 5, execute: () => "" });

// A Standard Schema tells the types of the input, before and after it
const plant: ProgramSchema<{ readonly name?: string }, { readonly name: string }> = {
  "~standard": { version: 1, vendor: "x", validate: () => ({ value: { name: "bean" } }) },
};
defineTool({
  ...{ name: "x", description: "x", input: plant },
  access: ({ name }) => name === undefined ? "read" : "write",
  execute: ({ name }) => name.length,
});
// @ts-expect-error The input has no such field
defineTool({ name: "x", description: "x", access: "read", input: plant, execute: ({ nme }) => nme });
// @ts-expect-error The function gives one of four
defineTool({ name: "x", description: "x", access: () => "all", input: plant, execute: () => "" });

export const advise = definePrompt({
  input: plant,
  complete: { name: () => ["bean"] },
  // @ts-expect-error The argument has no such field
  get: ({ nme }) => nme,
});
// @ts-expect-error There is no such argument to complete
definePrompt({ input: plant, complete: { other: () => [] }, get: ({ name }) => name });
export const onApproval = defineApproval({
  ...{ tool: "x", input: plant },
  answer: ({ name }, { approval, signal }) =>
    name.length > 3 && !signal.aborted && approval.access === "write" ? "approve" : undefined,
});
// @ts-expect-error A model has a stream
fromAiSdk({ specificationVersion: "v3", provider: "x", modelId: "x" });

export const asking = defineTool({
  name: "asking",
  description: "x",
  access: "read",
  inputSchema: {},
  clientNeeds: ["form", "sample"],
  async execute(_input, { ask, askAll, sample, can }) {
    const { first } = await askAll({ first: { message: "x", url: "https://example.com" } });
    // @ts-expect-error Answers have the names of their questions
    await askAll({ first: { message: "x", schema: {} } }).then(({ second }) => second);
    // @ts-expect-error A question has a form or an address
    await ask({ message: "x" });
    const { text } = await sample({ messages: [{ role: "user", content: "x" }], maxTokens: 1 });
    return first.action === "accept" && can.has("roots") ? text : first.action;
  },
});
// @ts-expect-error There are four kinds of questions
defineTool({ name: "x", description: "x", access: "read", inputSchema: {}, clientNeeds: ["money"], execute: () => "" });

// @ts-expect-error A picture has bytes
toolResult([{ type: "image", mimeType: "image/png" }]);
export const pictures = defineTool({
  name: "pictures",
  description: "x",
  access: "read",
  inputSchema: {},
  execute: () => toolResult([{ type: "image", bytes: new Uint8Array(), mimeType: "image/png" }], { isError: true }),
});

const echo: ProgramProvider = {
  models: ["small", { id: "large", context_length: 32_000 }],
  async *stream({ messages }, { signal }) {
    if (signal.aborted) return;
    yield { type: "text_delta", delta: JSON.stringify(messages.at(-1)?.content) };
    yield [{ type: "finish", finish_reason: "stop" }];
  },
};
export const wrongProvider: ProgramProvider = {
  models: [],
  // @ts-expect-error There is no such event
  async *stream() {
    yield { type: "text", text: "x" };
  },
};

const options: GatewayOptions = {
  dataDir: "./data",
  workspace: ".",
  basePath: "/agent",
  tools: [add],
  prompts: {
    ask: { arguments: { what: { required: true } }, get: ({ what }) => `Say ${what satisfies string | undefined}` },
  },
  resources: {
    "shop://{plant}": { name: "plant", read: (_variables, { uri, signal }) => signal.aborted ? undefined : uri },
  },
  providers: { echo },
  config: {
    gateway: { allowed_hosts: ["a.example"] },
    provider: { kind: "openai", model: "gpt-5" },
    providers: { local: { base_url: "http://127.0.0.1:1/v1" } },
    autonomy: { rules: [{ name: "a", tool: "*", then: "ask" }] },
    http_request: { credentials: {} },
  },
};
// @ts-expect-error A misspelt key is no key
export const noKey: GatewayConfig = { provider: { modle: "x" } };
// @ts-expect-error A key takes its own words alone
export const noWord: GatewayConfig = { autonomy: { level: "all" } };
// @ts-expect-error A rule says what becomes of the call
export const noRule: GatewayConfig = { autonomy: { rules: [{ name: "a", tool: "*" }] } };
// @ts-expect-error The data directory must be given
export const withoutData: GatewayOptions = { workspace: "." };
// @ts-expect-error A misspelt option is no option
export const misspelt: GatewayOptions = { ...options, basepath: "/agent" };
// @ts-expect-error Undefined is no value of an option that may be left out
export const notGiven: GatewayOptions = { ...options, basePath: undefined };
// @ts-expect-error Only defineTool makes a tool
export const notMade: GatewayOptions = { ...options, tools: [{ name: "add" }] };

export async function mount(): Promise<Gateway> {
  const gateway: Gateway = await createGateway(options).catch((error: unknown) => {
    throw error instanceof ConfigError ? new Error(error.code) : error;
  });
  // A route of Next.js gets its parameters beside the request
  const route = toFetchHandler(() => createGateway({ dataDir: "", workspace: "" }));
  route satisfies (request: Request, context: { readonly params: Promise<object> }) => Promise<Response>;
  (await route.gateway()).basePath satisfies string;
  // @ts-expect-error Express has no Request of the web
  toFetchHandler(express());
  const handler = toNodeHandler(gateway);
  const app = express();
  app.use("/agent", handler);
  app.use(handler);
  app.all("/agent/*path", handler);
  const server = createServer(handler);
  server.on("upgrade", handler.upgrade);
  server.on("checkContinue", handler);
  createHttp2Server(handler);
  const { maxMessageBytes: maxPayload, resolve } = gateway.websocket;
  nodeAdapter({ resolve, serverOptions: { maxPayload } });
  // @ts-expect-error The gateway cannot be changed
  gateway.basePath = "/other";
  // @ts-expect-error A handler is made of a gateway
  toNodeHandler(createServer());
  return gateway;
}

export async function ask(gateway: Gateway): Promise<string | null> {
  const reply: Response = await gateway.request("/v1/tools", { headers: { authorization: "Bearer x" } });
  await gateway.fetch(new Request("http://127.0.0.1/"), { remoteAddress: undefined });
  // @ts-expect-error The peer is an address
  await gateway.fetch(new Request("http://127.0.0.1/"), { remoteAddress: 5 });
  const run = await gateway.runs.start({ message: `${reply.status}` }, { signal: new AbortController().signal });
  // @ts-expect-error A run has no such field
  await gateway.runs.start({ text: "x" });
  for await (const event of gateway.runs.follow(run.id, { after: 0 })) {
    if (event.type === "text_delta") event.delta satisfies string;
    // @ts-expect-error Not every event has text
    event.delta satisfies string;
  }
  const { result, error } = await gateway.runs.get(run.id);
  if (error !== null) throw new HttpError(error.code, error.message, { status: 500, type: "api_error" });
  return result;
}
