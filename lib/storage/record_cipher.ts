import { Buffer } from "node:buffer";
import { createCipheriv, createDecipheriv, createHash } from "node:crypto";
import type { Random } from "../base/random.ts";
import type { Write } from "./store.ts";

/** A text as the store keeps it: `data` is the encrypted text with its 16 bytes of tag behind it, in base64. */
export interface Sealed {
  /** Tells one key from another; says nothing about the key */
  readonly key: string;
  /** 12 bytes in base64, fresh for each text */
  readonly nonce: string;
  readonly data: string;
}

/** Encrypts texts for the database. */
export interface RecordCipher {
  /** Decrypts a text. @throws {SealError} for a text that was altered, moved to another record, or sealed with another key */
  open(sealed: Sealed, bound: string): string;
  /** Returns the key that texts are written with now. @throws {ConfigError} the gateway does not have it */
  writer(): Promise<RecordWriter>;
}

/** Key that texts are written with at this moment. */
export interface RecordWriter {
  /** Id of the key, as `Sealed` has it. */
  readonly keyId: string;
  /** Encrypts a text. @param bound the record that the text belongs to: the text opens with exactly this */
  seal(text: string, bound: string): Sealed;
  /** Preconditions that go into the batch with a sealed text: nobody has chosen another key meanwhile. */
  readonly also: readonly Write[];
}

/** Cipher of one key. */
export interface KeyCipher extends RecordCipher, Pick<RecordWriter, "seal" | "keyId"> {}

/** Error of a sealed text that does not open. */
export class SealError extends Error {
  override readonly name: string = "SealError";
}

/** Error of a sealed text that names another key: the key may be the wrong one, and the text undamaged. */
export class OtherKeyError extends SealError {
  override readonly name = "OtherKeyError";
}

const ALGORITHM = "aes-256-gcm";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Creates a cipher of AES-256-GCM with random nonces, good for 2^32 texts a key (NIST SP 800-38D section 8.3).
 * @param key 32 bytes
 */
export function createRecordCipher(key: Uint8Array, random: Random): KeyCipher {
  const keyId = createHash("sha256").update("postern key id").update(key).digest("hex").slice(0, 16);
  const seal: RecordWriter["seal"] = (text, bound) => {
    const nonce = random.bytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(Buffer.from(bound));
    const data = Buffer.concat([cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]);
    return { key: keyId, nonce: Buffer.from(nonce).toString("base64"), data: data.toString("base64") };
  };
  return {
    keyId,
    seal,
    writer: async () => ({ keyId, seal, also: [] }),
    open(sealed, bound) {
      if (sealed.key !== keyId) throw new OtherKeyError("it was sealed with another key");
      const nonce = decode(sealed.nonce);
      const data = decode(sealed.data);
      if (nonce.length !== NONCE_BYTES || data.length < TAG_BYTES) throw new SealError("a part of it is missing");
      const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
      decipher.setAAD(Buffer.from(bound)).setAuthTag(data.subarray(-TAG_BYTES));
      try {
        return Buffer.concat([decipher.update(data.subarray(0, -TAG_BYTES)), decipher.final()]).toString("utf8");
      } catch (cause) {
        throw new SealError("it was altered, or belongs to another record", { cause });
      }
    },
  };
}

/** Base64 in its one right form: what decodes to the same bytes is not the same text. */
function decode(text: string): Buffer {
  const bytes = Buffer.from(text, "base64");
  if (bytes.toString("base64") !== text) throw new SealError("it was altered");
  return bytes;
}

/** Tries of a write while others change the key. */
const MAX_TRIES = 5;

/**
 * Writes a sealed text, again with the new key when somebody has changed the key meanwhile.
 * @param write writes the text together with what the writer says. @returns false when a precondition did not hold
 */
export async function writeSealed(
  cipher: RecordCipher,
  write: (writer: RecordWriter) => Promise<unknown>,
): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const writer = await cipher.writer();
    if (await write(writer) !== false || writer.also.length === 0) return;
  }
  throw new SealError("its key is being changed all the time");
}
