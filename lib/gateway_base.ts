import { systemClock } from "./base/clock.ts";
import { canonicalDigest } from "./base/json.ts";
import type { Kit } from "./base/kit.ts";
import type { ClusterNeeds } from "./open_cluster.ts";
import { lazily } from "./base/lazily.ts";
import { defineWing, type OpenedList } from "./base/opened_list.ts";
import { createSystemRandom } from "./base/random.ts";
import { type Actor, storedActor } from "./base/records/caller.ts";
import { createTelemetry } from "./base/telemetry/create_telemetry.ts";
import { type Coordination, createAlone } from "./coordination.ts";
import { namedSecrets } from "./config/secrets.ts";
import type { Audit } from "./guard/audit/audit.ts";
import type { CurrentState, ProgramCluster, ProgramFolders, ServicesOptions, StorageSharing } from "./services.ts";
import { createDocuments, type Documents } from "./storage/documents.ts";
import { type OpenedStore, openStore } from "./storage/open_store.ts";
import { readable } from "./storage/read_records.ts";
import type { RecordCipher } from "./storage/record_cipher.ts";
import type { RecordKeyName, RecordKeys } from "./storage/record_keys.ts";
import type { RekeyProgress } from "./storage/rekey_records.ts";
import type { Store } from "./storage/store.ts";
import { parseMarker, PROCESSES } from "./system/process/leftover_processes.ts";

/** Parts of a gateway that are there before its first wing. */
export type GatewayBase = Awaited<ReturnType<typeof createBase>>;

/** Creates what the wings stand on. @param started aborted at the end of the start */
export async function createBase(
  program: ServicesOptions,
  { opened, started }: { readonly opened: OpenedList; readonly started: AbortSignal },
) {
  const { about, kit: { clock = systemClock, random = createSystemRandom() } = {} } = program;
  const state: CurrentState = { config: program.config, draining: undefined, drainListeners: [] };
  const telemetry = createTelemetry({
    clock,
    version: about.version,
    level: () => state.config.logging.level,
    sink: program.log.sink,
    programName: about.programName,
    secrets: [...await namedSecrets(program.config, program.environment), [
      program.controlToken ?? "",
      "the gateway's control token",
    ]],
    opened,
  });
  /** Kit of this gateway alone, with the clock of its machine. */
  const local: Kit = {
    clock,
    random,
    log: telemetry.log,
    metrics: telemetry.metrics,
    environment: (name) => program.environment[name],
  };
  return {
    ...{ program, started, state, telemetry, local },
    config: () => state.config,
    isDraining: () => state.draining !== undefined,
  };
}

/** Store of a gateway, with what reads and encrypts its records. */
export interface GatewayStorage {
  readonly store: Store;
  readonly documents: Documents;
  readonly keys: GatewayKeys;
  /** Database that other gateways may use too. Undefined: the store is this gateway's own */
  readonly shared: StorageSharing | undefined;
}

/** Keys of the encrypted records of a gateway. */
export interface GatewayKeys {
  readonly load: () => Promise<RecordKeys>;
  /** Ids of the keys that the environment gives. */
  readonly ids: readonly string[];
  /** Opens the cipher of one kind of records. @throws {ConfigError} a key that cannot be used */
  readonly cipherOf: (name: RecordKeyName) => Promise<RecordCipher>;
}

/** The store, and the keys of its encrypted records. */
export const storageWing = defineWing({ name: "storage", start: startStorage });

async function startStorage(base: GatewayBase, opened: OpenedList): Promise<GatewayStorage> {
  const { program, config, local: { environment, clock, random, log }, started } = base;
  const { folders: { dataDir }, cluster: { database } = {}, signal } = program;
  const found: OpenedStore = database ?? await openStore({
    ...{ storage: config().storage, environment, dataDir, clock, random, log },
    ...{ opened, started, signal },
  });
  const { store } = found;
  const shared = sharedOf(database, found);
  const keys = await openKeys(base, { store, isShared: shared !== undefined });
  const driver = program.additions?.cache;
  const documents = createDocuments({ store, cache: driver && { driver, clock, random, log } });
  return { store, documents, keys, shared };
}

function sharedOf(given: ProgramCluster["database"], { database }: OpenedStore): StorageSharing | undefined {
  if (given !== undefined) return { given: given.cluster };
  return database && { opened: database };
}

/**
 * Leaves the keys of encrypted records for their first use. Keys of the environment, and those of a cluster, are checked now.
 * @throws {ConfigError} `storage_key`
 */
async function openKeys(
  { program: { folders: { dataDir } }, config, local: { environment, random } }: GatewayBase,
  { store, isShared }: { readonly store: Store; readonly isShared: boolean },
): Promise<GatewayKeys> {
  const { driver, key_env, old_key_env } = config().storage;
  const load = lazily(async () => {
    const { createRecordKeys } = await import("./storage/record_keys.ts");
    return createRecordKeys({
      ...{ store, dataDir, random, environment, isShared },
      settings: { key_env, old_key_env },
      isKept: driver !== "memory",
    });
  });
  const isGiven = key_env !== "" || old_key_env !== "";
  if (isGiven || isShared) await (await load()).check();
  return {
    load,
    ids: isGiven ? (await load()).ids : [],
    cipherOf: async (name) => await (await load()).cipher(name),
  };
}

/** The kit that the wings get. The wall clock of one gateway may be wrong: in a cluster the database's time counts for all. */
export const kitWing = defineWing({
  name: "kit",
  start: ({ local, cluster }: { readonly local: Kit; readonly cluster: Pick<Coordination, "clock"> }): Kit => ({
    ...local,
    clock: cluster.clock,
  }),
});

/** Folders of a gateway. */
export interface GatewayFolders extends Pick<ProgramFolders, "dataDir" | "workspaceRoot" | "home"> {
  /** Absolute paths that no tool touches. */
  readonly ownPaths: readonly string[];
}

/** This gateway among those of its database. A gateway alone loads nothing of clusters. */
export const clusterWing = defineWing({
  name: "cluster",
  async start(needs: ClusterNeeds, opened): Promise<Coordination> {
    const { local: { clock }, storage: { store, shared } } = needs;
    if (shared === undefined) return createAlone({ clock, store });
    const { openCluster } = await import("./open_cluster.ts");
    return await openCluster(needs, { opened, shared });
  },
});

/** The folders of the gateway. */
export const foldersWing = defineWing({
  name: "folders",
  start({ program, cluster }: {
    readonly program: Pick<ServicesOptions, "folders">;
    readonly cluster: Pick<Coordination, "ownPaths">;
  }): GatewayFolders {
    const { dataDir, workspaceRoot, home, ownPaths = [] } = program.folders;
    return {
      ...{ dataDir, workspaceRoot, home },
      ownPaths: [...new Set([dataDir, ...ownPaths]), ...cluster.ownPaths],
    };
  },
});

/** Needs of `markerWing`. */
export interface MarkerNeeds {
  readonly kit: Kit;
  readonly folders: Pick<GatewayFolders, "dataDir">;
  readonly storage: Pick<GatewayStorage, "store">;
  readonly cluster: Pick<Coordination, "watchPrograms">;
}

/** The marker that this data directory's processes are known by. */
export const markerWing = defineWing({
  name: "marker",
  async start(needs: MarkerNeeds) {
    const marker = await loadMarker(needs);
    await needs.cluster.watchPrograms(marker.text);
    return marker;
  },
});

/**
 * Returns the marker, kept from the first start on. The folder's name is a part of it: a copy of the folder has other processes.
 */
async function loadMarker({ storage: { store }, kit: { random }, folders: { dataDir } }: MarkerNeeds) {
  const place = canonicalDigest(dataDir).slice(0, 16);
  for (;;) {
    const stored = await store.get(PROCESSES, "marker");
    // Without the old marker, processes that an earlier gateway left are not found: the log names the damaged record
    const [found] = readable(store, PROCESSES, stored === undefined ? [] : [stored], parseMarker);
    if (found !== undefined) return { text: `${found.value}.${place}`, known: true };
    const marker = random.id("gateway_");
    // Another gateway of the cluster may write its own at the same moment: the first one counts for all
    const isWritten = await store.putIfVersion(PROCESSES, "marker", stored?.version ?? 0, { v: 1, marker });
    if (isWritten) return { text: `${marker}.${place}`, known: false };
  }
}

/** Encrypts records again with the key of the configuration, some with each call. @param by whoever asked for it */
export async function rekey(
  { storage: { store, keys }, cluster, guard }: {
    readonly storage: Pick<GatewayStorage, "store" | "keys">;
    readonly cluster: Pick<Coordination, "gateways">;
    readonly guard: { readonly audit: Pick<Audit, "append"> };
  },
  by: Actor,
): Promise<RekeyProgress> {
  const [{ rekeyRecords }, ...sealed] = await Promise.all([
    import("./storage/rekey_records.ts"),
    import("./memory/mailbox.ts").then((found) => found.SEALED_MAILBOXES),
    import("./memory/cookie_jars.ts").then((found) => found.SEALED_COOKIES),
    import("./memory/browser_logins.ts").then((found) => found.SEALED_LOGINS),
    import("./extensions/mcp/oauth/credentials.ts").then((found) => found.SEALED_CREDENTIALS),
  ]);
  const gateways = async () =>
    (await cluster.gateways()).map(({ id, about }) => ({ id, keys: about.storage_keys ?? [] }));
  const progress = await rekeyRecords({ store, keys: await keys.load(), collections: sealed, gateways });
  const { rewritten, left, unreadable, complete } = progress;
  if (rewritten > 0 || complete) {
    const counts = { rewritten, left, unreadable: unreadable.length, complete };
    await guard.audit.append({ type: "storage", action: "rekeyed", ...counts, by: storedActor(by) });
  }
  return progress;
}
