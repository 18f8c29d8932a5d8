import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A secret that is in the environment, the configuration or a file, by where it was planted. */
export type Canaries = Readonly<Record<string, string>>;

/** Every way in which a value may slip out. */
export function canaryForms(secret: string): readonly string[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString("hex");
  const base64 = (before: string) =>
    Buffer.from(before + secret).toString("base64").slice(Math.ceil(before.length * 4 / 3)).replace(/=+$/, "");
  return [
    secret,
    hex,
    hex.toUpperCase(),
    encodeURIComponent(secret),
    [...bytes].map((byte) => `%${byte.toString(16)}`).join(""),
    bytes.toString("base64url"),
    ...["", "x", "xy"].map(base64),
  ];
}

/** A text with every canary in every form. */
export function canaryText(canaries: Canaries): string {
  return Object.entries(canaries).map(([place, secret]) => {
    const encoded = ["", "x", "xy"].map((before) => Buffer.from(`${before}${secret} and more`).toString("base64"));
    return [place, ...canaryForms(secret), ...encoded, JSON.stringify({ [secret]: secret })].join("\n");
  }).join("\n");
}

/** Fails where a sink shows a canary in any form, or most of one. The last character of a base64 group may differ. */
export function assertNoCanary(sink: string, text: string, canaries: Canaries): void {
  for (const [place, secret] of Object.entries(canaries)) {
    for (const form of canaryForms(secret)) {
      const most = Math.ceil(form.length * 0.6);
      for (const part of [form.slice(1, -2), form.slice(0, most), form.slice(-most - 1, -1)]) {
        const at = text.indexOf(part);
        assert.equal(at, -1, `${sink} shows the canary of ${place}: ${text.slice(Math.max(0, at - 200), at + 80)}`);
      }
    }
  }
}

/** The bytes of every file of a folder and those below, each a character. @param without names that are left out */
export function bytesBelow(folder: string, without: readonly string[] = []): string {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !without.includes(entry.name))
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), "latin1")).join("\n");
}
