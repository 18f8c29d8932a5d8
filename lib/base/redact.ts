import { lazily } from "./lazily.ts";
import { MIN_FOUND, TextFinder } from "./text_finder.ts";

/** Half of a secret of this many characters is masked too: a cut may have taken the rest */
const MIN_HALVED = 24;
const MASK = "[redacted]";
const MAX_DEPTH = 100;
/** Values of one name that are known at most: of a secret whose command prints another one each time, the newest count */
const MAX_VALUES = 1_024;

/** Removes known secrets from text in plain, base64, base64url, hexadecimal and URL-encoded form. Values under 8 bytes would match by chance. */
export interface Redactor {
  /** Makes a secret of the operator known; the newest 1,024 of a name are. @param name for a person. Default: a secret of the configuration */
  add(secret: string, name?: string): void;
  /** Makes secrets known that somebody else made up, in place of those of the same name before. @param name as `a token of the MCP server "acme"` */
  replace(name: string, secrets: readonly string[]): void;
  readonly redact: (text: string) => string;
  /** Returns the secrets that are masked in the texts of a JSON value. */
  masked(value: unknown): readonly MaskedSecret[];
  /** Redacts a part of an output that is shown in parts: a secret that lies across the border is masked on both sides */
  readonly part: RedactPart;
}

/** The part of a redactor that finds known secrets and takes in no others. */
export type KnownSecrets = Pick<Redactor, "redact" | "masked" | "part">;

/** Secret that is masked somewhere, without its value. */
export interface MaskedSecret {
  /** For a person, such as `the environment variable "GITHUB_TOKEN"` */
  readonly name: string;
  /** False: somebody else made it up, and so decides what is masked */
  readonly isOwn: boolean;
}

/** Masks secrets in an output that is shown in parts. All numbers are bytes. */
export interface RedactPart {
  /** The bytes `from`-`to`, masked where a secret lies in them as a whole or in part */
  redact(bytes: Uint8Array, part: { readonly from: number; readonly to: number }): Uint8Array;
  /** How much of the end may be the begin of a secret, whose rest has not come yet */
  pending(bytes: Uint8Array): number;
  /** How far before and after a part its secrets may reach */
  reach(): number;
}

/** A known secret in each of its forms. */
interface Known extends MaskedSecret {
  readonly forms: readonly string[];
}

/**
 * Creates a redactor that starts with these secrets of the operator. docs/design/observability.md "Redaction".
 * @param secrets each with its name, or without one
 */
export function createRedactor(secrets: Iterable<string | readonly [secret: string, name: string]> = []): Redactor {
  const known = new KnownForms();
  for (const given of secrets) {
    const [secret, name] = typeof given === "string" ? [given] : given;
    known.add(secret, name);
  }
  const redact = (text: string) => (known.isEmpty || text.length < MIN_FOUND ? text : masked(text, known.inText()));
  return {
    add: known.add.bind(known),
    replace: known.replace.bind(known),
    redact,
    masked(value) {
      const found = new Set<Known>();
      if (!known.isEmpty) {
        redactJson(value, (text) => {
          const finder = known.inText();
          for (let at = 0, next; (next = finder.next(text, at)) !== undefined; at = next.index + next.length) {
            found.add(next.value);
          }
          return text;
        });
      }
      return [...new Map([...found].map(({ name, isOwn }) => [name, { name, isOwn }])).values()];
    },
    part: {
      redact(bytes, { from, to }) {
        if (known.isEmpty) return bytes.subarray(from, to);
        const { reach, anyPart } = known.inBytes();
        const start = Math.max(0, from - reach);
        const text = toBinary(bytes.subarray(start, to + reach));
        return Buffer.from(
          masked(text, anyPart, { from: from - start, to: Math.min(to - start, text.length) }),
          "latin1",
        );
      },
      pending(bytes) {
        if (known.isEmpty) return 0;
        const { reach, whole } = known.inBytes();
        return whole.pending(toBinary(bytes.subarray(-2 * reach)));
      },
      reach: () => known.isEmpty ? 0 : known.inBytes().reach,
    },
  };
}

/** Returns the part `from`-`to` of a text, masked where one of the texts lies in it as a whole or in part. */
function masked(text: string, finder: TextFinder<unknown>, { from, to } = { from: 0, to: text.length }): string {
  let shown = "";
  let at = from;
  for (let next = finder.next(text, 0); next !== undefined && next.index < to;) {
    const end = next.index + next.length;
    if (end > at) {
      shown += text.slice(at, Math.max(at, next.index)) + MASK;
      at = end;
    }
    next = finder.next(text, end);
  }
  return shown + text.slice(at, Math.max(at, to));
}

/** The secrets that are known, and what finds them. It is made at the first text after a change: the secrets of a start come one after another. */
class KnownForms {
  /** Values of the operator by name, the newest last */
  readonly #own = new Map<string, Map<string, Known>>();
  readonly #foreign = new Map<string, { readonly secrets: readonly string[]; readonly known: readonly Known[] }>();
  isEmpty = true;
  inText = lazily(() => new TextFinder<Known>([]));
  inBytes = lazily(() => bytesOf([]));

  add(secret: string, name = "a secret of the configuration"): void {
    if (Buffer.byteLength(secret) < MIN_FOUND) return;
    const values = this.#own.get(name) ?? new Map<string, Known>();
    this.#own.set(name, values);
    const known = values.get(secret);
    values.delete(secret);
    values.set(secret, known ?? { name, isOwn: true, forms: formsOf(secret) });
    if (known !== undefined) return;
    for (const oldest of values.keys()) if (values.size > MAX_VALUES) values.delete(oldest);
    this.#change();
  }

  replace(name: string, given: readonly string[]): void {
    const secrets = [...new Set(given)].filter((secret) => Buffer.byteLength(secret) >= MIN_FOUND);
    const before = this.#foreign.get(name)?.secrets ?? [];
    if (secrets.length === before.length && secrets.every((secret) => before.includes(secret))) return;
    const known = secrets.map((secret) => ({ name, isOwn: false, forms: formsOf(secret) }));
    if (known.length === 0) this.#foreign.delete(name);
    else this.#foreign.set(name, { secrets, known });
    this.#change();
  }

  /** Own secrets come first: what is both is the operator's. */
  *#all(): Generator<Known> {
    for (const values of this.#own.values()) yield* values.values();
    for (const { known } of this.#foreign.values()) yield* known;
  }

  #change(): void {
    this.isEmpty = this.#own.size === 0 && this.#foreign.size === 0;
    this.inText = lazily(() => new TextFinder(withHalves(formsIn(this.#all()))));
    this.inBytes = lazily(() => bytesOf(this.#all()));
  }
}

type Form = readonly [text: string, of: Known];

function formsIn(all: Iterable<Known>): Form[] {
  return [...all].flatMap((known) => known.forms.map((form) => [form, known] as const));
}

/** Finders over bytes, each of them a character. */
function bytesOf(all: Iterable<Known>) {
  const forms = formsIn(all).map(([form, known]): Form => [Buffer.from(form).toString("latin1"), known]);
  return {
    reach: forms.reduce((reach, [{ length }]) => Math.max(reach, length), 0),
    whole: new TextFinder(forms),
    anyPart: new TextFinder(withHalves(forms)),
  };
}

/** Adds the halves of long texts behind the whole ones, so that a half that is a whole secret too counts as that. */
function withHalves(forms: readonly Form[]): Form[] {
  const halves = forms.flatMap(([form, known]): Form[] => {
    if (form.length < MIN_HALVED) return [];
    const middle = Math.ceil(form.length / 2);
    return [[form.slice(0, middle), known], [form.slice(-middle), known]];
  });
  return [...forms, ...halves];
}

function toBinary(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
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

/** Returns a function that tells whether a text holds a secret in any case: for names of hosts and headers, which are sent in small letters. */
export function findsInAnyCase(secret: string): (text: string) => boolean {
  const finder = new TextFinder(formsOf(secret).map((form) => [form.toLowerCase(), secret] as const));
  return (text) => finder.next(text.toLowerCase(), 0) !== undefined;
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
  return [...new Set(forms)].filter((form) => form.length >= MIN_FOUND);
}

/** Returns a copy of a JSON value with each text in it redacted, names of properties included; what lies deeper than 100 levels is `...` */
export function redactJson<T>(value: T, redact: (text: string) => string): T {
  // The copy has the shape of the value, but for what lies too deep
  return redactAt(value, redact, 0) as T;
}

function redactAt(value: unknown, redact: (text: string) => string, depth: number): unknown {
  if (typeof value === "string") return redact(value);
  if (value === null || typeof value !== "object") return value;
  if (depth >= MAX_DEPTH) return "...";
  if (Array.isArray(value)) return value.map((item) => redactAt(item, redact, depth + 1));
  const entries = Object.entries(value).map(([key, item]) => [redact(key), redactAt(item, redact, depth + 1)]);
  return Object.fromEntries(entries);
}
