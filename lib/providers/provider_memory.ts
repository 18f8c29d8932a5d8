import { Buffer } from "node:buffer";
import * as v from "valibot";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store } from "../storage/store.ts";
import type { LocalServer } from "./discovery.ts";

/** A local server that answered once, with the models it had. */
export type RememberedServer = Pick<LocalServer, "software" | "kind" | "baseUrl" | "models">;

/** What a data directory remembers of the models that were ever there. */
export interface ProviderMemory {
  /** false: with this data directory no key, provider or local server was ever configured or found. */
  known(): boolean;
  /** Local servers that were in use, the latest first. At most 16. */
  servers(): readonly RememberedServer[];
  /** Remembers that a real provider is there, and which local server it is. Never throws: what cannot be written is logged. */
  remember(server?: LocalServer): Promise<void>;
}

const COLLECTION = "providers";
const KEY = "memory";
const MAX_SERVERS = 16;
const MAX_MODELS = 500;
const MAX_NAME = 256;
/** Documents of a version that had no memory: lists of models are among the first. */
const MAX_DOCUMENTS = 200;

const memorySchema = v.object({
  v: v.literal(1),
  servers: v.array(v.object({
    software: v.string(),
    kind: v.picklist(["ollama", "openai_compatible"]),
    base_url: v.string(),
    models: v.array(v.string()),
  })),
});

/** A memory that starts empty and is kept nowhere. */
export function createProviderMemory(): ProviderMemory {
  return memoryOf({ known: false, servers: [], write: () => Promise.resolve() });
}

/**
 * Reads the memory of a data directory. One that cannot be read counts as known: the offline assistant then answers for nobody.
 * A data directory of an older version is known when it keeps a list of models of a real provider.
 */
export async function loadProviderMemory(
  { store, log }: { readonly store: Store; readonly log: Logger },
): Promise<ProviderMemory> {
  const write = async (servers: readonly RememberedServer[]) => {
    const kept = servers.map(({ baseUrl, ...server }) => ({ ...server, base_url: baseUrl }));
    await store.batch([{ op: "put", collection: COLLECTION, key: KEY, body: { v: 1, servers: kept } }])
      .catch((error) => log.error("The models that were found could not be remembered", { error }));
  };
  try {
    const stored = await store.get(COLLECTION, KEY);
    if (stored === undefined) return memoryOf({ known: await listedModels(store), servers: [], write });
    const { servers } = v.parse(memorySchema, stored.body);
    return memoryOf({
      known: true,
      servers: servers.map(({ base_url, ...rest }) => ({ ...rest, baseUrl: base_url })),
      write,
    });
  } catch (error) {
    log.error("The memory of models could not be read: a model that is named is served by that model alone", { error });
    return memoryOf({ known: true, servers: [], write });
  }
}

interface MemoryParts {
  readonly known: boolean;
  readonly servers: readonly RememberedServer[];
  readonly write: (servers: readonly RememberedServer[]) => Promise<void>;
}

function memoryOf({ known, servers, write }: MemoryParts): ProviderMemory {
  return {
    known: () => known,
    servers: () => servers,
    async remember(server) {
      const before = servers;
      if (server !== undefined) servers = withServer(servers, server);
      if (known && isSame(before, servers)) return;
      known = true;
      await write(servers);
    },
  };
}

function withServer(servers: readonly RememberedServer[], server: LocalServer): readonly RememberedServer[] {
  const { software, kind, baseUrl } = server;
  const models = server.models.filter((id) => id.length <= MAX_NAME).slice(0, MAX_MODELS);
  return [{ software, kind, baseUrl, models }, ...servers.filter((known) => known.baseUrl !== baseUrl)]
    .slice(0, MAX_SERVERS);
}

function isSame(a: readonly RememberedServer[], b: readonly RememberedServer[]): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

async function listedModels(store: Store): Promise<boolean> {
  const documents = await store.scan("documents", { limit: MAX_DOCUMENTS });
  return documents.map(({ key }) => Buffer.from(key, "base64url").toString())
    .some((key) => key.startsWith("models/") && !key.startsWith("models/offline/"));
}
