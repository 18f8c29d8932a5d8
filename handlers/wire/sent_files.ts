import type { SentFiles } from "../../lib/services.ts";
import { refuse } from "../../lib/base/errors.ts";
import { isRecord } from "../../lib/base/json.ts";
import { lazily } from "../../lib/base/lazily.ts";
import type { ContentPart } from "../../lib/base/records/message.ts";
import type { Logger } from "../../lib/base/telemetry/log.ts";
import { isUploadId } from "../../lib/memory/uploads.ts";
import type { RouteInput } from "../define_route.ts";

/** Files of one request at most */
export const MAX_SENT_FILES = 20;
/** Bytes of the files of one request, each time that it names one: as many as the largest file may have */
export const MAX_SENT_BYTES = 67_108_864;

/** Sender and signal of a request, and the files that may be named in it. */
export interface FileReading {
  /** Undefined: there are none */
  readonly files: SentFiles | undefined;
  readonly log: Pick<Logger, "warn">;
  readonly asking: Pick<RouteInput, "caller" | "signal">;
  /** Returns a file in the form of the wire that named it. */
  readonly toPart: (part: ContentPart) => object;
}

/** Returns the id of a file here that a part names; undefined for any other part, also one with the id of a vendor's file. */
export function fileIdOf(part: unknown): string | undefined {
  if (!isRecord(part)) return undefined;
  const given = isRecord(part["file"]) ? part["file"]["file_id"] : part["file_id"];
  return typeof given === "string" && isUploadId(given) ? given : undefined;
}

/**
 * Replaces each part that names a file by what the file holds. Only contents of messages and outputs of tools have such parts.
 * @param field name of the list, such as `messages`. @throws {HttpError} 400 `invalid_request` for an unknown file, one that cannot be read, and too many
 */
export async function withSentFiles<T extends object>(
  items: readonly T[],
  field: string,
  reading: FileReading,
): Promise<readonly T[]> {
  let count = 0;
  const room = { left: MAX_SENT_BYTES };
  const known = new Map<string, Promise<FoundFile>>();
  const filled = async (item: T, at: number): Promise<T> => {
    // The content and the output of a checked item are texts or lists of parts
    const entries = Object.entries(item).map(async ([name, value]): Promise<[string, unknown]> => {
      if ((name !== "content" && name !== "output") || !Array.isArray(value)) return [name, value];
      const parts = value.map(async (part: unknown, place) => {
        const id = fileIdOf(part);
        if (id === undefined) return part;
        const param = `${field}[${at}].${name}[${place}].file_id`;
        if (++count > MAX_SENT_FILES) throw tooMany(param);
        const found = known.get(id) ?? findFile(id, param, reading);
        known.set(id, found);
        return reading.toPart(await readFile(await found, param, room));
      });
      return [name, await Promise.all(parts)];
    });
    // The same fields, of which some parts have another type that the schema has too
    return Object.fromEntries(await Promise.all(entries)) as T;
  };
  return await Promise.all(items.map((item, at) => namesFile(item) ? filled(item, at) : item));
}

/** A file that a message names beside its text. */
export interface SentFile {
  readonly name: string;
  readonly part: ContentPart;
}

/** Returns the files that a message names beside its text. @throws as `withSentFiles` */
export async function readSentFiles(
  ids: readonly string[],
  reading: Omit<FileReading, "toPart">,
): Promise<readonly SentFile[]> {
  if (ids.length > MAX_SENT_FILES) throw tooMany("files");
  const room = { left: MAX_SENT_BYTES };
  return await Promise.all(ids.map(async (id, at) => {
    const param = `files[${at}]`;
    const found = await findFile(id, param, reading);
    return { name: found.name, part: await readFile(found, param, room) };
  }));
}

/** Tells whether a message or an item names a file here. */
export function namesFile(item: object): boolean {
  const { content, output } = item as { readonly content?: unknown; readonly output?: unknown }; // either may be there
  return [content, output].some((value) => Array.isArray(value) && value.some((part) => fileIdOf(part) !== undefined));
}

/** A file that is named, which is read once. */
interface FoundFile {
  readonly name: string;
  readonly bytes: number;
  readonly read: () => Promise<ContentPart>;
}

async function findFile(
  id: string,
  param: string,
  { files, log, asking: { caller, signal } }: Omit<FileReading, "toPart">,
): Promise<FoundFile> {
  const found = await files?.uploads.get(id, caller);
  if (files === undefined || found === undefined) throw unknown(param);
  const read = lazily(async () => {
    const { uploadPart } = await import("../../lib/tools/documents/upload_part.ts");
    const bytes = await files.uploads.content(found);
    if (bytes === undefined) throw unknown(param);
    return await uploadPart(found, bytes, { workers: files.workers, log, signal, param });
  });
  return { name: found.filename, bytes: found.bytes, read };
}

/** Attack: a short request that names a large picture many times would be a long one for the model, and in the records. */
async function readFile(
  { bytes, read }: Omit<FoundFile, "name">,
  param: string,
  room: { left: number },
): Promise<ContentPart> {
  room.left -= bytes;
  if (room.left < 0) {
    throw refuse("invalid_request", `Cannot read more than ${MAX_SENT_BYTES} bytes of files in one request`, { param });
  }
  return await read();
}

function tooMany(param: string) {
  return refuse("invalid_request", `Cannot read more than ${MAX_SENT_FILES} files in one request`, { param });
}

function unknown(param: string) {
  return refuse("invalid_request", `Cannot find the file of "${param}": GET /v1/files shows yours`, { param });
}
