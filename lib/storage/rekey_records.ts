import * as v from "valibot";
import { ConfigError, HttpError, refuse } from "../base/errors.ts";
import type { DeepReadonly } from "../base/json.ts";
import { scanAll } from "./read_records.ts";
import { type RecordWriter, type Sealed, SealError } from "./record_cipher.ts";
import type { RecordKeyName, RecordKeys } from "./record_keys.ts";
import type { Store, Stored } from "./store.ts";

/** Records of one collection whose bodies hold sealed texts. */
export interface SealedCollection {
  readonly collection: string;
  readonly key: RecordKeyName;
  /** Returns the body with each sealed text replaced. @throws for a body that no version wrote; what `reseal` throws */
  rewrite(stored: Stored, reseal: (sealed: Sealed, bound: string) => Sealed): unknown;
}

/** Services that a change of the key needs. */
export interface RekeyServices {
  readonly store: Store;
  readonly keys: RecordKeys;
  readonly collections: readonly SealedCollection[];
  /** Returns the gateways of the cluster with the ids of their keys, the new one first. Default: there are none */
  readonly gateways?: () => Promise<readonly KeyedGateway[]>;
}

/** Gateway of a cluster with its keys. */
export interface KeyedGateway {
  readonly id: string;
  /** Ids of the keys that it has. The first one is that of its `storage.key_env` */
  readonly keys: readonly string[];
}

/** How far a change of the key is. */
export const rekeySchema = v.object({
  /** Records that this call re-encrypted, at most 200 */
  rewritten: v.number(),
  /** Records that still have another key, and wait for the next call */
  left: v.number(),
  /** Records that no key opens, at most 100: damaged, or encrypted with a key that this gateway does not have */
  unreadable: v.array(v.object({ collection: v.string(), key: v.string(), reason: v.string() })),
  /** Tells whether every record that can be opened has the new key */
  complete: v.boolean(),
  /** Key that no record needs once all have the new one: the value of the setting, or the key files before. Null: there is no other key */
  old_key: v.nullable(v.picklist(["old_key_env", "key_files"])),
});
/** How far a change of the key is. */
export type RekeyProgress = DeepReadonly<v.InferOutput<typeof rekeySchema>>;

/** Records that one call re-encrypts. The others wait for the next call. */
const PER_CALL = 200;
/** Records that a reply names. */
const MAX_NAMED = 100;

/**
 * Re-encrypts records with the key that is written with, some with each call, while gateways work on. A call that died is made up by the
 * next one: each record is changed by itself, only where nobody else has changed it, and only while the key is still the chosen one.
 * @throws {HttpError} 409 `conflict` while a gateway of the cluster lacks the new key or has a newer one, and without a key to change
 */
export async function rekeyRecords(services: RekeyServices): Promise<RekeyProgress> {
  const { keys, collections, gateways = async () => [] } = services;
  requireSameKey(keys.ids, await gateways());
  try {
    await keys.beginRekey();
  } catch (error) {
    throw error instanceof ConfigError ? conflict(error.message, error) : error;
  }
  const unreadable: RekeyProgress["unreadable"][number][] = [];
  const state = { rewritten: 0, left: 0, unreadable };
  for (const sealed of collections) await rewriteAll(sealed, services, state);
  const complete = state.left === 0;
  if (complete && state.unreadable.length === 0) await keys.endRekey();
  return { ...state, unreadable: state.unreadable.slice(0, MAX_NAMED), complete, old_key: keys.old };
}

/**
 * Requires that the new key of this gateway is that of all others. A gateway with the old key alone would do nothing, and seem to be done.
 * @throws {HttpError} 409 `conflict`
 */
function requireSameKey([newest]: readonly string[], gateways: readonly KeyedGateway[]): void {
  // Without a key of its own a gateway cannot compare it: beginRekey() says so
  if (newest === undefined) return;
  const namesOf = (found: readonly KeyedGateway[]) => found.map(({ id }) => id).join(", ");
  const ahead = gateways.filter(({ keys }) => keys.indexOf(newest) > 0);
  if (ahead.length > 0) {
    throw conflict(
      `gateways that have a newer key than this one: ${namesOf(ahead)}; run it at one of them, ` +
        `or restart this gateway with that key as storage.key_env and the one before as storage.old_key_env`,
    );
  }
  const without = gateways.filter(({ keys }) => !keys.includes(newest));
  if (without.length > 0) {
    throw conflict(
      `gateways that do not have the new key yet: ${namesOf(without)}; ` +
        "restart each with the new key as storage.key_env and the one before as storage.old_key_env",
    );
  }
}

async function rewriteAll(
  { collection, key: name, rewrite }: SealedCollection,
  { store, keys }: RekeyServices,
  state: { rewritten: number; left: number; readonly unreadable: RekeyProgress["unreadable"][number][] },
): Promise<void> {
  let writer: RecordWriter | undefined;
  let cipher: Awaited<ReturnType<RecordKeys["cipher"]>> | undefined;
  for await (const stored of scanAll(store, collection, { order: "key" })) {
    cipher ??= await keys.cipher(name);
    writer ??= await cipher.writer();
    const { open } = cipher;
    const { seal, keyId, also } = writer;
    let isOld = false;
    try {
      const body = rewrite(stored, (sealed, bound) => {
        const text = open(sealed, bound);
        if (sealed.key === keyId) return sealed;
        isOld = true;
        return seal(text, bound);
      });
      if (!isOld) continue;
      const isDone = state.rewritten < PER_CALL && await store.batch([
        { op: "putIf", collection, key: stored.key, version: stored.version, body },
        ...also,
      ]);
      // The next call looks at a record that somebody else has changed
      if (isDone) state.rewritten++;
      else state.left++;
    } catch (error) {
      if (error instanceof HttpError) throw error;
      const reason = error instanceof SealError ? error.message : "its record is damaged";
      state.unreadable.push({ collection, key: stored.key, reason });
    }
  }
}

function conflict(reason: string, cause?: unknown): HttpError {
  return refuse("conflict", `Cannot change the key of records: ${reason}`, { cause });
}
