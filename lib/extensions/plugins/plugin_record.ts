import * as v from "valibot";
import { storedObject } from "../../base/records/stored_object.ts";
import { Collection } from "../../storage/read_records.ts";
import { PLUGIN_KINDS, PLUGIN_STATES, type PluginState } from "../../base/records/extension_views.ts";
import { type PluginManifest, widened } from "./manifest.ts";

/** Commands that change the state of a plugin. */
export type PluginTrigger = "enable" | "disable" | "remove";

/** Next state by state and trigger. `removed`: the record and the files go. */
const TRANSITIONS: Readonly<Record<PluginState, Readonly<Record<PluginTrigger, PluginState | "removed">>>> = {
  installed: { enable: "enabled", disable: "disabled", remove: "removed" },
  enabled: { enable: "enabled", disable: "disabled", remove: "removed" },
  disabled: { enable: "enabled", disable: "disabled", remove: "removed" },
};

/** Returns the state that a trigger leads to. The same state: nothing changes. */
export function nextState(state: PluginState, trigger: PluginTrigger): PluginState | "removed" {
  return TRANSITIONS[state][trigger];
}

const text = v.pipe(v.string(), v.maxLength(4_096));
const digest = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));
const capabilities = storedObject({
  workspace: v.picklist(["none", "read", "write"]),
  hosts: v.array(text),
  host_functions: v.array(text),
});

const grantSchema = storedObject({
  version: text,
  digest,
  kind: v.picklist(PLUGIN_KINDS),
  capabilities,
  /** Units of fuel that a call may use; null: as configured, or no WASM */
  fuel: v.nullable(v.number()),
});
/** Content that a person enabled: nothing else counts as enabled. */
export type PluginGrant = v.InferOutput<typeof grantSchema>;

const recordSchema = storedObject({
  v: v.literal(1),
  id: text,
  state: v.picklist(PLUGIN_STATES),
  /** Folder that the plugin was found in, absolute; null for an installed package */
  folder: v.nullable(text),
  version: text,
  digest,
  /** SHA-256 of the package as it came; null for a folder */
  package_sha256: v.nullable(digest),
  /** Address of the registry that it came from; null for a file or a folder */
  registry: v.nullable(text),
  grant: v.nullable(grantSchema),
  /** Why it is off though nobody disabled it: its content changed, or a new version asks for more; null otherwise */
  off_because: v.nullable(v.picklist(["changed", "widened"])),
  created_at: text,
  changed_at: text,
});
/** Record of a plugin. Times are in ISO 8601. */
export type PluginRecord = v.InferOutput<typeof recordSchema>;

/** Collection of the plugins that were installed, enabled or disabled. The key is `recordKey`. */
export const PLUGINS = new Collection("plugins", recordSchema);

/** Returns the key of a record: an id has one installed package, and one plugin in each folder. */
export function recordKey({ id, folder }: Pick<PluginRecord, "id" | "folder">): string {
  return folder === null ? `installed ${id}` : `found ${id} ${folder}`;
}

/** Returns what enabling a plugin grants. */
export function grantOf(
  { manifest, digest: content }: { readonly manifest: PluginManifest; readonly digest: string },
): PluginGrant {
  const { version, kind, capabilities: asked } = manifest;
  return {
    version,
    digest: content,
    kind,
    capabilities: { workspace: asked.workspace, hosts: [...asked.hosts], host_functions: [...asked.host_functions] },
    fuel: manifest.kind === "wasm" ? manifest.wasm.fuel ?? null : null,
  };
}

/** Returns what a plugin asks for beyond a grant, each as a line for a person. Empty: nothing. */
export function beyondGrant(grant: PluginGrant, asked: PluginGrant): readonly string[] {
  const lines = [...widened(grant.capabilities, asked.capabilities)];
  if (asked.kind !== grant.kind) lines.push(`runs as a ${asked.kind} plugin, and not as a ${grant.kind} plugin`);
  if ((asked.fuel ?? 0) > (grant.fuel ?? 0)) lines.push(`asks for ${asked.fuel} units of fuel in each call`);
  return lines;
}
