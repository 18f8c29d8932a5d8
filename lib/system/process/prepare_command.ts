import { lstat, realpath } from "node:fs/promises";
import { relative } from "node:path";
import process from "node:process";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { forbiddenNames, isWithin } from "../files/forbidden_paths.ts";
import { shown } from "../files/parse_path.ts";
import { readConfigCopies } from "../git/config_copy.ts";
import type { CallNote, CallNotes, LeftNote } from "./call_notes.ts";
import { type CommandLookup, SEARCH_PATH } from "./command_lookup.ts";
import { type ContainmentFinder, requireContainment, sandboxUnavailable } from "./containment.ts";
import { type CommandResult, type ComposedCommand, createLauncherFinder, type ProcessRequest } from "./run_command.ts";
import { MARKER_VARIABLE } from "./leftover_processes.ts";
import type { CommandLine } from "./process_group.ts";
import type { Aftermath, Quarantine } from "./quarantine.ts";
import { contain, type ContainOptions, holdsSystem } from "./sandbox.ts";
import {
  type ArgumentScope,
  holdsSensitive,
  type NamedPlace,
  screenArguments,
  type ScreenOptions,
} from "./screen_arguments.ts";
import { type Survey, type Surveys, UNFINISHED } from "./surveys.ts";

/** Services that preparing a command needs. */
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

/** Creates the preparation of commands. Nothing is started before the first command is prepared. */
export function createPreparation(options: PreparationOptions): Preparation {
  return new CommandPreparation(options);
}

class CommandPreparation implements Preparation {
  readonly #options: PreparationOptions;
  readonly #launcher: () => Promise<readonly string[]>;

  constructor(options: PreparationOptions) {
    this.#options = options;
    this.#launcher = createLauncherFinder({ commands: options.commands, clock: options.clock, env: ENVIRONMENT });
  }

  async screen(request: Pick<ProcessRequest, "words" | "scope" | "sandbox">): Promise<void> {
    const { signal } = new AbortController();
    const bubblewrap = await this.#bubblewrapFor(request, signal);
    const of = this.#surveyOf(await this.#skippedIn(request.scope), signal);
    await this.#lineOf(request, { of, contained: bubblewrap !== undefined });
  }

  async prepare(request: AnyRequest): Promise<PreparedCommand> {
    const { scope, composed, signal } = request;
    const bubblewrap = await this.#bubblewrapFor(request, signal);
    const skip = await this.#skippedIn(scope);
    const of = this.#surveyOf(skip, signal);
    const line = await this.#lineOf(request, { of, contained: bubblewrap !== undefined });
    if (composed === undefined) return await this.#prepareScreened(line, request, { bubblewrap, skip, of });
    return bubblewrap === undefined
      ? { line: await this.#launched(line), contained: false, ...unwatched(false) }
      : { line: await contained(line, request, { bubblewrap }), contained: true, ...unwatched(false) };
  }

  async afterKill(left: readonly LeftNote[]): Promise<Aftermath> {
    const found: Aftermath[] = [];
    for (const { note, remove } of left) {
      found.push(note === undefined ? { quarantined: [], unchecked: true } : await this.#lookAfter(note));
      await remove().catch(() => {});
    }
    return {
      quarantined: found.flatMap(({ quarantined }) => quarantined),
      unchecked: found.some(({ unchecked }) => unchecked),
    };
  }

  /** Prepares a command of the model: the workspace is surveyed before it, and looked at again after it. */
  async #prepareScreened(
    line: CommandLine,
    request: AnyRequest,
    { bubblewrap, skip, of }: {
      readonly bubblewrap: string | undefined;
      readonly skip: string[];
      readonly of: SurveyOf;
    },
  ): Promise<PreparedCommand> {
    const { scope, words: [command = ""] } = request;
    await requireRoom(command, this.#options.quarantine);
    const workspace = line.cwd;
    if (bubblewrap !== undefined && holdsSystem(workspace)) throw uncontainable(command);
    const before = await of(workspace, bubblewrap !== undefined && !scope.allowSensitive);
    const note: CallNote = { workspace, skip, known: before.guarded.map(({ identity }) => identity) };
    if (bubblewrap === undefined) {
      const free = await this.#launched(line);
      return { line: free, contained: false, ...before.finished ? await this.#watch(note) : unwatched(true) };
    }
    requireNames(command, before.unnamable);
    if (!before.finished) throw sandboxUnavailable(command, `the workspace ${NOT_SEARCHED}`, TRY_AGAIN);
    const copies = await readConfigCopies(before.gitConfigs);
    const inside = await contained(line, request, {
      bubblewrap,
      hidden: [...forbiddenNames(scope, this.#options), ...before.sensitive.filter((path) => !copies.has(path))],
      copies,
      guarded: before.guarded.map(({ path }) => path),
    });
    return { line: inside, contained: true, ...await this.#watch(note) };
  }

  /** Returns the line of a command that was checked. @throws {ToolError} as `Processes.screen` */
  async #lineOf({ words, scope, composed }: LineRequest, surveyed: Surveyed): Promise<CommandLine> {
    if (process.platform === "win32") {
      throw new ToolError("unsupported_platform", "Cannot run commands: they are not supported on Windows, use Linux");
    }
    const [command = "", ...args] = words;
    const { commands, marker } = this.#options;
    const file = await commands.find(command);
    if (file === undefined) {
      throw new ToolError(
        "command_not_found",
        `Cannot run ${JSON.stringify(command)}: no folder of the fixed search path has it`,
      );
    }
    if (composed === undefined) {
      const { places } = await screenArguments(args, scope, this.#options);
      await screenPlaces(places, { scope, command, surveyed });
    }
    const env = { ...ENVIRONMENT, [MARKER_VARIABLE]: marker, ...composed?.env };
    return { file, args, cwd: await realpath(scope.workspaceRoot), env };
  }

  /** Returns the line behind the program that ends an uncontained command with the gateway. */
  async #launched(line: CommandLine): Promise<CommandLine> {
    const [file, ...prefix] = await this.#launcher();
    return file === undefined ? line : { ...line, file, args: [...prefix, line.file, ...line.args] };
  }

  /** Finds bubblewrap for a command; undefined where it runs without. @throws {ToolError} `sandbox_unavailable` */
  async #bubblewrapFor(
    { sandbox, words: [command = ""] }: Pick<AnyRequest, "sandbox" | "words">,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    if (sandbox === "off") return undefined;
    const found = await unlessAborted(this.#options.containment.find(), signal);
    requireContainment(command, sandbox, found);
    return found.kind === "bubblewrap" ? found.file : undefined;
  }

  #skippedIn(scope: ArgumentScope): Promise<string[]> {
    return Promise.all(forbiddenNames(scope, this.#options).map((path) => realpath(path).catch(() => path)));
  }

  #surveyOf(skip: readonly string[], signal: AbortSignal): SurveyOf {
    const { home, ownPaths, surveys } = this.#options;
    return async (root, secrets) =>
      await surveys.survey({ root, skip, secrets, home, ownPaths, timeoutMs: SURVEY_TIMEOUT_MS }, signal);
  }

  /** Notes a command until it was looked after: what it makes is found at the next start where this gateway is killed. */
  async #watch(note: CallNote): Promise<Pick<PreparedCommand, "after" | "drop">> {
    const drop = await this.#options.notes.write(note);
    return { after: () => this.#lookAfter(note).finally(() => drop().catch(() => {})), drop };
  }

  /** Compares the workspace with what was there before a command, and moves protected names that appeared into quarantine. */
  async #lookAfter({ workspace, skip, known: before }: CallNote): Promise<Aftermath> {
    // The command may have been cancelled, not what comes after it
    const survey = this.#surveyOf(skip, new AbortController().signal);
    const now = await survey(workspace, false).catch(() => UNFINISHED);
    const known = new Set(before);
    const appeared = now.guarded.filter(({ identity }) => !known.has(identity));
    // Names below another new name are left out: the move of the outer one takes them along
    const outer = appeared.filter(({ path }) => !appeared.some((one) => one.path !== path && isWithin(path, one.path)));
    return {
      quarantined: await this.#options.quarantine.take(outer, workspace),
      unchecked: !now.finished || now.unnamable.length > 0,
    };
  }
}

/**
 * Refuses what an argument names and a name alone does not tell: a private key; and without a sandbox also a folder that holds
 * sensitive files, and a hard link of one. Inside the sandbox all of these are hidden.
 */
async function screenPlaces(
  places: readonly NamedPlace[],
  { scope, command, surveyed }: {
    readonly scope: ArgumentScope;
    readonly command: string;
    readonly surveyed: Surveyed;
  },
): Promise<void> {
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
}

async function requireRoom(command: string, quarantine: Quarantine): Promise<void> {
  if (!await quarantine.isFull()) return;
  throw new ToolError(
    "quarantine_full",
    `Cannot run ${
      JSON.stringify(command)
    }: ${quarantine.folder} holds as much as it may; a person must look at it and remove it`,
  );
}

async function contained(
  line: CommandLine,
  request: AnyRequest,
  options: Partial<ContainOptions>,
): Promise<CommandLine> {
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
