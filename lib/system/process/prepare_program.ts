import { createHash } from "node:crypto";
import { lstat, mkdir, mkdtemp, realpath, rm, stat } from "node:fs/promises";
import { dirname, isAbsolute, join, relative } from "node:path";
import process from "node:process";
import type { Readable, Writable } from "node:stream";
import { unlessAborted } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { Taint } from "../../base/taint.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import { shown } from "../files/parse_path.ts";
import type { RelayProblem } from "../net/relay.ts";
import type { AllowedHosts } from "../net/url_rules.ts";
import type { CallNote } from "./call_notes.ts";
import type { CommandLookup } from "./command_lookup.ts";
import type { CommandRelay, CommandRelays } from "./command_relay.ts";
import {
  type Bubblewrap,
  type ContainmentFinder,
  requireContainment,
  type SandboxMode,
  type SandboxSection,
  sandboxUnavailable,
} from "./containment.ts";
import { killRestOf, MARKER_VARIABLE, temporaryFolder, temporaryName } from "./leftover_processes.ts";
import type { Launcher } from "./run_command.ts";
import { type CommandLine, type ProgramEnd, startGroup } from "./process_group.ts";
import { contain, holdsSystem, type SeenWorkspace } from "./sandbox.ts";
import type { ArgumentScope } from "./screen_arguments.ts";
import {
  type AfterProgram,
  areNested,
  changesFrom,
  requireSurveyed,
  uncontainable,
  unwatched,
  type WorkspaceWatch,
} from "./workspace_watch.ts";

/** Program that a person has installed, as a plugin's: no word of a model is among its arguments, so that nothing of it is screened. */
export interface InstalledProgram {
  /** Absolute path, the bare name of a program in the fixed search path, or that of the runtime: `node` on Node, `deno` on Deno */
  readonly file: string;
  readonly args: readonly string[];
  /** Absolute path of the folder that it starts in and may read */
  readonly folder: string;
  /** Absolute paths of further files and folders that it needs to read. Default: the system's alone */
  readonly shown?: readonly string[];
  /** Variables beside the fixed ones. Default: none */
  readonly env?: Readonly<Record<string, string>>;
  /** The whole environment beside `env`, in place of the fixed one. Default: the fixed one */
  readonly ownEnvironment?: OwnEnvironment | undefined;
}

/** Things beside itself that a contained program may reach. */
export interface ProgramRights {
  /** Absolute paths of files and folders that it may write as well. Default: none */
  readonly writable?: readonly string[];
  /** Files and folders that a person gave it. What of them lies in the workspace has the guards of commands there. Default: none */
  readonly grants?: readonly PathGrant[];
  /** Default: none, and whoever starts it looks at what it writes all the same (`Processes.watchWrites`) */
  readonly workspace?: "none" | "read" | "write";
  /** Hosts that it may reach. Empty: it has no network */
  readonly hosts: AllowedHosts;
  /** True: it has the network of the machine. Default false */
  readonly openNetwork?: boolean;
}

/** Request for the start of an installed program. */
export interface ProgramRequest {
  /** Name for errors, such as `plugin "weather"` */
  readonly title: string;
  readonly program: InstalledProgram;
  readonly rights: ProgramRights;
  /** Origins of what it writes to the workspace, whose files are marked */
  readonly taint: Taint;
  readonly scope: ArgumentScope;
  readonly sandbox: SandboxMode;
  /** Section of the configuration that `sandbox` is in */
  readonly section: SandboxSection;
  readonly signal: AbortSignal;
}

/** File or folder that a program is given. One that a person named although commands do not see it, or find it read-only, is given as it is. */
export interface PathGrant {
  /** Absolute path by which it is named */
  readonly path: string;
  /** Path without links, as it was when it was checked */
  readonly real: string;
  readonly readOnly: boolean;
}

/** Environment of a program that a person configured, as an MCP server. */
export interface OwnEnvironment {
  readonly values: Readonly<Record<string, string>>;
  /**
   * Absolute path of a folder for temporary files, where `temporaryFolder` cannot be used. `TMPDIR` is a folder for this program alone, below
   * one that the gateway's marker names: what the program leaves is found by it, and removed with it.
   */
  readonly temporary: string;
}

/** Program that may be started as it is, for one call. `after` and `drop` belong to the call, not to the program. */
export interface PreparedProgram extends AfterProgram {
  /** Text that two requests share when their programs see and may do the same: a program that runs serves both */
  readonly key: string;
  readonly contained: boolean;
  /** Steps after the end of the program itself. Default: none */
  readonly atEnd?: AfterProgram | undefined;
  /** Starts it. @throws {ToolError} `command_not_started`, `sandbox_unavailable` @throws {CancelError} when the gateway closes */
  start(): Promise<RunningProgram>;
}

/** Program that runs. Whoever started it ends it. */
export interface RunningProgram {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Rejects with a ToolError `command_not_started` */
  readonly exited: Promise<ProgramEnd>;
  /** Returns the requests that its relay did not carry out until now. */
  problems(): readonly RelayProblem[];
  /** Asks it, and all it started, to end by SIGTERM. */
  terminate(): void;
  /** Kills it with all it started, and waits for its end. Repeating it does nothing. Never throws */
  end(): Promise<void>;
}

/** Services that preparing a program needs. */
export interface ProgramOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Pick<Clock, "now">;
  readonly marker: string;
  readonly containment: ContainmentFinder;
  readonly watch: WorkspaceWatch;
  readonly relays: CommandRelays;
  /** Program that ends an uncontained one with the gateway */
  readonly launcher: Launcher;
  /** The whole environment of a program, beside its own variables */
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * Makes an installed program ready to be started for one call: contained, it sees the system's folders, its own, and of the workspace
 * what it may, without files of credentials; it reaches its hosts through a relay, and nothing else.
 * @throws {ToolError} `unsupported_platform`, `command_not_found`, `sandbox_unavailable`, `quarantine_full` @throws {CancelError}
 */
export async function prepareProgram(request: ProgramRequest, options: ProgramOptions): Promise<PreparedProgram> {
  const { title, sandbox, section, signal } = request;
  const found = sandbox === "off" ? undefined : await unlessAborted(options.containment.find(), signal);
  requireContainment(title, { sandbox, section }, found);
  const temporary = await makeTemporary(request, options);
  const clean = () => sweep(temporary);
  try {
    const line = await lineOf(request, options, temporary);
    return found?.kind === "bubblewrap"
      ? await prepareContained({ line, clean }, request, { ...options, bubblewrap: found })
      : await prepareUncontained({ line, clean }, request, options);
  } catch (error) {
    await clean();
    throw error;
  }
}

/** Line of a program as the system would start it without a sandbox, and what removes its temporary files. */
interface OpenLine {
  readonly line: CommandLine;
  readonly clean: () => Promise<void>;
}

async function prepareContained(
  { line, clean }: OpenLine,
  request: ProgramRequest,
  { bubblewrap, ...options }: ProgramOptions & { readonly bubblewrap: Bubblewrap },
): Promise<PreparedProgram> {
  const { title, program, rights, section, signal } = request;
  const { grants = [], hosts, openNetwork: network } = rights;
  const root = await realpath(request.scope.workspaceRoot);
  const [inside, outside] = [true, false].map((isIn) => grants.filter(({ real }) => areNested(real, root) === isIn));
  const { seen, note, isRaced, atEnd, ...call } = inside === undefined || inside.length === 0
    ? await seenWorkspace(request, options)
    : await grantedWorkspace(request, inside, options);
  const pathsOf = (readOnly: boolean) =>
    outside?.filter((one) => one.readOnly === readOnly).map(({ path }) => path) ?? [];
  const writable = [...rights.writable ?? [], ...pathsOf(false)];
  const shown = [
    ...[program.folder, ...program.shown ?? [], ...pathsOf(true)],
    ...isAbsolute(program.file) ? [] : [line.file],
  ];
  const localSockets = await socketsAmong([...shown, ...writable, ...inside?.map(({ path }) => path) ?? []]);
  const containedLine = async (relay?: CommandRelay, raced = false) => {
    const granted = { shown, writable, network, relay, localSockets, isRaced: raced };
    const contained = await contain(line, { workspace: seen, ...granted, bubblewrap });
    if (contained === undefined) throw uncontainable(title, section);
    return contained;
  };
  const withoutRelay = await containedLine().catch(async (error: unknown) => {
    await Promise.all([call.drop(), atEnd?.drop()]);
    throw error;
  });
  const { file, args, given = [] } = withoutRelay;
  return {
    ...call,
    atEnd,
    key: keyOf([file, ...args], given),
    contained: true,
    async start() {
      // A program outlives the call that started it where it waits for the next one
      const ended = note === undefined ? () => {} : await options.watch.runs(note, signal);
      const cleanAll = () => clean().finally(ended);
      let relay: CommandRelay | undefined;
      try {
        if (hosts.entries.length > 0) relay = await options.relays.open(title, hosts);
        const own = relay === undefined && !isRaced ? withoutRelay : await containedLine(relay, isRaced);
        return running(own, { ...relay && { relay }, clean: cleanAll });
      } catch (error) {
        ended();
        await Promise.all([relay?.close(), clean()]);
        throw error;
      }
    },
  };
}

/** Returns the paths that are Unix sockets: a person who names one lets the program connect to it. */
async function socketsAmong(paths: readonly string[]): Promise<readonly string[]> {
  const found = await Promise.all(paths.map((path) => stat(path).catch(() => undefined)));
  return paths.filter((_, index) => found[index]?.isSocket() === true);
}

/** Returns the line of a program as the system would start it without a sandbox. */
async function lineOf(
  { title, program: { file, args, folder, env, ownEnvironment } }: ProgramRequest,
  { commands, environment, marker }: ProgramOptions,
  temporary: string | undefined,
): Promise<CommandLine> {
  if (process.platform === "win32") {
    throw new ToolError("unsupported_platform", "Cannot run programs: they are not supported on Windows, use Linux");
  }
  const path = isAbsolute(file) ? file : ownRuntime(file) ?? await commands.find(file);
  if (path === undefined) {
    const reason = `${title} needs the program ${JSON.stringify(file)}, and no folder of the fixed search path has it`;
    throw new ToolError("command_not_found", `Cannot run ${title}: ${reason}`);
  }
  const fixed = ownEnvironment === undefined || temporary === undefined
    ? { ...environment, [MARKER_VARIABLE]: marker }
    : { ...ownEnvironment.values, TMPDIR: temporary };
  return { file: path, args, cwd: await realpath(folder), env: { ...fixed, ...env } };
}

/** Makes the folder for temporary files of one program. @returns its absolute path; undefined for a program without an environment of its own */
async function makeTemporary(
  { program: { ownEnvironment }, scope }: ProgramRequest,
  { marker }: ProgramOptions,
): Promise<string | undefined> {
  if (ownEnvironment === undefined) return undefined;
  const folder = temporaryFolder(marker);
  // The agent may write to a folder that lies in the workspace
  const isInside = isWithin(folder, await realpath(scope.workspaceRoot));
  const made = isInside ? undefined : await makeOwnIn(folder).catch(() => undefined);
  return made ?? await makeOwnIn(join(ownEnvironment.temporary, temporaryName(marker)));
}

/** Makes a folder in one that belongs to this user alone: others may have made it before. */
async function makeOwnIn(folder: string): Promise<string> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const found = await lstat(folder);
  const isOwn = found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o077) === 0;
  if (!isOwn) throw new ToolError("command_not_started", `Cannot use "${folder}": others can use it too; remove it`);
  return await mkdtemp(join(folder, "/"));
}

/** Kills what a program has left that had this folder in `TMPDIR`, and removes the folder. Never throws */
async function sweep(temporary: string | undefined): Promise<void> {
  if (temporary === undefined) return;
  await killRestOf(temporary);
  // Files that cannot be removed now, such as those of another user, stay
  await rm(temporary, { recursive: true, force: true, maxRetries: 2 }).catch(() => {});
}

/** Returns the path of the program that the gateway runs in, where a name is that runtime's. */
function ownRuntime(name: string): string | undefined {
  return name === ("Deno" in globalThis ? "deno" : "node") ? runtimeProgram().file : undefined;
}

/** Program that the gateway runs in, and the words with which it evaluates a module. */
export interface RuntimeProgram {
  /** Absolute path */
  readonly file: string;
  /** Words before the text of the module; its own arguments come after that */
  readonly evaluate: readonly string[];
  /** Variables that it needs */
  readonly env: Readonly<Record<string, string>>;
}

/** Returns the program that the gateway runs in. */
export function runtimeProgram(): RuntimeProgram {
  if (!("Deno" in globalThis)) {
    return { file: process.execPath, evaluate: ["--input-type=module", "--eval"], env: {} };
  }
  return {
    // Deno rewrites the arguments of a command that names its own file: the path is the same, its text is another
    file: `/.${process.execPath}`,
    evaluate: ["eval", "--no-config", "--no-lock", "--quiet"],
    // No folder can be there: what Deno keeps between two runs could be exchanged by others
    env: { DENO_DIR: "/dev/null/deno", DENO_NO_UPDATE_CHECK: "1" },
  };
}

async function prepareUncontained(
  { line, clean }: OpenLine,
  request: ProgramRequest,
  { launcher, watch, clock }: ProgramOptions,
): Promise<PreparedProgram> {
  const [file, ...prefix] = await launcher();
  const launched = file === undefined ? line : { ...line, file, args: [...prefix, line.file, ...line.args] };
  return {
    // Whatever it has asked for, nothing keeps it from the workspace
    ...request.rights.workspace === undefined ? unwatched(false) : await watchedWorkspace(request, { watch, clock }),
    key: keyOf([launched.file, ...launched.args], []),
    contained: false,
    async start() {
      try {
        return running(launched, { clean });
      } catch (error) {
        await clean();
        throw error;
      }
    },
  };
}

/** Returns the eyes on the workspace of an uncontained program: what it makes under protected names is moved away. */
async function watchedWorkspace(
  { title, scope, taint, signal }: ProgramRequest,
  { watch, clock }: Pick<ProgramOptions, "watch" | "clock">,
): Promise<AfterProgram> {
  await watch.requireRoom(title);
  const workspace = await realpath(scope.workspaceRoot);
  const skip = await watch.skippedIn(scope);
  const { finished, guarded } = await watch.surveyOf(skip, signal)(workspace, false);
  if (!finished) return unwatched(true);
  return await watch.watch({ ...noteOf(workspace, skip, guarded), changes: changesFrom(clock, taint) });
}

/** Part of a request that says which files of a running program are watched. */
export type WriteWatch = Pick<ProgramRequest, "sandbox" | "taint" | "scope"> & Pick<ProgramRights, "writable">;

/**
 * Watches the workspace for files that a program writes from now on, so that they are marked: all of it where nothing contains the
 * program, else the folders that it may write. Protected names are left to the program.
 */
export async function watchWrites(
  { sandbox, taint, scope, writable = [] }: WriteWatch,
  { containment, watch, clock }: Pick<ProgramOptions, "containment" | "watch" | "clock">,
): Promise<AfterProgram> {
  const changes = changesFrom(clock, taint);
  const root = await realpath(scope.workspaceRoot);
  const isContained = sandbox !== "off" && (await containment.find()).kind === "bubblewrap";
  const places = isContained ? await Promise.all(writable.map((path) => realpath(path).catch(() => path))) : [root];
  const watched = new Set(
    places.flatMap((place) => isWithin(root, place) ? [root] : isWithin(place, root) ? [place] : []),
  );
  if (watched.size === 0) return unwatched(false);
  const skip = await watch.skippedIn(scope);
  const all = await Promise.all([...watched].map(async (place) => {
    const workspace = (await stat(place)).isDirectory() ? place : dirname(place);
    return await watch.watch({ workspace, skip, known: [], guards: false, changes });
  }));
  return {
    async after() {
      const ends = await Promise.all(all.map(({ after }) => after()));
      return { quarantined: [], unchecked: ends.some(({ unchecked }) => unchecked) };
    },
    drop: async () => void await Promise.all(all.map(({ drop }) => drop())),
  };
}

function noteOf(
  workspace: string,
  skip: readonly string[],
  guarded: readonly { readonly identity: string }[],
): CallNote {
  return { workspace, skip: [...skip], known: guarded.map(({ identity }) => identity) };
}

/** Workspace of a contained program, and the steps after its call. */
interface SurveyedWorkspace extends AfterProgram {
  /** Default: it writes nothing there */
  readonly note?: CallNote;
  /** See `ContainOptions`. What the sandbox is made of stays the same, so that a program which waits is found again by it */
  readonly isRaced: boolean;
  readonly atEnd?: AfterProgram;
  /** Undefined: it sees nothing of it */
  readonly seen: SeenWorkspace | undefined;
}

/** Looks through the workspace, and says what the program sees of it. */
async function seenWorkspace(
  { title, section, rights: { workspace }, scope, taint, signal }: ProgramRequest,
  { watch, clock }: ProgramOptions,
): Promise<SurveyedWorkspace> {
  if (workspace === undefined || workspace === "none") {
    return { seen: undefined, isRaced: false, ...unwatched(false) };
  }
  const writes = workspace === "write";
  if (writes) await watch.requireRoom(title);
  const root = await realpath(scope.workspaceRoot);
  // Before the survey, which would look through the whole system
  if (holdsSystem(root)) throw uncontainable(title, section);
  const skip = await watch.skippedIn(scope);
  const before = await watch.surveyOf(skip, signal)(root, !scope.allowSensitive);
  requireSurveyed(title, before, { place: "the workspace", section });
  const seen = { ...await watch.coversOf(before, scope), root, writes };
  const note = { ...noteOf(root, skip, before.guarded), changes: changesFrom(clock, taint) };
  const isRaced = watch.isRaced(root);
  return writes
    ? { seen, note, isRaced, ...await watch.watch(note, { signal }) }
    : { seen, isRaced, ...unwatched(false) };
}

/** Looks through the workspace for a program that sees parts of it alone, and is watched from its start to its end. */
async function grantedWorkspace(
  { title, section, scope, signal }: ProgramRequest,
  grants: readonly PathGrant[],
  { watch }: ProgramOptions,
): Promise<SurveyedWorkspace> {
  await watch.requireRoom(title);
  const root = await realpath(scope.workspaceRoot);
  // Before the survey, which would look through the whole system
  if (holdsSystem(root)) throw uncontainable(title, section);
  const skip = await watch.skippedIn(scope);
  const before = await watch.surveyOf(skip, signal)(root, !scope.allowSensitive);
  requireSurveyed(title, before, { place: "the workspace", section });
  const covered = [...skip, ...before.sensitive, ...before.guarded.map(({ path }) => path)];
  const isCovered = (path: string) => covered.some((place) => isWithin(path, place));
  const named = grants.filter(({ real }) => isCovered(real));
  for (const { path, real } of named) {
    const meant = isWithin(path, scope.workspaceRoot) ? join(root, relative(scope.workspaceRoot, path)) : path;
    // A command may have put a link in the place of what the person named. Outside of the workspace it puts none
    if (!isWithin(meant, root) || isCovered(meant)) continue;
    const [link, place] = [meant, real].map((found) => shown(relative(root, found)));
    throw sandboxUnavailable(
      title,
      `${link} leads to ${place}, which commands do not see or change`,
      "name that place itself in the paths, if it is meant",
    );
  }
  const isSeen = (path: string) =>
    grants.some(({ real }) => isWithin(path, real)) && !named.some(({ real }) => isWithin(path, real));
  const covers = await watch.coversOf({
    ...before,
    sensitive: before.sensitive.filter(isSeen),
    guarded: before.guarded.filter(({ path }) => isSeen(path)),
    gitConfigs: before.gitConfigs.filter(isSeen),
  }, scope);
  const writes = grants.filter(({ readOnly }) => !readOnly).map(({ real }) => real);
  const seen = {
    ...covers,
    hidden: [...skip, ...covers.hidden].filter(isSeen),
    root,
    only: grants,
    writes,
  };
  // Before it counts as one that runs itself
  const isRaced = watch.isRaced(root);
  const atEnd = writes.length === 0
    ? unwatched(false)
    : await watch.watch({ ...noteOf(root, skip, before.guarded), within: writes }, { signal });
  return { seen, atEnd, isRaced, ...unwatched(false) };
}

function running(
  line: CommandLine,
  { relay, clean }: { readonly relay?: CommandRelay; readonly clean: () => Promise<void> },
): RunningProgram {
  const group = startGroup({ ...line, hasInput: true });
  const { stdin, stdout, stderr, exited } = group;
  if (stdin === undefined) throw new ToolError("command_not_started", `Cannot start "${line.file}": it has no input`);
  let ending: Promise<void> | undefined;
  const end = async () => {
    group.kill();
    // A program that could not be started has ended
    await exited.catch(() => {});
    // The rest of the group outlived its leader
    group.kill();
    for (const stream of [stdin, stdout, stderr]) stream.destroy();
    await relay?.close();
    await clean();
  };
  return {
    ...{ stdin, stdout, stderr, exited },
    problems: () => relay?.problems() ?? [],
    terminate: () => group.kill("SIGTERM"),
    end: () => ending ??= end(),
  };
}

/** Returns the digest of a command line and the contents that it names. */
function keyOf(words: readonly string[], given: readonly Uint8Array[]): string {
  const hash = createHash("sha256").update(JSON.stringify(words));
  for (const content of given) hash.update(`\0${content.length}\0`).update(content);
  return hash.digest("hex");
}
