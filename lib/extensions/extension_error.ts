import { CodedError, type ErrorCode } from "../base/errors.ts";

/**
 * Codes of refusals about plugins and skills, each with the code that a client is told.
 * Source: docs/design/plugins.md "Plugins", docs/design/skills.md "Skills"
 */
const TOLD_AS = {
  manifest_invalid: "invalid_request",
  tool_name_taken: "invalid_request",
  package_invalid: "invalid_request",
  package_too_large: "payload_too_large",
  hash_mismatch: "invalid_request",
  signature_invalid: "invalid_request",
  registry_failed: "provider_error",
  plugin_not_found: "not_found",
  plugin_conflict: "conflict",
  plugin_changed: "conflict",
  skill_invalid: "invalid_request",
  skill_too_large: "payload_too_large",
  skill_not_found: "not_found",
  skill_conflict: "conflict",
  skill_changed: "conflict",
  skill_source_failed: "provider_error",
} as const satisfies Record<string, ErrorCode>;

/** Code of a refusal: the manifest, the files, the source or the state of a plugin or a skill does not allow what was asked. */
export type ExtensionErrorCode = keyof typeof TOLD_AS;

/** Refusal about a plugin or a skill. The message names it or its file, the reason and the way out. */
export class ExtensionError extends CodedError<ExtensionErrorCode> {
  override readonly name = "ExtensionError";

  /** Code that a client of the gateway is told. */
  get toldAs(): ErrorCode {
    return TOLD_AS[this.code];
  }
}

/** Returns the refusal of a name that nothing of this kind has. */
export function extensionNotFound(kind: "plugin" | "skill", name: string): ExtensionError {
  const message = `Cannot find the ${kind} ${JSON.stringify(name.slice(0, 64))}: see postern ${kind} list`;
  return new ExtensionError(`${kind}_not_found`, message);
}

/** Returns the refusal of an extension whose content is another than the one that was looked at. */
export function extensionChanged(
  kind: "plugin" | "skill",
  name: string,
  { asked, found }: { readonly asked: string; readonly found: string },
): ExtensionError {
  const what = `${kind === "plugin" ? "enable" : "trust"} "${name}" with the digest ${asked}`;
  const reason = `its content has the digest ${found}; look at it again`;
  return new ExtensionError(`${kind}_changed`, `Cannot ${what}: ${reason}`);
}
