import { type FSWatcher, realpathSync, watch } from "node:fs";
import { dirname, relative } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { messageOf, ToolError } from "../../base/errors.ts";
import { Poller } from "../../base/poller.ts";
import { nextTick } from "../../base/tick.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import { MAX_CONFIG_BYTES, mayTellSecrets, readConfig } from "../git/config_copy.ts";
import { isGone, unlessGone } from "./remembered_folders.ts";
import { entryIdentity } from "./surveys.ts";

/**
 * A sandbox covers a file of credentials by a mount on it. Linux takes such a mount away when the file is removed or replaced from outside,
 * as editors do when they save: a program that runs would read the new one. So the folders of what is covered are watched while a program
 * runs, and it is ended once something else lies there. Its own mounts keep the program itself from doing that.
 */

/** Places of a workspace that the sandbox of a program covers. */
export interface Covers {
  /** Real, absolute path */
  readonly workspace: string;
  /** Absolute paths that appear empty. What leads there is covered as well */
  readonly hidden: readonly string[];
  /** Absolute, real paths of configurations of git in whose place a copy stands */
  readonly copied: readonly string[];
}

/** Receives the path, relative to the workspace, where something lies now that nothing covers; or `sandbox_unavailable`, when nobody would notice. Once */
export type OnLost = (lost: string | ToolError) => void;

/** Begins a watch. What is replaced before the sandbox is made, is covered as it is then. @throws {ToolError} `sandbox_unavailable` */
export type WatchCovers = (onLost: OnLost) => Pick<CoverWatch, "close">;

/** Folders that one program has watched. Each takes about a kilobyte of the kernel's memory */
const MAX_FOLDERS = 4096;
/**
 * How often all is looked at anyway: events are lost in a flood of others, and do not come on network file systems, nor on Deno for a link
 * that leads out of its folder. Milliseconds
 */
const LOOK_MS = 2_000;

/** Watch over the covers of one program. */
export class CoverWatch {
  readonly #covers: Covers;
  readonly #onLost: OnLost;
  /** Identity of each watched place as it was last; undefined: nothing was there */
  readonly #seen = new Map<string, string | undefined>();
  /** Watched places by their folder */
  readonly #places = new Map<string, string[]>();
  /** Places where something else lies than what was covered */
  readonly #uncovered = new Set<string>();
  /** Folders that nobody has looked at since their last event */
  readonly #touched = new Set<string>();
  readonly #watchers: FSWatcher[] = [];
  readonly #poller: Poller;
  #isClosed = false;

  /** Begins it. @throws {ToolError} `sandbox_unavailable` */
  constructor(covers: Covers, clock: Pick<Clock, "every">, onLost: OnLost) {
    this.#covers = covers;
    this.#onLost = onLost;
    // A watch that cannot look notices nothing
    this.#poller = new Poller(() => this.#look(), (error) => this.#tell(unwatchable(error)));
    this.#poller.start(clock, LOOK_MS, () => this.#touch(this.#places.keys()));
    try {
      this.#open();
    } catch (error) {
      this.close();
      throw unwatchable(error);
    }
  }

  /** Ends the watch. Repeating it does nothing */
  close(): void {
    this.#isClosed = true;
    void this.#poller.stop();
    for (const watcher of this.#watchers.splice(0)) watcher.close();
  }

  /** Watches from the outside to the inside: the watch of its parent sees a folder that is exchanged meanwhile. */
  #open(): void {
    const { workspace } = this.#covers;
    const places = placesOf(this.#covers);
    for (const path of places) this.#places.set(dirname(path), []);
    if (this.#places.size > MAX_FOLDERS) {
      throw new Error(`${this.#places.size} folders lead to them, and ${MAX_FOLDERS} can be watched`);
    }
    if (this.#places.has(workspace)) this.#watch(workspace);
    for (const path of places) {
      this.#seen.set(path, identityOf(path));
      this.#places.get(dirname(path))?.push(path);
      if (this.#places.has(path)) this.#watch(path);
    }
  }

  /** Watches a folder. For one that is gone, the watch of its parent tells when it comes back. */
  #watch(folder: string): void {
    try {
      const watcher = watch(folder, { persistent: false }, () => this.#touch([folder]));
      this.#watchers.push(watcher);
      // Node throws what is wrong, Deno tells it a tick later
      watcher.on("error", (error) => {
        if (!isGone(error)) this.#tell(unwatchable(error));
      });
    } catch (error) {
      if (!isGone(error)) throw error;
    }
  }

  #touch(folders: Iterable<string>): void {
    for (const folder of folders) this.#touched.add(folder);
    void this.#poller.look();
  }

  /** Looks at the places of all touched folders, once for all events of a tick. */
  async #look(): Promise<void> {
    await nextTick();
    const places = [...this.#touched].flatMap((folder) => this.#places.get(folder) ?? []);
    this.#touched.clear();
    for (const path of places) {
      if (await this.#isLost(path)) this.#tell(relative(this.#covers.workspace, path));
    }
  }

  #tell(lost: string | ToolError): void {
    if (this.#isClosed) return;
    this.close();
    this.#onLost(lost);
  }

  /** Tells whether something lies at a place that is neither covered nor harmless. */
  async #isLost(path: string): Promise<boolean> {
    const now = identityOf(path);
    if (now !== this.#seen.get(path)) {
      this.#seen.set(path, now);
      if (now !== undefined) this.#uncovered.add(path);
    }
    if (now === undefined || !this.#uncovered.has(path)) return false;
    if (!this.#covers.copied.includes(path)) return true;
    const config = await readConfig(path, MAX_CONFIG_BYTES).catch(() => undefined);
    // A file that is gone or changed by now has an event of its own
    if (config === undefined) return identityOf(path) === now;
    return config.length > MAX_CONFIG_BYTES || mayTellSecrets(config.toString("latin1"));
  }
}

/** Returns each place whose exchange takes a cover away, the outer ones first: what is covered, where links lead, and the folders on the way. */
function placesOf({ workspace, hidden, copied }: Covers): readonly string[] {
  const places = new Set<string>();
  const real = hidden.map((path) => unlessGone(() => realpathSync.native(path)) ?? path);
  for (const path of [...hidden, ...real, ...copied]) {
    if (!isWithin(path, workspace)) continue;
    for (let place = path; place !== workspace && !places.has(place); place = dirname(place)) places.add(place);
  }
  return [...places].sort();
}

/** Returns what tells a file, a folder or a link from all others; undefined where nothing can be seen. */
function identityOf(path: string): string | undefined {
  return unlessGone(() => entryIdentity(path));
}

function unwatchable(error: unknown): ToolError {
  return new ToolError(
    "sandbox_unavailable",
    `Cannot run the command in the sandbox: nobody would notice when files of credentials that it hides are replaced (${
      messageOf(error)
    }); raise fs.inotify.max_user_watches or fs.inotify.max_user_instances of the system, or take such files out of the workspace`,
    { cause: error },
  );
}
