import { Buffer } from "node:buffer";
import { hash } from "node:crypto";
import * as v from "valibot";
import { refuse } from "../base/errors.ts";
import type { Kit } from "../base/kit.ts";
import { KNOWN_TYPES, mediaTypeOf } from "../base/media_type.ts";
import { type Caller, mayReach } from "../base/records/caller.ts";
import { storedObject } from "../base/records/stored_object.ts";
import type { Config } from "../config/config.ts";
import { Collection, parseMark } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";

const uploadSchema = storedObject({
  v: v.literal(1),
  filename: v.string(),
  bytes: v.number(),
  /** Media type by its first bytes, never as the client named it */
  media_type: v.string(),
  purpose: v.string(),
  sha256: v.string(),
  /** Seconds since the epoch */
  created_at: v.number(),
  /** Token that sent it; null: none */
  token_id: v.nullable(v.string()),
  /** Conversation that it goes with. Absent: none */
  conversation_id: v.optional(v.string()),
});
/** File that a client sent, without its bytes. */
export type UploadRecord = v.InferOutput<typeof uploadSchema>;

const partSchema = v.object({ v: v.literal(1), data: v.string() });

/** Collection of the files that clients sent, by id. Their bytes are in streams. */
export const UPLOADS = new Collection("uploads", uploadSchema, {
  replaced: "never changed",
  onDamage: { drops: uploadStream },
});
/** Collection of marks by `<conversation id>/<file id>`, by which files go with their conversation. */
export const CONVERSATION_UPLOADS = new Collection("conversation_uploads", parseMark, { replaced: "never changed" });
/** Collection with one record, whose version counts the changes, so that two senders do not take the same room. */
export const UPLOAD_CHANGES = new Collection("upload_changes", parseMark, { replaced: "its version is what it says" });

/** Parses a part of the bytes of a file. */
export function parseUploadPart(body: unknown): v.InferOutput<typeof partSchema> {
  return v.parse(partSchema, body);
}

/** Returns the name of the stream with the bytes of a file. */
export function uploadStream(id: string): string {
  return `upload/${id}`;
}

/** A file that a client sent, with its id. */
export interface Upload extends UploadRecord {
  readonly id: string;
}

/** Content of a new file, and what its sender says of it. */
export interface NewUpload {
  readonly filename: string;
  readonly bytes: Uint8Array;
  readonly purpose: string;
  readonly conversationId?: string | undefined;
}

/** Settings, store and kit that files are kept with. */
export interface UploadsOptions {
  readonly store: Store;
  readonly kit: Pick<Kit, "clock" | "random">;
  readonly config: () => { readonly gateway: Pick<Config["gateway"], "max_file_bytes" | "max_files_bytes"> };
}

type Reader = Pick<Caller, "tokenId" | "scopes">;

/** Form of the id of a file */
const UPLOAD_ID = /^file_[0-9a-z]{1,64}$/;
/** Files that may be there at once */
const MAX_FILES = 2_000;
/** Bytes of one record of a stream */
const PART_BYTES = 393_216;
const MAX_NAME = 200;
/** Tries of a change while others change files */
const MAX_TRIES = 20;
const CHANGES_KEY = "all";

/** Tells whether a text may be the id of a file here. Vendors give ids of other forms. */
export function isUploadId(id: string): boolean {
  return UPLOAD_ID.test(id);
}

/**
 * Files that clients sent, each its sender's: to others it is as if it were not there.
 *
 * A file is one transaction of its record, its bytes and the mark of changes. So a crash leaves none that nobody sees and that takes room,
 * and two senders do not take the same room.
 */
export class Uploads {
  readonly #options: UploadsOptions;

  constructor(options: UploadsOptions) {
    this.#options = options;
  }

  /** Keeps a file. @throws {HttpError} 400 `invalid_request` for an empty one; 413 `payload_too_large` where there is no room */
  async add({ filename, bytes, purpose, conversationId }: NewUpload, by: Reader): Promise<Upload> {
    const { store, kit: { clock, random }, config } = this.#options;
    const { max_file_bytes: maxBytes, max_files_bytes: maxTotal } = config().gateway;
    if (bytes.length === 0) throw refuse("invalid_request", "Cannot keep this file: it is empty", { param: "file" });
    if (bytes.length > maxBytes) {
      throw tooLarge(`it has more than ${maxBytes} bytes, see max_file_bytes in [gateway]`);
    }
    const id = random.id("file_");
    const record: UploadRecord = {
      ...{ v: 1, filename: plainName(filename), bytes: bytes.length, media_type: sniff(bytes), purpose },
      ...{ sha256: hash("sha256", bytes), created_at: Math.floor(clock.now() / 1000), token_id: by.tokenId },
      ...(conversationId === undefined ? {} : { conversation_id: conversationId }),
    };
    const parts: { readonly v: 1; readonly data: string }[] = [];
    for (let at = 0; at < bytes.length; at += PART_BYTES) {
      parts.push({ v: 1, data: Buffer.from(bytes.subarray(at, at + PART_BYTES)).toString("base64") });
    }
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const version = await UPLOAD_CHANGES.versionOf(store, CHANGES_KEY);
      const { count, total } = await this.#room();
      if (count >= MAX_FILES) throw tooLarge(`there are ${MAX_FILES} files already; delete some`);
      if (total + bytes.length > maxTotal) {
        throw tooLarge(
          `the files would have more than ${maxTotal} bytes, see max_files_bytes in [gateway]; delete some`,
        );
      }
      const isKept = await store.batch([
        UPLOAD_CHANGES.putOver(CHANGES_KEY, version, { v: 1 }),
        UPLOADS.insert(id, record),
        ...(conversationId === undefined ? [] : [CONVERSATION_UPLOADS.put(`${conversationId}/${id}`, { v: 1 })]),
        { op: "append", stream: uploadStream(id), expectedSeq: 0, records: parts },
      ]);
      if (isKept) return { id, ...record };
    }
    throw refuse("overloaded", "Cannot keep this file: others are kept in the same moments; try again");
  }

  /** Returns a file that the reader may reach. Undefined for any other */
  async get(id: string, by: Reader): Promise<Upload | undefined> {
    const found = isUploadId(id) ? await UPLOADS.read(this.#options.store, id) : undefined;
    return found === undefined || !isReached(found.value, by) ? undefined : { ...found.value, id };
  }

  /** Returns files that the reader may reach, the newest first. @param options.limit 1-1000. @param options.after id of the last one seen */
  async list(
    { limit, after, purpose }: {
      readonly limit: number;
      readonly after?: string | undefined;
      readonly purpose?: string | undefined;
    },
    by: Reader,
  ): Promise<{ readonly files: readonly Upload[]; readonly hasMore: boolean }> {
    const files: Upload[] = [];
    const all = UPLOADS.all(this.#options.store, { order: "created", reverse: true, after });
    for await (const { key: id, value } of all) {
      if (!isReached(value, by) || (purpose !== undefined && value.purpose !== purpose)) continue;
      if (files.length === limit) return { files, hasMore: true };
      files.push({ ...value, id });
    }
    return { files, hasMore: false };
  }

  /**
   * Returns the bytes of a file; undefined where it was forgotten meanwhile.
   * @throws {HttpError} 500 `record_unreadable` where they are not those that were sent
   */
  async content({ id, bytes, sha256 }: Upload): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const parts: Buffer[] = [];
    for (let afterSeq = 0;;) {
      const page = await this.#options.store.read(uploadStream(id), { afterSeq, limit: 50 });
      for (const { body } of page) parts.push(Buffer.from(parseUploadPart(body).data, "base64"));
      const last = page.at(-1);
      if (last === undefined) break;
      afterSeq = last.seq;
    }
    const content = new Uint8Array(Buffer.concat(parts));
    if (content.length === bytes && hash("sha256", content) === sha256) return content;
    if (await UPLOADS.read(this.#options.store, id) === undefined) return undefined;
    throw refuse("record_unreadable", `Cannot read the file ${id}: its record is damaged; delete it and send it again`);
  }

  /** Forgets a file. @returns false where the caller reaches none */
  async remove(id: string, by: Reader): Promise<boolean> {
    const found = await this.get(id, by);
    if (found === undefined) return false;
    await this.#options.store.batch(removalOf(id, found.conversation_id));
    return true;
  }

  async #room(): Promise<{ readonly count: number; readonly total: number }> {
    let count = 0;
    let total = 0;
    for await (const { value } of UPLOADS.all(this.#options.store)) {
      count++;
      total += value.bytes;
    }
    return { count, total };
  }
}

/** Returns the writes that forget the files of a conversation. */
export async function conversationUploadsRemoval(conversationId: string, store: Store): Promise<readonly Write[]> {
  const prefix = `${conversationId}/`;
  const writes: Write[] = [];
  for await (const { key } of CONVERSATION_UPLOADS.all(store, { prefix })) {
    writes.push(...removalOf(key.slice(prefix.length), conversationId));
  }
  return writes;
}

function removalOf(id: string, conversationId: string | undefined): readonly Write[] {
  const marks = conversationId === undefined ? [] : [CONVERSATION_UPLOADS.remove(`${conversationId}/${id}`)];
  return [UPLOADS.remove(id), { op: "drop", stream: uploadStream(id) }, ...marks];
}

function isReached({ token_id: tokenId }: UploadRecord, by: Reader): boolean {
  return mayReach(by, { tokenId });
}

function tooLarge(reason: string) {
  return refuse("payload_too_large", `Cannot keep this file: ${reason}`, { param: "file" });
}

/** Returns the last part of a name, on one line and without what nobody sees. Attack: a name that is a path, or hides its ending. */
function plainName(name: string): string {
  const last = name.normalize("NFC").split(/[/\\]/).at(-1) ?? "";
  const seen = last.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, "").trim();
  const kept = [...seen].slice(0, MAX_NAME).join("");
  return kept === "" || kept === "." || kept === ".." ? "file" : kept;
}

/** Media type of Word documents. */
export const DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";

/** Media types of files, beside that of any other bytes, without their parameters. */
export const FILE_TYPES: readonly string[] = [...KNOWN_TYPES, DOCX, "text/plain"];

/** Returns the media type by the first bytes. Markup is plain text, so that no browser runs it. */
function sniff(bytes: Uint8Array): string {
  const content = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const known = mediaTypeOf(content);
  if (known !== undefined) return known;
  if (content.toString("latin1", 0, 4) === "PK\x03\x04") {
    return content.includes("word/document.xml") ? DOCX : "application/octet-stream";
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? "application/octet-stream" : "text/plain; charset=utf-8";
  } catch {
    return "application/octet-stream";
  }
}
