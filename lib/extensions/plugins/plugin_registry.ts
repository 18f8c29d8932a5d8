import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import { type Actor, storedActor } from "../../base/records/caller.ts";
import { storedObject, unknownFieldsOf } from "../../base/records/stored_object.ts";
import { compareVersions } from "../../base/semantic_version.ts";
import type { Config } from "../../config/config.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import { ExtensionError } from "../extension_error.ts";
import type { RegistryEntry, RegistryInstall } from "../../base/records/extension_views.ts";
import { readPackage } from "./plugin_package.ts";
import type { Plugins } from "./plugins.ts";
import {
  chooseVersion,
  compareManifest,
  fetchPackage,
  isPublisherKey,
  type PinnedKey,
  readIndex,
  type RegistryOptions,
  searchIndex,
} from "./registry.ts";

const keySchema = storedObject({
  v: v.literal(1),
  id: v.string(),
  key: v.string(),
  serial: v.number(),
  pinned_at: v.string(),
});

/** Collection of the publishers' keys. The key is the id of the plugin. */
export const PLUGIN_KEYS = new Collection("plugin_keys", keySchema);

/** The registry of `[plugins] registry_url`, with the keys that were pinned. */
export interface PluginRegistry {
  /** @throws {ExtensionError} `registry_failed` */
  search(query: string, signal: AbortSignal): Promise<readonly RegistryEntry[]>;
  /**
   * Installs a plugin, off. One that is installed takes a newer version alone, unless a version is named.
   * @throws {ExtensionError} `registry_failed`, `plugin_not_found`, `signature_invalid`, `hash_mismatch` and those of `Plugins.install`
   */
  install(
    id: string,
    options: { readonly by: Actor; readonly version?: string | undefined; readonly signal: AbortSignal },
  ): Promise<RegistryInstall>;
  /** Accepts a key in place of the pinned one. @throws {ExtensionError} `signature_invalid` for a text that is no key */
  trustKey(id: string, options: { readonly key: string; readonly by: Actor }): Promise<void>;
}

/** Options of `createPluginRegistry`. */
export interface PluginRegistryOptions {
  readonly plugins: Plugins;
  readonly store: Store;
  readonly clock: Clock;
  readonly audit: AuditAppend;
  /** The newest configuration. */
  readonly config: () => Pick<Config, "plugins" | "url_access">;
  readonly guardedFetch: () => Promise<GuardedFetch>;
}

/** Creates the registry. Nothing is fetched before a call. */
export function createPluginRegistry(options: PluginRegistryOptions): PluginRegistry {
  const { plugins, store, clock, audit, config, guardedFetch } = options;
  const waysOf = (signal: AbortSignal): RegistryOptions => ({
    url: config().plugins.registry_url,
    guardedFetch,
    rules: config().url_access,
    now: clock.now(),
    signal,
  });
  const pinnedOf = async (id: string): Promise<PinnedKey | undefined> => (await PLUGIN_KEYS.read(store, id))?.value;
  const toRecord = (id: string, { key, serial }: PinnedKey, pinned: PinnedKey | undefined) => {
    const pinned_at = new Date(clock.now()).toISOString();
    return PLUGIN_KEYS.put(id, { ...unknownFieldsOf(pinned), v: 1, id, key, serial, pinned_at });
  };
  return {
    search: async (query, signal) => searchIndex(await readIndex(waysOf(signal)), query),
    async install(id, { by, version, signal }) {
      const ways = waysOf(signal);
      const index = await readIndex(ways);
      const pinned = await pinnedOf(id);
      const chosen = chooseVersion(index, { id, version, pinned });
      const before = plugins.installed(id);
      const state = chosen.signature === undefined ? "unsigned" : pinned === undefined ? "pinned" : "signed";
      if (before !== undefined && version === undefined && compareVersions(chosen.version, before.version) <= 0) {
        return { plugin: plugins.require(id), signature: state, changed: false };
      }
      const bytes = await fetchPackage(chosen, ways);
      compareManifest(readPackage(bytes).manifest, { id, chosen });
      if (chosen.signature !== undefined) {
        await store.batch([
          toRecord(id, { key: chosen.signature.key, serial: Math.max(index.serial, pinned?.serial ?? 0) }, pinned),
        ]);
      }
      const plugin = await plugins.install(bytes, { by, registry: ways.url });
      return { plugin, signature: state, changed: true };
    },
    async trustKey(id, { key, by }) {
      if (!/^[a-z0-9][a-z0-9-]{0,63}$/.test(id) || !isPublisherKey(key)) {
        throw new ExtensionError(
          "signature_invalid",
          "Cannot trust the key: give the id of a plugin and an Ed25519 public key of 32 bytes in base64",
        );
      }
      const pinned = await pinnedOf(id);
      if (pinned?.key === key) return;
      const installed = plugins.installed(id);
      await audit({
        type: "plugin",
        action: "key_trusted",
        plugin_id: id,
        version: installed?.version ?? "",
        digest: installed?.digest ?? "",
        folder: null,
        granted: [`key ${key}`],
        by: storedActor(by),
      }, [toRecord(id, { key, serial: pinned?.serial ?? 0 }, undefined)]);
    },
  };
}
