import { keyParts } from "./config_entries.ts";

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

/** The same of sections with a subsection, as `remote.origin.url`. */
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
