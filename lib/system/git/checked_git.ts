import { lstat, realpath } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { withoutEffectRight } from "../../base/effect_right.ts";
import { ToolError } from "../../base/errors.ts";
import { fileError } from "../files/file_error.ts";
import { loadForbiddenBy } from "../files/forbidden_paths.ts";
import type { Processes } from "../process/processes.ts";
import type { ScreenOptions } from "../process/screen_arguments.ts";
import { type ConfigEntry, parseConfigEntries } from "./config_entries.ts";
import { configOverrides, type Override } from "./config_overrides.ts";
import { findRepository, findSubmodules, type RepositoryPlace } from "./find_repository.ts";
import { freezePlace, type FrozenPlaces } from "./frozen_places.ts";
import type { Git, GitResult, OpenOptions, Repository, SubmoduleLook } from "./git.ts";
import { type GitCommand, gitEnvironment, runGit } from "./git_process.ts";
import { openRepository } from "./open_repository.ts";

/** The first with `http.curloptResolve`, which holds a connection to the addresses that were checked */
const MIN_VERSION = [2, 37] as const;
/** Time limit of commands that only look. */
const TIMEOUT_MS = 20_000;
const MAX_LIST_BYTES = 1_048_576;
const MAX_INDEX_BYTES = 33_554_432;
/** Checked-out submodules, at all depths */
const MAX_SUBMODULES = 32;

/** Services that git needs. */
export interface GitOptions extends ScreenOptions {
  readonly processes: Pick<Processes, "run">;
}

/** Findings of the check of a repository. */
interface Checked {
  readonly frozen: FrozenPlaces;
  readonly overrides: readonly Override[];
}

/** Git for tools. Nothing is run before the first call. */
export class CheckedGit implements Git {
  readonly #options: GitOptions;
  /** The check of git's version, which all calls wait for together */
  #checking: Promise<void> | undefined;

  constructor(options: GitOptions) {
    this.#options = options;
  }

  async open(opened: OpenOptions): Promise<Repository> {
    await this.#requireVersion(opened);
    const { folder, scope, files, reads } = opened;
    const failing = (error: unknown) => {
      throw fileError("run git in", folder, error);
    };
    const forbiddenBy = await loadForbiddenBy(scope, this.#options);
    const place = await findRepository(folder, scope.workspaceRoot, { files, reads, forbiddenBy }).catch(failing);
    const frozen = await freezePlace(place).catch(failing);
    const entries = await this.#listConfig(place, frozen, opened);
    const overrides = configOverrides(entries, { use: opened.use, ...place });
    const all = await this.#withLook(place, { frozen, overrides }, opened);
    const userEntries = opened.writes ? await this.#listUserConfig(opened) : [];
    return await openRepository({ ...this.#options, place, entries, ...all, userEntries, opened });
  }

  /** Checks the submodules where the call needs it. One that cannot be looked into keeps nobody from reading the rest. */
  async #withLook(
    place: RepositoryPlace,
    checked: Checked,
    opened: OpenOptions,
  ): Promise<Checked & { readonly submodules: SubmoduleLook }> {
    const isWanted = opened.use.submodules === true;
    const none = { ...checked, submodules: { isAllowed: false, reason: undefined } } as const;
    if (!opened.writes && !(isWanted && await hasSubmodules(place))) return none;
    try {
      const { absent, ...all } = await this.#withSubmodules(place, checked, opened);
      if (opened.writes) return { ...all, submodules: isWanted ? { isAllowed: true } : none.submodules };
      const [first] = absent;
      if (first === undefined) return { ...all, submodules: { isAllowed: true } };
      const name = JSON.stringify(relative(place.top, dirname(first)));
      return { ...none, submodules: { isAllowed: false, reason: `${name} is not checked out` } };
    } catch (error) {
      if (opened.writes || !(error instanceof ToolError)) throw error;
      return { ...none, submodules: { isAllowed: false, reason: error.message.replace(/^Cannot run git: /, "") } };
    }
  }

  async #requireVersion(opened: OpenOptions): Promise<void> {
    const checking = this.#checking ??= withoutEffectRight(() => this.#checkVersion(opened));
    try {
      await checking;
    } catch (error) {
      // The check may have failed by chance, so the next call checks git again
      if (this.#checking === checking) this.#checking = undefined;
      throw error;
    }
  }

  async #checkVersion(opened: OpenOptions): Promise<void> {
    // Several calls wait for this one check, so the end of one call must not end it
    const asked = { ...opened, signal: new AbortController().signal };
    const { stdout } = await this.#look(asked, { args: ["version"], env: {} });
    const [major = 0, minor = 0] = (/(\d+)\.(\d+)/.exec(stdout) ?? []).slice(1).map(Number);
    if (major > MIN_VERSION[0] || (major === MIN_VERSION[0] && minor >= MIN_VERSION[1])) return;
    throw new ToolError(
      "git_too_old",
      `Cannot run git: ${JSON.stringify(stdout.trim())} is older than ${MIN_VERSION.join(".")}; install a newer one`,
    );
  }

  async #listConfig(
    place: RepositoryPlace,
    frozen: FrozenPlaces,
    opened: OpenOptions,
  ): Promise<readonly ConfigEntry[]> {
    const args = ["config", "--list", "--no-includes", "--show-origin", "-z"];
    const env = gitEnvironment({ ...place, overrides: [], writes: false });
    // Overrides would be listed as if the repository set them
    const { GIT_CONFIG_COUNT: _count, ...plain } = env;
    return toEntries(await this.#look(opened, { args, env: plain, frozen }));
  }

  /** Reads the user's configuration for all repositories. Programs that it names are the user's own. */
  async #listUserConfig(opened: OpenOptions): Promise<readonly ConfigEntry[]> {
    const args = ["config", "--list", "--includes", "--show-origin", "-z"];
    const env = { HOME: this.#options.home, GIT_DIR: "/nonexistent" };
    return toEntries(await this.#look(opened, { args, env, sandbox: "off" }));
  }

  /**
   * Returns what was checked of a repository with that of every submodule, at all depths. Where git would look into one that is not checked
   * out, no program may run that could put one there.
   */
  async #withSubmodules(
    top: RepositoryPlace,
    checked: Checked,
    opened: OpenOptions,
  ): Promise<Checked & { readonly absent: readonly string[] }> {
    let { frozen, overrides } = checked;
    const { found, missing } = await this.#submodulesOf(top, checked, opened);
    const places = [...found];
    const absent = [...missing];
    for (const place of places) {
      if (places.length > MAX_SUBMODULES) {
        throw new ToolError("git_too_large", `Cannot run git: it has more than ${MAX_SUBMODULES} submodules`);
      }
      frozen = await freezePlace(place, frozen);
      const entries = await this.#listConfig(place, frozen, opened);
      overrides = [...overrides, ...configOverrides(entries, { use: opened.use, ...place })];
      const below = await this.#submodulesOf(place, { frozen, overrides }, opened);
      places.push(...below.found);
      absent.push(...below.missing);
    }
    if (opened.use.submodules === true) frozen = { ...frozen, gitPlaces: [...frozen.gitPlaces, ...absent] };
    return { frozen, overrides, absent };
  }

  /** Git looks into a checked-out submodule by starting itself there, with the same variables. */
  async #submodulesOf(place: RepositoryPlace, { frozen, overrides }: Checked, opened: OpenOptions) {
    const env = gitEnvironment({ ...place, overrides, writes: false });
    const args = ["-C", place.top, "ls-files", "--stage", "-z"];
    const listed = await this.#look(opened, { args, env, frozen }, MAX_INDEX_BYTES);
    if (listed.code !== 0) throw failed(listed);
    if (listed.truncated) throw new ToolError("git_too_large", "Cannot run git: the repository has too many files");
    return await findSubmodules(place.top, listed.stdout, await realpath(opened.scope.workspaceRoot));
  }

  /** Runs a command that changes nothing. */
  #look(
    { scope, signal }: OpenOptions,
    call: Pick<GitCommand, "args" | "env" | "sandbox" | "frozen">,
    maxOutputBytes = MAX_LIST_BYTES,
  ): Promise<GitResult> {
    return runGit(this.#options.processes, { ...call, scope, signal, timeoutMs: TIMEOUT_MS, maxOutputBytes });
  }
}

/** Tells whether a repository says that it has submodules. One that it does not speak of is not looked into. */
async function hasSubmodules({ top }: RepositoryPlace): Promise<boolean> {
  return await lstat(join(top, ".gitmodules")).then(() => true, () => false);
}

function toEntries(listed: GitResult): readonly ConfigEntry[] {
  if (listed.code !== 0) throw failed(listed);
  if (listed.truncated) throw new ToolError("git_config_refused", "Cannot run git: the configuration is too large");
  return parseConfigEntries(listed.stdout);
}

function failed({ stderr }: GitResult): ToolError {
  return new ToolError("git_failed", `Cannot run git: ${stderr.trim() || "it failed without a message"}`);
}
