import { lstat, realpath } from "node:fs/promises";
import { relative } from "node:path";
import process from "node:process";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { forbiddenNames, isWithin } from "../files/forbidden_paths.ts";
import { shown } from "../files/parse_path.ts";
import type { CallNote, CallNotes, LeftNote } from "./call_notes.ts";
import { type CommandLookup, SEARCH_PATH } from "./command_lookup.ts";
import { type ContainmentFinder, requireContainment, sandboxUnavailable } from "./containment.ts";
import { createLauncherFinder } from "./launcher.ts";
import { MARKER_VARIABLE } from "./leftover_processes.ts";
import type { CommandLine } from "./process_group.ts";
import type { ComposedCommand, ProcessRequest } from "./command_request.ts";
import type { Aftermath, Quarantine } from "./quarantine.ts";
import type { CommandResult } from "./run_command.ts";
import { contain, type ContainOptions, holdsSystem } from "./sandbox.ts";
import {
  type ArgumentScope,
  holdsSensitive,
  type NamedPlace,
  screenArguments,
  type ScreenOptions,
} from "./screen_arguments.ts";
import { type Survey, type SurveyRequest, type Surveys, UNFINISHED } from "./surveys.ts";

export interface PreparationOptions extends ScreenOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  /** The same at each start on one data directory and no other: what a killed gateway leaves is found by it. No secret */
  readonly marker: string;
  readonly containment: ContainmentFinder;
  readonly surveys: Surveys;
  readonly quarantine: Quarantine;
  readonly notes: CallNotes;
}

/** A request to `run` or to `start`. */
export type AnyRequest = ProcessRequest & { readonly composed?: ComposedCommand };

/** A command that may be started as it is. */
export interface PreparedCommand {
  readonly line: CommandLine;
  readonly contained: boolean;
  /** To be called once nothing of the command runs: moves protected names that appeared into quarantine. Never throws */
  after(): Promise<Aftermath>;
  /** To be called in place of `after` when nothing was started */
  drop(): Promise<void>;
}

/** Steps between a request and the start of its program: every check, and the sandbox. */
export interface Preparation {
  /** @throws {ToolError} as `Processes.screen` */
  screen(request: Pick<ProcessRequest, "words" | "scope" | "sandbox">): Promise<void>;
  /** @throws {ToolError} as `Processes.run` @throws {CancelError} when the request's signal aborts */
  prepare(request: AnyRequest): Promise<PreparedCommand>;
  /** Looks after the commands of a gateway that was killed, as `after` does, by the notes that it left. Never throws */
  afterKill(left: readonly LeftNote[]): Promise<Aftermath>;
}

/** Looks through a folder or at a file. @param secrets false: for protected names alone */
type SurveyOf = (root: string, secrets: boolean) => Promise<Survey>;

/** How a command is looked at: by surveys, and differently where it will be contained. */
interface Surveyed {
  readonly of: SurveyOf;
  readonly contained: boolean;
}

type LineRequest = Pick<AnyRequest, "words" | "scope" | "composed">;

/** A first look at 100,000 files takes a second, and ten where the machine is busy */
const SURVEY_TIMEOUT_MS = 20_000;
const NOT_SEARCHED = `could not be searched for credentials within ${SURVEY_TIMEOUT_MS / 1000} s`;
const TRY_AGAIN =
  'try again, since what was looked at is remembered; else give --workspace a smaller folder, or set [security.shell] sandbox = "off"';

/** All that a program gets to know: no variable of the gateway, and a home without configuration files or keys. */
const ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: SEARCH_PATH.join(":"),
  HOME: "/nonexistent",
  LANG: "C.UTF-8",
  TERM: "dumb",
};

export function createPreparation(options: PreparationOptions): Preparation {
  const { commands, clock, marker, containment, surveys, quarantine, notes } = options;
  const env = { ...ENVIRONMENT, [MARKER_VARIABLE]: marker };
  const launcher = createLauncherFinder({ commands, clock, env: ENVIRONMENT });

  /** The line behind what ends an uncontained command with the gateway. */
  const launched = async (line: CommandLine): Promise<CommandLine> => {
    const [file, ...prefix] = await launcher();
    return file === undefined ? line : { ...line, file, args: [...prefix, line.file, ...line.args] };
  };

  const lineOf = async ({ words, scope, composed }: LineRequest, surveyed: Surveyed): Promise<CommandLine> => {
    if (process.platform === "win32") {
      throw new ToolError("unsupported_platform", "Cannot run commands: they are not supported on Windows, use Linux");
    }
    const [command = "", ...args] = words;
    const file = await commands.find(command);
    if (file === undefined) {
      throw new ToolError(
        "command_not_found",
        `Cannot run ${JSON.stringify(command)}: no folder of the fixed search path has it`,
      );
    }
    if (composed === undefined) {
      const { places } = await screenArguments(args, scope, options);
      await screenPlaces(places, { scope, command, surveyed });
    }
    return { file, args, cwd: await realpath(scope.workspaceRoot), env: { ...env, ...composed?.env } };
  };

  /** Finds bubblewrap for a command; undefined where it runs without. @throws {ToolError} `sandbox_unavailable` */
  const bubblewrapFor = async (
    { sandbox, words: [command = ""] }: Pick<AnyRequest, "sandbox" | "words">,
    signal: AbortSignal,
  ): Promise<string | undefined> => {
    if (sandbox === "off") return undefined;
    const found = await unlessAborted(containment.find(), signal);
    requireContainment(command, sandbox, found);
    return found.kind === "bubblewrap" ? found.file : undefined;
  };

  const skippedIn = (scope: ArgumentScope): Promise<string[]> =>
    Promise.all(forbiddenNames(scope, options).map((path) => realpath(path).catch(() => path)));

  const surveyOf = (skip: readonly string[], signal: AbortSignal): SurveyOf => async (root, secrets) => {
    const { home, ownPaths } = options;
    const request: SurveyRequest = { root, skip, secrets, home, ownPaths, timeoutMs: SURVEY_TIMEOUT_MS };
    return await surveys.survey(request, signal);
  };

  /**
   * Refuses what an argument names and a name alone does not tell: a private key; and without a sandbox also a folder that holds
   * sensitive files, and a hard link of one. Inside the sandbox all of these are hidden.
   */
  const screenPlaces = async (
    places: readonly NamedPlace[],
    { scope, command, surveyed }: {
      readonly scope: ArgumentScope;
      readonly command: string;
      readonly surveyed: Surveyed;
    },
  ): Promise<void> => {
    if (scope.allowSensitive || surveyed.contained) return;
    const workspace = await realpath(scope.workspaceRoot);
    for (const { arg, path } of places) {
      if (path === workspace || await lstat(path).catch(() => undefined) === undefined) continue;
      // A hard link in the workspace is known by all of the workspace
      const survey = await surveyed.of(isWithin(path, workspace) ? workspace : path, true);
      const { finished, sensitive, unnamable } = survey;
      const first = sensitive.find((found) => isWithin(found, path));
      if (first !== undefined) {
        throw holdsSensitive(arg, isWithin(first, workspace) ? relative(workspace, first) : first);
      }
      requireNames(command, unnamable.filter((found) => isWithin(found, path)));
      if (!finished) throw sandboxUnavailable(command, `${shown(path)} ${NOT_SEARCHED}`, TRY_AGAIN);
    }
  };

  /** Compares the workspace with what was there before a command, and moves protected names that appeared into quarantine. */
  const lookAfter = async ({ workspace, skip, known: before }: CallNote): Promise<Aftermath> => {
    // The command may have been cancelled, not what comes after it
    const now = await surveyOf(skip, new AbortController().signal)(workspace, false).catch(() => UNFINISHED);
    const known = new Set(before);
    const appeared = now.guarded.filter(({ identity }) => !known.has(identity));
    // Names below another new name are left out: the move of the outer one takes them along
    const outer = appeared.filter(({ path }) => !appeared.some((one) => one.path !== path && isWithin(path, one.path)));
    return {
      quarantined: await quarantine.take(outer, workspace),
      unchecked: !now.finished || now.unnamable.length > 0,
    };
  };

  /** Notes a command until it was looked after: what it makes is found at the next start where this gateway is killed. */
  const watch = async (note: CallNote): Promise<Pick<PreparedCommand, "after" | "drop">> => {
    const drop = await notes.write(note);
    return { after: () => lookAfter(note).finally(() => drop().catch(() => {})), drop };
  };

  const requireRoom = async (command: string): Promise<void> => {
    if (!await quarantine.isFull()) return;
    throw new ToolError(
      "quarantine_full",
      `Cannot run ${
        JSON.stringify(command)
      }: ${quarantine.folder} holds as much as it may; a person must look at it and remove it`,
    );
  };

  const contained = async (
    line: CommandLine,
    request: AnyRequest,
    options: Partial<ContainOptions>,
  ): Promise<CommandLine> => {
    const { composed, scope: { workspaceRoot }, words: [command = ""] } = request;
    const inside = await contain(line, {
      bubblewrap: "",
      hidden: [],
      ...options,
      workspaceRoot,
      network: composed?.network ?? false,
      readOnly: composed?.writes === false,
    });
    if (inside === undefined) throw uncontainable(command);
    return inside;
  };

  return {
    async screen(request) {
      const { signal } = new AbortController();
      const bubblewrap = await bubblewrapFor(request, signal);
      const of = surveyOf(await skippedIn(request.scope), signal);
      await lineOf(request, { of, contained: bubblewrap !== undefined });
    },
    async prepare(request) {
      const { scope, composed, signal, words: [command = ""] } = request;
      const bubblewrap = await bubblewrapFor(request, signal);
      const skip = await skippedIn(scope);
      const of = surveyOf(skip, signal);
      const line = await lineOf(request, { of, contained: bubblewrap !== undefined });
      if (composed !== undefined) {
        return bubblewrap === undefined
          ? { line: await launched(line), contained: false, ...unwatched(false) }
          : { line: await contained(line, request, { bubblewrap }), contained: true, ...unwatched(false) };
      }
      await requireRoom(command);
      const workspace = line.cwd;
      if (bubblewrap !== undefined && holdsSystem(workspace)) throw uncontainable(command);
      const before = await of(workspace, bubblewrap !== undefined && !scope.allowSensitive);
      const note: CallNote = { workspace, skip, known: before.guarded.map(({ identity }) => identity) };
      if (bubblewrap === undefined) {
        const free = await launched(line);
        return { line: free, contained: false, ...before.finished ? await watch(note) : unwatched(true) };
      }
      requireNames(command, before.unnamable);
      if (!before.finished) throw sandboxUnavailable(command, `the workspace ${NOT_SEARCHED}`, TRY_AGAIN);
      const inside = await contained(line, request, {
        bubblewrap,
        hidden: [...forbiddenNames(scope, options), ...before.sensitive],
        guarded: before.guarded.map(({ path }) => path),
      });
      return { line: inside, contained: true, ...await watch(note) };
    },
    async afterKill(left) {
      const found: Aftermath[] = [];
      for (const { note, remove } of left) {
        found.push(note === undefined ? { quarantined: [], unchecked: true } : await lookAfter(note));
        await remove().catch(() => {});
      }
      return {
        quarantined: found.flatMap(({ quarantined }) => quarantined),
        unchecked: found.some(({ unchecked }) => unchecked),
      };
    },
  };
}

/** The end of a command that nobody looks after. @param unchecked false: it makes no name that is to be looked for */
function unwatched(unchecked: boolean): Pick<PreparedCommand, "after" | "drop"> {
  return { after: () => Promise.resolve({ quarantined: [], unchecked }), drop: () => Promise.resolve() };
}

/** Refuses a result that is bubblewrap's own: it could not contain the command, which never ran. @throws {ToolError} */
export function requireStarted([command = ""]: readonly string[], { ending, stdout, stderr }: CommandResult): void {
  if (ending.kind !== "exit" || ending.code !== 1 || stdout.bytes > 0 || !stderr.text.startsWith("bwrap: ")) return;
  const wayOut = 'try again, or accept uncontained commands with [security.shell] sandbox = "off"';
  throw sandboxUnavailable(command, `the sandbox did not start it (${stderr.text.trim()})`, wayOut);
}

/** @throws {ToolError} `sandbox_unavailable` where something has a name that no check and no mount can reach */
function requireNames(command: string, [first]: readonly string[]): void {
  if (first === undefined) return;
  throw sandboxUnavailable(
    command,
    `the name of ${shown(first)} is not UTF-8, so that nothing could hide credentials in it`,
    "rename it, or move it out of the workspace",
  );
}

function uncontainable(command: string): ToolError {
  const wayOut = 'give --workspace a folder of your own, or set [security.shell] sandbox = "off"';
  return sandboxUnavailable(command, "the workspace holds the system's own folders, so no sandbox contains it", wayOut);
}

/** Waits for work that others wait for too. @throws {CancelError} when the signal aborts first; the work goes on */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) throw cancelError(signal);
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(cancelError(signal));
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
