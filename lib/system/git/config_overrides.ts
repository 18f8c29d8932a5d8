import { resolve } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { type ConfigEntry, isSafeKey, keyParts } from "./config_entries.ts";

/** Work of a git command, as far as the configuration can change what the work means. */
export interface GitUse {
  /** True when it reads files of the working tree or writes some there, both through filters that are configured. */
  readonly content: boolean;
  /** True when it may merge files. */
  readonly merges: boolean;
  /** True when it talks to a remote. */
  readonly network: boolean;
  /** True when it may start itself in submodules, to look for changes there. Default false */
  readonly submodules?: boolean;
}

/** A key with the value that counts, whatever the repository says. */
export type Override = readonly [key: string, value: string];

/** Use and place of a repository whose configuration is overridden. */
export interface OverrideOptions {
  readonly use: GitUse;
  /** Absolute path of the git folder, and of the working tree it belongs to */
  readonly gitDir: string;
  readonly top: string;
}

/** More keys than this to override are nobody's configuration */
const MAX_OVERRIDES = 256;
const MAX_KEY = 1024;

/** Values that count in every repository; written after those of its own keys. */
export const FIXED_OVERRIDES: readonly Override[] = [
  ["core.hookspath", "/dev/null"],
  ["core.fsmonitor", "false"],
  ["core.pager", "cat"],
  ["core.editor", ":"],
  ["sequence.editor", ":"],
  ["core.askpass", ""],
  ["core.sshcommand", "false"],
  ["core.alternaterefscommand", ""],
  ["core.attributesfile", "/dev/null"],
  ["core.excludesfile", "/dev/null"],
  ["core.quotepath", "false"],
  ["core.protecthfs", "true"],
  ["core.protectntfs", "true"],
  ["commit.gpgsign", "false"],
  ["tag.gpgsign", "false"],
  ["push.gpgsign", "false"],
  ["log.showsignature", "false"],
  ["log.mailmap", "false"],
  ["merge.verifysignatures", "false"],
  ["gpg.format", "openpgp"],
  ["gpg.program", "false"],
  ["gpg.openpgp.program", "false"],
  ["gpg.x509.program", "false"],
  ["gpg.ssh.program", "false"],
  // An empty helper takes back all before it
  ["credential.helper", ""],
  ["diff.ignoresubmodules", "dirty"],
  ["diff.submodule", "short"],
  // A reading command would write the index
  ["diff.autorefreshindex", "false"],
  ["status.submodulesummary", "false"],
  ["submodule.recurse", "false"],
  ["fetch.recursesubmodules", "false"],
  ["push.recursesubmodules", "no"],
  ["gc.auto", "0"],
  ["maintenance.auto", "false"],
  ["color.ui", "false"],
  ["user.useconfigonly", "true"],
  ["safe.barerepository", "explicit"],
  ["i18n.logoutputencoding", "UTF-8"],
  ["http.followredirects", "false"],
  ["http.proxy", ""],
];

const FIXED = new Set(FIXED_OVERRIDES.map(([key]) => key));

/**
 * Returns the settings that make a repository's configuration harmless, beside FIXED_OVERRIDES: each key outside the safe list, emptied.
 *
 * `-c` would not do: it splits at the first `=`, so that `filter.a=b.clean` escapes it. These are passed in GIT_CONFIG_COUNT.
 * @throws {ToolError} `git_config_refused`, naming the key, where an empty value would not help or would change what is stored
 */
export function configOverrides(entries: readonly ConfigEntry[], options: OverrideOptions): readonly Override[] {
  const overrides = new Map<string, string>();
  for (const entry of entries) {
    const reason = reasonToRefuse(entry, options);
    if (reason !== undefined) throw refusal(entry, reason);
    if (isSafeKey(entry.key) || isUnused(entry.key) || FIXED.has(entry.key)) continue;
    if (entry.key.length > MAX_KEY) throw refusal(entry, `its name is longer than ${MAX_KEY} characters`);
    overrides.set(entry.key, harmlessValue(entry.key));
    if (overrides.size > MAX_OVERRIDES) {
      throw refusal(entry, `more than ${MAX_OVERRIDES} keys like it would have to be overridden`);
    }
  }
  return [...overrides];
}

/** Empty, but where git would refuse that, or take it for what it must not be. */
function harmlessValue(key: string): string {
  const { section, name } = keyParts(key);
  if (section === "filter" && name === "required") return "false";
  if (section === "diff" && name === "orderfile") return "/dev/null";
  return section === "submodule" && name === "update" ? "none" : "";
}

/** undefined where the key is safe, or overriding it is enough. */
function reasonToRefuse({ key, value }: ConfigEntry, { use, gitDir, top }: OverrideOptions): string | undefined {
  const { section, subsection, name } = keyParts(key);
  switch (section) {
    case "include":
    case "includeif":
      return "it reads another file, which cannot be overridden";
    case "extensions":
      return isSafeKey(key) ? undefined : "it changes how the repository works in ways that are not known to be safe";
    case "core":
      if (name !== "worktree" || resolve(gitDir, value) === top) return undefined;
      return "the files would lie elsewhere";
    case "filter":
      if (!use.content || !["clean", "smudge", "process"].includes(name)) return undefined;
      return "it runs a program on each file that is stored or taken out, and without it other bytes would be stored";
    case "merge":
      return use.merges && subsection !== undefined && name === "driver"
        ? "it runs a program to merge files"
        : undefined;
    case "remote":
      if (name === "promisor" || name === "partialclonefilter") return "reading would fetch from that remote";
      return use.network && !isSafeKey(key) ? "it changes how the remote is reached" : undefined;
    case "url":
      return use.network ? "it leads to another address than the one that is checked" : undefined;
    case "http":
      return use.network && !["postbuffer", "version", "lowspeedlimit", "lowspeedtime"].includes(name)
        ? "it changes how the remote is reached"
        : undefined;
    default:
      return undefined;
  }
}

/**
 * Keys that a local command does not need, and that are refused for a network command: several values of these would add up. The
 * working tree is given by name.
 */
function isUnused(key: string): boolean {
  return key === "core.worktree" || ["remote", "url", "http"].includes(keyParts(key).section);
}

function refusal({ key, origin }: ConfigEntry, reason: string): ToolError {
  const shown = JSON.stringify(key.length > 100 ? `${key.slice(0, 100)}...` : key);
  const place = origin.replace(/^file:/, "");
  return new ToolError(
    "git_config_refused",
    `Cannot run git: the repository's configuration (${place}) has the key ${shown}: ${reason}; remove it, or run git yourself`,
  );
}
