import { lstat, realpath } from "node:fs/promises";
import { relative } from "node:path";
import process from "node:process";
import { unlessAborted } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { UNTAINTED } from "../../base/taint.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import { shown } from "../files/parse_path.ts";
import type { Bounds } from "./bounds.ts";
import type { CallNote, LeftNote } from "./call_notes.ts";
import { type CommandLookup, SEARCH_PATH } from "./command_lookup.ts";
import type { CommandRelay, CommandRelays } from "./command_relay.ts";
import { type Bubblewrap, type ContainmentFinder, requireContainment } from "./containment.ts";
import type { ComposedCommand, Launcher, ProcessRequest } from "./run_command.ts";
import { MARKER_VARIABLE } from "./leftover_processes.ts";
import type { CommandLine } from "./process_group.ts";
import type { Aftermath } from "./quarantine.ts";
import { contain, type ContainOptions, holdsSystem, type WorkspaceCovers } from "./sandbox.ts";
import {
  type ArgumentScope,
  holdsSensitive,
  type NamedPlace,
  screenArguments,
  type ScreenOptions,
} from "./screen_arguments.ts";
import {
  type AfterProgram,
  changesFrom,
  requireSurveyed,
  type SurveyOf,
  uncontainable,
  unwatched,
  type WorkspaceWatch,
} from "./workspace_watch.ts";

/**
 * The way of a command from the request of a tool to the line that the system starts. processes.ts calls `prepare`, starts the line,
 * and calls `after` once nothing of the command runs.
 *
 * A command of the model is prepared in this order:
 * 1. Containment: is there bubblewrap, and may the command run without it?
 * 2. The line: find the program in the fixed search path, and screen the arguments for paths that they may not name.
 * 3. A survey of the workspace: which files hold credentials, and which protected names (`.git`, `.postern`, plugins) are there?
 * 4. Contained: the sandbox hides the credentials, shows scrubbed copies of `.git/config` and makes the protected names read-only. A
 *    filter refuses system calls that no command needs, Unix sockets among them.
 *    Uncontained: a launcher ends the command when the gateway is killed.
 * 5. With `network = "allowlist"`: a relay on a socket of the command's own, which the sandbox shows. It ends with the command.
 * 6. A note on disk of the protected names that were there, for the case that the gateway is killed.
 * 7. `after`: a second survey. Protected names that are new, such as a `.git` with hooks, are moved into quarantine. The files that a
 *    command with taint has written are told to whoever marks them.
 *
 * A command that Postern itself composed (git) takes steps 1, 2 and 4 alone, and 7 where it has taint: it names nothing that needs
 * screening, and makes no protected name.
 */

/** Services that preparing a command needs. */
export interface PreparationOptions extends ScreenOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  /** The same at each start on one data directory and no other: what a killed gateway leaves is found by it. No secret */
  readonly marker: string;
  readonly containment: ContainmentFinder;
  /** Program that ends an uncontained command with the gateway */
  readonly launcher: Launcher;
  readonly watch: WorkspaceWatch;
  readonly relays: CommandRelays;
}

/** A request to `run` or to `start`. */
export type AnyRequest = ProcessRequest & { readonly composed?: ComposedCommand };

/** A command that may be started as it is. */
export interface PreparedCommand extends AfterProgram {
  readonly line: CommandLine;
  readonly contained: boolean;
  /** Bounds that it runs in. Undefined: none */
  readonly bounds?: Bounds | undefined;
  /** Way to the network of a command with `network = "allowlist"`; `after` and `drop` close it */
  readonly relay?: CommandRelay | undefined;
}

/** Survey that screening uses for the places that arguments name. A contained command needs none: the sandbox hides credentials. */
interface Screening {
  readonly survey: SurveyOf;
  readonly contained: boolean;
}

type Changes = Pick<CallNote, "changes">;
type LineRequest = Pick<AnyRequest, "words" | "line" | "scope" | "composed">;

/** The whole environment of a program: no variable of the gateway, and a home without configuration files or keys. */
export const ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: SEARCH_PATH.join(":"),
  HOME: "/nonexistent",
  LANG: "C.UTF-8",
  TERM: "dumb",
};

/**
 * Steps between a request and the start of its program: every check, and the sandbox.
 * Nothing is started before the first command is prepared.
 */
export class Preparation {
  readonly #options: PreparationOptions;

  constructor(options: PreparationOptions) {
    this.#options = options;
  }

  /** Makes the checks of steps 1 and 2 and prepares nothing. @throws {ToolError} as `Processes.screen` */
  async screen(request: Pick<ProcessRequest, "words" | "line" | "scope" | "sandbox" | "network">): Promise<void> {
    // Nobody cancels a screening: its waits have time limits of their own
    const { signal } = new AbortController();
    const bubblewrap = await this.#bubblewrapFor(request, signal);
    const { watch } = this.#options;
    const survey = watch.surveyOf(await watch.skippedIn(request.scope), signal);
    await this.#lineOf(request, { survey, contained: bubblewrap !== undefined });
  }

  /** Makes a request ready to be started. @throws {ToolError} as `Processes.run` @throws {CancelError} when the request's signal aborts */
  async prepare(request: AnyRequest): Promise<PreparedCommand> {
    const { scope, composed, signal } = request;
    const bubblewrap = await this.#bubblewrapFor(request, signal);
    const { watch } = this.#options;
    const skip = await watch.skippedIn(scope);
    const survey = watch.surveyOf(skip, signal);
    const line = await this.#lineOf(request, { survey, contained: bubblewrap !== undefined });
    if (composed === undefined) return await this.#prepareScreened(line, request, { bubblewrap, skip, survey });
    const isRaced = watch.isRaced(line.cwd);
    const { reads = [] } = composed;
    if (reads.length > 0 && isRaced) throw unsettledOutside(reads);
    // Programs that begin from here on wait for git. Those that run already make it follow no link
    const ended = composed.gitPlaces === undefined || isRaced ? () => {} : watch.gitRuns(line.cwd);
    try {
      watch.requireSettled(composed.gitPlaces ?? []);
      const inside = bubblewrap === undefined ? await this.#launched(line) : await containedLine(line, request, {
        bubblewrap,
        covers: { hidden: [], copies: composed.copies },
        shown: reads,
        isRaced,
        isGit: composed.gitPlaces !== undefined,
      });
      const changes = composed.writes === false ? {} : this.#changesOf(request);
      const held = { contained: bubblewrap !== undefined, bounds: bubblewrap?.bounds };
      const { after, drop } = await this.#watchChanges(line.cwd, skip, changes);
      return { line: inside, ...held, after: () => after().finally(ended), drop: () => drop().finally(ended) };
    } catch (error) {
      ended();
      throw error;
    }
  }

  /** Looks after the commands of a gateway that was killed, as `after` does, by the notes that it left. Never throws */
  afterKill(left: readonly LeftNote[]): Promise<Aftermath> {
    return this.#options.watch.afterKill(left);
  }

  /**
   * Prepares a command of the model. Contained, it starts only after a finished survey, since what the survey did not find stays
   * visible. Uncontained, nothing is hidden anyway: an unfinished survey only means that nobody can tell later what appeared.
   */
  async #prepareScreened(
    line: CommandLine,
    request: AnyRequest,
    { bubblewrap, skip, survey }: {
      readonly bubblewrap: Bubblewrap | undefined;
      readonly skip: string[];
      readonly survey: SurveyOf;
    },
  ): Promise<PreparedCommand> {
    const { scope, words: [command = ""] } = request;
    const { watch } = this.#options;
    await watch.requireRoom(command);
    const workspace = line.cwd;
    // Before the survey, which would look through the whole system
    if (bubblewrap !== undefined && holdsSystem(workspace)) throw uncontainable(command);
    const before = await survey(workspace, bubblewrap !== undefined && !scope.allowSensitive);
    const changes = this.#changesOf(request);
    const note: CallNote = { workspace, skip, known: before.guarded.map(({ identity }) => identity), ...changes };
    if (bubblewrap === undefined) {
      const launched = await this.#launched(line);
      if (before.finished) return { line: launched, contained: false, ...await watch.watch(note) };
      const { after, drop } = await this.#watchChanges(workspace, skip, changes);
      return {
        line: launched,
        contained: false,
        after: async () => ({ ...await after(), unchecked: true }),
        drop,
      };
    }
    requireSurveyed(command, before, { place: "the workspace" });
    const options = { bubblewrap, covers: await watch.coversOf(before, scope), isRaced: watch.isRaced(workspace) };
    const relay = request.network === "allowlist" ? await this.#options.relays.open(command) : undefined;
    try {
      const inside = await containedLine(line, request, { ...options, relay });
      const held = { contained: true, bounds: bubblewrap.bounds };
      return withRelay({ line: inside, ...held, ...await watch.watch(note, request) }, relay);
    } catch (error) {
      await relay?.close();
      throw error;
    }
  }

  /** Returns the part of a note that says what a command with taint writes. */
  #changesOf({ taint = UNTAINTED }: Pick<AnyRequest, "taint">): Changes {
    if (taint.length === 0) return {};
    return { changes: changesFrom(this.#options.clock, taint) };
  }

  /** Watches a command for the files that it writes alone, where it has taint. */
  async #watchChanges(workspace: string, skip: string[], changes: Changes): Promise<AfterProgram> {
    if (changes.changes === undefined) return unwatched(false);
    return await this.#options.watch.watch({ workspace, skip, known: [], guards: false, ...changes });
  }

  /** Returns the line of a command that was checked. @throws {ToolError} as `Processes.screen` */
  async #lineOf({ words, line, scope, composed }: LineRequest, screening: Screening): Promise<CommandLine> {
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
      for (const { args: named, folders } of line ?? [{ args, folders: undefined }]) {
        const { places } = await screenArguments(named, scope, { ...this.#options, folders });
        await screenPlaces(places, { scope, command, screening });
      }
    }
    const env = { ...ENVIRONMENT, [MARKER_VARIABLE]: marker, ...composed?.env };
    const given = composed?.given === undefined ? [] : [composed.given];
    return { file, args, cwd: await realpath(scope.workspaceRoot), env, given };
  }

  /** Returns the line behind the program that ends an uncontained command with the gateway. */
  async #launched(line: CommandLine): Promise<CommandLine> {
    const [file, ...prefix] = await this.#options.launcher();
    return file === undefined ? line : { ...line, file, args: [...prefix, line.file, ...line.args] };
  }

  /** Finds bubblewrap for a command; undefined where it runs without. @throws {ToolError} `sandbox_unavailable` */
  async #bubblewrapFor(
    { sandbox, network, line, composed, words: [command = ""] }: Pick<
      AnyRequest,
      "sandbox" | "network" | "line" | "composed" | "words"
    >,
    signal: AbortSignal,
  ): Promise<Bubblewrap | undefined> {
    const found = sandbox === "off" ? undefined : await unlessAborted(this.#options.containment.find(), signal);
    // A composed command has a network of its own
    requireContainment(command, {
      sandbox,
      network: composed === undefined ? network : "none",
      syntax: line === undefined ? "plain" : "contained",
    }, found);
    return found?.kind === "bubblewrap" ? found : undefined;
  }
}

/**
 * Refuses arguments whose names are harmless and whose places hold credentials: a private key, a folder with sensitive files, a hard
 * link of a sensitive file. For uncontained commands alone, since the sandbox hides all of these.
 */
async function screenPlaces(
  places: readonly NamedPlace[],
  { scope, command, screening }: {
    readonly scope: ArgumentScope;
    readonly command: string;
    readonly screening: Screening;
  },
): Promise<void> {
  if (scope.allowSensitive || screening.contained) return;
  const workspace = await realpath(scope.workspaceRoot);
  for (const { arg, path } of places) {
    if (path === workspace || await lstat(path).catch(() => undefined) === undefined) continue;
    // Only a survey of the whole workspace tells that a file in it is a hard link of a sensitive one
    const survey = await screening.survey(isWithin(path, workspace) ? workspace : path, true);
    const { finished, sensitive, unnamable } = survey;
    const first = sensitive.find((found) => isWithin(found, path));
    if (first !== undefined) {
      throw holdsSensitive(arg, isWithin(first, workspace) ? relative(workspace, first) : first);
    }
    const inside = unnamable.filter((found) => isWithin(found, path));
    requireSurveyed(command, { finished, unnamable: inside }, { place: shown(path) });
  }
}

/** Returns the refusal of git on a repository outside the workspace while a program could lead it elsewhere. */
function unsettledOutside(reads: readonly string[]): ToolError {
  return new ToolError(
    "git_unsettled",
    `Cannot run git: its repository ${
      shown(reads[0] ?? "")
    } lies outside the workspace, and a program runs that may write to the ` +
      "workspace; end the program (process_tool shows commands; that of a plugin or an MCP server ends by itself)",
  );
}

/** Returns the line inside the sandbox. A command of the model may write to the workspace, and has no network but its relay. */
async function containedLine(
  line: CommandLine,
  request: AnyRequest,
  { covers, ...options }: Omit<ContainOptions, "workspace"> & { readonly covers: WorkspaceCovers },
): Promise<CommandLine> {
  const { composed, scope: { workspaceRoot }, words: [command = ""], localSockets } = request;
  const inside = await contain(line, {
    ...options,
    localSockets,
    network: composed?.network ?? false,
    workspace: { ...covers, root: workspaceRoot, writes: composed?.writes },
  });
  if (inside === undefined) throw uncontainable(command);
  return inside;
}

/** Returns a command that closes its relay with whatever ends it. */
function withRelay(prepared: PreparedCommand, relay: CommandRelay | undefined): PreparedCommand {
  if (relay === undefined) return prepared;
  const { after, drop } = prepared;
  return {
    ...prepared,
    relay,
    after: () => relay.close().then(after),
    drop: () => relay.close().then(drop),
  };
}
