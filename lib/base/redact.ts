import { lazily } from "./lazily.ts";

/** Shorter values would match by chance. */
const MIN_SECRET_BYTES = 8;
/** Half of a secret of this many characters is masked too: a cut may have taken the rest */
const MIN_HALVED = 24;
const MASK = "[redacted]";
const MAX_DEPTH = 100;

/** Removes known secrets from text in plain, base64, base64url, hexadecimal and URL-encoded form. */
export interface Redactor {
  /** Makes `secret` known; shorter than 8 bytes is ignored, a repeated one too */
  add(secret: string): void;
  readonly redact: (text: string) => string;
  /** Redacts a part of an output that is shown in parts: a secret that lies across the border is masked on both sides */
  readonly part: RedactPart;
}

/** The part of a redactor that finds known secrets and takes in no others. */
export type KnownSecrets = Pick<Redactor, "redact" | "part">;

/** Masks secrets in an output that is shown in parts. All numbers are bytes. */
export interface RedactPart {
  /** The bytes `from`-`to`, masked where a secret lies in them as a whole or in part */
  redact(bytes: Uint8Array, part: { readonly from: number; readonly to: number }): Uint8Array;
  /** How much of the end may be the begin of a secret, whose rest has not come yet */
  pending(bytes: Uint8Array): number;
  /** How far before and after a part its secrets may reach */
  reach(): number;
}

/** Creates a redactor that starts with these secrets. docs/design/observability.md "Redaction". */
export function createRedactor(secrets: Iterable<string> = []): Redactor {
  const known = new Set<string>();
  // Made at the first text after an `add`: the secrets of a start come one after another
  let inText = lazily(() => toPattern(withHalves(known)));
  let inBytes = lazily(() => bytePatterns(known));
  const redactor: Redactor = {
    add(secret) {
      if (Buffer.byteLength(secret) < MIN_SECRET_BYTES) return;
      const before = known.size;
      for (const form of formsOf(secret)) known.add(form);
      if (known.size === before) return;
      inText = lazily(() => toPattern(withHalves(known)));
      inBytes = lazily(() => bytePatterns(known));
    },
    redact: (text) => (known.size === 0 || text.length < MIN_SECRET_BYTES ? text : text.replace(inText(), MASK)),
    part: {
      redact(bytes, { from, to }) {
        if (known.size === 0) return bytes.subarray(from, to);
        const { reach, anyPart } = inBytes();
        const start = Math.max(0, from - reach);
        const text = toBinary(bytes.subarray(start, to + reach));
        let shown = "";
        let at = from - start;
        for (const { index, 0: { length } } of text.matchAll(anyPart)) {
          if (index + length <= at) continue;
          if (index >= to - start) break;
          shown += text.slice(at, Math.max(at, index)) + MASK;
          at = index + length;
        }
        return Buffer.from(shown + text.slice(at, Math.max(at, to - start)), "latin1");
      },
      pending(bytes) {
        if (known.size === 0) return 0;
        const { reach, whole, forms } = inBytes();
        return pendingLength(toBinary(bytes.subarray(-2 * reach)), whole, forms);
      },
      reach: () => known.size === 0 ? 0 : inBytes().reach,
    },
  };
  for (const secret of secrets) redactor.add(secret);
  return redactor;
}

/** Patterns over bytes, each of them a character. @param known not empty */
function bytePatterns(known: ReadonlySet<string>) {
  const forms = new Set([...known].map((form) => Buffer.from(form).toString("latin1")));
  return {
    forms,
    reach: Math.max(...[...forms].map(({ length }) => length)),
    whole: toPattern(forms),
    anyPart: toPattern(withHalves(forms)),
  };
}

/** Any of these texts. Longest first: a secret that contains another is masked whole */
function toPattern(texts: Iterable<string>): RegExp {
  const all = [...new Set(texts)].sort((a, b) => b.length - a.length);
  return new RegExp(all.map((text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")).join("|"), "g");
}

function withHalves(forms: Iterable<string>): string[] {
  return [...forms].flatMap((form) => {
    const middle = Math.ceil(form.length / 2);
    return form.length < MIN_HALVED ? [form] : [form, form.slice(0, middle), form.slice(-middle)];
  });
}

function toBinary(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
}

/** How much of the end of a text, after the last whole secret in it, a secret may begin with. */
function pendingLength(text: string, whole: RegExp, forms: ReadonlySet<string>): number {
  let from = 0;
  for (const match of text.matchAll(whole)) from = match.index + match[0].length;
  const last = text.charCodeAt(text.length - 1);
  let longest = 0;
  for (const form of forms) {
    for (let length = Math.min(form.length - 1, text.length - from); length > longest; length--) {
      if (form.charCodeAt(length - 1) === last && text.endsWith(form.slice(0, length))) longest = length;
    }
  }
  return longest;
}

/** Characters that writers of JSON escape beside those that they must: none outside of ASCII, those of HTML, and all these. */
const ESCAPED = [/[^\0-\x7f]/g, /[<>&]/g, /[^\0-\x7f]|[<>&'+`]/g];
const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function withSmallEscapes(text: string): string {
  return text.replace(/\\u[0-9A-F]{4}/g, (escape) => escape.toLowerCase());
}

/** Returns a UTF-16 unit as JSON escapes it. */
function toEscape(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0").toUpperCase()}`;
}

function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString("hex");
  const url = encodeURIComponent(secret);
  const allEscaped = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
  const json = JSON.stringify(secret).slice(1, -1);
  const forms = [
    secret,
    hex,
    hex.toUpperCase(),
    url,
    url.replace(/%../g, (escaped) => escaped.toLowerCase()),
    // As a form's field
    new URLSearchParams([["", secret]]).toString().slice(1),
    allEscaped,
    allEscaped.toUpperCase(),
    json,
    json.replaceAll("/", "\\/"),
    ...ESCAPED.flatMap((characters) => {
      const escaped = json.replaceAll('\\"', '"').replace(characters, toEscape);
      const forms = [escaped.replaceAll('"', '\\"'), escaped.replaceAll('"', "\\u0022")];
      return [...forms, ...forms.map(withSmallEscapes)];
    }),
    secret.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character),
  ];
  // Inside a longer text the secret may start at any of three places of a base64 group: keep the part that does not change
  for (const shift of [0, 1, 2]) {
    const encoded = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
    const start = shift === 0 ? 0 : shift + 1;
    const stable = encoded.slice(start, Math.floor(((bytes.length + shift) * 8) / 6));
    forms.push(stable, stable.replaceAll("+", "-").replaceAll("/", "_"));
  }
  return forms.filter((form) => form.length >= MIN_SECRET_BYTES);
}

/** Returns a copy of a JSON value with each text in it redacted, names of properties included; what lies deeper than 100 levels is `...` */
export function redactJson(value: unknown, redact: (text: string) => string, depth = 0): unknown {
  if (typeof value === "string") return redact(value);
  if (value === null || typeof value !== "object") return value;
  if (depth >= MAX_DEPTH) return "...";
  if (Array.isArray(value)) return value.map((item) => redactJson(item, redact, depth + 1));
  const entries = Object.entries(value).map(([key, item]) => [redact(key), redactJson(item, redact, depth + 1)]);
  return Object.fromEntries(entries);
}
