import { Buffer } from "node:buffer";
import * as v from "valibot";
import { refuse } from "../../base/errors.ts";
import { storedObject, unknownFieldsOf } from "../../base/records/stored_object.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { Collection } from "../../storage/read_records.ts";
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

const KEY = "memory";
const TRUST_KEY = "trusted";
const MAX_SERVERS = 16;
const MAX_MODELS = 500;
const MAX_NAME = 256;
/** Documents of a version that had no memory: lists of models are among the first. */
const MAX_DOCUMENTS = 200;

/** Tries to write the trusted servers while other gateways of the machine write them. */
const MAX_TRIES = 8;

const memorySchema = storedObject({
  v: v.literal(1),
  servers: v.array(storedObject({
    software: v.string(),
    kind: v.picklist(["ollama", "openai_compatible"]),
    base_url: v.string(),
    models: v.array(v.string()),
  })),
});

const trustSchema = storedObject({
  v: v.literal(1),
  servers: v.array(storedObject({ origin: v.string(), uid: v.nullable(v.number()) })),
});

/** Two records, in a cluster two for each machine: the local servers that were found, and those that are trusted. */
export const PROVIDERS = new Collection("providers", v.union([memorySchema, trustSchema]));
const FOUND = new Collection(PROVIDERS.name, memorySchema);
const TRUSTED = new Collection(PROVIDERS.name, trustSchema);

/** A memory that starts empty and is kept nowhere. */
export function createProviderMemory(): ProviderMemory {
  const keep = () => Promise.resolve();
  let trusted: readonly TrustedServer[] = [];
  const addTrust = (server: TrustedServer) => {
    trusted = [server, ...trusted.filter(({ origin }) => origin !== server.origin)].slice(0, MAX_SERVERS);
    return Promise.resolve(trusted);
  };
  return memoryOf({ known: false, servers: [], trusted, write: keep, addTrust });
}

/**
 * Reads the memory of a data directory. One that cannot be read counts as known: the offline assistant then answers for nobody.
 * A data directory of an older version is known when it keeps a list of models of a real provider.
 */
export async function loadProviderMemory(
  { store, log, machine }: {
    readonly store: Store;
    readonly log: Logger;
    /** In a cluster: machine that the servers are local to. An address such as 127.0.0.1 is another server at another machine. */
    readonly machine?: string | undefined;
  },
): Promise<ProviderMemory> {
  const keyOf = (key: string) => machine === undefined ? key : `${key}:${machine}`;
  const write = async (servers: readonly RememberedServer[]) => {
    try {
      const { value } = await FOUND.readForChange(store, keyOf(KEY));
      const kept = servers.map(({ baseUrl, ...server }) => ({
        ...unknownFieldsOf(value?.servers.find(({ base_url }) => base_url === baseUrl)),
        ...server,
        models: [...server.models],
        base_url: baseUrl,
      }));
      const body = { ...unknownFieldsOf(value), v: 1 as const, servers: kept };
      await store.batch([FOUND.put(keyOf(KEY), body)]);
    } catch (error) {
      log.error("The models that were found could not be remembered", { error });
    }
  };
  const addTrust = async (server: TrustedServer, commit: Commit = store.batch) => {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const { value, version } = await TRUSTED.readForChange(store, keyOf(TRUST_KEY));
      const before = value?.servers.find(({ origin }) => origin === server.origin);
      const others = (value?.servers ?? []).filter((other) => other !== before);
      const servers = [{ ...unknownFieldsOf(before), ...server }, ...others].slice(0, MAX_SERVERS);
      const body = { ...unknownFieldsOf(value), v: 1 as const, servers };
      if (await commit([TRUSTED.putOver(keyOf(TRUST_KEY), version, body)])) return servers;
    }
    throw refuse("conflict", "Cannot trust the server: others trust servers at the same time; try again");
  };
  const trusted = await readTrusted(store, { log, key: keyOf(TRUST_KEY) });
  const parts = { trusted, write, addTrust };
  try {
    const stored = await FOUND.read(store, keyOf(KEY));
    if (stored === undefined) return memoryOf({ known: await listedModels(store), servers: [], ...parts });
    const servers = stored.value.servers.map(({ base_url, ...rest }) => ({ ...rest, baseUrl: base_url }));
    return memoryOf({ known: true, servers, ...parts });
  } catch (error) {
    log.error("The memory of models could not be read: a model that is named is served by that model alone", { error });
    return memoryOf({ known: true, servers: [], ...parts });
  }
}

async function readTrusted(
  store: Store,
  { log, key }: { readonly log: Logger; readonly key: string },
): Promise<readonly TrustedServer[]> {
  try {
    return (await TRUSTED.read(store, key))?.value.servers ?? [];
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
  /** Adds a server to the record, beside those that other gateways of the machine have added. @returns all of them */
  readonly addTrust: (server: TrustedServer, commit?: Commit) => Promise<readonly TrustedServer[]>;
}

function memoryOf({ known, servers, trusted, write, addTrust }: MemoryParts): ProviderMemory {
  return {
    trusted: () => trusted,
    async trust(server, commit) {
      trusted = await addTrust(server, commit);
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
