import { Buffer } from "node:buffer";
import { readlinkSync } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import process from "node:process";
import type { Clock } from "../../base/clock.ts";
import { systemCodeOf, ToolError } from "../../base/errors.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import type { CommandRelay } from "./command_relay.ts";
import { boundedBy, boundsHere, isNotBegun, isNotEntered, memoryBoundHere, withinMemory } from "./bounds.ts";
import { callFilter } from "./call_filter.ts";
import type { WatchCovers } from "./cover_watch.ts";
import { type Bubblewrap, type BubblewrapTry, type Containment, sandboxUnavailable } from "./containment.ts";
import { type CommandLine, FIRST_GIVEN } from "./process_group.ts";
import { checkedMounts, type MeantMount, withoutLinks } from "./raced_mounts.ts";
import { unlessGone } from "./remembered_folders.ts";
import { type CommandResult, runCommand } from "./run_command.ts";

/** Folders that a contained command sees read-only where they exist; of `/etc` only what the loader and Debian's links need. */
const SYSTEM_FOLDERS = [
  "/usr",
  "/etc/alternatives",
  "/etc/ld.so.cache",
  "/etc/ld.so.conf",
  "/etc/ld.so.conf.d",
  "/etc/ssl/certs",
  // Where Fedora and its relatives keep what the former names
  "/etc/pki/tls/certs",
  "/etc/pki/ca-trust/extracted",
] as const;
/** Folders that it sees as well. Most systems have links into `/usr` there */
const LINKED_FOLDERS = ["/bin", "/sbin", "/lib", "/lib32", "/lib64"] as const;
/** Linux takes two megabytes of arguments and environment */
const MAX_COVER_BYTES = 1_000_000;
/** A machine that starts, or has many processes at work, needs seconds for what takes 10 ms elsewhere */
const PROBE_TIMEOUT_MS = 10_000;
/** Messages of bubblewrap when the machine lacks something for the moment: ENOSPC, EAGAIN, ENOMEM, ENFILE, EMFILE */
const FOR_NOW = /No space left|temporarily unavailable|Cannot allocate memory|Too many open files/i;

/** Options that take away what Deno tells each program that gets further descriptors. */
const NO_DESCRIPTORS = ["--unsetenv", "DENO_EXTRA_STDIO_FDS"] as const;

/**
 * Variables that change what a program is before its first step: those of the loader and of bash. Bubblewrap and the shell before it run
 * outside of the sandbox, so that they must not have them. A shell may lose names that are none of its own.
 */
const MAKES_PROGRAM = /^(?:LD_|GLIBC_TUNABLES$|BASH|SHELLOPTS$|ENV$|PS4$)|\W/;

/** Returns the part of bubblewrap's options that every contained command has. */
function baseOptions(): readonly string[] {
  return rootOptions(["--unshare-all", "--proc", "/proc", "--dev", "/dev"]);
}

/** Returns options that show the system. @param own those by which sandboxes differ: namespaces and devices */
function rootOptions(own: readonly string[]): readonly string[] {
  return [
    ...[...NO_DESCRIPTORS, "--die-with-parent"],
    // Started by root it would keep what takes the mounts away again
    ...["--cap-drop", "ALL"],
    ...SYSTEM_FOLDERS.flatMap((folder) => ["--ro-bind-try", folder, folder]),
    ...[...own, "--tmpfs", "/tmp"],
    ...LINKED_FOLDERS.flatMap(shownFolder),
  ];
}

/** Namespace and devices of a sandbox in which another one is made whole: Linux makes a new /proc only beside one that shows all. */
const OUTER_ROOT = ["--unshare-user", "--dev-bind", "/proc", "/proc", "--dev", "/dev"];

/** Returns the options that show a folder: a link into `/usr` as the same link, which takes less time than a mount. */
function shownFolder(folder: string): readonly string[] {
  const target = unlessGone(() => readlinkSync(folder));
  return target !== undefined && isWithin(resolve("/", target), "/usr")
    ? ["--symlink", target, folder]
    : ["--ro-bind-try", folder, folder];
}

/** Refuses to go on without a user namespace. In one of its own, the sandbox's processes are counted by themselves. */
const OWN_NAMESPACE = "--unshare-user";

/** Keeps programs from user namespaces, whose owner reaches far more of the kernel. */
const NO_NAMESPACES = [OWN_NAMESPACE, "--disable-userns"];

/**
 * Returns options of an inner bubblewrap, which shows all that the outer one does and begins a filter. It has a user namespace of its
 * own, so that a program in it cannot reach into what runs before it, which has no filter. @param filter its descriptor
 */
const innerOptions = (filter: number) => [
  ...[...NO_DESCRIPTORS, "--die-with-parent", "--unshare-user", "--cap-drop", "ALL"],
  ...["--dev-bind", "/", "/", "--seccomp", String(filter), "--"],
];

/** Options of an outer bubblewrap in which the mounts of an inner one are changed once more. */
const LINKLESS_OPTIONS = [
  "--unshare-user",
  ...["--uid", "0", "--gid", "0"],
  ...["CAP_SYS_ADMIN", "CAP_SETFCAP"].flatMap((name) => ["--cap-add", name]),
];

/** Returns what an outer bubblewrap needs for the inner one. The kernel lets nobody map root without this capability, from 5.12 on. */
const outerOptions = () => process.getuid?.() === 0 ? ["--cap-add", "CAP_SETFCAP"] : [];

/**
 * Looks for bubblewrap and tries it with all its walls; where they do not work together, alone and with each: a container may forbid
 * what it needs.
 * @returns `none` when it is not there or says that it cannot work here; `unanswered` when it is there and said neither
 */
export async function tryBubblewrap(options: BubblewrapTry): Promise<Containment> {
  const { commands, clock, signal, bounds: changes } = options;
  if (process.platform !== "linux") return { kind: "none", reason: "bubblewrap is there on Linux alone" };
  const file = await commands.find("bwrap");
  if (file === undefined) return { kind: "none", reason: "bubblewrap is not installed" };
  const [program, prlimit] = await Promise.all([commands.find("true"), commands.find("prlimit")]);
  if (program === undefined) return unanswered('there is no program "true" to try bubblewrap with');
  const runs = (args: readonly string[], given: readonly Uint8Array[] = []) =>
    runBubblewrap({ file, args: [...baseOptions(), ...args, program], cwd: "/", env: {}, given }, { clock, signal });
  const filter = callFilter({ localSockets: false });
  const filtered = ["--seccomp", String(FIRST_GIVEN), "--"];
  const withFilter = (args: readonly string[]) => filter === undefined ? NO_SUCH_WALL : runs(args, [filter]);
  const wanted = prlimit === undefined ? undefined : { ...boundsHere(prlimit), memory: memoryBoundHere(), ...changes };
  const entered = wanted?.memory === undefined ||
    await runBubblewrap(withinMemory({ file: program, args: [], cwd: "/", env: {} }, wanted.memory), { clock, signal });
  const bounds = wanted && (entered === true || entered === "works" ? wanted : { ...wanted, memory: undefined });
  const bounded = bounds === undefined ? [] : boundedBy(bounds);
  // Most machines take all of them: each try is a process, which a start waits for
  const [whole, nested] = await Promise.all([
    withFilter([...NO_NAMESPACES, ...filtered, ...bounded]),
    withFilter([...outerOptions(), "--", file, ...innerOptions(FIRST_GIVEN)]),
  ]);
  for (const wall of [whole, nested]) if (wall !== "works" && wall.kind === "unanswered") return wall;
  if (whole === "works") {
    return { kind: "bubblewrap", file, filters: true, endsNamespaces: true, nests: nested === "works", bounds };
  }
  const base = await runs(["--"]);
  if (base !== "works") return base;
  const withBounds = bounds === undefined ? NO_SUCH_WALL : runs([OWN_NAMESPACE, "--", ...bounded]);
  const walls = [
    ...await Promise.all([withFilter(filtered), runs([...NO_NAMESPACES, "--"]), withBounds]),
    nested,
  ];
  for (const wall of walls) if (wall !== "works" && wall.kind === "unanswered") return wall;
  const [filters = false, endsNamespaces = false, isBounded, nests = false] = walls.map((wall) => wall === "works");
  return { kind: "bubblewrap", file, filters, endsNamespaces, nests, bounds: isBounded ? bounds : undefined };
}

/** Tells whether a git process beside a contained program can be kept from links (Linux 5.10, util-linux 2.38). */
export async function forbidsLinks(
  { file, filters, nests }: Bubblewrap,
  services: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<boolean> {
  if (!filters || !nests) return false;
  const tried = ["/bin/sh", "-c", "mount -o remount,bind,nosymfollow /tmp"];
  const args = [...baseOptions(), ...LINKLESS_OPTIONS, "--", ...tried];
  return await runBubblewrap({ file, args, cwd: "/", env: {}, given: [] }, services) === "works";
}

type Missing = Exclude<Containment, { readonly kind: "bubblewrap" }>;

const NO_SUCH_WALL: Missing = { kind: "none", reason: "this machine does not have it" };

async function runBubblewrap(
  line: CommandLine,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<"works" | Missing> {
  try {
    const { ending, stderr } = await runCommand(line, {
      timeoutMs: PROBE_TIMEOUT_MS,
      maxOutputBytes: 256,
      signal,
      clock,
    });
    const said = stderr.text.trim();
    if (ending.kind === "timeout") return unanswered(`bubblewrap did not answer within ${PROBE_TIMEOUT_MS / 1000} s`);
    if (ending.kind !== "exit") return unanswered(`the try of bubblewrap was ended by ${endedBy(ending)}`);
    if (ending.code === 0) return "works";
    if (FOR_NOW.test(said)) return unanswered(`bubblewrap cannot work for now (${said})`);
    return { kind: "none", reason: `bubblewrap does not work here (${said || `exit code ${ending.code}`})` };
  } catch (error) {
    return unanswered(error instanceof Error ? error.message : "bubblewrap cannot be started");
  }
}

function unanswered(reason: string): Missing {
  return { kind: "unanswered", reason };
}

function endedBy(ending: CommandResult["ending"]): string {
  return ending.kind === "signal" ? ending.name : "too much output";
}

/** Parts of a workspace that a program in the sandbox does not see as they are. */
export interface WorkspaceCovers {
  /** Absolute paths that appear empty */
  readonly hidden: readonly string[];
  /** Absolute paths of the Unix sockets in the workspace. Default: none */
  readonly sockets?: readonly string[];
  /** Contents that stand read-only in the place of files, by absolute path without links. What is hidden stays hidden. Default: none */
  readonly copies?: ReadonlyMap<string, Uint8Array> | undefined;
  /** Absolute paths that can only be read, and keep their names. Default: none */
  readonly guarded?: readonly string[];
  /** Begins the watch of what is hidden, and of copies. Default: none, as for commands of Postern itself */
  readonly watchCovers?: WatchCovers;
}

/** Workspace as a program in the sandbox sees it. */
export interface SeenWorkspace extends WorkspaceCovers {
  /** Absolute path */
  readonly root: string;
  /**
   * Parts of the workspace, and folders that hold it, that are seen. `real` is the path without links, `path` its name. Default: the workspace
   * as a whole
   */
  readonly only?: readonly { readonly path: string; readonly real: string }[] | undefined;
  /** Parts of the workspace that can be written: all of it, real absolute paths in it, or none. Default: all of it */
  readonly writes?: boolean | readonly string[] | undefined;
}

/** Rights of a command inside the sandbox. */
export interface ContainOptions {
  readonly bubblewrap: Bubblewrap;
  /** Default: the program sees no workspace */
  readonly workspace?: SeenWorkspace | undefined;
  /** Absolute paths of files and folders that are seen read-only; nothing hides them. Default: none beside the system's */
  readonly shown?: readonly string[];
  /** Absolute paths of files and folders that can be written as well. Default: none */
  readonly writable?: readonly string[] | undefined;
  /** Paths of sockets that the program may connect to, from the workspace on. It may then make Unix sockets. Default: none */
  readonly localSockets?: readonly string[] | undefined;
  /** True while another contained program that writes to the workspace runs, which may exchange folders at any moment. Default false */
  readonly isRaced?: boolean | undefined;
  /** True for git, which needs no link of the workspace, and gives folders of a shared repository their group. Default false */
  readonly isGit?: boolean | undefined;
  /** Default: without */
  readonly network?: boolean | undefined;
  /** The only way outside, and the program that leads there, which starts the command. Default: none */
  readonly relay?: Pick<CommandRelay, "mounts" | "launcher" | "env"> | undefined;
}

/**
 * Returns the same command inside bubblewrap: it sees the workspace, read-only system folders and an empty `/tmp`, which is its home;
 * no network; process ids of its own, which all end with it. Hidden files and folders of the workspace appear empty. What is hidden or
 * guarded is a mount there, which can be neither renamed nor removed; so is each folder on the way there, or a command could move it where
 * the next sandbox, which is being made at the moment, does not look, and put a repository of its own in the place of one that git checked.
 * The command has the bounds of this machine. Its system calls are filtered, and it makes no user namespace. It makes Unix sockets only where one of them is let
 * through, or where this machine has no wall against it: the other sockets that were found in the workspace are then hidden.
 * @returns undefined where the workspace holds the system itself, so that nothing would be contained
 * @throws {ToolError} `sandbox_unavailable` where more has to be mounted than a command line holds
 */
export async function contain(
  line: CommandLine,
  options: ContainOptions,
): Promise<CommandLine | undefined> {
  const { workspace, shown = [], writable = [], relay, bubblewrap, localSockets = [] } = options;
  const { bounds } = bubblewrap;
  const seen = workspace === undefined ? undefined : { ...workspace, root: await realpath(workspace.root) };
  if (seen !== undefined && holdsSystem(seen.root)) return undefined;
  const network = options.network === true ? ["--share-net"] : [];
  const isOpen = localSockets.length > 0 || !bubblewrap.filters || (relay !== undefined && !bubblewrap.nests);
  const sockets = isOpen && seen !== undefined ? await socketsBut(localSockets, seen) : [];
  const own = line.given ?? [];
  const { mounts, late, meant, given: copies } = seen === undefined ? NOTHING_MOUNTED : await mountsOf(
    { ...seen, hidden: [...seen.hidden, ...sockets] },
    { ...options, firstGiven: FIRST_GIVEN + own.length },
  );
  const filter = bubblewrap.filters
    ? callFilter({ localSockets: isOpen, sharesFolders: options.isGit === true })
    : undefined;
  // The way to the relay is a Unix socket: the filter begins behind it
  const isInner = filter !== undefined && relay !== undefined && !isOpen;
  const walls = isInner ? outerOptions() : [
    ...bubblewrap.endsNamespaces ? NO_NAMESPACES : [],
    ...filter === undefined ? [] : ["--seccomp", String(FIRST_GIVEN + own.length + copies.length)],
  ];
  const granted = [
    ...shown.flatMap((path) => ["--ro-bind", path, path]),
    ...late,
    ...writable.flatMap((path) => ["--bind", path, path]),
    ...relay?.mounts ?? [],
  ];
  const variables = Object.entries(line.env);
  // Attack: a zero byte would begin another option. As a variable it is refused
  const isInside = (variable: readonly [string, string]) =>
    MAKES_PROGRAM.test(variable[0]) && !variable.join("").includes("\0");
  const set = variables.filter(isInside).flatMap((variable) => ["--setenv", ...variable]);
  const given = [...copies, ...filter === undefined || isInner ? [] : [filter]];
  const isRaced = options.isRaced === true && seen !== undefined;
  const noLinks = isRaced && options.isGit === true && filter !== undefined && !isInner && bubblewrap.nests;
  // Made in a sandbox that has nothing but the workspace: no link leads bubblewrap out of it
  const outer = isRaced && !noLinks && bubblewrap.nests
    ? [
      ...[...rootOptions(OUTER_ROOT), ...outerOptions()],
      ...[seen.root, ...seen.only?.map(({ real }) => real) ?? []]
        .filter((path) => path === seen.root || !isWithin(path, seen.root)).sort()
        .flatMap((path) => ["--bind", path, path]),
      ...[...sourcesOf(granted), "--", bubblewrap.file],
    ]
    : [];
  return withinMemory({
    file: bubblewrap.file,
    args: [
      ...outer,
      ...baseOptions(),
      // Others see the words of a command line, and a variable may hold a secret
      ...set.length === 0 ? [] : ["--args", String(FIRST_GIVEN + own.length + given.length)],
      ...noLinks ? LINKLESS_OPTIONS : walls,
      ...bounds === undefined ? [] : [OWN_NAMESPACE],
      ...network,
      ...mounts,
      ...granted,
      ...["--chdir", line.cwd, "--"],
      ...isRaced ? checkedMounts(meant) : [],
      ...noLinks
        ? [
          ...withoutLinks(meant.filter(({ shows }) => shows).map(({ path }) => path)),
          ...[bubblewrap.file, ...innerOptions(FIRST_GIVEN + own.length + copies.length)],
        ]
        : [],
      ...relay?.launcher(isInner ? Buffer.from(filter).toString("base64") : "") ?? [],
      ...isInner ? [bubblewrap.file, ...innerOptions(FIRST_GIVEN)] : [],
      ...bounds === undefined ? [] : boundedBy(bounds),
      ...[line.file, ...line.args],
    ],
    cwd: seen?.root ?? line.cwd,
    env: {
      ...Object.fromEntries(variables.filter((variable) => !isInside(variable))),
      ...relay?.env,
      ...{ HOME: "/tmp", ...("TMPDIR" in line.env ? { TMPDIR: "/tmp" } : {}) },
    },
    given: [...own, ...given, ...set.length === 0 ? [] : [Buffer.from(`${set.join("\0")}\0`)]],
    watchCovers: seen?.watchCovers,
  }, bounds?.memory);
}

/** Returns options that show the sources of mounts at their own places. @param mounts each of three words: option, source, place */
function sourcesOf(mounts: readonly string[]): readonly string[] {
  return mounts.map((word, index) => (index % 3 === 2 ? mounts[index - 1] ?? "" : word));
}

/** Returns the sockets that are not let through. @throws {ToolError} as realPathOf */
async function socketsBut(
  allowed: readonly string[],
  { root, sockets = [] }: SeenWorkspace,
): Promise<readonly string[]> {
  const real = await realPathsOf(allowed.map((path) => resolve(root, path)), root);
  return sockets.filter((path) => !real.includes(path));
}

/** Options of bubblewrap that show a workspace, and the contents that they name by descriptors. */
interface WorkspaceMounts {
  readonly mounts: readonly string[];
  /** Options that come after what is shown beside the workspace */
  readonly late: readonly string[];
  readonly meant: readonly MeantMount[];
  readonly given: readonly Uint8Array[];
}

const NOTHING_MOUNTED: WorkspaceMounts = { mounts: [], late: [], meant: [], given: [] };

/** @throws {ToolError} `sandbox_unavailable` where more has to be mounted than a command line holds */
async function mountsOf(
  { root: workspace, only, guarded = [], copies = new Map(), hidden, writes = true }: SeenWorkspace,
  { shown = [], isRaced = false, firstGiven }: ContainOptions & { readonly firstGiven: number },
): Promise<WorkspaceMounts> {
  const parts = typeof writes === "object" ? writes : writes ? [workspace] : [];
  const bindOf = (path: string) => parts.some((part) => isWithin(path, part)) ? "--bind" : "--ro-bind";
  const [guards, covers, copied] = await Promise.all([
    realPathsOf(guarded, workspace),
    realPathsOf(hidden, workspace),
    realPathsOf([...copies.keys()], workspace),
  ]);
  const copiedOutside = [...copies.keys()].filter((path) => shown.some((folder) => isWithin(path, folder)));
  const roots = only === undefined ? [workspace] : only.map(({ real }) => real).sort();
  // Named by a person although it lies in what is hidden or guarded: it comes after that
  const named = roots.filter((path) => [...guards, ...covers, ...copied].some((place) => isWithin(path, place)));
  // A pin inside a guarded folder would make it writable; nothing can be renamed there as it is
  const pins = foldersOnTheWay([...covers, ...copied, ...guards], workspace).filter((path) =>
    roots.some((root) => isWithin(path, root)) && !guards.some((folder) => isWithin(path, folder))
  );
  const shownAt = (path: string) => [bindOf(path), path, path];
  const found = await Promise.all(covers.map(async (path) => [path, await coverOf(path)] as const));
  const covered = new Map(found.filter(([, options]) => options.length > 0));
  // The outer ones first: what is mounted over a folder covers all that was mounted in it
  const folders = [...new Set([...roots, ...parts, ...pins])].filter((path) => !named.includes(path)).sort();
  const links = only?.filter(({ path }) => !roots.some((root) => isWithin(path, root))) ?? [];
  const mounts = [
    ...folders.map(shownAt),
    ...guards.map((path) => ["--ro-bind", path, path]),
    ...copied.map((path, index) => ["--ro-bind-data", String(firstGiven + index), path]),
    ...[...covered.values()].flat(),
    ...named.map(shownAt),
    ...links.map(({ path, real }) => ["--symlink", real, path]),
  ].flat();
  const bytes = mounts.reduce((sum, option) => sum + Buffer.byteLength(option) + 1, 0);
  // The check of the mounts names each of them twice more
  if (bytes * (isRaced ? 2 : 1) > MAX_COVER_BYTES) {
    throw new ToolError(
      "sandbox_unavailable",
      'Cannot run the command in the sandbox: the workspace has more files of credentials and repositories than it can hide; set [security.shell] sandbox = "off", or take them out of the workspace',
    );
  }
  return {
    mounts,
    late: copiedOutside.flatMap((path, index) => ["--ro-bind-data", String(firstGiven + copied.length + index), path]),
    meant: [
      ...[...folders, ...guards, ...named].map((path) => ({ path, shows: true })),
      ...[...copied, ...covered.keys()].map((path) => ({ path, shows: false })),
    ],
    given: [...copied, ...copiedOutside].map((path) => copies.get(path) ?? new Uint8Array()),
  };
}

/** Tells whether a folder holds the system itself: a sandbox that shows the folder contains nothing. @param workspace real path */
export function holdsSystem(workspace: string): boolean {
  return ["/usr", "/proc", "/dev", "/etc"].some((folder) => isWithin(folder, workspace));
}

/**
 * Refuses a result that is bubblewrap's own: the sandbox could not be made, so the command never ran. bubblewrap then writes one line
 * that begins with its name, nothing else, and exits with 1; so does `prlimit`, with other codes.
 * @throws {ToolError} `sandbox_unavailable`
 */
export function requireStarted([command = ""]: readonly string[], { ending, stdout, stderr }: CommandResult): void {
  if (ending.kind !== "exit" || stdout.bytes > 0) return;
  const { code } = ending;
  const isOwn = code === 1 && stderr.text.startsWith("bwrap: ");
  const end = { code, stderr: stderr.text };
  if (!isOwn && !isNotEntered(end) && !isNotBegun(command, end)) return;
  const wayOut = 'try again, or accept uncontained commands with [security.shell] sandbox = "off"';
  throw sandboxUnavailable(command, `the sandbox did not start it (${stderr.text.trim()})`, wayOut);
}

/** Options that put something empty over a path of the workspace. */
async function coverOf(real: string): Promise<readonly string[]> {
  const folder = await stat(real).then((found) => found.isDirectory(), () => undefined);
  if (folder === undefined) return [];
  return folder ? ["--tmpfs", real] : ["--ro-bind", "/dev/null", real];
}

/** Every folder between the workspace and one of the paths, the outer ones first. @param paths real, inside the workspace */
function foldersOnTheWay(paths: readonly string[], workspace: string): readonly string[] {
  const folders = new Set<string>();
  for (const path of paths) {
    for (let folder = dirname(path); folder !== workspace && !folders.has(folder); folder = dirname(folder)) {
      folders.add(folder);
    }
  }
  return [...folders].sort();
}

/** Where paths lead inside the workspace, each place once. @throws {ToolError} as realPathOf */
async function realPathsOf(paths: readonly string[], workspace: string): Promise<readonly string[]> {
  const real = await Promise.all(paths.map((path) => realPathOf(path, workspace)));
  return [...new Set(real.filter((path) => path !== undefined))];
}

/** Errors that say that there is nothing to be read at a path. */
const NOTHING: ReadonlySet<unknown> = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

/**
 * Where a path leads; undefined outside the workspace, for the workspace itself, and where nothing lies.
 * @throws {ToolError} `sandbox_unavailable` for a place inside that no mount can reach, as one whose path is too long
 */
async function realPathOf(path: string, workspace: string): Promise<string | undefined> {
  try {
    const real = await realpath(path);
    return real === workspace || !isWithin(real, workspace) ? undefined : real;
  } catch (error) {
    const code = systemCodeOf(error);
    if (NOTHING.has(code) || !isWithin(path, workspace)) return undefined;
    const end = path.length > 200 ? `...${path.slice(-100)}` : path;
    throw new ToolError(
      "sandbox_unavailable",
      `Cannot run the command in the sandbox: ${
        JSON.stringify(end)
      } cannot be hidden or guarded there (${code}); move it, or change its permissions`,
    );
  }
}
