import { sep } from "node:path";
import * as v from "valibot";
import { neverAborted } from "../base/cancel.ts";
import { canonicalDigest } from "../base/json.ts";
import type { Clock } from "../base/clock.ts";
import { ToolError } from "../base/errors.ts";
import { lazily } from "../base/lazily.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import { storedObject } from "../base/records/stored_object.ts";
import { joinTaints, type Taint, UNTAINTED } from "../base/taint.ts";
import { Collection, createPatience, isStorageAway, parseMark, scanAll } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import { isWithin } from "../system/files/forbidden_paths.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";
import { contentOf, type FilePlace, filePlaceOf, foldedPaths, isPlain, newPlaceOf } from "./tainted_places.ts";

/** Collection of a cluster with one record, whose version counts the changes of all tainted files. */
export const TAINT_CHANGES = new Collection("taint_changes", parseMark, { replaced: "its version is what it says" });
const ALL = "all";
const CHANGE_BODY = { v: 1 } as const;
/** Tries of a change while other gateways change marks too. */
const MAX_TRIES = 20;
/** Files that are marked. Beyond it the whole folder that tools work in is marked */
export const MAX_TAINTED_FILES = 10_000;
/** Time that the mark of a file stays which is gone from its place, since the file may lie elsewhere: 30 days */
const GONE_MS = 30 * 24 * 3_600_000;
/** A mark comes before its file, and a younger one than this may still wait for it: 1 hour */
const WRITE_MS = 3_600_000;
/** Contents of one file that are known when it is brought back, as by git: the newest ones */
const MAX_CONTENTS = 8;

const recordSchema = storedObject({
  v: v.literal(1),
  /** Absolute, links resolved */
  path: v.string(),
  taint: v.array(v.string()),
  /** See nameIdentity; null until the file was written. A file that is moved keeps it */
  identity: v.nullable(v.string()),
  marked_at: v.string(),
  /** Time at which the file was seen to be gone: another one at its place is not tainted, and it is known where it was moved to */
  gone_at: v.optional(v.string()),
  /** True for a folder that stands for a file whose name may be text for a model (`isPlain`). Absent: it stands for none */
  names: v.optional(v.literal(true)),
  /** SHA-256 of its last contents, the newest last: a file that is gone and is brought back is known by them. Absent: not known */
  contents: v.optional(v.array(v.string())),
  /** Workspace of a cluster that the path belongs to: another machine has other files there. Absent: any */
  workspace: v.optional(v.string()),
});
type TaintRecord = v.InferOutput<typeof recordSchema>;

/** Collection of the tainted files. The key is the digest of the real path, in a cluster together with the workspace. */
export const TAINTED_FILES = new Collection("tainted_files", recordSchema);

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
   * Returns the outside content in the names of marked files, also of those that are gone: git still shows them. A name of at most 64
   * bytes of `[A-Za-z0-9._-]` says nothing to a model.
   * @param paths absolute, of what is listed; a folder stands for every file below it
   * @param root absolute path of the folder that tools work in: its own name does not count
   */
  namesIn(paths: readonly string[], root: string): Promise<Taint>;
  /**
   * Marks files that are about to be written, on disk when it resolves. A write that fails leaves the mark for an hour or more.
   * @param paths absolute
   * @param root absolute path of the folder that tools work in
   */
  mark(paths: readonly string[], options: { readonly taint: Taint; readonly root: string }): Promise<void>;
  /** Marks files that were written, as `mark` and `written` do. With more than MAX_MARKED_AT_ONCE the folders that hold most of them are marked. */
  markWritten(paths: readonly string[], options: { readonly taint: Taint; readonly root: string }): Promise<void>;
  /** Notes which files lie there after a write, so that a file that is moved is known again. */
  written(paths: readonly string[]): Promise<void>;
  /** Returns all of them, by path. */
  list(): Promise<readonly TaintedFile[]>;
  /** Takes the mark from a file, or from every file below a folder, because a person vouches for them. @returns how many there were */
  clear(path: string, by: Actor): Promise<number>;
}

/** Store, clock and audit of the tainted files. */
export interface TaintedFilesOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly audit: AuditAppend;
  /** Workspace of a gateway in a cluster. Default: the gateway is alone */
  readonly workspace?: TaintWorkspace | undefined;
  /** Aborts when the gateway closes. Default: never */
  readonly closing?: AbortSignal | undefined;
}

/** Workspace whose files gateways of a cluster mark. */
export interface TaintWorkspace {
  readonly id: string;
  /** True: other machines may work in it, where a file has another identity and may be seen later */
  readonly isShared: boolean;
}

/**
 * The tainted files over a store. They are read at the first use and then kept in memory. In a cluster they are read again before each
 * decision when another gateway has changed one, and no mark is taken for gone in a workspace of several machines.
 */
export class StoredTaintedFiles implements TaintedFiles {
  readonly #options: TaintedFilesOptions;
  /** Reads the marks once, at a gateway alone. */
  readonly #readOnce: () => Promise<Map<string, TaintRecord>>;
  /** Marks of a cluster as they were read last, with the version that says so. */
  #shared: { readonly version: number; readonly records: Map<string, TaintRecord> } | undefined = undefined;
  #firstLook: Promise<void> | undefined = undefined;
  /** Marks that wait for the database of a cluster: of files that are written already. */
  #owed: readonly Parameters<TaintedFiles["markWritten"]>[] = [];
  #paying: Promise<void> | undefined = undefined;

  constructor(options: TaintedFilesOptions) {
    this.#options = options;
    this.#readOnce = lazily(() => loadRecords(options.store));
  }

  async of(paths: readonly string[]): Promise<Taint> {
    await this.#payOwed();
    const records = await this.#records();
    if (records.size === 0 || paths.length === 0) return UNTAINTED;
    await (this.#firstLook ??= this.#lookForGone());
    // A file that was taken away since it was read is known by its path
    const places = await Promise.all(
      paths.map(async (path) => await filePlaceOf(path) ?? { path: await newPlaceOf(path), identity: undefined }),
    );
    await this.#lookForBack(places.map(({ path }) => path));
    const found = [...records.values()].filter(({ path, identity, gone_at: goneAt }) =>
      places.some((place) => {
        if (identity === place.identity) return true;
        return goneAt === undefined && (isWithin(path, place.path) || isWithin(place.path, path));
      })
    );
    return joinTaints(...found.map(({ taint }) => taint));
  }

  async namesIn(paths: readonly string[], root: string): Promise<Taint> {
    await this.#payOwed();
    const records = await this.#records();
    if (records.size === 0) return UNTAINTED;
    const top = await newPlaceOf(root);
    const places = await Promise.all(paths.map(newPlaceOf));
    const found = [...records.values()].filter(({ path, names }) =>
      places.some((place) => {
        if (isWithin(path, place)) return names === true || !isPlain(path, top);
        return isWithin(place, path) && (names === true || !isPlain(place, top));
      })
    );
    return joinTaints(...found.map(({ taint }) => taint));
  }

  mark(paths: readonly string[], { taint, root }: { readonly taint: Taint; readonly root: string }): Promise<void> {
    // The workspace itself is marked where nobody could tell which files were written
    return this.#mark(new Map(paths.map((path) => [path, path === root])), { taint, root });
  }

  /** @param places each path to mark, true for a folder that stands for names which are not plain */
  async #mark(
    places: ReadonlyMap<string, boolean>,
    { taint, root }: { readonly taint: Taint; readonly root: string },
  ): Promise<void> {
    await this.#change(async (records) => {
      if (records.size + places.size > MAX_TAINTED_FILES) await this.#lookForGone();
      const changed = new Map<string, TaintRecord>();
      for (const [path, isFolded] of places) {
        const place = await newPlaceOf(path);
        const known = records.get(place);
        const isFull = known === undefined && records.size + changed.size >= MAX_TAINTED_FILES;
        const at = isFull ? await newPlaceOf(root) : place;
        const before = changed.get(at) ?? records.get(at);
        const joined = joinTaints(before?.taint, taint);
        const isMarked = before !== undefined && before.gone_at === undefined;
        const hasNames = before?.names === true || isFolded || (isFull && !isPlain(path, root));
        if (isMarked && joined.length === before.taint.length && hasNames === (before.names === true)) continue;
        changed.set(at, {
          v: 1,
          path: at,
          taint: [...joined],
          identity: before?.identity ?? null,
          marked_at: before?.marked_at ?? new Date(this.#options.clock.now()).toISOString(),
          ...(hasNames ? { names: true } : {}),
          ...(before?.contents && { contents: before.contents }),
          ...(this.#options.workspace && { workspace: this.#options.workspace.id }),
        });
      }
      return { puts: [...changed.values()] };
    });
  }

  async markWritten(
    paths: readonly string[],
    options: { readonly taint: Taint; readonly root: string },
  ): Promise<void> {
    try {
      await this.#markWritten(paths, options);
    } catch (error) {
      const { clock, workspace, closing = neverAborted() } = this.#options;
      if (workspace === undefined || !isStorageAway(error)) throw error;
      // Until these marks are written, nothing is said about any file
      this.#owed = [...this.#owed, [paths, options]];
      void createPatience({ clock, signal: closing })(() => this.#payOwed()).catch(() => {});
    }
  }

  async written(paths: readonly string[]): Promise<void> {
    await this.#payOwed();
    if (paths.length > 0) await this.#noteWritten(paths);
    // Where the marks cannot be read, nothing is said about what the call gave
    else await this.#records();
  }

  async #markWritten(
    paths: readonly string[],
    options: { readonly taint: Taint; readonly root: string },
  ): Promise<void> {
    const places = foldedPaths(paths, options.root);
    await this.#mark(places, options);
    await this.#noteWritten([...places.keys()]);
  }

  /** Writes the marks that waited for the database. @throws {HttpError} `storage_unavailable` while it is down */
  async #payOwed(): Promise<void> {
    while (this.#owed.length > 0) await (this.#paying ??= this.#payFirst().finally(() => this.#paying = undefined));
  }

  async #payFirst(): Promise<void> {
    const [first] = this.#owed;
    if (first === undefined) return;
    await this.#markWritten(...first);
    this.#owed = this.#owed.slice(1);
  }

  async #noteWritten(paths: readonly string[]): Promise<void> {
    await this.#change(async (records) => {
      const changed: TaintRecord[] = [];
      for (const path of paths) {
        const place = await filePlaceOf(path);
        const record = place === undefined ? undefined : records.get(place.path);
        if (place === undefined || record === undefined) continue;
        const { contents = [] } = record;
        const now = await contentOf(place.path) ?? contents.at(-1);
        if (record.identity === place.identity && now === contents.at(-1)) continue;
        const known = now === undefined ? [] : [...contents.filter((content) => content !== now), now];
        changed.push({ ...record, identity: place.identity, contents: known.slice(-MAX_CONTENTS) });
      }
      return { puts: changed };
    });
    const records = await this.#records();
    const known = await Promise.all(paths.map(newPlaceOf));
    await this.#lookForGone(known.filter((path) => records.has(path)));
  }

  async list(): Promise<readonly TaintedFile[]> {
    await this.#lookForGone();
    const records = [...(await this.#records()).values()]
      .filter(({ gone_at: goneAt }) => goneAt === undefined)
      .sort((one, other) => one.path < other.path ? -1 : 1);
    return records.map(({ path, taint, marked_at }) => ({ path, taint, marked_at }));
  }

  async clear(path: string, by: Actor): Promise<number> {
    const { clock, audit } = this.#options;
    const records = await this.#records();
    const place = await newPlaceOf(path);
    const content = await contentOf(place) ?? "";
    const cleared = [...records.values()]
      .filter(({ path, ...record }) => isWithin(path, place) || isGoneWith(content, record))
      .map(({ path }) => path);
    for (const path of cleared) {
      await audit({
        type: "trust",
        subject: "tainted_file",
        name: path,
        sha256: null,
        uid: null,
        given_at: new Date(clock.now()).toISOString(),
        by: storedActor(by),
      }, [
        ...this.#keysOf(path).map((key) => TAINTED_FILES.remove(key)),
        ...this.#changed(),
      ]);
      records.delete(path);
    }
    return cleared.length;
  }

  /** Notes which marked files are gone, and forgets those that have been for GONE_MS. @param paths real paths. Default: all */
  async #lookForGone(paths?: readonly string[]): Promise<void> {
    if (this.#options.workspace?.isShared === true) return;
    await this.#change(async (records) => {
      const looked = paths === undefined ? [...records.values()] : paths.flatMap((path) => records.get(path) ?? []);
      const changed: TaintRecord[] = [];
      const forgotten: string[] = [];
      for (const record of looked) {
        if (record.path === sep || record.workspace !== this.#options.workspace?.id) continue;
        const now = this.#afterLook(record, await filePlaceOf(record.path));
        if (now === undefined) forgotten.push(record.path);
        else if (now !== record) changed.push(now);
      }
      return { puts: changed, deletes: forgotten };
    });
  }

  /** Marks files at places, or below, whose content is that of a marked file which is gone: git brings one back as another file. */
  async #lookForBack(places: readonly string[]): Promise<void> {
    await this.#change(async (records) => {
      const gone = [...records.values()].filter(({ gone_at: goneAt }) => goneAt !== undefined);
      const below = gone.map(({ path }) => path).filter((path) => places.some((place) => isWithin(path, place)));
      const puts: TaintRecord[] = [];
      // Whoever wrote the files decides how many are gone: not all of them are gone through for each path
      const byContent = Map.groupBy(
        gone.flatMap((record) => (record.contents ?? []).map((content) => ({ content, record }))),
        ({ content }) => content,
      );
      for (const path of gone.length === 0 ? [] : new Set([...places, ...below])) {
        const same = byContent.get(await contentOf(path) ?? "")?.map(({ record }) => record) ?? [];
        const [first] = same;
        if (first === undefined) continue;
        const known = records.get(path);
        const { gone_at: goneAt, ...record } = known ?? first;
        const taint = joinTaints(record.taint, ...same.map((other) => other.taint));
        if (known !== undefined && goneAt === undefined && taint.length === known.taint.length) continue;
        puts.push({ ...record, path, taint: [...taint], identity: (await filePlaceOf(path))?.identity ?? null });
      }
      return { puts };
    });
  }

  /** Returns a record after a look at its place. undefined: it is forgotten. */
  #afterLook(record: TaintRecord, place: FilePlace | undefined): TaintRecord | undefined {
    const { identity, marked_at: markedAt, gone_at: goneAt } = record;
    const now = this.#options.clock.now();
    if (goneAt === undefined) {
      if (place !== undefined) return record;
      if (identity !== null) return { ...record, gone_at: new Date(now).toISOString() };
      return now - Date.parse(markedAt) < WRITE_MS ? record : undefined;
    }
    if (place !== undefined && place.identity === identity) {
      const { gone_at: _goneAt, ...back } = record;
      return back;
    }
    return now - Date.parse(goneAt) > GONE_MS ? undefined : record;
  }

  /** Returns the marks as they are now. */
  async #records(): Promise<Map<string, TaintRecord>> {
    const { store, workspace } = this.#options;
    if (workspace === undefined) return await this.#readOnce();
    const version = await TAINT_CHANGES.versionOf(store, ALL);
    if (this.#shared?.version !== version) {
      this.#shared = { version, records: await loadRecords(store, workspace.id) };
    }
    return this.#shared.records;
  }

  /** Makes a change of the marks: in a cluster again when another gateway was faster, with the marks as they are then. */
  async #change(
    decide: (records: Map<string, TaintRecord>) => Promise<{
      readonly puts: readonly TaintRecord[];
      /** Real paths */
      readonly deletes?: readonly string[];
    }>,
  ): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const records = await this.#records();
      const version = this.#shared?.version ?? 0;
      const { puts, deletes = [] } = await decide(records);
      if (puts.length + deletes.length === 0) return;
      const isWritten = await this.#options.store.batch([
        ...puts.map((body) => TAINTED_FILES.put(this.#keyOf(body.path), body)),
        ...deletes.map((path) => TAINTED_FILES.remove(this.#keyOf(path))),
        ...this.#changed(version),
      ]);
      if (!isWritten) continue;
      for (const record of puts) records.set(record.path, record);
      for (const path of deletes) records.delete(path);
      if (this.#shared?.records === records) this.#shared = { version: version + 1, records };
      return;
    }
    throw new ToolError("conflict", "Cannot mark the files: other gateways mark files all the time; try again");
  }

  /** Returns the write that tells the other gateways of a change. @param over precondition: nothing has changed since this version */
  #changed(over?: number): readonly Write[] {
    const { workspace } = this.#options;
    if (workspace === undefined) return [];
    return [over === undefined ? TAINT_CHANGES.put(ALL, CHANGE_BODY) : TAINT_CHANGES.putOver(ALL, over, CHANGE_BODY)];
  }

  #keyOf(path: string): string {
    return this.#keysOf(path)[0] ?? keyOf(path);
  }

  /** Returns the keys of a path: that of the workspace first, and that of a mark from before there was a cluster. */
  #keysOf(path: string): readonly string[] {
    const { workspace } = this.#options;
    return workspace === undefined ? [keyOf(path)] : [canonicalDigest([workspace.id, path]), keyOf(path)];
  }
}

/** Stands for every file, until `postern doctor` has taken a damaged record away. */
const ANY_FILE: TaintRecord = {
  v: 1,
  path: sep,
  taint: ["a damaged record"],
  identity: null,
  names: true,
  marked_at: new Date(0).toISOString(),
};

/** @param workspace in a cluster: the workspace whose marks count. A mark without one counts everywhere */
async function loadRecords(store: Store, workspace?: string): Promise<Map<string, TaintRecord>> {
  const records = new Map<string, TaintRecord>();
  for await (const stored of scanAll(store, TAINTED_FILES.name)) {
    const found = TAINTED_FILES.parsed(store, stored);
    if (found === undefined) {
      // Nobody knows which file it names, so it may be any
      records.set(ANY_FILE.path, ANY_FILE);
      continue;
    }
    // A gateway that was killed during a write has not noted which file it was
    const { path, identity, taint, workspace: own } = found.value;
    if (workspace !== undefined && own !== undefined && own !== workspace) continue;
    const other = records.get(path);
    records.set(path, {
      ...found.value,
      identity: identity ?? (await filePlaceOf(path))?.identity ?? null,
      ...(other === undefined ? {} : { taint: [...joinTaints(other.taint, taint)], workspace: undefined }),
    });
  }
  return records;
}

function isGoneWith(
  content: string,
  { gone_at: goneAt, contents }: Pick<TaintRecord, "gone_at" | "contents">,
): boolean {
  return goneAt !== undefined && contents?.includes(content) === true;
}

/** A path may be longer than a key. */
function keyOf(path: string): string {
  return canonicalDigest(path);
}
