import { CodedError } from "../../base/errors.ts";

/**
 * Code of a refusal: the manifest, the package, the registry or the state of a plugin does not allow what was asked.
 * Source: docs/design/plugins.md "Plugins"
 */
export type PluginErrorCode =
  | "manifest_invalid"
  | "tool_name_taken"
  | "package_invalid"
  | "package_too_large"
  | "hash_mismatch"
  | "signature_invalid"
  | "registry_failed"
  | "plugin_not_found"
  | "plugin_conflict"
  | "plugin_changed";

/** Refusal about a plugin. The message names the plugin or the file, the reason and the way out. */
export class PluginError extends CodedError<PluginErrorCode> {
  override readonly name = "PluginError";
}

/** Returns the refusal of an id that no plugin has. */
export function pluginNotFound(id: string): PluginError {
  return new PluginError(
    "plugin_not_found",
    `Cannot find the plugin ${JSON.stringify(id.slice(0, 64))}: see postern plugin list`,
  );
}

/** Returns the refusal of what the state of a plugin does not allow. */
export function pluginConflict(message: string): PluginError {
  return new PluginError("plugin_conflict", message);
}
