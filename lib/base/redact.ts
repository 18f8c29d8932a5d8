/** Shorter values would match by chance. */
const MIN_SECRET_BYTES = 8;
/** Half of a secret of this many characters is masked too: a cut may have taken the rest */
const MIN_HALVED = 24;
const MASK = "[redacted]";

/** Removes known secrets from text in plain, base64, base64url, hexadecimal and URL-encoded form. */
export interface Redactor {
  /** Makes `secret` known; shorter than 8 bytes is ignored, a repeated one too */
  add(secret: string): void;
  readonly redact: (text: string) => string;
  /** Redacts a text that comes in pieces */
  stream(): RedactStream;
}

/** One text in pieces: a secret that lies across two of them is masked as well. */
export interface RedactStream {
  /** The text that is settled; the end of what came stays behind while it may be the begin of a secret */
  write(piece: string): string;
  /** What stayed behind; empty when that was cut from the rest of its secret, as `isCut` says */
  end(isCut?: boolean): string;
}

/** A redactor that starts with these secrets. DESIGN.md section 10. */
export function createRedactor(secrets: Iterable<string> = []): Redactor {
  const known = new Set<string>();
  let pattern: RegExp | undefined;
  let whole: RegExp | undefined;
  const redactor: Redactor = {
    add(secret) {
      if (Buffer.byteLength(secret) < MIN_SECRET_BYTES) return;
      const before = known.size;
      for (const form of formsOf(secret)) known.add(form);
      if (known.size === before) return;
      whole = toPattern(known);
      pattern = toPattern([...known].flatMap((form) => [form, ...halvesOf(form)]));
    },
    redact: (text) => (pattern === undefined || text.length < MIN_SECRET_BYTES ? text : text.replace(pattern, MASK)),
    stream() {
      let held = "";
      return {
        write(piece) {
          const text = held + piece;
          const length = text.length - heldLength(text, whole, known);
          held = text.slice(length);
          return redactor.redact(text.slice(0, length));
        },
        end(isCut = false) {
          const rest = isCut ? "" : redactor.redact(held);
          held = "";
          return rest;
        },
      };
    },
  };
  for (const secret of secrets) redactor.add(secret);
  return redactor;
}

/** Any of these texts. Longest first: a secret that contains another is masked whole */
function toPattern(texts: Iterable<string>): RegExp {
  const all = [...new Set(texts)].sort((a, b) => b.length - a.length);
  return new RegExp(all.map((text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")).join("|"), "g");
}

function halvesOf(form: string): string[] {
  const middle = Math.ceil(form.length / 2);
  return form.length < MIN_HALVED ? [] : [form.slice(0, middle), form.slice(-middle)];
}

/** How much of the end of a text, after the last whole secret in it, a secret may begin with. */
function heldLength(text: string, whole: RegExp | undefined, forms: ReadonlySet<string>): number {
  if (whole === undefined) return 0;
  let from = 0;
  for (const match of text.matchAll(whole)) from = match.index + match[0].length;
  let longest = 0;
  for (const form of forms) {
    for (let length = Math.min(form.length - 1, text.length - from); length > longest; length--) {
      if (text.endsWith(form.slice(0, length))) longest = length;
    }
  }
  return longest;
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

/** A copy of a JSON value with each text in it redacted, names of properties included. */
export function redactJson(value: unknown, redact: (text: string) => string): unknown {
  if (typeof value === "string") return redact(value);
  if (Array.isArray(value)) return value.map((item) => redactJson(item, redact));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [redact(key), redactJson(item, redact)]));
}
