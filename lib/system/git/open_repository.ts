import { Buffer } from "node:buffer";
import { lstat, realpath } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { fileState } from "../files/file_state.ts";
import { loadForbiddenBy } from "../files/forbidden_paths.ts";
import { hostAndPort } from "../net/address.ts";
import type { Processes } from "../process/processes.ts";
import type { ScreenOptions } from "../process/screen_arguments.ts";
import { type ConfigEntry, keyParts } from "./config_entries.ts";
import type { Override } from "./config_overrides.ts";
import type { RepositoryPlace } from "./find_repository.ts";
import { followBranch } from "./follow_branch.ts";
import { configOf, type FrozenPlaces, realOf } from "./frozen_places.ts";
import type { OpenOptions, RemoteAddress, RemoteUrls, Repository, SubmoduleLook } from "./git.ts";
import { gitEnvironment, runGit } from "./git_process.ts";
import { type StoredCredential, storedCredential } from "./stored_credential.ts";

const LOCAL_TIMEOUT_MS = 60_000;
const REMOTE_TIMEOUT_MS = 110_000;
const DEFAULT_OUTPUT_BYTES = 65_536;
/** Source: git(1) "GIT_TRACE_CURL" */
const SHOW_HEADERS = { GIT_TRACE_CURL: "1", GIT_TRACE_CURL_NO_DATA: "1", GIT_TRACE_REDACT: "1" } as const;

/** Repository whose place and configuration were checked. */
export interface CheckedRepository extends ScreenOptions {
  readonly processes: Pick<Processes, "run">;
  readonly place: RepositoryPlace;
  readonly frozen: FrozenPlaces;
  readonly entries: readonly ConfigEntry[];
  readonly overrides: readonly Override[];
  /** Entries of the user's own configuration. */
  readonly userEntries: readonly ConfigEntry[];
  readonly submodules: SubmoduleLook;
  readonly opened: OpenOptions;
}

/** Opens a repository whose folders and configuration were checked, ready to be worked on. */
export async function openRepository(checked: CheckedRepository): Promise<Repository> {
  const { processes, home, place, frozen, entries, overrides, userEntries, submodules, opened } = checked;
  const { scope, writes, signal } = opened;
  const workspace = await realpath(scope.workspaceRoot);
  const forbiddenBy = await loadForbiddenBy(scope, checked);
  const identity = identityOf(entries, userEntries);
  const credentials = new Map<string, Promise<StoredCredential | undefined>>();
  const credentialOf = async (remote: RemoteAddress | undefined) => {
    if (remote === undefined || !scope.credentials) return undefined;
    const { href } = remote.url;
    const asked = credentials.get(href) ?? storedCredential(remote.url, { processes, home, scope, signal });
    credentials.set(href, asked);
    return await asked;
  };
  return {
    prefix: place.prefix,
    file: place.file,
    folder: relative(workspace, place.top).split(sep).join("/"),
    remotes: remotesOf(entries),
    upstreamOf: (branch) =>
      entries.findLast(({ key }) => key === `branch.${branch}.merge`)?.value.replace(/^refs\/heads\//, ""),
    forbiddenBy: (path) => forbiddenBy(join(place.top, path)),
    submodules,
    userFilters: filtersOf(userEntries),
    async isLinked(path) {
      const found = await lstat(join(place.top, path)).catch(() => undefined);
      return found !== undefined && found.isFile() && found.nlink > 1;
    },
    stateOf: (path) => fileState(join(place.top, path), signal),
    async run(args, { maxOutputBytes = DEFAULT_OUTPUT_BYTES, remote, headers = false } = {}) {
      const credential = await credentialOf(remote);
      const more = [
        ...remote === undefined ? [] : pin(remote),
        ...credential === undefined ? [] : [credential.override],
      ];
      const env = gitEnvironment({
        ...place,
        overrides,
        added: [...identity, ...more],
        writes,
        protocol: remote?.url.protocol.replace(":", ""),
      });
      return await runGit(processes, {
        args: ["--no-pager", "-C", place.top, ...args],
        env: { ...env, ...headers ? SHOW_HEADERS : {} },
        scope,
        frozen,
        timeoutMs: remote === undefined ? LOCAL_TIMEOUT_MS : REMOTE_TIMEOUT_MS,
        maxOutputBytes,
        signal,
        writes: writes ? [place.top, place.commonDir, place.gitDir] : false,
        network: remote !== undefined,
        given: credential?.given,
      });
    },
    async follow(branch, upstream) {
      // A second name to merge would not replace the first one
      if (entries.some(({ key }) => key === `branch.${branch}.merge`)) return;
      const path = await realOf(configOf(place));
      const added = await followBranch(path, branch, upstream);
      frozen.copies.set(path, Buffer.concat([frozen.copies.get(path) ?? Buffer.alloc(0), Buffer.from(added)]));
    },
  };
}

function remotesOf(entries: readonly ConfigEntry[]): ReadonlyMap<string, RemoteUrls> {
  const remotes = new Map<string, { readonly fetch: string[]; readonly push: string[] }>();
  for (const { key, value } of entries) {
    const { section, subsection, name } = keyParts(key);
    if (section !== "remote" || subsection === undefined || (name !== "url" && name !== "pushurl")) continue;
    const urls = remotes.get(subsection) ?? { fetch: [], push: [] };
    urls[name === "url" ? "fetch" : "push"].push(value);
    remotes.set(subsection, urls);
  }
  for (const { fetch, push } of remotes.values()) if (push.length === 0) push.push(...fetch);
  return remotes;
}

/** The user's name and e-mail address, where the repository has none of its own. */
function identityOf(entries: readonly ConfigEntry[], userEntries: readonly ConfigEntry[]): readonly Override[] {
  return ["user.name", "user.email"].flatMap((key) => {
    if (entries.some((entry) => entry.key === key)) return [];
    const value = userEntries.findLast((entry) => entry.key === key)?.value;
    return value === undefined ? [] : [[key, value] as const];
  });
}

function filtersOf(userEntries: readonly ConfigEntry[]): ReadonlySet<string> {
  return new Set(userEntries.flatMap(({ key }) => {
    const { section, subsection } = keyParts(key);
    return section === "filter" && subsection !== undefined ? [subsection] : [];
  }));
}

/** Connects a host name to the addresses that were checked and to no other, whatever it leads to a moment later. */
function pin({ url, addresses }: RemoteAddress): readonly Override[] {
  const [first = ""] = addresses;
  const { host, port } = hostAndPort(url);
  if (host === first) return [];
  const list = addresses.map((address) => (address.includes(":") ? `[${address}]` : address)).join(",");
  return [["http.curloptresolve", ""], ["http.curloptresolve", `${url.hostname}:${port}:${list}`]];
}
