import { join } from "node:path";
import type { Random } from "../../base/random.ts";
import type { Actor } from "../../base/records/caller.ts";
import type { TrustedDocuments } from "../../guard/trusted_documents.ts";
import type { PackageFile } from "../package_folder.ts";
import type { FetchSkillServices } from "./fetch_skill.ts";
import { skillDigest } from "./read_skill.ts";
import type { KnownSkill } from "./skill_catalogue.ts";
import { ExtensionError, extensionNotFound } from "../extension_error.ts";
import { SkillFiles } from "./skill_files.ts";
import type { SkillRecords, SkillSource } from "./skill_record.ts";

/** Source of a skill: a packed folder or archive with the place that it came from, or the URL of a git repository. */
export type InstallSource =
  | { readonly kind: "folder" | "archive"; readonly bytes: Uint8Array; readonly from: string }
  | { readonly kind: "git"; readonly url: string };

/** Files of a skill that were taken from its source and checked. Nothing of it is installed yet. */
export interface TakenSkill {
  readonly files: readonly PackageFile[];
  readonly source: SkillSource;
}

/** Options of `SkillInstaller`. */
export interface SkillInstallerOptions extends FetchSkillServices {
  readonly dataDir: string;
  readonly random: Random;
  readonly records: SkillRecords;
  readonly trustedDocuments: Pick<TrustedDocuments, "untrust">;
}

/** Installs and removes the skills of `{data_dir}/skills`. Installations and removals must come one after the other. */
export class SkillInstaller {
  readonly #options: SkillInstallerOptions;
  readonly #files: SkillFiles;

  constructor(options: SkillInstallerOptions) {
    const { dataDir, random } = options;
    this.#options = options;
    this.#files = new SkillFiles({ root: join(dataDir, "skills"), random });
  }

  /** Removes what an interrupted installation left. Never throws. */
  async tidy(): Promise<void> {
    await this.#files.tidy();
  }

  /**
   * Takes a skill from its source, checked. Other changes may go on meanwhile.
   * @throws {ExtensionError} `skill_invalid`, `skill_too_large`, `skill_source_failed`; {CancelError} when the signal aborts
   */
  async take(given: InstallSource, name: string, signal: AbortSignal): Promise<TakenSkill> {
    if (given.kind === "git") {
      const { fetchSkill } = await import("./fetch_skill.ts");
      const { files, commit } = await fetchSkill(given.url, { name, signal }, this.#options);
      return { files, source: { kind: "git", from: given.url, commit } };
    }
    const { skillFromArchive } = await import("./skill_sources.ts");
    const files = await skillFromArchive(given.bytes, name);
    return { files, source: { kind: given.kind, from: given.from, commit: null } };
  }

  /** Installs a skill, in place of the installed one of its name. @throws {ExtensionError} `skill_conflict` when the disk refuses */
  async install(name: string, { files, source }: TakenSkill, by: Actor): Promise<void> {
    const { records } = this.#options;
    const fresh = await this.#files.write(files);
    try {
      const digest = skillDigest(new Map(files.map(({ path, bytes }) => [path, bytes])));
      const isUpdate = (await records.read()).has(name);
      // The record comes first: a crash in between leaves a skill that is off, and none that nobody recorded
      await records.keep({ name, digest, source }, { by, isUpdate });
      await this.#files.put(name, fresh);
    } catch (error) {
      await this.#files.discard(fresh);
      throw error;
    }
  }

  /**
   * Removes a skill, its record and the trust in it.
   * @param options.known skill that counts under this name; undefined: none does
   * @param options.dataDir real path of the data directory
   * @throws {ExtensionError} `skill_not_found`, `skill_conflict` for a skill of another folder
   */
  async remove(
    name: string,
    { known, dataDir, by }: {
      readonly known: KnownSkill | undefined;
      readonly dataDir: string;
      readonly by: Actor;
    },
  ): Promise<void> {
    const { records, trustedDocuments } = this.#options;
    const record = (await records.read()).get(name);
    const folder = join(dataDir, "skills", name);
    if (record === undefined && known?.found.folder !== folder) {
      if (known === undefined) throw extensionNotFound("skill", name);
      const reason = `it lies in "${known.found.folder}"; delete that folder`;
      throw new ExtensionError("skill_conflict", `Cannot remove "${name}": ${reason}`);
    }
    await records.drop(name, { record, digest: record?.digest ?? known?.found.digest ?? "", by });
    await this.#files.remove(name);
    await trustedDocuments.untrust(folder, { by });
  }
}
