import type { Clock } from "../base/clock.ts";
import type { ModelEntry } from "../base/records/model.ts";
import { isListening } from "../system/net/is_listening.ts";
import type { ProviderClient, ProviderClientFactory } from "../system/net/provider_client.ts";
import { isRecord, stringOf } from "./json_reading.ts";
import { ollamaAddress } from "./provider_settings.ts";

/** A model server found on this machine. */
export interface LocalServer {
  /** As `Ollama` or `vLLM`; `a model server` when its answers name none */
  readonly software: string;
  readonly kind: "ollama" | "openai_compatible";
  /** As `http://127.0.0.1:11434/v1` */
  readonly baseUrl: string;
  /** Model ids in the server's order; at least one */
  readonly models: readonly string[];
}

export interface DiscoveryOptions {
  readonly net: ProviderClientFactory;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** On this machine. Default: the usual ports of Ollama, LM Studio, llama.cpp, vLLM and SGLang on loopback */
  readonly origins?: readonly string[] | undefined;
  /** Whether an origin is this gateway itself, which is not asked. Default: none is */
  readonly isOwn?: ((origin: string) => boolean) | undefined;
}

const USUAL_PORTS = [11434, 1234, 8080, 8000, 30000];
const TOTAL_MS = 2_000;
const MAX_ANSWER_BYTES = 1_048_576;

/** `owned_by` in a server's model list. Sources: the servers' own `/v1/models` */
const SOFTWARE_OF_OWNER: ReadonlyMap<string, string> = new Map(Object.entries({
  llamacpp: "llama.cpp",
  vllm: "vLLM",
  sglang: "SGLang",
  organization_owner: "LM Studio",
  "organization-owner": "LM Studio",
}));

/**
 * Model servers on this machine, in the order of `origins`, OLLAMA_HOST first. All are asked at once, 2 s in total; a server is
 * known by the shape of its answers, not by its port. One without a model is left out, and so is another Postern: two that found
 * each other would ask in a circle. Never throws.
 */
export async function discoverLocalServers(options: DiscoveryOptions): Promise<readonly LocalServer[]> {
  const { net, clock, env } = options;
  const named = ollamaAddress(env["OLLAMA_HOST"]);
  const usual = options.origins ?? USUAL_PORTS.map((port) => `http://127.0.0.1:${port}`);
  const isOwn = options.isOwn ?? (() => false);
  const origins = [...new Set([...(named === undefined ? [] : [new URL(named).origin]), ...usual])]
    .filter((origin) => !isOwn(origin));
  const timeout = clock.timeoutSignal(TOTAL_MS);
  try {
    const { signal } = timeout;
    const found = await Promise.all(origins.map(async (origin) => {
      // Mostly nothing is there, and then the HTTP client need not be loaded; OLLAMA_HOST may be behind a proxy
      if (usual.includes(origin) && !await isListening(origin, signal)) return undefined;
      return await probe(net({ provider: "discovery", origin }), signal);
    }));
    return found.filter((server) => server !== undefined);
  } finally {
    timeout.clear();
  }
}

async function probe(client: ProviderClient, signal: AbortSignal): Promise<LocalServer | undefined> {
  try {
    const [list, version, health] = await Promise.all(
      ["/v1/models", "/api/version", "/health"].map((path) => readJson(client, path, signal)),
    );
    const models = modelsOf(list);
    const [first] = models;
    const isPostern = isRecord(health) && "uptime_seconds" in health && "version" in health;
    if (first === undefined || isPostern) return undefined;
    const isOllama = isRecord(version) && stringOf(version["version"]) !== undefined;
    return {
      software: isOllama ? "Ollama" : SOFTWARE_OF_OWNER.get(first.owned_by) ?? "a model server",
      kind: isOllama ? "ollama" : "openai_compatible",
      baseUrl: `${client.origin}/v1`,
      models: models.map((model) => model.id),
    };
  } finally {
    await client.close().catch(() => {});
  }
}

async function readJson(client: ProviderClient, path: string, signal: AbortSignal): Promise<unknown> {
  try {
    const headers = { accept: "application/json" };
    const exchange = await client.send({ method: "GET", path, headers, signal, timeoutMs: TOTAL_MS });
    const { text, cut } = await exchange.text(MAX_ANSWER_BYTES);
    return exchange.status === 200 && !cut ? JSON.parse(text) : undefined;
  } catch {
    // Nothing there, or something else: that is the answer
    return undefined;
  }
}

function modelsOf(list: unknown): readonly Pick<ModelEntry, "id" | "owned_by">[] {
  if (!isRecord(list) || !Array.isArray(list["data"])) return [];
  return list["data"].flatMap((model) => {
    const id = isRecord(model) ? stringOf(model["id"]) : undefined;
    return isRecord(model) && id !== undefined ? [{ id, owned_by: stringOf(model["owned_by"]) ?? "" }] : [];
  });
}
