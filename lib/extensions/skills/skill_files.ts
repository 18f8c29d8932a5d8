import { lstat, mkdir, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { syncFolder } from "../../base/durable_files.ts";
import { messageOf } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { type PackageFile, writePackageFolder } from "../package_folder.ts";
import { ExtensionError } from "../extension_error.ts";

/** Prefixes of folders that an installation works with. Names of skills do not begin with a dot. */
const UNFINISHED = ".new-";
const REPLACED = ".old-";

/** Folder of the installed skills: `{data_dir}/skills`, with one folder for each name. */
export class SkillFiles {
  readonly #root: string;
  readonly #random: Random;

  /** @param options.root absolute path of `{data_dir}/skills` */
  constructor({ root, random }: { readonly root: string; readonly random: Random }) {
    this.#root = root;
    this.#random = random;
  }

  /**
   * Writes files beside their place. On disk when it resolves.
   * @returns a folder for `put`
   * @throws {ExtensionError} `skill_conflict` when the disk refuses
   */
  async write(files: readonly PackageFile[]): Promise<string> {
    const fresh = join(this.#root, this.#random.id(UNFINISHED));
    try {
      await mkdir(this.#root, { recursive: true, mode: 0o700 });
      await writePackageFolder(fresh, files);
      return fresh;
    } catch (cause) {
      await this.discard(fresh);
      const reason = messageOf(cause);
      throw new ExtensionError("skill_conflict", `Cannot write the skill to "${this.#root}": ${reason}`, { cause });
    }
  }

  /** Puts a written folder in the place of a name, whole. A crash in between is mended by `tidy`. */
  async put(name: string, fresh: string): Promise<void> {
    await this.#setAside(name);
    await rename(fresh, join(this.#root, name));
    await syncFolder(this.#root);
    await this.discard(join(this.#root, `${REPLACED}${name}`));
  }

  /** Removes the folder of a name, whole or not at all. */
  async remove(name: string): Promise<void> {
    await this.#setAside(name);
    // `tidy` would put the copy that an unfinished replacement left back under this name
    await rename(join(this.#root, `${REPLACED}${name}`), join(this.#root, this.#random.id(UNFINISHED))).catch(() => {});
    await syncFolder(this.#root).catch(() => {});
    await this.tidy();
  }

  /** Removes a folder that `write` gave. */
  async discard(fresh: string): Promise<void> {
    await rm(fresh, { recursive: true, force: true }).catch(() => {});
  }

  /** Removes what an interrupted installation left, and puts a skill back that it had set aside. Never throws. */
  async tidy(): Promise<void> {
    for (const entry of await readdir(this.#root).catch(() => [])) {
      const path = join(this.#root, entry);
      if (entry.startsWith(UNFINISHED)) await this.discard(path);
      if (!entry.startsWith(REPLACED)) continue;
      const place = join(this.#root, entry.slice(REPLACED.length));
      const isThere = await lstat(place).then(() => true, () => false);
      if (isThere) await this.discard(path);
      else await rename(path, place).catch(() => {});
    }
  }

  async #setAside(name: string): Promise<void> {
    const aside = join(this.#root, `${REPLACED}${name}`);
    await this.discard(aside);
    await rename(join(this.#root, name), aside).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error;
    });
  }
}
