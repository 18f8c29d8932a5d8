import { Buffer } from "node:buffer";
import * as v from "valibot";
import type { Logger } from "../../base/telemetry/log.ts";
import { readRecord } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";

/** A local server that answered once, with the models it had. */
export interface RememberedServer {
  /** As `Ollama` or `vLLM`; `a model server` when its answers name none */
  readonly software: string;
  readonly kind: "ollama" | "openai_compatible";
  /** As `http://127.0.0.1:11434/v1` */
  readonly baseUrl: string;
  /** Model ids in the server's order; at least one */
  readonly models: readonly string[];
}

/** A local server that a person said may be used. */
export interface TrustedServer {
  /** As `http://127.0.0.1:11434` */
  readonly origin: string;
  /** User who ran it when it was trusted: another user's server at this address is not. null where owners cannot be seen */
  readonly uid: number | null;
}

/** Memory that a data directory keeps of the models that were ever there. */
export interface ProviderMemory {
  /** false: with this data directory no key, provider or local server was ever configured or found. */
  known(): boolean;
  /** Local servers that were in use, the latest first. At most 16. */
  servers(): readonly RememberedServer[];
  /** Local servers that a person trusted, the latest first. At most 16. */
  trusted(): readonly TrustedServer[];
  /** Trusts a local server. @param commit makes the transaction; default: the store's batch. @throws when it cannot be written */
  trust(server: TrustedServer, commit?: Commit): Promise<void>;
  /** Remembers that a real provider is there, and which local server it is. Never throws: what cannot be written is logged. */
  remember(server?: RememberedServer): Promise<void>;
}

/** Makes one transaction. @returns false when a precondition of the writes did not hold */
export type Commit = (writes: readonly Write[]) => Promise<boolean>;

/** Two records: the local servers that were found, and those that are trusted. */
export const PROVIDERS = "providers";
const KEY = "memory";
const TRUST_KEY = "trusted";
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

const trustSchema = v.object({
  v: v.literal(1),
  servers: v.array(v.object({ origin: v.string(), uid: v.nullable(v.number()) })),
});

const parseMemory = (body: unknown) => v.parse(memorySchema, body);
const parseTrust = (body: unknown) => v.parse(trustSchema, body);

/** Parses either of the two records. @throws {v.ValiError} for a body that no version wrote */
export function parseProviders(body: unknown): unknown {
  return v.parse(v.union([memorySchema, trustSchema]), body);
}

/** A memory that starts empty and is kept nowhere. */
export function createProviderMemory(): ProviderMemory {
  const keep = () => Promise.resolve();
  return memoryOf({ known: false, servers: [], trusted: [], write: keep, writeTrust: keep });
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
    await store.batch([{ op: "put", collection: PROVIDERS, key: KEY, body: { v: 1, servers: kept } }])
      .catch((error) => log.error("The models that were found could not be remembered", { error }));
  };
  const writeTrust = async (trusted: readonly TrustedServer[], commit: Commit = store.batch) => {
    const body = { v: 1, servers: trusted };
    await commit([{ op: "put", collection: PROVIDERS, key: TRUST_KEY, body }]);
  };
  const trusted = await readTrusted(store, log);
  const parts = { trusted, write, writeTrust };
  try {
    const stored = await readRecord(store, PROVIDERS, KEY, parseMemory);
    if (stored === undefined) return memoryOf({ known: await listedModels(store), servers: [], ...parts });
    const servers = stored.value.servers.map(({ base_url, ...rest }) => ({ ...rest, baseUrl: base_url }));
    return memoryOf({ known: true, servers, ...parts });
  } catch (error) {
    log.error("The memory of models could not be read: a model that is named is served by that model alone", { error });
    return memoryOf({ known: true, servers: [], ...parts });
  }
}

async function readTrusted(store: Store, log: Logger): Promise<readonly TrustedServer[]> {
  try {
    return (await readRecord(store, PROVIDERS, TRUST_KEY, parseTrust))?.value.servers ?? [];
  } catch (error) {
    log.error("The trusted model servers could not be read: none is trusted until postern models trust says so", {
      error,
    });
    return [];
  }
}

interface MemoryParts {
  readonly known: boolean;
  readonly servers: readonly RememberedServer[];
  readonly trusted: readonly TrustedServer[];
  readonly write: (servers: readonly RememberedServer[]) => Promise<void>;
  readonly writeTrust: (trusted: readonly TrustedServer[], commit?: Commit) => Promise<void>;
}

function memoryOf({ known, servers, trusted, write, writeTrust }: MemoryParts): ProviderMemory {
  return {
    trusted: () => trusted,
    async trust(server, commit) {
      const next = [server, ...trusted.filter(({ origin }) => origin !== server.origin)].slice(0, MAX_SERVERS);
      await writeTrust(next, commit);
      trusted = next;
    },
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

function withServer(servers: readonly RememberedServer[], server: RememberedServer): readonly RememberedServer[] {
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
