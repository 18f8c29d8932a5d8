import { Buffer } from "node:buffer";
import { utf16Of, withoutEnd } from "../../base/text.ts";

/**
 * Folders that hold credentials, whatever a file in them is called. All names are in folded form.
 * Source: docs/design/paths_and_commands.md "Sensitive files"
 */
const FOLDERS: ReadonlySet<string> = new Set([
  ".aws",
  ".ssh",
  ".gnupg",
  ".azure",
  ".kube",
  ".docker",
  ".password-store",
  ".bitcoin",
  ".ethereum",
  ".electrum",
  ".monero",
]);

const FILES: ReadonlySet<string> = new Set([
  ".envrc",
  ".npmrc",
  ".yarnrc.yml",
  ".pypirc",
  ".netrc",
  "_netrc",
  ".pgpass",
  ".my.cnf",
  ".mylogin.cnf",
  ".s3cfg",
  ".boto",
  ".gitconfig",
  ".git-credentials",
  ".htpasswd",
  ".dockercfg",
  ".vault-token",
  "rclone.conf",
  "credentials.json",
  "token.json",
  "token.pickle",
  "wallet.dat",
  // Commands, with the passwords that somebody typed into them
  ".bash_history",
  ".zsh_history",
  ".zhistory",
  ".sh_history",
  ".ksh_history",
  ".histfile",
  "fish_history",
  ".python_history",
  ".node_repl_history",
  ".psql_history",
  ".mysql_history",
  ".sqlite_history",
  ".rediscli_history",
  ".mongo_history",
  "consolehost_history.txt",
  "credentials.tfrc.json",
  "application_default_credentials.json",
]);

/** A folder or file inside a folder of this name */
const PAIRS: ReadonlySet<string> = new Set([
  ".config/gcloud",
  "gh/hosts.yml",
  ".cargo/credentials",
  ".cargo/credentials.toml",
  ".gem/credentials",
  ".config/solana",
]);

/** Below `.git`, where the URL of a remote may hold a password, and CI systems leave tokens */
const GIT_FILES: ReadonlySet<string> = new Set(["config", "config.worktree"]);

/** Shapes of names. Linear: no two repetitions stand side by side */
const PATTERNS: readonly RegExp[] = [
  // .env, .env.local, .env-prod, .env2; not .environment
  /^\.env(?![a-z])(?![._-](?:example|sample|template)$)/,
  // prod.env
  /^(?!(?:example|sample|template)\.)[^/]+\.env$/,
  /^service-account[^/]*\.json$/,
  /^client_secret[^/]*\.json$/,
  /^secrets?(?:[._-][a-z0-9_-]+)?\.(?:ya?ml|json|toml|ini|properties)$/,
  /\.tfvars(?:\.json)?$/,
  /\.tfstate$/,
  /^kubeconfig(?:[_-][^.]*)?(?:\.(?:ya?ml|json|conf))?$/,
  /\.kubeconfig$/,
  /^id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?![^/]*\.pub$)/,
  /^ssh_host_[^/]*_key$/,
  // Keystores of Ethereum
  /^utc--\d{4}-[^/]*--[0-9a-f]{40}(?:\.json)?$/,
  /\.(?:pem|key|p12|pfx|pkcs12|p8|ppk|jks|jceks|keystore|kdbx?|wallet)$/,
];

const SHAPE = new RegExp(PATTERNS.map(({ source }) => source).join("|"));

/** Endings that editors, people and programs add to the name of a copy. */
const COPY_ENDING =
  /(?:~|\.~\d+~|[._-](?:bak|backup|old|orig|save|saved|copy|tmp|swp|swo|prev|previous|gz|bz2|xz|zst|zip)\d*|[._-]\d{1,8}|[._-]\d{4}-\d\d-\d\d| copy| - copy| ?\(\d{1,3}\)|#)$/;
const MAX_ENDINGS = 4;

/**
 * Tells whether a path names a file that usually holds credentials, or a folder of such files: at any depth, in any case, and also
 * as a copy (`.env~`, `server.key.bak`).
 * @param names the path's parts below the root
 * @param rootName the root's own name, which may be the folder of a pair as `.cargo/credentials`
 */
export function isSensitive(names: readonly string[], rootName = ""): boolean {
  let parent = foldName(rootName);
  if (names.length > 0 && FOLDERS.has(parent)) return true;
  let belowGit = parent === ".git";
  for (const name of names) {
    const folded = foldName(name);
    if (belowGit && GIT_FILES.has(folded)) return true;
    belowGit ||= folded === ".git";
    if (isSensitiveName(folded, parent)) return true;
    parent = folded;
  }
  return false;
}

function isSensitiveName(folded: string, parent: string): boolean {
  if (isKnown(folded, parent)) return true;
  // An editor's lock or swap file: #name#, .#name, .name.swp
  const marked = /^(?:\.?#)/.exec(folded);
  if (marked !== null && isKnown(folded.slice(marked[0].length), parent)) return true;
  let name = folded;
  for (let endings = 0; endings < MAX_ENDINGS; endings++) {
    const ending = COPY_ENDING.exec(name);
    if (ending === null || ending.index === 0) return false;
    name = name.slice(0, ending.index);
    if (isKnown(name, parent)) return true;
    if (/^[.#]/.test(name) && isKnown(name.slice(1), parent)) return true;
  }
  return false;
}

function isKnown(name: string, parent: string): boolean {
  return FOLDERS.has(name) || FILES.has(name) || PAIRS.has(`${parent}/${name}`) || SHAPE.test(name);
}

/**
 * Folds a name as the most forgiving file system would read it: compatibility forms, case, invisible characters, trailing dots and
 * spaces do not tell names apart.
 */
export function foldName(name: string): string {
  // Most names are plain, and a search folds each of thousands
  const plain = PLAIN.test(name) ? name : name.normalize("NFKC").replace(/\p{Default_Ignorable_Code_Point}/gu, "");
  const folded = plain.toLowerCase();
  return withoutEnd(folded, ". ");
}

const PLAIN = /^[\x20-\x7e]*$/;

/** Bytes at the beginning of a file that are looked at: certificates may stand before the key. */
export const KEY_HEAD_BYTES = 16_384;

const WORDS = ["PRIVATE KEY", "PuTTY-User-Key-File-", "AGE-SECRET-KEY-1"].map((word) => Buffer.from(word));

/**
 * Forms of private keys: PEM and OpenSSH, OpenPGP armour, and SSH2, each at the beginning of a line; PEM as the `private_key` of a
 * JSON file; PuTTY; age. After a PEM header come key bytes, so that a text about keys is none. Linear: every repetition is bounded.
 */
const FORMS: readonly RegExp[] = [
  /^[ \t]*-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----[ \t]*\r?\n(?:[A-Za-z-]{1,40}:[^\n]{0,400}\n){0,8}\s{0,8}[A-Za-z0-9+/]{16}/m,
  /^---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----/m,
  /"private_?[kK]ey" {0,4}: {0,4}"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY-----/,
  /^PuTTY-User-Key-File-\d/m,
  /^AGE-SECRET-KEY-1[0-9A-Z]{20}/m,
];

/**
 * Tells whether a file holds a private key, by the bytes it begins with.
 * @param head its first KEY_HEAD_BYTES, or all of a shorter file
 */
export function holdsPrivateKey(head: Uint8Array): boolean {
  const read = head.subarray(0, KEY_HEAD_BYTES);
  const encoding = utf16Of(read);
  const bytes = encoding === undefined
    ? Buffer.from(read.buffer, read.byteOffset, read.byteLength)
    : Buffer.from(new TextDecoder(encoding).decode(read));
  if (!WORDS.some((word) => bytes.includes(word))) return false;
  const text = bytes.toString("latin1");
  return FORMS.some((form) => form.test(text));
}
