import { lazily } from "./base/lazily.ts";
import type { Random } from "./base/random.ts";
import { type Actor, storedActor } from "./base/records/caller.ts";
import type { Config } from "./config/config.ts";
import type { Coordination } from "./coordination.ts";
import type { GuardServices } from "./guard/guard_services.ts";
import type { RecordCipher } from "./storage/record_cipher.ts";
import type { RecordKeyName, RecordKeys } from "./storage/record_keys.ts";
import type { RekeyProgress } from "./storage/rekey_records.ts";
import type { Store } from "./storage/store.ts";

/** Keys of the encrypted records of a gateway. */
export interface GatewayKeys {
  readonly load: () => Promise<RecordKeys>;
  /** Ids of the keys that the environment gives. */
  readonly ids: readonly string[];
  /** Opens the cipher of one kind of records. @throws {ConfigError} a key that cannot be used */
  readonly cipherOf: (name: RecordKeyName) => Promise<RecordCipher>;
}

/** Options of `openGatewayKeys`. */
export interface GatewayKeysOptions {
  readonly config: () => Config;
  /** Reads an environment variable */
  readonly environment: (name: string) => string | undefined;
  /** Absolute path */
  readonly dataDir: string;
  readonly random: Random;
  readonly store: Store;
  /** True: other gateways may have the same records */
  readonly isShared: boolean;
}

/**
 * Leaves the keys of encrypted records for their first use. Keys of the environment, and those of a cluster, are checked now.
 * @throws {ConfigError} `storage_key`
 */
export async function openGatewayKeys(
  { config, environment, dataDir, random, store, isShared }: GatewayKeysOptions,
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

/** Encrypts records anew with the key of the configuration, some with each call. @param by whoever asked for it */
export async function rekey(
  { store, keys, cluster, guard }: {
    readonly store: Store;
    readonly keys: GatewayKeys;
    readonly cluster: Pick<Coordination, "gateways">;
    readonly guard: Pick<GuardServices, "audit">;
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
