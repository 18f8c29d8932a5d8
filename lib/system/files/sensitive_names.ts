/** Files that hold credentials, by name (DESIGN.md section 8, "Files"). All names are in folded form. */
const FOLDERS: ReadonlySet<string> = new Set([".aws", ".ssh", ".gnupg", ".azure"]);

const FILES: ReadonlySet<string> = new Set([
  ".env",
  ".envrc",
  ".npmrc",
  ".pypirc",
  ".netrc",
  "_netrc",
  ".pgpass",
  ".my.cnf",
  ".git-credentials",
  ".htpasswd",
  ".dockercfg",
  ".vault-token",
  "credentials.json",
  "application_default_credentials.json",
]);

/** A folder or file inside a folder of this name */
const PAIRS: ReadonlySet<string> = new Set([
  ".kube/config",
  ".docker/config.json",
  ".config/gcloud",
  "gh/hosts.yml",
  ".cargo/credentials",
  ".cargo/credentials.toml",
  ".gem/credentials",
]);

/** Below `.git`, where the URL of a remote may hold a password, and CI systems leave tokens */
const GIT_FILES: ReadonlySet<string> = new Set(["config", "config.worktree"]);

/** Linear: no two repetitions stand side by side */
const PATTERNS: readonly RegExp[] = [
  /^\.env\.(?!(?:example|sample|template)$)/,
  /^service-account[^/]*\.json$/,
  /^client_secret[^/]*\.json$/,
  /^id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?![^/]*\.pub$)/,
  /\.(?:pem|key|p12|pfx|p8|ppk|jks|keystore|kdbx)$/,
];

/**
 * Whether a path names a file that usually holds credentials, at any depth and in any case.
 * @param names the path's parts below the root
 * @param rootName the root's own name, which may be the folder of a pair as `.kube/config`
 */
export function isSensitive(names: readonly string[], rootName = ""): boolean {
  let parent = foldName(rootName);
  if (names.length > 0 && FOLDERS.has(parent)) return true;
  let belowGit = parent === ".git";
  for (const name of names) {
    const folded = foldName(name);
    if (belowGit && GIT_FILES.has(folded)) return true;
    belowGit ||= folded === ".git";
    if (FOLDERS.has(folded) || FILES.has(folded) || PAIRS.has(`${parent}/${folded}`)) return true;
    if (PATTERNS.some((pattern) => pattern.test(folded))) return true;
    parent = folded;
  }
  return false;
}

/**
 * A name as the most forgiving file system would read it: compatibility forms, case, invisible characters, trailing dots and
 * spaces do not tell names apart.
 */
export function foldName(name: string): string {
  // Most names are plain, and a search folds each of thousands
  const plain = PLAIN.test(name) ? name : name.normalize("NFKC").replace(/\p{Default_Ignorable_Code_Point}/gu, "");
  const folded = plain.toLowerCase();
  return folded.endsWith(".") || folded.endsWith(" ") ? folded.replace(/[. ]+$/, "") : folded;
}

const PLAIN = /^[\x20-\x7e]*$/;
