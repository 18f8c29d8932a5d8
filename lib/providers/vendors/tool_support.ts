import { isRecord } from "../../base/json.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import type { Provider } from "../provider.ts";
import type { UpstreamSettings } from "../upstream/upstream_http.ts";
import type { VendorForms } from "./vendor_forms.ts";

/** Models that are asked about at once. Ollama is sent a request for each. */
const MAX_MODELS = 16;
/** Longest wait for one answer: half of what the first list of models has at a start */
const TIMEOUT_MS = 1_000;
const MAX_BYTES = 4 * 1024 * 1024;
/** Names under which Ollama and llama.cpp list their models. LM Studio tells tools to any model, and vLLM says nothing of it */
const TELLING_OWNERS: ReadonlySet<string> = new Set(["library", "llamacpp"]);
/** Name by which llama.cpp answers, in the header `Server`. */
const LLAMA_CPP = "llama.cpp";

/**
 * Opens the provider of a local server so that it says which models have a chat template that knows no tools. Such a model is shown none, and
 * llama.cpp says nothing of it, so that each reply to a request with tools begins with a notice. Ollama and vLLM refuse such a request.
 */
export function withToolSupport(
  open: (settings: UpstreamSettings) => Provider,
  { kind, settings, forms }: {
    readonly kind: string;
    readonly settings: UpstreamSettings;
    readonly forms: VendorForms;
  },
): Provider {
  let software: string | undefined;
  let listed: Support = new Map();
  const provider = open({ ...settings, onReply: (exchange) => void (software = exchange.header("server")) });
  const read = kind === "ollama" ? readOllama : readLlamaCpp;
  return {
    ...provider,
    stream(request, call) {
      const { model } = request;
      const stream = provider.stream(request, call);
      if (request.tools.length === 0 || forms.of(model).showsTools === true) return stream;
      return withNotice(stream, model, async () => {
        const shows = software === LLAMA_CPP ? await readTemplate(settings, call.signal) : undefined;
        // A server whose template knows no tools is asked again: it may come back with another template
        if (shows !== false && !call.signal.aborted) forms.learn(model, { showsTools: true });
        return shows === false;
      });
    },
    async listModels(signal) {
      const entries = await provider.listModels(signal);
      if (!entries.some(({ owned_by }) => TELLING_OWNERS.has(owned_by))) return entries;
      listed = await read(settings, entries.map(({ id }) => id), signal);
      return entries.map((entry) => {
        const supports_tools = listed.get(entry.id);
        return supports_tools === undefined ? entry : { ...entry, supports_tools };
      });
    },
    // The list of models was read at the start, and the doctor reads it first
    takesTools: async (model, signal) => listed.get(model) ?? (await read(settings, [model], signal)).get(model),
  };
}

type Support = ReadonlyMap<string, boolean>;

/** Source: https://github.com/ollama/ollama/blob/main/docs/api.md "Show Model Information" */
async function readOllama(
  settings: UpstreamSettings,
  models: readonly string[],
  signal: AbortSignal,
): Promise<Support> {
  const support = new Map<string, boolean>();
  await Promise.all(
    models.slice(0, MAX_MODELS).map(async (model) => {
      const shown = await ask(settings, signal, "/api/show", JSON.stringify({ model }));
      const capabilities = shown?.["capabilities"];
      if (Array.isArray(capabilities)) support.set(model, capabilities.includes("tools"));
    }),
  );
  return support;
}

async function readLlamaCpp(
  settings: UpstreamSettings,
  models: readonly string[],
  signal: AbortSignal,
): Promise<Support> {
  const knows = await readTemplate(settings, signal);
  return new Map(knows === undefined ? [] : models.map((model) => [model, knows]));
}

/**
 * Reads whether the template of the one model of llama.cpp knows tools. undefined for a server of several models, and for any other.
 * Source: llama.cpp `tools/server/README.md` "GET /props"
 */
async function readTemplate(settings: UpstreamSettings, signal: AbortSignal): Promise<boolean | undefined> {
  const caps = (await ask(settings, signal, "/props"))?.["chat_template_caps"];
  const knows = isRecord(caps) ? caps["supports_tools"] : undefined;
  return typeof knows === "boolean" ? knows : undefined;
}

/** Gives the notice at the head of a stream whose model knows no tools. The server is asked once its reply has begun. */
async function* withNotice(
  stream: AsyncIterable<readonly ProviderEvent[]>,
  model: string,
  isBlind: () => Promise<boolean>,
): AsyncGenerator<readonly ProviderEvent[], undefined, undefined> {
  let isHead = true;
  for await (const batch of stream) {
    const isFirst: boolean = isHead && batch.length > 0;
    if (isFirst) isHead = false;
    yield isFirst && await isBlind() ? [toolsUnsupported(model), ...batch] : batch;
  }
}

function toolsUnsupported(model: string): ProviderEvent {
  return {
    type: "notice",
    code: "tools_unsupported",
    message:
      `The chat template of the model "${model}" knows no tools: the model was shown none, and may invent what they ` +
      "would have said; load a model whose template has tools",
  };
}

/** Reads a JSON object at the root of the server. @returns undefined for any other answer, and for none */
async function ask(
  { client, basePath, upstream: { key } }: UpstreamSettings,
  signal: AbortSignal,
  path: string,
  body?: string,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  try {
    const exchange = await client.send({
      method: body === undefined ? "GET" : "POST",
      path: `${basePath.replace(/\/v1$/, "")}${path}`,
      headers: {
        ...{ accept: "application/json", "content-type": "application/json" },
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      },
      body,
      signal,
      timeoutMs: TIMEOUT_MS,
    });
    const { text, cut } = await exchange.text(MAX_BYTES);
    const answer: unknown = exchange.status === 200 && !cut ? JSON.parse(text) : undefined;
    return isRecord(answer) ? answer : undefined;
  } catch {
    return undefined;
  }
}
