import { realpath } from "node:fs/promises";
import { basename, dirname, join, sep } from "node:path";
import * as v from "valibot";
import { canonicalDigest } from "../base/json.ts";
import type { Clock } from "../base/clock.ts";
import { lazily } from "../base/lazily.ts";
import type { Caller } from "../base/records/caller.ts";
import { joinTaints, type Taint, UNTAINTED } from "../base/taint.ts";
import { readable, scanAll } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";
import { isWithin } from "../system/files/forbidden_paths.ts";
import { nameIdentity } from "../system/process/surveys.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";

/** Collection of the tainted files. The key is the digest of the real path. */
export const TAINTED_FILES = "tainted_files";
/** Files that are marked. Beyond it the whole folder that tools work in is marked */
export const MAX_TAINTED_FILES = 10_000;

const recordSchema = v.object({
  v: v.literal(1),
  /** Absolute, links resolved */
  path: v.string(),
  taint: v.array(v.string()),
  /** See nameIdentity; null until the file was written. A file that is moved keeps it */
  identity: v.nullable(v.string()),
  marked_at: v.string(),
});
type TaintRecord = v.InferOutput<typeof recordSchema>;

/** Parses the record of a tainted file. @throws {v.ValiError} for a body that no version wrote */
export function parseTaintedFile(body: unknown): TaintRecord {
  return v.parse(recordSchema, body);
}

/** A file that was made from outside content. `marked_at` is ISO 8601. */
export type TaintedFile = Pick<TaintRecord, "path" | "taint" | "marked_at">;

/**
 * Files of the workspace that outside content reached: what a tainted run wrote by a tool, and what a tool downloaded
 * (docs/design/policy.md "Content from outside"). What a command copies is not known here.
 */
export interface TaintedFiles {
  /** Returns the outside content that files were made from. @param paths absolute; a folder stands for every file below it */
  of(paths: readonly string[]): Promise<Taint>;
  /**
   * Marks files that are about to be written, on disk when it resolves. A write that fails leaves the mark.
   * @param paths absolute
   * @param root absolute path of the folder that tools work in
   */
  mark(paths: readonly string[], options: { readonly taint: Taint; readonly root: string }): Promise<void>;
  /** Notes which files lie there after a write, so that a file that is moved is known again. */
  written(paths: readonly string[]): Promise<void>;
  /** Returns all of them, by path. */
  list(): Promise<readonly TaintedFile[]>;
  /** Takes the mark from a file, or from every file below a folder, because a person vouches for them. @returns how many there were */
  clear(path: string, by: Pick<Caller, "via" | "tokenId">): Promise<number>;
}

/** Store, clock and audit of the tainted files. */
export interface TaintedFilesOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly audit: AuditAppend;
}

/** Creates the tainted files over a store. They are read at the first use and then kept in memory. */
export function createTaintedFiles(options: TaintedFilesOptions): TaintedFiles {
  return new StoredTaintedFiles(options);
}

class StoredTaintedFiles implements TaintedFiles {
  readonly #options: TaintedFilesOptions;
  readonly #records: () => Promise<Map<string, TaintRecord>>;

  constructor(options: TaintedFilesOptions) {
    this.#options = options;
    this.#records = lazily(() => loadRecords(options.store));
  }

  async of(paths: readonly string[]): Promise<Taint> {
    const records = await this.#records();
    if (records.size === 0 || paths.length === 0) return UNTAINTED;
    // A file that was taken away since it was read is known by its path
    const places = await Promise.all(
      paths.map(async (path) => await placeOf(path) ?? { path: await newPlaceOf(path), identity: undefined }),
    );
    const found = [...records.values()].filter(({ path, identity }) =>
      places.some((place) => isWithin(path, place.path) || isWithin(place.path, path) || identity === place.identity)
    );
    return joinTaints(...found.map(({ taint }) => taint));
  }

  async mark(
    paths: readonly string[],
    { taint, root }: { readonly taint: Taint; readonly root: string },
  ): Promise<void> {
    const records = await this.#records();
    for (const path of paths) {
      const place = await newPlaceOf(path);
      const known = records.get(place);
      const isFull = known === undefined && records.size >= MAX_TAINTED_FILES;
      const at = isFull ? await newPlaceOf(root) : place;
      const before = records.get(at);
      const joined = joinTaints(before?.taint, taint);
      if (before !== undefined && joined.length === before.taint.length) continue;
      await this.#put({
        v: 1,
        path: at,
        taint: [...joined],
        identity: before?.identity ?? null,
        marked_at: before?.marked_at ?? new Date(this.#options.clock.now()).toISOString(),
      });
    }
  }

  async written(paths: readonly string[]): Promise<void> {
    const records = await this.#records();
    for (const path of paths) {
      const place = await placeOf(path);
      const record = place === undefined ? undefined : records.get(place.path);
      if (place === undefined || record === undefined || record.identity === place.identity) continue;
      await this.#put({ ...record, identity: place.identity });
    }
  }

  async list(): Promise<readonly TaintedFile[]> {
    const records = [...(await this.#records()).values()].sort((one, other) => one.path < other.path ? -1 : 1);
    return records.map(({ path, taint, marked_at }) => ({ path, taint, marked_at }));
  }

  async clear(path: string, by: Pick<Caller, "via" | "tokenId">): Promise<number> {
    const { clock, audit } = this.#options;
    const records = await this.#records();
    const place = await newPlaceOf(path);
    const cleared = [...records.keys()].filter((path) => isWithin(path, place));
    for (const path of cleared) {
      await audit({
        type: "trust",
        subject: "tainted_file",
        name: path,
        sha256: null,
        uid: null,
        given_at: new Date(clock.now()).toISOString(),
        by: { via: by.via, token_id: by.tokenId },
      }, [{ op: "delete", collection: TAINTED_FILES, key: keyOf(path) }]);
      records.delete(path);
    }
    return cleared.length;
  }

  async #put(record: TaintRecord): Promise<void> {
    const { path } = record;
    await this.#options.store.batch([{ op: "put", collection: TAINTED_FILES, key: keyOf(path), body: record }]);
    (await this.#records()).set(path, record);
  }
}

/** Stands for every file, until `postern doctor` has taken a damaged record away. */
const ANY_FILE: TaintRecord = {
  v: 1,
  path: sep,
  taint: ["a damaged record"],
  identity: null,
  marked_at: new Date(0).toISOString(),
};

async function loadRecords(store: Store): Promise<Map<string, TaintRecord>> {
  const records = new Map<string, TaintRecord>();
  for await (const stored of scanAll(store, TAINTED_FILES)) {
    const [found] = readable(store, TAINTED_FILES, [stored], parseTaintedFile);
    if (found === undefined) {
      // Nobody knows which file it names, so it may be any
      records.set(ANY_FILE.path, ANY_FILE);
      continue;
    }
    // A gateway that was killed during a write has not noted which file it was
    const { path, identity } = found.value;
    records.set(path, { ...found.value, identity: identity ?? (await placeOf(path))?.identity ?? null });
  }
  return records;
}

/** A path may be longer than a key. */
function keyOf(path: string): string {
  return canonicalDigest(path);
}

/** Returns the real path and the identity of what lies at a path. Undefined where nothing can be seen. */
async function placeOf(path: string): Promise<{ readonly path: string; readonly identity: string } | undefined> {
  try {
    const real = await realpath(path);
    return { path: real, identity: nameIdentity(real) };
  } catch {
    return undefined;
  }
}

/** Returns the real path of a file that may not be there yet. */
async function newPlaceOf(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch {
    const folder = dirname(path);
    return folder === path ? path : join(await newPlaceOf(folder), basename(path));
  }
}
