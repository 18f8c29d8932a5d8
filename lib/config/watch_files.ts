import { type FSWatcher, watch } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { basename, dirname } from "node:path";
import type { Clock, Timer } from "../base/clock.ts";

/** Clock and callback of a watch over files. */
export interface WatchFilesOptions {
  readonly clock: Clock;
  /** The files changed, and have been left alone since. A change during a call is told by another, after it. Must not throw */
  readonly onChange: () => Promise<void>;
  /** false: by looking only. Default true */
  readonly useEvents?: boolean;
}

/** An editor writes in steps: what it leaves alone for this long is whole. Milliseconds */
const QUIET_MS = 250;
/** How often the files are looked at anyway: events are lost on network file systems, behind a link that has changed and without permissions */
const LOOK_MS = 2_000;

/**
 * Calls back when one of the files got another content, came or went: written in place, replaced by rename, removed, or the target
 * of a link exchanged. Files need not be there. Events of the folders make it quick, looking each 2 s makes it sure.
 * @param paths absolute
 * @returns ends it
 */
export async function watchFiles(paths: readonly string[], options: WatchFilesOptions): Promise<() => void> {
  const targets = await Promise.all(paths.map((path) => realpath(path).catch(() => path)));
  const watch = new FileWatch({ paths, targets }, options, await stampOf(paths));
  return () => watch.end();
}

class FileWatch {
  readonly #paths: readonly string[];
  readonly #clock: Clock;
  readonly #onChange: () => Promise<void>;
  readonly #looking: Timer;
  readonly #watchers: readonly FSWatcher[];
  /** Stamp of the files that the last call told of */
  #told: string;
  /** Stamp of the files at the last look */
  #seen: string;
  #quiet: Timer | undefined;
  #working = false;
  #ended = false;

  /** @param files.targets where links among the paths lead: what changes there is no event in the link's folder */
  constructor(
    { paths, targets }: { readonly paths: readonly string[]; readonly targets: readonly string[] },
    { clock, onChange, useEvents = true }: WatchFilesOptions,
    stamp: string,
  ) {
    this.#paths = paths;
    this.#clock = clock;
    this.#onChange = onChange;
    this.#told = this.#seen = stamp;
    this.#looking = clock.every(LOOK_MS, () => void this.#look());
    this.#watchers = useEvents ? watchFolders([...paths, ...targets], () => void this.#look()) : [];
  }

  end(): void {
    this.#ended = true;
    this.#looking.clear();
    this.#quiet?.clear();
    for (const watcher of this.#watchers) watcher.close();
  }

  async #look(): Promise<void> {
    const now = await stampOf(this.#paths);
    if (this.#ended || this.#working || now === this.#seen) return;
    this.#seen = now;
    this.#settle();
  }

  /** Waits until the files have been left alone. */
  #settle(): void {
    this.#quiet?.clear();
    this.#quiet = this.#clock.after(QUIET_MS, () => void this.#tell());
  }

  async #tell(): Promise<void> {
    const now = await stampOf(this.#paths);
    if (this.#ended || this.#working) return;
    if (now !== this.#seen) {
      this.#seen = now;
      return this.#settle();
    }
    if (now === this.#told) return;
    this.#told = now;
    this.#working = true;
    await this.#onChange();
    this.#working = false;
    await this.#look();
  }
}

/** The folders, not the files: a file that is replaced takes its watcher with it. */
function watchFolders(paths: readonly string[], onEvent: () => void): readonly FSWatcher[] {
  const folders = new Map<string, Set<string>>();
  for (const path of paths) folders.set(dirname(path), (folders.get(dirname(path)) ?? new Set()).add(basename(path)));
  return [...folders].flatMap(([folder, names]) => {
    try {
      const watcher = watch(folder, { persistent: false }, (_, name) => {
        if (name === null || names.has(name)) onEvent();
      });
      // A folder that goes, or a system without watches left: looking goes on
      watcher.on("error", () => watcher.close());
      return [watcher];
    } catch {
      return [];
    }
  });
}

/** Changes with every change of a file: which one it is, its size, and its times to the nanosecond. */
async function stampOf(paths: readonly string[]): Promise<string> {
  const stamps = await Promise.all(paths.map(async (path) => {
    const found = await stat(path, { bigint: true }).catch(() => undefined);
    return found === undefined ? "none" : `${found.dev}:${found.ino}:${found.size}:${found.mtimeNs}:${found.ctimeNs}`;
  }));
  return stamps.join(" ");
}
