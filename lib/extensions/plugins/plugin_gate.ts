import type { Config } from "../../config/config.ts";
import type { CommandContainment } from "../../system/process/containment.ts";
import type { Access } from "../../tools/runtime/tool.ts";
import { isAmongHosts } from "../../system/net/url_rules.ts";
import { type PluginManifest, versionMisfit } from "./manifest.ts";

/** Part of the configuration that decides about plugins. */
export type PluginConfig = Pick<Config, "plugins" | "runtime" | "tools">;

/**
 * Returns the edit of the configuration without which a plugin does not run, whoever enabled it: a capability counts only where manifest
 * and configuration both grant it. Undefined when the configuration lets it run.
 */
export function missingGrant(manifest: PluginManifest, { plugins, runtime }: PluginConfig): string | undefined {
  switch (manifest.kind) {
    case "process":
      return plugins.allow_process ? undefined : "set [plugins] allow_process = true";
    case "ffi":
      return plugins.allow_ffi ? undefined : "set [plugins] allow_ffi = true";
    case "wasm":
      switch (runtime.wasm.security.capability_escalation_mode) {
        case "deny":
          return missingCapability(manifest, runtime.wasm);
      }
  }
}

function missingCapability(
  { capabilities }: PluginManifest,
  { allow_workspace_read: mayRead, allow_workspace_write: mayWrite, allowed_hosts: allowed }:
    PluginConfig["runtime"]["wasm"],
): string | undefined {
  const { workspace, hosts } = capabilities;
  if (workspace !== "none" && !mayRead) return "set [runtime.wasm] allow_workspace_read = true";
  if (workspace === "write" && !mayWrite) return "set [runtime.wasm] allow_workspace_write = true";
  const closed = hosts.find((host) => !isHostGranted(host, allowed));
  return closed === undefined ? undefined : `add "${closed}" to [runtime.wasm] allowed_hosts`;
}

/** Tells whether a list of hosts covers a host of a manifest, which may itself stand for the subdomains of a name. */
function isHostGranted(host: string, allowed: readonly string[]): boolean {
  if (allowed.includes(host)) return true;
  const [name = ""] = host.replace(/^\*\./, "any.").split(":");
  const entries = host.startsWith("*.") ? allowed.filter((entry) => entry.startsWith("*.")) : allowed;
  return isAmongHosts(name, entries.filter((entry) => !/:\d+$/.test(entry)));
}

/**
 * Returns the access of a plugin's tools. That of a WASM plugin is what its capabilities let it do; a process or a library can do
 * everything that the user can, unless the operator says otherwise in `[tools.<name>] access`.
 */
export function accessOfPlugin(manifest: PluginManifest, tool: string, { tools }: PluginConfig): Access {
  if (manifest.kind !== "wasm") return tools[tool]?.access || "network";
  const { workspace, hosts } = manifest.capabilities;
  if (hosts.length > 0) return "network";
  return workspace === "write" ? "write" : "read";
}

/** Circumstances that decide about the rights of a program or a library. */
export interface Containing {
  /** How programs of plugins are contained here. Undefined before somebody looked */
  readonly containment: CommandContainment["kind"] | undefined;
  readonly ffi: Config["plugins"]["ffi"];
}

/** Returns a sentence about the rights that a plugin of this kind runs with on this machine. */
export function rightsOf({ kind }: Pick<PluginManifest, "kind">, { containment, ffi }: Containing): string {
  switch (kind) {
    case "wasm":
      return "It runs in a WASM sandbox and can do what its capabilities say, and no more";
    case "process":
      return `It is a program on this machine: ${CONTAINED[containment ?? "unknown"]}`;
    case "ffi":
      return ffi === "in_process"
        ? 'It is a library of machine code: [plugins] ffi = "in_process" gives it all that the gateway may'
        : `It is a library of machine code: ${CONTAINED[containment ?? "unknown"]}`;
  }
}

const CONTAINED: Readonly<Record<CommandContainment["kind"] | "unknown", string>> = {
  contained: "bubblewrap contains it to its capabilities",
  uncontained: "nothing contains it here, so that it has your rights ([plugins] sandbox, postern doctor)",
  refused: "it cannot run here, since nothing can contain it ([plugins] sandbox, postern doctor)",
  unknown: "contained to its capabilities where bubblewrap works ([plugins] sandbox), else with your rights",
};

/** Returns why a plugin cannot run in this version; undefined when it can. */
export function misfitOf(manifest: PluginManifest, kinds: readonly string[]): string | undefined {
  if (!kinds.includes(manifest.kind)) return `this version of Postern runs no ${manifest.kind} plugins`;
  return versionMisfit(manifest);
}
