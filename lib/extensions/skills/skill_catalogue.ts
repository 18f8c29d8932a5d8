import { realpath } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "../../base/telemetry/log.ts";
import type { SkillFolder } from "../../config/folders.ts";
import type { TrustedDocuments } from "../../guard/trusted_documents.ts";
import type { SkillState } from "../../base/records/extension_views.ts";
import { findSkills, type SkillGrounds, type SkillIndex, type SkillsOfFolder, stampOfSkills } from "./find_skills.ts";
import type { FoundSkill } from "./read_skill.ts";
import type { SkillRecord, SkillRecords } from "./skill_record.ts";

/** Skill that counts, with its state. */
export interface KnownSkill {
  readonly found: FoundSkill;
  readonly state: SkillState;
  /** Record of the skill in `{data_dir}/skills`. Undefined where nobody installed it through Postern */
  readonly record: SkillRecord | undefined;
  /** Folders of skills with the same name that it hides, for people */
  readonly hides: readonly string[];
}

/** Services that the catalogue works with. */
export interface SkillCatalogueOptions {
  /** Returns the folders, the first to count first */
  readonly folders: () => readonly SkillFolder[];
  /** Absolute path of the folder that the agent works in */
  readonly workspaceRoot: string;
  /** Absolute path of the data directory */
  readonly dataDir: string;
  readonly index: SkillIndex;
  readonly records: SkillRecords;
  readonly trusted: Pick<TrustedDocuments, "examine" | "isTrusted">;
  readonly log: Logger;
}

/** The skills of one gateway as they were at the last look. */
export class SkillCatalogue {
  readonly #options: SkillCatalogueOptions;
  /** Stamps at the last look, by the path of the folder */
  readonly #stamps = new Map<string, string>();
  readonly #ofFolders = new Map<string, SkillsOfFolder>();
  #known: readonly KnownSkill[] = [];
  #problems: readonly string[] = [];

  constructor(options: SkillCatalogueOptions) {
    this.#options = options;
  }

  /** Skills that count, by name. */
  get known(): readonly KnownSkill[] {
    return this.#known;
  }

  /** Sentences about folders and skills that could not be read. */
  get problems(): readonly string[] {
    return this.#problems;
  }

  /** Returns the skill of this name that counts. */
  find(name: string): KnownSkill | undefined {
    const wanted = name.normalize("NFKC");
    const named = (text: string) => this.#known.find(({ found }) => found.name === text);
    return named(wanted) ?? named(wanted.toLowerCase());
  }

  /** Returns real paths that decide whose a skill is. */
  async grounds(): Promise<SkillGrounds> {
    const { workspaceRoot, dataDir } = this.#options;
    const real = (path: string) => realpath(path).catch(() => path);
    return { workspace: await real(workspaceRoot), dataDir: await real(dataDir) };
  }

  /** Tells whether a folder is another than at the last look. @param isLooked the folders that count. Default: all */
  async hasChanged(isLooked: (folder: SkillFolder) => boolean = () => true): Promise<boolean> {
    const grounds = await this.grounds();
    for (const folder of this.#options.folders().filter(isLooked)) {
      if (await stampOfSkills(folder, grounds) !== this.#stamps.get(folder.path)) return true;
    }
    return false;
  }

  /** Looks at all folders, and reads those that changed. */
  async look(): Promise<void> {
    const grounds = await this.grounds();
    const folders = this.#options.folders();
    for (const folder of folders) {
      const stamp = await stampOfSkills(folder, grounds);
      if (this.#stamps.get(folder.path) === stamp && this.#ofFolders.has(folder.path)) continue;
      this.#ofFolders.set(folder.path, await findSkills(folder, { ...grounds, index: this.#options.index }));
      this.#stamps.set(folder.path, stamp);
    }
    await this.#settle(folders);
  }

  async #settle(folders: readonly SkillFolder[]): Promise<void> {
    const records = await this.#options.records.read();
    const ofFolders = folders.flatMap(({ path }) => this.#ofFolders.get(path) ?? []);
    const byName = new Map<string, FoundSkill[]>();
    // A skill that a link leads to from the user's folder to the workspace comes after the user's own
    const all = ofFolders.flatMap(({ skills }) => skills);
    const sorted = [...all.filter(isOfPerson), ...all.filter((skill) => !isOfPerson(skill))];
    for (const skill of sorted) byName.set(skill.name, [...byName.get(skill.name) ?? [], skill]);
    const known: KnownSkill[] = [];
    for (const [found, ...others] of byName.values()) {
      if (found === undefined) continue;
      const hides = others.filter(({ folder }) => folder !== found.folder).map(({ shownAs }) => shownAs);
      known.push(await this.#toKnown(found, { records, hides }));
    }
    this.#tellChanges(known);
    this.#known = known.sort((a, b) => (a.found.name < b.found.name ? -1 : 1));
    const gone = [...records.values()].filter(({ name }) => !known.some(({ record }) => record?.name === name));
    const missing = gone.map(({ name, source }) =>
      `The skill "${name}" was installed from ${source.from || "somewhere"} and its files are gone: install it again`
    );
    this.#tellProblems([...ofFolders.flatMap(({ problems }) => problems), ...missing]);
  }

  async #toKnown(
    found: FoundSkill,
    { records, hides }: { readonly records: ReadonlyMap<string, SkillRecord>; readonly hides: readonly string[] },
  ): Promise<KnownSkill> {
    const { trusted, dataDir } = this.#options;
    const { folder, digest, layer, document } = found;
    const installed = await realpath(join(dataDir, "skills", found.name)).catch(() => undefined);
    const record = installed === folder ? records.get(found.name) : undefined;
    if (document === undefined) return { found, state: "unusable", record, hides };
    if (await trusted.isTrusted({ path: folder, digest })) return { found, state: "on", record, hides };
    if (layer === "workspace") {
      const { state } = await trusted.examine({ kind: "skill", path: folder, digest, text: "" });
      return { found, state: state === "changed" ? "changed" : "untrusted", record, hides };
    }
    return { found, state: record === undefined || record.digest === digest ? "on" : "changed", record, hides };
  }

  /** Logs skills that were on and are off now because their content changed. */
  #tellChanges(known: readonly KnownSkill[]): void {
    for (const { found, state } of known) {
      const before = this.find(found.name);
      if (state !== "changed" || before?.state !== "on") continue;
      const { name, folder, digest } = found;
      this.#options.log.warn("A skill has changed and is off until it is trusted again", {
        skill: name,
        folder,
        digest,
      });
    }
    for (const { found, hides } of known) {
      const before = this.find(found.name);
      if (hides.length === 0 || before?.hides.join() === hides.join()) continue;
      const { name, shownAs } = found;
      this.#options.log.warn("A skill hides others with its name", { skill: name, folder: shownAs, hidden: hides });
    }
  }

  #tellProblems(problems: readonly string[]): void {
    for (const problem of problems) if (!this.#problems.includes(problem)) this.#options.log.warn(problem);
    this.#problems = problems;
  }
}

function isOfPerson({ layer }: FoundSkill): boolean {
  return layer !== "workspace";
}
