import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { createKeyedMutex } from "../../base/keyed_queues.ts";
import { Poller } from "../../base/poller.ts";
import type { Random } from "../../base/random.ts";
import type { Actor } from "../../base/records/caller.ts";
import { UNTAINTED } from "../../base/taint.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { listSome } from "../../base/text.ts";
import type { Config } from "../../config/config.ts";
import { type ExtensionPlaces, skillFolders } from "../../config/folders.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { TrustedDocuments } from "../../guard/trusted_documents.ts";
import type { Documents } from "../../storage/documents.ts";
import type { Store } from "../../storage/store.ts";
import type { ReadableSkills, SkillText } from "../../tools/skills/skills.ts";
import { offerSkills } from "./offer_skills.ts";
import { readSkill, SKILL_NAME, SkillFolderError, textOfFile, type WholeSkill } from "./read_skill.ts";
import { type KnownSkill, SkillCatalogue } from "./skill_catalogue.ts";
import { extensionChanged, ExtensionError, extensionNotFound } from "../extension_error.ts";
import type { FetchSkillServices } from "./fetch_skill.ts";
import { createSkillIndex } from "./skill_index.ts";
import type { SkillDetail, SkillInfo, SkillTest } from "../../base/records/extension_views.ts";
import { reasonOff, textOfSkill, toSkillDetail, toSkillInfo } from "./skill_info.ts";
import { type InstallSource, SkillInstaller } from "./skill_installer.ts";
import { SkillRecords } from "./skill_record.ts";
import { testSkill } from "./test_skill.ts";
import { toToolPatterns } from "./tool_patterns.ts";

/** Places that decide where skills are looked for. */
export interface SkillPlaces extends ExtensionPlaces {
  /** The newest configuration. */
  readonly config: () => Pick<Config, "skills">;
}

/** Skills as a system prompt has them. */
export interface SkillOffer {
  /** Part of the system prompt that names them; empty: none is offered */
  readonly prompt: string;
  /** Tells whether the agent can read any, offered or not */
  readonly isAny: boolean;
}

/** Skills that could be read, and sentences about those that could not. */
export interface SkillList {
  readonly skills: readonly SkillInfo[];
  readonly problems: readonly string[];
}

/** Options of `Skills`. */
export interface SkillsOptions extends SkillPlaces, Omit<FetchSkillServices, "config"> {
  /** The newest configuration. */
  readonly config: () => Pick<Config, "skills" | "url_access">;
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly audit: AuditAppend;
  readonly documents: Pick<Documents, "get" | "set">;
  readonly trustedDocuments: TrustedDocuments;
}

/** How often the skills of the workspace are looked at. */
const WATCH_MS = 1_000;
/** Time between two looks at the workspace, as a multiple of the time that one took. */
const REST = 20;
/** Skills, or files of one, that a sentence names. */
const MAX_LISTED = 100;
/** Age of a look that is new enough for a run that begins. */
const LOOK_MS = 1_000;

/** The skills of one gateway (docs/design/skills.md "Skills"). */
export class Skills implements ReadableSkills {
  readonly #options: SkillsOptions;
  readonly #installer: SkillInstaller;
  readonly #catalogue: SkillCatalogue;
  readonly #mutex = createKeyedMutex();
  readonly #watch = new Poller(() => this.#lookAtWorkspace());
  /** Monotonic time of the next look at the workspace, in ms */
  #watchesFrom = -Infinity;
  /** Monotonic time of the last look, in ms */
  #lookedAt = -Infinity;
  #offer: SkillOffer = { prompt: "", isAny: false };

  constructor(options: SkillsOptions) {
    const { trustedDocuments, documents } = options;
    const records = new SkillRecords(options);
    this.#options = options;
    this.#installer = new SkillInstaller({ ...options, records });
    this.#catalogue = new SkillCatalogue({
      ...options,
      folders: () => skillFolders(options.config().skills.dirs, options),
      index: createSkillIndex(documents),
      records,
      trusted: trustedDocuments,
    });
  }

  /** Looks at the folders of skills, and watches those of the workspace. */
  static async open(options: SkillsOptions): Promise<Skills> {
    const skills = new Skills(options);
    await skills.#start();
    return skills;
  }

  async #start(): Promise<void> {
    await this.#installer.tidy();
    await this.#alone(() => this.#look());
    this.#watch.start(this.#options.clock, WATCH_MS);
  }

  /** Returns what a run that begins now is told of. Looks at the folders where the last look is older than LOOK_MS. */
  async offer(): Promise<SkillOffer> {
    if (this.#options.clock.monotonic() - this.#lookedAt >= LOOK_MS) await this.#alone(() => this.#look());
    return this.#offer;
  }

  /** Looks at all folders, and returns the skills by name. */
  async list(): Promise<SkillList> {
    await this.#alone(() => this.#look());
    return { skills: this.#catalogue.known.map(toSkillInfo), problems: this.#catalogue.problems };
  }

  /** Returns a skill with its text and its changes. @throws {ExtensionError} `skill_not_found`, `skill_invalid` */
  async show(name: string): Promise<SkillDetail> {
    await this.#alone(() => this.#look());
    const known = this.#find(name);
    const whole = await this.#readWhole(known);
    const text = textOfSkill(whole);
    const { folder, digest } = whole.skill;
    const trust = await this.#options.trustedDocuments.examine({ kind: "skill", path: folder, digest, text });
    return toSkillDetail({ ...known, found: whole.skill }, text, trust);
  }

  /** Checks a skill strictly. @throws {ExtensionError} `skill_not_found`, `skill_invalid` */
  async test(name: string, tools: readonly string[]): Promise<SkillTest> {
    await this.#alone(() => this.#look());
    const { found, hides } = this.#find(name);
    return testSkill(await this.#readWhole({ found }), { tools, hides });
  }

  async read(name: string, path: string = SKILL_NAME): Promise<SkillText> {
    const known = this.#catalogue.find(name);
    if (known === undefined) throw this.#unknown(name);
    const reason = reasonOff(known);
    if (reason !== null) throw new ToolError("skill_off", `Cannot read the skill "${known.found.name}": ${reason}`);
    // Read one skill at a time: each may have 32 MiB
    const whole = await this.#mutex("read", () => this.#readWhole(known)).catch((cause: ExtensionError) => {
      throw new ToolError("skill_changed", cause.message, { cause });
    });
    if (whole.skill.digest !== known.found.digest || whole.skill.layer !== known.found.layer) {
      await this.#alone(() => this.#look());
      const now = this.#catalogue.find(name);
      const way = now?.state === "on" ? "call skill_read again" : (now && reasonOff(now)) ?? "it is gone";
      throw new ToolError(
        "skill_changed",
        `Cannot read the skill "${known.found.name}": its files just changed; ${way}`,
      );
    }
    return toText(whole, path);
  }

  /**
   * Trusts exactly this content.
   * @throws {ExtensionError} `skill_not_found`, `skill_changed` for another digest, `skill_conflict` for a skill that breaks the format; {HttpError} 409
   * where another content was trusted since `before`
   */
  trust(
    name: string,
    { digest, before, by }: {
      readonly digest: string;
      readonly before?: string | null | undefined;
      readonly by: Actor;
    },
  ): Promise<SkillInfo> {
    return this.#alone(async () => {
      await this.#look();
      const known = this.#find(name);
      const whole = await this.#readWhole(known);
      const { folder: path, digest: found } = whole.skill;
      if (found !== digest) throw extensionChanged("skill", name, { asked: digest, found });
      if (whole.document === undefined) {
        throw new ExtensionError(
          "skill_conflict",
          `Cannot trust "${name}": ${reasonOff({ ...known, state: "unusable" })}`,
        );
      }
      const text = textOfSkill(whole);
      await this.#options.trustedDocuments.trust({ kind: "skill", path, digest, text }, { by, before });
      await this.#look();
      return toSkillInfo(this.#find(name));
    });
  }

  /** Takes the trust back. @throws {ExtensionError} `skill_not_found`, `skill_conflict` where there is none */
  untrust(name: string, { by }: { readonly by: Actor }): Promise<SkillInfo> {
    return this.#alone(async () => {
      await this.#look();
      const { found } = this.#find(name);
      if (!await this.#options.trustedDocuments.untrust(found.folder, { by })) {
        throw new ExtensionError("skill_conflict", `Cannot take trust from "${name}": nobody gave it any`);
      }
      await this.#look();
      return toSkillInfo(this.#find(name));
    });
  }

  /**
   * Installs a skill, in place of the installed one of its name.
   * @throws {ExtensionError} `skill_invalid`, `skill_too_large`, `skill_source_failed`, `skill_conflict`; {CancelError} when the signal aborts
   */
  async install(
    given: InstallSource,
    { name, by, signal }: { readonly name: string; readonly by: Actor; readonly signal: AbortSignal },
  ): Promise<SkillInfo> {
    const taken = await this.#installer.take(given, name, signal);
    return await this.#alone(async () => {
      await this.#installer.install(name, taken, by);
      await this.#look();
      return toSkillInfo(this.#find(name));
    });
  }

  /** Removes a skill of `{data_dir}/skills`. @throws {ExtensionError} `skill_not_found`, `skill_conflict` for one of another folder */
  remove(name: string, { by }: { readonly by: Actor }): Promise<void> {
    return this.#alone(async () => {
      await this.#look();
      const { dataDir } = await this.#catalogue.grounds();
      await this.#installer.remove(name, { known: this.#catalogue.find(name), dataDir, by });
      await this.#look();
    });
  }

  /** Ends the watch. */
  async close(): Promise<void> {
    await this.#watch.stop();
    await this.#alone(() => Promise.resolve());
  }

  async #look(): Promise<void> {
    await this.#catalogue.look();
    this.#lookedAt = this.#options.clock.monotonic();
    const on = this.#catalogue.known.filter(({ state }) => state === "on");
    const offered = on.flatMap(({ found: { name, document } }) =>
      document?.isOffered === true ? [{ name, description: document.description }] : []
    );
    this.#offer = { prompt: offerSkills(offered), isAny: on.length > 0 };
  }

  async #lookAtWorkspace(): Promise<void> {
    const { clock } = this.#options;
    const begun = clock.monotonic();
    if (begun < this.#watchesFrom) return;
    try {
      if (await this.#catalogue.hasChanged(({ layer }) => layer === "workspace")) {
        await this.#alone(() => this.#look());
      }
    } catch (error) {
      this.#options.log.error("The skills of the workspace cannot be read", { error });
    } finally {
      // Whoever fills a workspace with files does not keep the gateway busy with them
      this.#watchesFrom = begun + REST * (clock.monotonic() - begun);
    }
  }

  #find(name: string): KnownSkill {
    const known = this.#catalogue.find(name);
    if (known === undefined) throw extensionNotFound("skill", name);
    return known;
  }

  /** Reads a known skill again. @throws {ExtensionError} `skill_not_found`, `skill_invalid` */
  async #readWhole({ found }: Pick<KnownSkill, "found">): Promise<WholeSkill> {
    const { name, folder, layer, shownAs } = found;
    try {
      const whole = await readSkill(folder, { ...await this.#catalogue.grounds(), layer, shownAs });
      if (whole !== undefined) return whole;
    } catch (cause) {
      if (!(cause instanceof SkillFolderError)) throw cause;
      throw new ExtensionError("skill_invalid", `Cannot read the skill "${name}": ${cause.message}`, { cause });
    }
    throw extensionNotFound("skill", name);
  }

  #unknown(name: string): ToolError {
    const names = this.#catalogue.known.filter(({ state }) => state === "on").map(({ found }) => found.name);
    const shown = listSome(names, MAX_LISTED) || "none";
    const message = `Cannot read the skill ${
      JSON.stringify(name.slice(0, 64))
    }: there is no such skill; the skills are ${shown}`;
    return new ToolError("skill_not_found", message);
  }

  /** Does one change after the other. */
  #alone<T>(work: () => Promise<T>): Promise<T> {
    return this.#mutex("skills", work);
  }
}

function toText({ skill, document, contents }: WholeSkill, path: string): SkillText {
  const { name, layer } = skill;
  const wanted = path.replace(/^\.\//, "");
  const bytes = contents.get(wanted);
  const files = [...contents.keys()].filter((file) => file !== SKILL_NAME);
  const where = `Cannot read ${JSON.stringify(path.slice(0, 200))} of the skill "${name}"`;
  if (bytes === undefined || document === undefined) {
    throw new ToolError("skill_file", `${where}: its files are ${listSome([SKILL_NAME, ...files], MAX_LISTED)}`);
  }
  const text = wanted === SKILL_NAME ? document.body : textOfFile(bytes);
  if (text === undefined) throw new ToolError("skill_file", `${where}: it is no text`);
  return {
    ...{ name, path: wanted, text, files },
    compatibility: document.compatibility,
    disallowedTools: toToolPatterns(document.disallowedTools),
    taint: layer === "workspace" ? [`skill ${name} of the workspace`] : UNTAINTED,
  };
}
