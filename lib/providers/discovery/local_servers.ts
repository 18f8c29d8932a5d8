import type { Clock } from "../../base/clock.ts";
import { isRecord } from "../../base/json.ts";
import type { ModelEntry } from "../../base/records/provider_event.ts";
import { isListening } from "../../system/net/tcp.ts";
import { isLoopbackName } from "../../system/net/address.ts";
import { ForeignServerError } from "../../system/net/network_error.ts";
import type { ProviderClient, ProviderClientFactory } from "../../system/net/provider_client.ts";
import { stringOf } from "../upstream/json_reading.ts";
import { ollamaAddress } from "../provider_settings.ts";
import type { RememberedServer } from "./provider_memory.ts";
import type { OwnerOf } from "./server_owner.ts";

/** A model server found on this machine. */
export interface LocalServer extends RememberedServer {
  /** Owner of the server, in words such as `run by ollama` */
  readonly owner: string;
}

/** A server that listens where one is looked for and may not be used. */
export interface RefusedServer {
  /** As `http://127.0.0.1:11434` */
  readonly origin: string;
  /** As `it is run by mallory (uid 1001)` */
  readonly reason: string;
}

/** Result of a search for local servers. */
export interface FoundServers {
  readonly servers: readonly LocalServer[];
  readonly refused: readonly RefusedServer[];
}

/** Places on this machine where model servers are looked for, and which of them may be used. */
export interface LocalSearch {
  /** Beside OLLAMA_HOST. False: nowhere at all. Default: the usual ports of Ollama, LM Studio, llama.cpp, vLLM and SGLang on loopback */
  readonly origins?: readonly string[] | false | undefined;
  /** Tells who runs the server at an origin. A server that is not accepted is sent nothing */
  readonly ownerOf: OwnerOf;
  /** Further places on this machine, as those a person trusted. Default: none */
  readonly trusted?: readonly string[] | undefined;
  /** Tells whether an origin is this gateway itself, which is not asked. Default: none is */
  readonly isOwn?: ((origin: string) => boolean) | undefined;
}

/** A search, and the means to look. */
export interface DiscoveryOptions extends LocalSearch {
  readonly net: ProviderClientFactory;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
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
 * Finds the model servers on this machine, in the order of `origins`, OLLAMA_HOST first. Asks all of them at once, for 2 s in total.
 *
 * A server is known by the shape of its answers and not by its port, and is taken only when its owner is accepted. A server without a
 * model is left out. Another Postern is left out too: two gateways that found each other would ask in a circle. Never throws.
 */
export async function discoverLocalServers(options: DiscoveryOptions): Promise<FoundServers> {
  const { net, clock, env, ownerOf, trusted = [] } = options;
  if (options.origins === false) return { servers: [], refused: [] };
  const named = ollamaAddress(env["OLLAMA_HOST"]);
  const usual = options.origins ?? USUAL_PORTS.map((port) => `http://127.0.0.1:${port}`);
  const isOwn = options.isOwn ?? (() => false);
  const places = [...(named === undefined ? [] : [localOrigin(named)]), ...usual, ...trusted];
  const origins = [...new Set(places)].filter((origin) => !isOwn(origin));
  const timeout = clock.timeoutSignal(TOTAL_MS);
  try {
    const { signal } = timeout;
    const looked = await Promise.all(origins.map(async (origin): Promise<LocalServer | RefusedServer | undefined> => {
      const isLocal = isLoopbackName(new URL(origin).hostname);
      // Mostly nothing is there, and then the HTTP client need not be loaded
      if (isLocal && !await isListening(origin, signal)) return undefined;
      const found = await ownerOf(origin);
      if (!found.accepted) return found.isGone === true ? undefined : { origin, reason: found.reason };
      return await probe(net({ provider: "discovery", origin, admit: admission(ownerOf, origin) }), {
        signal,
        owner: found.owner,
      });
    }));
    return {
      servers: looked.filter((server) => server !== undefined && "models" in server),
      refused: looked.filter((server) => server !== undefined && "reason" in server),
    };
  } finally {
    timeout.clear();
  }
}

/** Returns the check that each new connection to a found server must pass. @throws {ForeignServerError} from that check */
export function admission(ownerOf: OwnerOf, origin: string): () => Promise<string> {
  return async () => {
    const found = await ownerOf(origin);
    if (found.accepted) return found.identity;
    // The connection fails by itself with a better reason. If it is accepted all the same, the identity afterwards is another
    if (found.isGone === true) return NOBODY;
    throw new ForeignServerError(found.reason);
  };
}

const NOBODY = "nobody listens";

/** Writes `localhost` as 127.0.0.1: the name may mean two addresses, and owners are looked up by one address. */
function localOrigin(address: string): string {
  const url = new URL(address);
  if (url.hostname === "localhost") url.hostname = "127.0.0.1";
  return url.origin;
}

async function probe(
  client: ProviderClient,
  { signal, owner }: { readonly signal: AbortSignal; readonly owner: string },
): Promise<LocalServer | undefined> {
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
      owner,
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
    // No model server answers at this path
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
