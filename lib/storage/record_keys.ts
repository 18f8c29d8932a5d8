import { createHash, hkdfSync } from "node:crypto";
import { access, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { syncFolder } from "../base/durable_files.ts";
import { ConfigError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { storedObject } from "../base/records/stored_object.ts";
import { KEY_BYTES, loadKeyFile, NEXT_KEY } from "./key_file.ts";
import { Collection } from "./read_records.ts";
import { createRecordCipher, type KeyCipher, OtherKeyError, type RecordCipher } from "./record_cipher.ts";
import type { Store, Write } from "./store.ts";

/** Names of the keys of encrypted records: those of the files in the data directory. Each kind of records has a key of its own. */
export type RecordKeyName = "agents_ipc.key" | "browser_cookies.key" | "mcp_credentials.key";

/** Options of `createRecordKeys`. */
export interface RecordKeysOptions {
  readonly store: Store;
  /** Absolute path of the folder with the key files */
  readonly dataDir: string;
  /** False: the store is in memory, so that keys are kept nowhere */
  readonly isKept: boolean;
  /** True: other gateways use the store, so that a file of this machine is no key for its records */
  readonly isShared: boolean;
  readonly random: Random;
  /** `[storage]` */
  readonly settings: { readonly key_env: string; readonly old_key_env: string };
  /** Reads an environment variable */
  readonly environment: (name: string) => string | undefined;
}

/** Key before the new one: that of `[storage] old_key_env`, or the files of the data directory before new ones took their place. */
export type OldKey = "old_key_env" | "key_files";

/** The keys of all encrypted records. */
export interface RecordKeys {
  /** Checks the keys of the environment against those of the database, which takes a first key over. @throws {ConfigError} `storage_key` */
  check(): Promise<void>;
  /** Opens the cipher of one kind of records. @throws {ConfigError} `key_file`, `storage_key` */
  cipher(name: RecordKeyName): Promise<RecordCipher>;
  /** Ids of the keys that this gateway has, by which others learn whether it may open what they write. */
  readonly ids: readonly string[];
  /** Key that no record needs once all have the new one. Null: the gateway has one key alone */
  readonly old: OldKey | null;
  /** Makes the new key the one that is written with: that of `key_env`, or new files. Repeating it goes on with what was begun. */
  beginRekey(): Promise<void>;
  /** Forgets the old key files, once no record needs them. */
  endRekey(): Promise<void>;
}

const CURRENT = "current";

const keySchema = storedObject({
  v: v.literal(1),
  /** Digest of the key of the environment, or id of a file's key, that is written with */
  check: v.string(),
});

/**
 * Collection of the records that say which key is written with: `current` for the key of the environment, and the name of a key file once
 * that file's key was changed. They hold no key.
 */
export const STORAGE_KEYS = new Collection("storage_keys", keySchema);

const NAMES: readonly RecordKeyName[] = ["agents_ipc.key", "browser_cookies.key", "mcp_credentials.key"];
const HOW_TO = "`openssl rand -base64 32` prints a new key";

/**
 * Creates the keys of encrypted records.
 *
 * Without `[storage] key_env` they are files of the data directory, made at their first use. With it one key of the environment serves, from
 * which each kind of records has a key of its own (HKDF-SHA256); what the files or the key of `old_key_env` encrypted stays readable.
 * @throws {ConfigError} `storage_key` for a variable that is not set, one that holds no 32 bytes in base64, and an old key that is the new one
 * Source: docs/design/storage.md "Keys"
 */
export function createRecordKeys(options: RecordKeysOptions): RecordKeys {
  const given = readKeys(options);
  if (given !== undefined) return new EnvironmentKeys(options, given);
  return options.isShared ? new MissingKeys(options.store) : new FileKeys(options);
}

/**
 * Checks the keys of the environment as the start of a gateway does, and changes nothing: a first key is not taken over.
 * @throws {ConfigError} `storage_key`
 */
export async function verifyRecordKeys(
  options: Pick<RecordKeysOptions, "settings" | "environment" | "isShared"> & {
    readonly store: Pick<Store, "get" | "unreadable">;
  },
): Promise<void> {
  const given = readKeys(options);
  if (given !== undefined) await hasKey(options.store, given);
  else if (options.isShared) await new MissingKeys(options.store).check();
}

/** Keys of the environment. */
interface GivenKeys {
  readonly key: Uint8Array;
  /** The key before it, while records are rewritten. */
  readonly old: Uint8Array | undefined;
}

/** Reads the keys of the environment. @returns undefined where the configuration names none. @throws {ConfigError} `storage_key` */
function readKeys(
  { settings: { key_env, old_key_env }, environment }: Pick<RecordKeysOptions, "settings" | "environment">,
): GivenKeys | undefined {
  if (key_env === "") {
    if (old_key_env === "") return undefined;
    throw unusable("old_key_env", "it goes with storage.key_env alone, which names the new key");
  }
  const key = readKey("key_env", key_env, environment);
  const old = old_key_env === "" ? undefined : readKey("old_key_env", old_key_env, environment);
  if (old !== undefined && checkOf(old) === checkOf(key)) {
    throw unusable(
      "old_key_env",
      "it has the same key as storage.key_env, so nothing would change; name the new key by storage.key_env, and the one before by storage.old_key_env",
    );
  }
  return { key, old };
}

/** Tells whether the database has a key, which must be one of the given ones. @throws {ConfigError} `storage_key`: it is another */
async function hasKey(store: Pick<Store, "get" | "unreadable">, given: GivenKeys): Promise<boolean> {
  const stored = await STORAGE_KEYS.read(store, CURRENT);
  if (stored !== undefined) keyFor(stored.value.check, given);
  return stored !== undefined;
}

/** Returns the key that records are written with. @throws {ConfigError} `storage_key`: it is none of the given ones */
function keyFor(check: string, { key, old }: GivenKeys): Uint8Array {
  if (check === checkOf(key)) return key;
  if (old !== undefined && check === checkOf(old)) return old;
  const reason = old === undefined
    ? "the records of this database are encrypted with another key; give that one, or name it by storage.old_key_env beside the new one"
    : "the records of this database are encrypted with neither this key nor that of storage.old_key_env";
  throw unusable("key_env", reason);
}

/** Keys in files of the data directory. */
class FileKeys implements RecordKeys {
  readonly #options: RecordKeysOptions;
  readonly old = "key_files";
  readonly #rings = new Map<RecordKeyName, Promise<KeyRing>>();
  readonly ids: readonly string[] = [];

  constructor(options: RecordKeysOptions) {
    this.#options = options;
  }

  async check(): Promise<void> {}

  cipher(name: RecordKeyName): Promise<KeyRing> {
    const known = this.#rings.get(name);
    if (known !== undefined) return known;
    const ring = this.#open(name);
    this.#rings.set(name, ring);
    // A key that cannot be used is tried again at its next use
    ring.catch(() => this.#rings.delete(name));
    return ring;
  }

  async beginRekey(): Promise<void> {
    const { random, isKept } = this.#options;
    for (const name of NAMES) {
      if (!await this.#isUsed(name)) continue;
      const ring = await this.cipher(name);
      if (!ring.isChanging()) {
        const key = isKept ? await loadKeyFile(this.#path(name) + NEXT_KEY, random) : random.bytes(KEY_BYTES);
        // Another call may have begun meanwhile
        if (!ring.isChanging()) ring.change(createRecordCipher(key, random));
      }
    }
    for (const name of this.#rings.keys()) await this.#choose(name);
  }

  async endRekey(): Promise<void> {
    for (const name of NAMES) {
      const ring = await this.#rings.get(name);
      if (ring?.isChanging() !== true) continue;
      if (this.#options.isKept) {
        await rename(this.#path(name) + NEXT_KEY, this.#path(name));
        await syncFolder(dirname(this.#path(name)));
      }
      ring.settle();
    }
  }

  /** Writes which key is written with: whoever has sealed with the one before, and writes later, is refused by its precondition. */
  async #choose(name: RecordKeyName): Promise<void> {
    const { store } = this.#options;
    const ring = await this.cipher(name);
    if (!ring.isChanging()) return;
    const keyId = ring.keyId();
    const stored = await STORAGE_KEYS.read(store, name);
    if (stored?.value.check === keyId) return;
    const body = { ...stored?.value, v: 1 as const, check: keyId };
    await store.batch([STORAGE_KEYS.put(name, body)]);
  }

  async #open(name: RecordKeyName): Promise<KeyRing> {
    const { random, isKept, store } = this.#options;
    const chosen = async () => STORAGE_KEYS.check(name, await STORAGE_KEYS.versionOf(store, name));
    if (!isKept) return new KeyRing(createRecordCipher(random.bytes(KEY_BYTES), random), chosen);
    const ring = new KeyRing(createRecordCipher(await loadKeyFile(this.#path(name), random), random), chosen);
    const next = this.#path(name) + NEXT_KEY;
    if (await exists(next)) ring.change(createRecordCipher(await loadKeyFile(next, random), random));
    return ring;
  }

  async #isUsed(name: RecordKeyName): Promise<boolean> {
    return this.#rings.has(name) || (this.#options.isKept && await exists(this.#path(name)));
  }

  #path(name: RecordKeyName): string {
    return join(this.#options.dataDir, name);
  }
}

/** The key of the environment and, while records are rewritten, the key before it. */
class EnvironmentKeys implements RecordKeys {
  readonly #options: RecordKeysOptions;
  readonly #given: GivenKeys;
  readonly ids: readonly string[];
  readonly old: OldKey | null;

  constructor(options: RecordKeysOptions, given: GivenKeys) {
    const { key, old } = given;
    this.#options = options;
    this.#given = given;
    this.ids = [key, ...old === undefined ? [] : [old]].map(checkOf);
    this.old = old === undefined ? null : "old_key_env";
  }

  async check(): Promise<void> {
    const { store } = this.#options;
    while (!await hasKey(store, this.#given)) {
      if (await store.batch([STORAGE_KEYS.insert(CURRENT, { v: 1, check: checkOf(this.#given.key) })])) return;
    }
  }

  async cipher(name: RecordKeyName): Promise<RecordCipher> {
    const { random, store, dataDir, isKept } = this.#options;
    const { key, old: before } = this.#given;
    const derived = (key: Uint8Array) => createRecordCipher(derive(key, name), random);
    const [current, old] = [derived(key), before && derived(before)];
    const file = isKept && await exists(join(dataDir, name))
      ? createRecordCipher(await loadKeyFile(join(dataDir, name), random), random)
      : undefined;
    const known = [current, old, file].filter((cipher) => cipher !== undefined);
    return {
      open: (sealed, bound) => openWith(known, sealed, bound),
      writer: async () => {
        await this.check();
        const stored = await STORAGE_KEYS.read(store, CURRENT);
        if (stored === undefined) {
          throw unusable("key_env", "the record of the database's key is gone; restart the gateway");
        }
        const writing = keyFor(stored.value.check, this.#given) === key ? current : derived(before ?? key);
        const check: Write = STORAGE_KEYS.check(CURRENT, stored.version);
        return { keyId: writing.keyId, seal: writing.seal, also: [check] };
      },
    };
  }

  async beginRekey(): Promise<void> {
    const { store } = this.#options;
    for (;;) {
      await this.check();
      const stored = await STORAGE_KEYS.read(store, CURRENT);
      const check = checkOf(this.#given.key);
      if (stored === undefined || stored.value.check === check) return;
      if (await store.batch([STORAGE_KEYS.putOver(CURRENT, stored.version, { ...stored.value, check })])) return;
    }
  }

  async endRekey(): Promise<void> {}
}

/** Keys of a gateway in a cluster that was given none. */
class MissingKeys implements RecordKeys {
  readonly #store: Pick<Store, "get">;
  readonly ids: readonly string[] = [];
  readonly old = null;

  constructor(store: Pick<Store, "get">) {
    this.#store = store;
  }

  async check(): Promise<void> {
    if (await STORAGE_KEYS.versionOf(this.#store, CURRENT) === 0) return;
    // A new key would be refused next: that of the others is wanted
    throw missing("the records of this database are encrypted with a key that other gateways have");
  }

  async cipher(): Promise<RecordCipher> {
    await this.check();
    throw missing("gateways that share a database need one key for its encrypted records", `. ${HOW_TO}`);
  }

  async beginRekey(): Promise<void> {
    await this.check();
    throw missing("there is no key to encrypt with", `. ${HOW_TO}`);
  }

  async endRekey(): Promise<void> {}
}

/** A key that is written with, and beside it the key before it while records are rewritten. */
class KeyRing implements RecordCipher {
  #current: KeyCipher;
  #before: KeyCipher | undefined = undefined;
  readonly #chosen: () => Promise<Write>;

  /** @param chosen returns the precondition that the key which is written with now is so still */
  constructor(current: KeyCipher, chosen: () => Promise<Write>) {
    this.#current = current;
    this.#chosen = chosen;
  }

  readonly open: RecordCipher["open"] = (sealed, bound) =>
    openWith([this.#current, ...this.#before === undefined ? [] : [this.#before]], sealed, bound);

  readonly writer: RecordCipher["writer"] = async () => {
    // Read before the key: a change after this moment is one that the precondition finds
    const also = [await this.#chosen()];
    const { keyId, seal } = this.#current;
    return { keyId, seal, also };
  };

  keyId(): string {
    return this.#current.keyId;
  }

  isChanging(): boolean {
    return this.#before !== undefined;
  }

  change(next: KeyCipher): void {
    this.#before = this.#current;
    this.#current = next;
  }

  settle(): void {
    this.#before = undefined;
  }
}

function openWith(ciphers: readonly KeyCipher[], sealed: Parameters<RecordCipher["open"]>[0], bound: string): string {
  const cipher = ciphers.find(({ keyId }) => keyId === sealed.key);
  if (cipher === undefined) throw new OtherKeyError("it was sealed with another key");
  return cipher.open(sealed, bound);
}

/** Returns 32 bytes in base64 of a variable. @throws {ConfigError} which never holds the value */
function readKey(
  setting: "key_env" | "old_key_env",
  name: string,
  environment: (name: string) => string | undefined,
): Uint8Array {
  // Nobody can make an old key again
  const wayOut = setting === "key_env" ? `; ${HOW_TO}` : "";
  const refused = (problem: string) => unusable(setting, `the environment variable "${name}" ${problem}${wayOut}`);
  const text = environment(name)?.trim();
  if (text === undefined) throw refused("is not set");
  if (text === "") throw refused("is empty");
  const bytes = Buffer.from(text, "base64");
  if (bytes.toString("base64") !== text || bytes.length !== KEY_BYTES) {
    throw refused(`does not hold ${KEY_BYTES} bytes in base64`);
  }
  return new Uint8Array(bytes);
}

function derive(key: Uint8Array, name: RecordKeyName): Uint8Array {
  return new Uint8Array(hkdfSync("sha256", key, new Uint8Array(0), `postern records ${name}`, KEY_BYTES));
}

/** Returns what tells one key from another and says nothing about the key. */
function checkOf(key: Uint8Array): string {
  return createHash("sha256").update("postern storage key").update(key).digest("base64url");
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(() => true, () => false);
}

function missing(reason: string, more = ""): ConfigError {
  const wayOut = `set it to the name of a variable with that key, the same at all gateways${more}`;
  return unusable("key_env", `${reason}; ${wayOut}`);
}

function unusable(setting: "key_env" | "old_key_env", reason: string): ConfigError {
  return new ConfigError("storage_key", `Cannot use storage.${setting}: ${reason}`, { key: `storage.${setting}` });
}
