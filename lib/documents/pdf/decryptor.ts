import { createCipheriv, createDecipheriv, createHash } from "node:crypto";
import { DocumentError } from "../document_error.ts";
import { EMPTY_DICT, type PdfDict, type PdfReader } from "./pdf_object.ts";

/** Padding of a password. The empty password is the whole padding */
const PADDING = Buffer.from("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a", "hex");
const AES_BLOCK = 16;

/** Decrypts parts of a file that opens without a password. */
export interface Decryptor {
  string(bytes: string, id: ObjectId): string;
  stream(bytes: Uint8Array, id: ObjectId): Uint8Array;
}

/** Object and generation number. Each object's key is derived from them. */
export interface ObjectId {
  readonly number: number;
  readonly generation: number;
}

type Method = "none" | "rc4" | "aes";

/**
 * The standard security handler with the empty user password, as for files that may be read but not changed.
 * @param id first part of the file's identifier
 * @throws {DocumentError} `document_encrypted` when a password is needed, or another handler
 * Source: ISO 32000-2, section 7.6
 */
export function createDecryptor(
  dict: PdfDict,
  { reader, id }: { readonly reader: PdfReader; readonly id: string },
): Decryptor {
  const version = reader.number(dict, "V") ?? 0;
  const handler = reader.name(dict, "Filter") ?? "";
  if (handler !== "Standard") {
    throw new DocumentError("document_encrypted", `it is encrypted by "${handler.slice(0, 40)}", which is not read`);
  }
  if (![1, 2, 4, 5].includes(version)) {
    throw new DocumentError("document_encrypted", `it is encrypted by version ${version}, which is not read`);
  }
  const key = version === 5 ? keyOf256(dict, reader) : keyOf128(dict, { reader, id, version });
  if (key === undefined) throw new DocumentError("document_encrypted", "it is protected by a password");
  const methodOf = (use: string): Method => {
    if (version < 4) return "rc4";
    const filters = reader.dict(dict, "CF") ?? EMPTY_DICT;
    const filter = reader.dict(filters, reader.name(dict, use) ?? "Identity");
    const method = filter === undefined ? "None" : reader.name(filter, "CFM");
    return method === "V2" ? "rc4" : method === "AESV2" || method === "AESV3" ? "aes" : "none";
  };
  const [strings, streams] = [methodOf("StrF"), methodOf("StmF")];
  const decrypt = (bytes: Uint8Array, { number, generation }: ObjectId, method: Method): Uint8Array => {
    if (method === "none") return bytes;
    const own = version === 5 ? key : objectKey(key, { number, generation, aes: method === "aes" });
    return method === "rc4" ? rc4(own, bytes) : decryptAes(own, bytes);
  };
  return {
    string: (bytes, object) => Buffer.from(decrypt(Buffer.from(bytes, "latin1"), object, strings)).toString("latin1"),
    stream: (bytes, object) => decrypt(bytes, object, streams),
  };
}

/** Algorithms 2 and 6: versions up to 4. */
function keyOf128(
  dict: PdfDict,
  { reader, id, version }: { readonly reader: PdfReader; readonly id: string; readonly version: number },
): Buffer | undefined {
  const revision = reader.number(dict, "R") ?? 2;
  const length = version === 1
    ? 5
    : Math.min(Math.max((reader.number(dict, "Length") ?? (version === 4 ? 128 : 40)) >> 3, 5), 16);
  const permissions = Buffer.alloc(4);
  permissions.writeInt32LE((reader.number(dict, "P") ?? 0) | 0);
  const identifier = Buffer.from(id, "latin1");
  const hash = createHash("md5").update(PADDING).update(entry(dict, reader, "O").subarray(0, 32)).update(permissions)
    .update(identifier);
  if (revision >= 4 && reader.get(dict, "EncryptMetadata") === false) hash.update(Buffer.alloc(4, 0xff));
  let key: Buffer = hash.digest();
  for (let i = 0; revision >= 3 && i < 50; i++) key = md5(key.subarray(0, length));
  key = key.subarray(0, length);
  const expected = entry(dict, reader, "U");
  if (revision < 3) return rc4(key, PADDING).every((byte, i) => byte === expected[i]) ? key : undefined;
  let check = rc4(key, createHash("md5").update(PADDING).update(identifier).digest());
  for (let i = 1; i < 20; i++) check = rc4(key.map((byte) => byte ^ i), check);
  return check.every((byte, i) => byte === expected[i]) ? key : undefined;
}

/** Algorithms 2.A and 2.B: version 5. */
function keyOf256(dict: PdfDict, reader: PdfReader): Buffer | undefined {
  const user = entry(dict, reader, "U");
  const wrapped = entry(dict, reader, "UE");
  if (user.length < 48 || wrapped.length < 32) return undefined;
  const hash = (salt: Buffer) => reader.number(dict, "R") === 5 ? sha(256, salt) : hardenedHash(salt);
  if (!hash(user.subarray(32, 40)).equals(user.subarray(0, 32))) return undefined;
  const cipher = createDecipheriv("aes-256-cbc", hash(user.subarray(40, 48)), Buffer.alloc(AES_BLOCK)).setAutoPadding(
    false,
  );
  return Buffer.concat([cipher.update(wrapped.subarray(0, 32)), cipher.final()]);
}

function hardenedHash(salt: Buffer): Buffer {
  let key = sha(256, salt);
  for (let round = 0, last = 0; round < 64 || last > round - 32; round++) {
    const cipher = createCipheriv("aes-128-cbc", key.subarray(0, 16), key.subarray(16, 32)).setAutoPadding(false);
    const block = cipher.update(Buffer.concat(Array<Buffer>(64).fill(key)));
    const sum = block.subarray(0, 16).reduce((total, byte) => total + byte, 0);
    key = sha(([256, 384, 512] as const)[sum % 3] ?? 256, block);
    last = block.at(-1) ?? 0;
  }
  return key.subarray(0, 32);
}

function objectKey(key: Buffer, { number, generation, aes }: ObjectId & { readonly aes: boolean }): Buffer {
  const salt = Buffer.from([number, number >> 8, number >> 16, generation, generation >> 8]);
  const hash = createHash("md5").update(key).update(salt);
  if (aes) hash.update("sAlT");
  return hash.digest().subarray(0, Math.min(key.length + 5, 16));
}

function decryptAes(key: Buffer, bytes: Uint8Array): Uint8Array {
  if (key.length !== 16 && key.length !== 32) {
    throw new DocumentError("document_invalid", "the key of its encryption is damaged");
  }
  const length = bytes.length - (bytes.length % AES_BLOCK);
  if (length < 2 * AES_BLOCK) return new Uint8Array(0);
  const cipher = createDecipheriv(key.length === 32 ? "aes-256-cbc" : "aes-128-cbc", key, bytes.subarray(0, AES_BLOCK));
  cipher.setAutoPadding(false);
  const plain = Buffer.concat([cipher.update(bytes.subarray(AES_BLOCK, length)), cipher.final()]);
  const padding = plain.at(-1) ?? 0;
  return padding >= 1 && padding <= AES_BLOCK ? plain.subarray(0, plain.length - padding) : plain;
}

/** OpenSSL no longer has it. */
function rc4(key: Uint8Array, bytes: Uint8Array): Uint8Array {
  const state = Uint8Array.from({ length: 256 }, (_, i) => i);
  for (let i = 0, j = 0; i < 256; i++) {
    j = (j + (state[i] ?? 0) + (key[i % key.length] ?? 0)) & 255;
    [state[i], state[j]] = [state[j] ?? 0, state[i] ?? 0];
  }
  const output = new Uint8Array(bytes.length);
  for (let at = 0, i = 0, j = 0; at < bytes.length; at++) {
    i = (i + 1) & 255;
    const first = state[i] ?? 0;
    j = (j + first) & 255;
    const second = state[j] ?? 0;
    state[i] = second;
    state[j] = first;
    output[at] = (bytes[at] ?? 0) ^ (state[(first + second) & 255] ?? 0);
  }
  return output;
}

function md5(bytes: Uint8Array): Buffer {
  return createHash("md5").update(bytes).digest();
}

function sha(bits: 256 | 384 | 512, bytes: Uint8Array): Buffer {
  return createHash(`sha${bits}`).update(bytes).digest();
}

function entry(dict: PdfDict, reader: PdfReader, key: string): Buffer {
  return Buffer.from(reader.string(dict, key) ?? "", "latin1");
}
