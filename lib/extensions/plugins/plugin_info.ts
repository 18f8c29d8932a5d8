import type { PluginConfig } from "./plugin_gate.ts";
import { type Containing, misfitOf, missingGrant, rightsOf } from "./plugin_gate.ts";
import { PLUGIN_LAYERS, type PluginInfo, type PluginLayer } from "../../base/records/extension_views.ts";
import { isEnabled, type KnownPlugin } from "./known_plugins.ts";
import { NO_CAPABILITIES, widened } from "./manifest.ts";
import { beyondGrant, grantOf } from "./plugin_record.ts";

/** Configuration and kinds that decide whether a plugin is on. */
interface Circumstances {
  readonly config: PluginConfig;
  /** Kinds that this version runs */
  readonly kinds: readonly string[];
}

/** Returns the command or edit that turns a plugin on; undefined while it is on. */
export function wayOn(
  plugin: KnownPlugin,
  { config, kinds }: Circumstances,
): string | undefined {
  const { id, content, fault, record } = plugin;
  if (content === undefined) return `mend it: ${fault}`;
  const { manifest } = content;
  const misfit = misfitOf(manifest, kinds);
  if (misfit !== undefined) return `use another version: ${misfit}`;
  if (isEnabled(plugin)) return missingGrant(manifest, config);
  const command = `run postern plugin enable ${id}`;
  switch (record?.off_because) {
    case "changed":
      return `${command}, since its content has changed (reason: changed)`;
    case "widened":
      return `${command}, since this version asks for more than the one before (reason: widened)`;
    default:
      return command;
  }
}

/** Names the folder of a plugin that is off and keeps another of its id from counting, which a person may take for it. */
function placeOf({ folder }: KnownPlugin, overridden: readonly PluginLayer[]): string {
  if (folder === null || overridden.length === 0) return "";
  return `; it lies in "${folder}" and takes the place of the one from ${overridden.join(", ")}`;
}

/**
 * Describes a plugin.
 * @param options.overridden plugins of the same id that do not count
 * @param options.lastError last call that failed
 * @param options.containment how programs of plugins are contained here
 */
export function toPluginInfo(
  plugin: KnownPlugin,
  { overridden, lastError, containment, ...circumstances }: Circumstances & {
    readonly overridden: readonly KnownPlugin[];
    readonly lastError: PluginInfo["last_error"] | undefined;
    readonly containment: Containing["containment"];
  },
): PluginInfo {
  const { id, layer, folder, content, record } = plugin;
  const way = wayOn(plugin, circumstances);
  const manifest = content?.manifest;
  const asked = content === undefined ? undefined : grantOf(content);
  const asks = asked === undefined ? [] : [
    ...widened(NO_CAPABILITIES, asked.capabilities),
    ...(asked.fuel === null ? [] : [`asks for ${asked.fuel} units of fuel in each call`]),
  ];
  const places = PLUGIN_LAYERS.filter((one) => overridden.some((other) => other.layer === one));
  return {
    id,
    object: "plugin",
    version: manifest?.version ?? record?.version ?? null,
    description: manifest?.description ?? null,
    kind: manifest?.kind ?? null,
    state: layer === "dev" ? "enabled" : record?.state ?? "installed",
    on: way === undefined,
    reason: way === undefined ? null : `it is off; ${way}${placeOf(plugin, places)}`,
    source: layer,
    folder,
    registry: record?.registry ?? null,
    digest: content?.digest ?? null,
    package_sha256: record?.package_sha256 ?? null,
    capabilities: manifest?.capabilities ?? NO_CAPABILITIES,
    fuel: asked?.fuel ?? null,
    asks,
    asks_more: asked === undefined || record?.grant == null ? asks : beyondGrant(record.grant, asked),
    rights: manifest === undefined ? null : rightsOf(manifest, { containment, ffi: circumstances.config.plugins.ffi }),
    tools: (manifest?.tools ?? []).map(({ name, description }) => ({ name, description })),
    overrides: places,
    changed_at: record?.changed_at ?? null,
    last_error: lastError ?? null,
  };
}
