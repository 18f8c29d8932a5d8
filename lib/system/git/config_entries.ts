import { ToolError } from "../../base/errors.ts";

/** Line of a repository's configuration. */
export interface ConfigEntry {
  /** `section.name` or `section.subsection.name`: section and name in lower case, the subsection as it is written */
  readonly key: string;
  /** Empty too where the line has no value, which git takes for `true` */
  readonly value: string;
  /** As git names it: `file:.git/config` */
  readonly origin: string;
}

/**
 * Reads what `git config --list --show-origin -z` prints: origin and entry, each ended by NUL.
 * @throws {ToolError} `git_config_refused` for a name that is not valid UTF-8, which could not be overridden by name
 */
export function parseConfigEntries(output: string): readonly ConfigEntry[] {
  const parts = output.split("\0");
  const entries: ConfigEntry[] = [];
  for (let at = 0; at + 1 < parts.length; at += 2) {
    const [origin = "", entry = ""] = [parts[at], parts[at + 1]];
    const end = entry.indexOf("\n");
    const key = end === -1 ? entry : entry.slice(0, end);
    if (key.includes("\ufffd")) {
      throw new ToolError(
        "git_config_refused",
        `Cannot run git: the configuration in ${origin} has the key ${
          JSON.stringify(key)
        }, which is not valid UTF-8; remove it`,
      );
    }
    entries.push({ key, value: end === -1 ? "" : entry.slice(end + 1), origin });
  }
  return entries;
}

/** Returns the three parts of a key; the subsection may hold dots. */
export function keyParts(
  key: string,
): { readonly section: string; readonly subsection: string | undefined; readonly name: string } {
  const first = key.indexOf(".");
  const last = key.lastIndexOf(".");
  return {
    section: key.slice(0, first === -1 ? key.length : first).toLowerCase(),
    subsection: last > first ? key.slice(first + 1, last) : undefined,
    name: key.slice(last + 1).toLowerCase(),
  };
}

/** Keys that neither run a program nor reach outside the repository, by section; `*` stands for all of a section. */
const PLAIN: Readonly<Record<string, readonly string[]>> = {
  core: [
    ...[
      "repositoryformatversion",
      "filemode",
      "bare",
      "logallrefupdates",
      "ignorecase",
      "precomposeunicode",
      "symlinks",
    ],
    ...["autocrlf", "eol", "safecrlf", "whitespace", "abbrev", "trustctime", "checkstat", "compression"],
    ...["loosecompression", "bigfilethreshold", "sparsecheckout", "sparsecheckoutcone", "untrackedcache", "splitindex"],
    ...["preloadindex", "sharedrepository", "commentchar", "disambiguate", "createobject", "fsync", "fsyncmethod"],
    ...["fsyncobjectfiles", "multipackindex", "commitgraph", "notesref", "warnambiguousrefs", "filesreflocktimeout"],
    ...["packedrefstimeout", "deltabasecachelimit", "packedgitlimit", "packedgitwindowsize", "checkroundtripencoding"],
  ],
  user: ["name", "email", "signingkey"],
  author: ["name", "email"],
  committer: ["name", "email"],
  branch: ["autosetupmerge", "autosetuprebase", "sort"],
  remote: ["pushdefault"],
  commit: ["cleanup", "status"],
  pull: ["rebase", "ff"],
  push: ["default", "autosetupremote"],
  fetch: ["prune", "prunetags", "parallel", "negotiationalgorithm", "unpacklimit", "showforcedupdates", "output"],
  merge: ["ff", "conflictstyle", "renames", "renamelimit", "directoryrenames", "stat", "log", "branchdesc"],
  diff: [
    ...["algorithm", "renames", "renamelimit", "mnemonicprefix", "noprefix", "colormoved", "colormovedws", "context"],
    ...["indentheuristic", "interhunkcontext", "statgraphwidth", "suppressblankempty", "relative", "wserrorhighlight"],
    ...["wordregex"],
  ],
  log: ["date", "decorate", "abbrevcommit", "follow", "graphcolors", "showroot", "excludedecoration", "diffmerges"],
  init: ["defaultbranch"],
  format: ["filenamemaxlength"],
  gpg: ["mintrustlevel"],
  grep: ["patterntype", "extendedregexp"],
  submodule: ["active"],
  extensions: ["noop", "objectformat", "compatobjectformat", "refstorage", "relativeworktrees", "worktreeconfig"],
  safe: ["directory"],
  ...Object.fromEntries(
    [
      "advice",
      "column",
      "commitgraph",
      "feature",
      "i18n",
      "index",
      "pack",
      "rerere",
      "splitindex",
      "status",
      "versionsort",
      "worktree",
    ]
      .map((section) => [section, ["*"]]),
  ),
};

/** The same of sections with a subsection, such as `remote.origin.url`. */
const NAMED: Readonly<Record<string, readonly string[]>> = {
  branch: ["remote", "merge", "rebase", "description", "pushremote"],
  remote: [
    ...["url", "pushurl", "fetch", "push", "tagopt", "prune", "prunetags", "skipdefaultupdate", "skipfetchall"],
    ...["followremotehead", "gh-resolved"],
  ],
  diff: ["xfuncname", "funcname", "binary", "wordregex", "algorithm", "cachetextconv"],
  submodule: ["url", "active", "branch", "path", "ignore", "shallow"],
};

/** Tells whether a key of a repository's configuration may keep its value. */
export function isSafeKey(key: string): boolean {
  const { section, subsection, name } = keyParts(key);
  const table = subsection === undefined ? PLAIN : NAMED;
  const names = Object.hasOwn(table, section) ? table[section] : undefined;
  return names !== undefined && (names[0] === "*" || names.includes(name));
}
