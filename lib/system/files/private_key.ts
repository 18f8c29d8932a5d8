import { Buffer } from "node:buffer";

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
  const bytes = Buffer.from(head.buffer, head.byteOffset, Math.min(head.byteLength, KEY_HEAD_BYTES));
  if (!WORDS.some((word) => bytes.includes(word))) return false;
  const text = bytes.toString("latin1");
  return FORMS.some((form) => form.test(text));
}
