/** Shorter values would match by chance. */
const MIN_SECRET_BYTES = 8;
const MASK = "[redacted]";

/** Removes known secrets from text in plain, base64, base64url, hexadecimal and URL-encoded form. */
export interface Redactor {
  /** Makes `secret` known; shorter than 8 bytes is ignored, a repeated one too */
  add(secret: string): void;
  readonly redact: (text: string) => string;
}

/** A redactor that starts with these secrets. DESIGN.md section 10. */
export function createRedactor(secrets: Iterable<string> = []): Redactor {
  const known = new Set<string>();
  let pattern: RegExp | undefined;
  const redactor: Redactor = {
    add(secret) {
      if (Buffer.byteLength(secret) < MIN_SECRET_BYTES) return;
      const before = known.size;
      for (const form of formsOf(secret)) known.add(form);
      if (known.size === before) return;
      // Longest first: a secret that contains another is masked whole
      const forms = [...known].sort((a, b) => b.length - a.length).map((form) =>
        form.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")
      );
      pattern = new RegExp(forms.join("|"), "g");
    },
    redact: (text) => (pattern === undefined || text.length < MIN_SECRET_BYTES ? text : text.replace(pattern, MASK)),
  };
  for (const secret of secrets) redactor.add(secret);
  return redactor;
}

function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString("hex");
  const forms = [secret, hex, hex.toUpperCase(), encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1)];
  // Inside a longer text the secret may start at any of three places of a base64 group: keep the part that does not change
  for (const shift of [0, 1, 2]) {
    const encoded = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
    const start = shift === 0 ? 0 : shift + 1;
    const stable = encoded.slice(start, Math.floor(((bytes.length + shift) * 8) / 6));
    forms.push(stable, stable.replaceAll("+", "-").replaceAll("/", "_"));
  }
  return forms.filter((form) => form.length >= MIN_SECRET_BYTES);
}
