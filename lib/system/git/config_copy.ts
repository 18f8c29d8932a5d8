import { Buffer } from "node:buffer";
import { constants } from "node:fs";
import { open, realpath } from "node:fs/promises";
import { sep } from "node:path";

/** The copy of a configuration that cannot be read or is not understood: git finds a repository, and no setting. */
export const EMPTY_CONFIG = "[core]\n\trepositoryformatversion = 0\n";

/** Bytes of a configuration. A longer one counts as one that is not understood. */
export const MAX_CONFIG_BYTES = 262_144;
/** Each copy takes a descriptor of the gateway until the sandbox has read the copy */
const MAX_COPIES = 64;
const MAX_VALUE = 1024;
const MAX_SUBSECTION = 250;

/**
 * Returns what contained commands find in the place of configurations, by the paths. Of more than MAX_COPIES configurations, those
 * nearest to the root have a copy.
 */
export async function readConfigCopies(paths: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>> {
  const depth = (path: string) => path.split(sep).length;
  const nearest = [...paths].sort((one, other) => depth(one) - depth(other)).slice(0, MAX_COPIES);
  const copies = new Map<string, Uint8Array>();
  for (const path of nearest) {
    const copy = await readConfigCopy(path);
    if (copy !== undefined) copies.set(path, copy);
  }
  return copies;
}

/**
 * Returns what a contained command finds in the place of a repository's configuration, computed from the file as it is now.
 * @param path absolute
 * @returns undefined where no regular file lies, or a link leads there: nothing stands for such a place
 */
export async function readConfigCopy(path: string): Promise<Uint8Array | undefined> {
  const bytes = await readConfig(path, MAX_CONFIG_BYTES).catch(() => undefined);
  if (bytes === undefined) return undefined;
  const text = bytes.length > MAX_CONFIG_BYTES ? EMPTY_CONFIG : scrubConfig(bytes.toString("latin1"));
  return Buffer.from(text, "latin1");
}

/**
 * Reads a repository's configuration, at most a byte more than `maxBytes`.
 * @param path absolute
 * @returns undefined where no regular file lies, or a link leads there @throws the error of the system for what cannot be read
 */
export async function readConfig(path: string, maxBytes: number): Promise<Buffer | undefined> {
  const real = await realpath(path).catch(() => undefined);
  if (real !== path) return undefined;
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    if (!(await file.stat()).isFile()) return undefined;
    const { bytesRead, buffer } = await file.read(Buffer.alloc(maxBytes + 1), 0, maxBytes + 1, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/**
 * Returns a repository's configuration with the keys alone that are known to hold neither a credential nor the name of a program or
 * file. URLs lose their user information. EMPTY_CONFIG for a text that is not understood as a whole.
 * @param text each character is a byte (latin1), and so is the result
 */
export function scrubConfig(text: string): string {
  const entries = parseConfig(text.replaceAll("\r\n", "\n"));
  return entries === undefined ? EMPTY_CONFIG : written(entries, keptValue);
}

function written(entries: readonly ConfigLine[], shownValue: typeof keptValue): string {
  const lines: string[] = [];
  let last = "";
  for (const { section, subsection, name, value } of entries) {
    const kept = shownValue({ section, subsection, name }, value);
    if (kept === undefined) continue;
    const header = subsection === undefined ? `[${section}]` : `[${section} "${escaped(subsection)}"]`;
    if (header !== last) lines.push(header);
    last = header;
    lines.push(kept === true ? `\t${name}` : `\t${name} = "${escaped(kept)}"`);
  }
  return lines.map((line) => `${line}\n`).join("");
}

/** Keys that a copy leaves out, and that editors and other tools write into repositories without a credential. Their values are plain words */
const NOTES =
  /^(?:core\.(?:hookspath|worktree)|branch\.(?:vscode|github-pr|gk)-[a-z-]+|remote\.(?:gh-resolved|promisor|partialclonefilter|tagopt)|user\.signingkey|(?:commit|tag)\.gpgsign|lfs\.repositoryformatversion)$/;
const PLAIN = /^[\w.,:/#-]{0,200}$/;

/**
 * Tells whether a configuration may tell a credential to a program that reads it in the place of its copy: the copy leaves out a key, a part
 * of a URL or a comment. The keys of NOTES tell none.
 * @param text as scrubConfig
 */
export function mayTellSecrets(text: string): boolean {
  const entries = parseConfig(text.replaceAll("\r\n", "\n"));
  // Comments, and sections without a key, are in no entry
  if (entries === undefined || withoutLayout(written(entries, (_, value) => value)) !== withoutLayout(text)) {
    return true;
  }
  return entries.some(({ value, ...key }) =>
    keptValue(key, value) !== value &&
    !(NOTES.test(`${key.section}.${key.name}`) && PLAIN.test(String(value)) && !key.subsection?.includes(":"))
  );
}

/** Returns what is left of a configuration without what git reads over: blanks, quotes, escapes and the case of keys. */
function withoutLayout(text: string): string {
  return text.replace(/[\s"\\]+/g, "").toLowerCase();
}

function escaped(text: string): string {
  return text.replace(/["\\]/g, "\\$&");
}

/** Key of a line. Section and name are in lower case, the subsection is as it is written. */
interface Key {
  readonly section: string;
  readonly subsection: string | undefined;
  readonly name: string;
}

/** The line of a configuration. A line without a value has `true`. */
interface ConfigLine extends Key {
  readonly value: string | true;
}

/** Returns a value as it may be shown; undefined where it may not be. */
type ValueForm = (value: string) => string | undefined;

const matching = (pattern: RegExp): ValueForm => (value) => (pattern.test(value) ? value : undefined);

/** A number, a truth value or one of git's own words */
const word = matching(/^[A-Za-z0-9.,=-]{0,64}$/);
/** Name of a person, or an address for mail. Every form is one line without control characters */
const text: ValueForm = (value) => (value.includes("://") || value.length > 250 ? undefined : value);
/** Name of a branch or another ref: no URL, which has a colon */
const ref = matching(/^(?!.*\/\/)[^\s~^:?[\\]{1,250}$/);
/** Name of a remote, or `.` for the repository itself */
const remote = matching(/^(?!.*\/\/)[^\s~^:?[\\@]{1,250}$/);
const refspec: ValueForm = (value) => {
  const sides = value.replace(/^[+^]/, "").split(":");
  return sides.length <= 2 && sides.every((side) => side === "" || ref(side) !== undefined) ? value : undefined;
};
const PATH = /[A-Za-z0-9_.~%+,=&()!$'*;/\x80-\xff-]*/.source;
const HOST = /(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?![A-Za-z0-9._-])/.source;
const REMOTE_URL = new RegExp(`^(https?|git|ssh)://(?:([^@/?#\\s]*)@)?(${HOST}(?::\\d{1,5})?(?:/${PATH})?)$`, "i");
/** `git@example.com:a/b.git` */
const SCP_URL = new RegExp(`^(?:([^@:/?#\\s]*)@)?(${HOST}:(?!/?/)${PATH})$`, "i");
const LOCAL_URL = new RegExp(`^(?:file:///)?${PATH}$`);
/**
 * Returns a URL without its user information. The user `git` of ssh stays, the one name of all users of a server. Nothing is left of
 * a URL with a query or fragment, or with a sign that git and another program could read differently.
 */
const url: ValueForm = (value) => {
  if (value.length > MAX_VALUE) return undefined;
  const [, scheme, user, rest] = REMOTE_URL.exec(value) ?? [];
  if (scheme !== undefined) {
    return `${scheme}://${scheme.toLowerCase() === "ssh" && user === "git" ? "git@" : ""}${rest}`;
  }
  const [, name, place] = SCP_URL.exec(value) ?? [];
  if (place !== undefined) return `${name === "git" ? "git@" : ""}${place}`;
  return LOCAL_URL.test(value) ? value : undefined;
};

const words = (names: string): Readonly<Record<string, ValueForm>> =>
  Object.fromEntries(names.split(" ").map((name) => [name, word]));

/** Keys that are kept, by section, with the form of their values. Others are left out, known or not. */
const KEPT: Readonly<Record<string, Readonly<Record<string, ValueForm>>>> = {
  core: words(
    "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol safecrlf whitespace " +
      "abbrev trustctime checkstat bigfilethreshold sparsecheckout sparsecheckoutcone untrackedcache splitindex preloadindex " +
      "sharedrepository multipackindex commitgraph protecthfs protectntfs quotepath",
  ),
  extensions: words("noop objectformat compatobjectformat refstorage relativeworktrees worktreeconfig"),
  index: words("version sparse skiphash"),
  feature: words("manyfiles experimental"),
  status: words("showuntrackedfiles relativepaths renames"),
  diff: words("algorithm renames ignoresubmodules noprefix mnemonicprefix"),
  merge: words("conflictstyle ff renames"),
  pull: words("rebase ff"),
  push: words("default autosetupremote"),
  fetch: words("prune prunetags"),
  rerere: words("enabled"),
  user: { name: text, email: text },
  author: { name: text, email: text },
  committer: { name: text, email: text },
  init: { defaultbranch: ref },
  remote: { pushdefault: remote },
};

/** The same of sections with a subsection, such as `remote.origin.url`. */
const KEPT_NAMED: Readonly<Record<string, Readonly<Record<string, ValueForm>>>> = {
  remote: {
    url,
    pushurl: url,
    fetch: refspec,
    push: refspec,
    ...words("prune prunetags skipdefaultupdate skipfetchall"),
  },
  branch: { remote, pushremote: remote, merge: ref, ...words("rebase") },
  submodule: { url, branch: ref, ...words("active ignore shallow") },
};

function keptValue({ section, subsection, name }: Key, value: string | true): string | true | undefined {
  // A remote may be named by its URL
  if (subsection !== undefined && (subsection.includes(":") || subsection.length > MAX_SUBSECTION)) return undefined;
  const table = subsection === undefined ? KEPT : KEPT_NAMED;
  const forms = Object.hasOwn(table, section) ? table[section] : undefined;
  const form = forms !== undefined && Object.hasOwn(forms, name) ? forms[name] : undefined;
  if (form === undefined) return undefined;
  return value === true ? true : /[\n\t\b]/.test(value) ? undefined : form(value);
}

/** Control characters other than tab and newline */
// deno-lint-ignore no-control-regex
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f]/;
/** Blanks, empty lines and comments */
const SPACE = /(?:[ \t\n]+|[#;][^\n]*)*/y;
const HEADER = /\[([A-Za-z0-9-]+)(?:[ \t]+"([^"\\\n]*(?:\\[^\n][^"\\\n]*)*)")?\]/y;
const NAME = /([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=|(?=\n|$))/y;

/**
 * Parses a configuration by the rules of git.
 * @returns undefined where a line is not understood: git might read the rest of the text differently
 * Source: git-config(1) "Syntax"; `[section.subsection]`, which git calls deprecated, is not understood
 */
function parseConfig(text: string): readonly ConfigLine[] | undefined {
  if (CONTROL.test(text)) return undefined;
  const [spaceAt, headerAt, nameAt] = [matcherOf(SPACE, text), matcherOf(HEADER, text), matcherOf(NAME, text)];
  const afterSpace = (at: number) => at + (spaceAt(at)?.[0].length ?? 0);
  const lines: ConfigLine[] = [];
  let section: string | undefined;
  let subsection: string | undefined;
  for (let at = afterSpace(0); at < text.length; at = afterSpace(at)) {
    const header = headerAt(at);
    if (header !== null) {
      section = header[1]?.toLowerCase();
      subsection = header[2]?.replace(/\\(.)/g, "$1");
      at += header[0].length;
      continue;
    }
    const [line = "", written] = nameAt(at) ?? [];
    const name = written?.toLowerCase();
    if (name === undefined || section === undefined) return undefined;
    at += line.length;
    const hasValue = line.endsWith("=");
    const parsed = hasValue ? parseValue(text, at) : { value: true as const, end: at };
    if (parsed === undefined) return undefined;
    lines.push({ section, subsection, name, value: parsed.value });
    at = parsed.end;
  }
  return lines;
}

/** Returns a function that matches a sticky pattern at a place of the text. */
function matcherOf(pattern: RegExp, text: string): (at: number) => RegExpExecArray | null {
  const own = new RegExp(pattern);
  return (at) => {
    own.lastIndex = at;
    return own.exec(text);
  };
}

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", t: "\t", b: "\b", "\\": "\\", '"': '"', "\n": "" };

/** Parses the value that begins at a place. @returns undefined for an open quote, and for an escape that git does not know */
function parseValue(text: string, start: number): { readonly value: string; readonly end: number } | undefined {
  let value = "";
  /** Blanks that count when more follows */
  let blanks = "";
  let isQuoted = false;
  for (let at = start; at < text.length; at++) {
    const sign = text.charAt(at);
    if (sign === "\n" || (!isQuoted && (sign === "#" || sign === ";"))) {
      return isQuoted ? undefined : { value, end: at };
    }
    if (!isQuoted && (sign === " " || sign === "\t")) {
      if (value !== "") blanks += sign;
      continue;
    }
    value += blanks;
    blanks = "";
    if (sign === '"') isQuoted = !isQuoted;
    else if (sign !== "\\") value += sign;
    else {
      const meant = ESCAPES[text.charAt(++at)];
      if (meant === undefined) return undefined;
      value += meant;
    }
  }
  return isQuoted ? undefined : { value, end: text.length };
}
