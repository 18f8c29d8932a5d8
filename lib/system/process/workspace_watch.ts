import { existsSync } from "node:fs";
import { realpath } from "node:fs/promises";
import { dirname, relative } from "node:path";
import { unlessAborted } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import type { Clock } from "../../base/clock.ts";
import type { Taint } from "../../base/taint.ts";
import { forbiddenNames, isWithin } from "../files/forbidden_paths.ts";
import { shown } from "../files/parse_path.ts";
import { readConfigCopies } from "../git/config_copy.ts";
import type { CallNote, CallNotes, LeftNote } from "./call_notes.ts";
import { type SandboxSection, sandboxUnavailable } from "./containment.ts";
import { CoverWatch } from "./cover_watch.ts";
import type { Aftermath, Quarantine } from "./quarantine.ts";
import type { WorkspaceCovers } from "./sandbox.ts";
import type { ArgumentScope, ScreenOptions } from "./screen_arguments.ts";
import { unlessGone } from "./remembered_folders.ts";
import { nameIdentity, type Survey, type Surveys, UNFINISHED } from "./surveys.ts";

/** Services and places that watching a workspace needs. */
export interface WorkspaceWatchOptions extends ScreenOptions {
  readonly surveys: Pick<Surveys, "survey">;
  readonly quarantine: Quarantine;
  readonly notes: CallNotes;
  readonly clock: Pick<Clock, "every">;
  /** Receives the files that a program with taint has written. Default: nobody does */
  readonly onTainted?: ((written: TaintedWrites) => Promise<void>) | undefined;
}

/** Files that changed while a program with taint ran. */
export interface TaintedWrites {
  /** Absolute. The workspace itself where nobody could tell which */
  readonly paths: readonly string[];
  readonly taint: Taint;
  /** Real, absolute path of the workspace */
  readonly workspace: string;
}

/** Looks through a folder, or at one file. @param secrets false: looks for protected names alone, which is five times as fast */
export type SurveyOf = (root: string, secrets: boolean) => Promise<Survey>;

/** Steps after a program that could write to the workspace. */
export interface AfterProgram {
  /** Moves protected names that appeared into quarantine. Called once nothing of the program writes any more. Never throws */
  after(): Promise<Aftermath>;
  /** Removes the note of the program. Called in place of `after` when nothing was started */
  drop(): Promise<void>;
}

/** Milliseconds for one survey. The first of 100,000 files takes 1 s, and 10 s on a busy machine; later ones remember what they saw */
const SURVEY_TIMEOUT_MS = 20_000;

/**
 * Checks of the workspace around a program: what it must not see, and what it has made. Looks at nothing by itself.
 */
export class WorkspaceWatch {
  readonly #options: WorkspaceWatchOptions;
  /** Notes of the contained programs that run */
  readonly #running = new Set<CallNote>();
  /** Ends of the git processes that began while no contained program ran, with their workspaces */
  readonly #gits = new Map<Promise<void>, string>();

  constructor(options: WorkspaceWatchOptions) {
    this.#options = options;
  }

  /** Returns the real paths of forbidden places: no program may see them, so no survey looks there. */
  skippedIn(scope: ArgumentScope): Promise<string[]> {
    return Promise.all(forbiddenNames(scope, this.#options).map((path) => realpath(path).catch(() => path)));
  }

  /** Returns the survey of folders. @param changedSince as in SurveyRequest. The survey throws a CancelError when the signal aborts */
  surveyOf(skip: readonly string[], signal: AbortSignal, changedSince?: number): SurveyOf {
    const { home, ownPaths, surveys } = this.#options;
    return async (root, secrets) =>
      await surveys.survey({ root, skip, secrets, home, ownPaths, timeoutMs: SURVEY_TIMEOUT_MS, changedSince }, signal);
  }

  /** Returns what a sandbox hides, shows as a copy and makes read-only, the sockets that are there, and the watch, by a finished survey. */
  async coversOf(
    { sensitive, guarded, gitConfigs, sockets }: Survey,
    scope: ArgumentScope,
  ): Promise<Required<WorkspaceCovers>> {
    const [copies, workspace] = await Promise.all([readConfigCopies(gitConfigs), realpath(scope.workspaceRoot)]);
    const forbidden = forbiddenNames(scope, this.#options);
    const found = sensitive.filter((path) => !copies.has(path));
    // A forbidden name that is not there is no cover. What the survey found may have gone for a moment, while an editor saves it
    const hidden = [...forbidden.filter((path) => existsSync(path)), ...found];
    return {
      hidden: [...forbidden, ...found],
      sockets,
      copies,
      guarded: guarded.map(({ path }) => path),
      watchCovers: (onLost) =>
        new CoverWatch({ workspace, hidden, copied: [...copies.keys()] }, this.#options.clock, onLost),
    };
  }

  /** Refuses a program when the quarantine is full: what it makes could not be moved there. @throws {ToolError} `quarantine_full` */
  async requireRoom(title: string): Promise<void> {
    const { quarantine } = this.#options;
    if (!await quarantine.isFull()) return;
    throw new ToolError(
      "quarantine_full",
      `Cannot run ${
        JSON.stringify(title)
      }: ${quarantine.folder} holds as much as it may; a person must look at it and remove it`,
    );
  }

  /**
   * Counts a contained program as one that runs until the returned function is called, for `requireSettled` and `isRaced`. Waits for git
   * processes that began before it: they would follow a link that it made in the place of a folder. @throws {CancelError}
   */
  async runs(note: CallNote, signal: AbortSignal): Promise<() => void> {
    // Two programs may have one note
    const own = { ...note };
    // The program is counted before the wait: a git process that begins from here on sees it, and follows no link
    this.#running.add(own);
    const end = () => void this.#running.delete(own);
    const gits = [...this.#gits].filter(([, workspace]) => areNested(workspace, note.workspace));
    try {
      await unlessAborted(Promise.all(gits.map(([ended]) => ended)), signal);
      return end;
    } catch (error) {
      end();
      throw error;
    }
  }

  /** Counts a git process that follows links as one that runs until the returned function is called. @param workspace real path */
  gitRuns(workspace: string): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#gits.set(promise, workspace);
    return () => {
      this.#gits.delete(promise);
      resolve();
    };
  }

  /**
   * Writes the note of a program. Where this gateway is killed before `after`, the next start finds it (`afterKill`).
   * @param contained given for a program in a sandbox, which finds read-only what is guarded. Its signal ends the wait that `runs` has
   */
  async watch(note: CallNote, contained?: { readonly signal: AbortSignal }): Promise<AfterProgram> {
    const end = contained === undefined ? () => {} : await this.runs(note, contained.signal);
    const drop = await this.#options.notes.write(note).catch((error: unknown) => {
      end();
      throw error;
    });
    return {
      after: () => this.#lookAfter(note).finally(() => drop().catch(() => {}).then(end)),
      drop: () => drop().finally(end),
    };
  }

  /** Tells whether a contained program runs that may write to a workspace. @param workspace real path */
  isRaced(workspace: string): boolean {
    return [...this.#running].some((note) => areNested(note.workspace, workspace));
  }

  /**
   * Refuses git folders that were not there when a contained program began that still runs: it could exchange them, and their configuration,
   * at any moment. An uncontained one could do that to all of them. @throws {ToolError} `git_unsettled`
   */
  requireSettled(gitPlaces: readonly string[]): void {
    for (const { workspace, skip, known, within = [workspace] } of this.#running) {
      const places = gitPlaces.filter((path) =>
        within.some((part) => isWithin(path, part)) && !skip.some((one) => isWithin(path, one))
      );
      const strange = places.find((path) => !isKnown(path, workspace, new Set(known)));
      if (strange === undefined) continue;
      const name = shown(relative(workspace, strange));
      // A submodule that is not checked out
      const isThere = unlessGone(() => nameIdentity(strange)) !== undefined;
      throw new ToolError(
        "git_unsettled",
        isThere
          ? `Cannot run git: ${name} appeared while a program runs that may write there, and could change what git ` +
            `does; end the program (process_tool shows commands; that of a plugin or an MCP server ends by itself), and take the ` +
            `repository back from ${this.#options.quarantine.folder}, where it is moved then, if it is yours`
          : `Cannot run git: ${name} is not there, a program runs that may make it, and git would look into it; end ` +
            `the program (process_tool shows commands; that of a plugin or an MCP server ends by itself), or check the submodule out first`,
      );
    }
  }

  /** Looks after the programs of a gateway that was killed, as `after` does, by the notes that it left. Never throws */
  async afterKill(left: readonly LeftNote[]): Promise<Aftermath> {
    const found: Aftermath[] = [];
    for (const { note, remove } of left) {
      // A damaged note: nobody knows what was there before its program
      found.push(note === undefined ? { quarantined: [], unchecked: true } : await this.#lookAfter(note));
      await remove().catch(() => {});
    }
    return {
      quarantined: found.flatMap(({ quarantined }) => quarantined),
      unchecked: found.some(({ unchecked }) => unchecked),
    };
  }

  /** Compares the workspace with what was there before a program, and moves protected names that appeared into quarantine. */
  async #lookAfter(
    { workspace, skip, known: before, changes, guards = true, within = [workspace] }: CallNote,
  ): Promise<Aftermath> {
    // No signal: the program may have been cancelled, and what it made must be found all the same
    const survey = this.surveyOf(skip, new AbortController().signal, changes?.since);
    const now = await survey(workspace, false).catch(() => UNFINISHED);
    let isMarked = true;
    if (changes !== undefined) {
      const paths = now.finished ? now.changed : [workspace];
      isMarked = await this.#tell({ paths, taint: changes.taint, workspace });
    }
    if (!guards) return { quarantined: [], unchecked: !isMarked };
    const known = new Set(before);
    const appeared = now.guarded.filter(({ path, identity, isLed }) =>
      !known.has(identity) && isLed !== true && within.some((part) => isWithin(path, part))
    );
    // Names below another new name are left out: the move of the outer one takes them along
    const outer = appeared.filter(({ path }) => !appeared.some((one) => one.path !== path && isWithin(path, one.path)));
    return {
      quarantined: await this.#options.quarantine.take(outer, workspace),
      unchecked: !isMarked || !now.finished || now.unnamable.length > 0,
    };
  }

  async #tell(written: TaintedWrites): Promise<boolean> {
    try {
      await this.#options.onTainted?.(written);
      return true;
    } catch {
      return false;
    }
  }
}

/** Tells whether one of two paths lies in the other, or both are the same. */
export function areNested(one: string, other: string): boolean {
  return isWithin(one, other) || isWithin(other, one);
}

/** Tells whether a path, or a folder above it, has one of these identities. */
function isKnown(path: string, workspace: string, known: ReadonlySet<string>): boolean {
  for (let place = path; place !== workspace && isWithin(place, workspace); place = dirname(place)) {
    const identity = unlessGone(() => nameIdentity(place));
    if (identity !== undefined && known.has(identity)) return true;
  }
  return false;
}

/** Milliseconds that the clock of a file system may be behind */
export const CLOCK_STEP_MS = 20;

/** Returns the part of a note by which all that changes from now on is marked. */
export function changesFrom(clock: Pick<Clock, "now">, taint: Taint): NonNullable<CallNote["changes"]> {
  return { since: clock.now() - CLOCK_STEP_MS, taint: [...taint] };
}

/** Returns the end of a program without a survey after it. @param unchecked true: it may have made protected names that nobody found */
export function unwatched(unchecked: boolean): AfterProgram {
  return { after: () => Promise.resolve({ quarantined: [], unchecked }), drop: () => Promise.resolve() };
}

/**
 * Refuses a program where a survey did not see everything, or saw a name that no check and no mount can reach.
 * @param place what was surveyed, such as `the workspace`
 * @throws {ToolError} `sandbox_unavailable`
 */
export function requireSurveyed(
  title: string,
  { finished, unnamable: [first] }: Pick<Survey, "finished" | "unnamable">,
  { place, section }: { readonly place: string; readonly section?: SandboxSection },
): void {
  if (first !== undefined) {
    throw sandboxUnavailable(
      title,
      `the name of ${shown(first)} is not UTF-8, so that nothing could hide credentials in it`,
      "rename it, or move it out of the workspace",
    );
  }
  if (finished) return;
  throw sandboxUnavailable(
    title,
    `${place} could not be searched for credentials within ${SURVEY_TIMEOUT_MS / 1000} s`,
    `try again, since what was looked at is remembered; else give --workspace a smaller folder, or set ${
      section ?? "[security.shell]"
    } sandbox = "off"`,
  );
}

/** Returns the refusal of a workspace that no sandbox contains. */
export function uncontainable(title: string, section: SandboxSection = "[security.shell]"): ToolError {
  const wayOut = `give --workspace a folder of your own, or set ${section} sandbox = "off"`;
  return sandboxUnavailable(title, "the workspace holds the system's own folders, so no sandbox contains it", wayOut);
}
