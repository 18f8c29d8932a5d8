import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, release, totalmem } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import type { CommandLine } from "./process_group.ts";
import { unlessGone } from "./remembered_folders.ts";

/**
 * Bounds on what a contained program takes of the machine. `prlimit` of util-linux sets them inside the sandbox and becomes the program:
 * there Linux counts the processes of that sandbox alone, however many its user has.
 *
 * `prlimit` bounds no memory: Linux counts what one process reserves there, and V8 reserves 512 MiB for each thread of JavaScript. A
 * cgroup does, where the gateway may make one.
 */
export interface Bounds {
  /** Absolute path of `prlimit` */
  readonly file: string;
  /** Processes and threads in one sandbox. undefined: not counted here, see `countsProcesses` */
  readonly processes: number | undefined;
  /** Descriptors of one process */
  readonly openFiles: number;
  /** Bytes of one file. A program may lift this bound itself: it stops an accident. Who wants to fill a disk writes many files */
  readonly fileBytes: number;
  /** Bytes of a core file. Below a page none is written; with 1, nothing is given to the program that collects them outside either */
  readonly coreBytes: number;
  /** Default: memory has no bound */
  readonly memory?: MemoryBound | undefined;
}

/** Bound on the memory that the contained programs of this gateway take together: that of a cgroup which each of them begins in. */
export interface MemoryBound {
  /** Bytes in use, the cache of files included where Linux cannot give it up */
  readonly bytes: number;
  /** Absolute path of the file by which a process enters the cgroup */
  readonly entry: string;
}

const PROCESSES = 512;
/** A test runner starts a process for each processor, and a runtime a dozen threads in each */
const PROCESSES_PER_PROCESSOR = 32;
/** Servers of databases ask for so many */
const OPEN_FILES = 65_536;
/** More than a build writes into one file */
const FILE_BYTES = 8 * 2 ** 30;

/** Returns the bounds for contained programs on this machine. None is wider than this process's own: no program gets more. @param file absolute path of `prlimit` */
export function boundsHere(file: string): Bounds {
  const lines = unlessGone(() => readFileSync("/proc/self/limits", "utf8"))?.split("\n") ?? [];
  const within = (name: string, most: number) => {
    const [, , hard] = lines.find((line) => line.startsWith(name))?.split(/ {2,}/) ?? [];
    // Where there is no bound, it says "unlimited"
    return Math.min(most, Number(hard) >= 0 ? Number(hard) : most);
  };
  const most = Math.max(PROCESSES, PROCESSES_PER_PROCESSOR * availableParallelism());
  return {
    file,
    processes: countsProcesses(release(), process.getuid?.()) ? within("Max processes", most) : undefined,
    openFiles: within("Max open files", OPEN_FILES),
    fileBytes: within("Max file size", FILE_BYTES),
    coreBytes: within("Max core file size", 1),
  };
}

/**
 * Tells whether Linux counts the processes of each sandbox by themselves: from 5.14 on, where before it counted all of the user, and
 * never for root. Source: kernel/ucount.c, kernel/fork.c
 * @param version as `6.1.0-18-amd64`
 */
export function countsProcesses(version: string, user: number | undefined): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return user !== 0 && (major > 5 || (major === 5 && minor >= 14));
}

/** Returns the words before a program inside the sandbox, which begin with an absolute path. */
export function boundedBy({ file, processes, openFiles, fileBytes, coreBytes }: Bounds): readonly string[] {
  const counted = processes === undefined ? [] : [`--nproc=${processes}`];
  // With the colon it is the soft limit alone, which the program may lift
  return [file, `--core=${coreBytes}`, `--nofile=${openFiles}`, `--fsize=${fileBytes}:`, ...counted, "--"];
}

/** Says for a person which bounds hold, as a sentence without a full stop. */
export function boundsText({ processes, openFiles, fileBytes, memory }: Bounds): string {
  const each = `each opens at most ${openFiles} files, writes at most ${
    sizeText(fileBytes)
  } into one, and leaves no core; ${
    memory === undefined
      ? "memory has a bound only in a gateway that systemd 254 or later runs (postern service install)"
      : `all of them together take at most ${sizeText(memory.bytes)} of memory`
  }`;
  return processes === undefined
    ? `A contained program may start any number of processes: Linux counts them from 5.14 on, and not for root; ${each}`
    : `A contained program has at most ${processes} processes and threads; ${each}`;
}

/** Returns the line for the model about a program that a bound has ended, as far as an exit code tells. */
export function boundLines(code: string, bounds: Pick<Bounds, "fileBytes" | "memory"> | undefined): readonly string[] {
  if (bounds === undefined) return [];
  if (code === "153") {
    const most = sizeText(bounds.fileBytes);
    return [
      `[Code 153 is that of SIGXFSZ: a program wrote more than ${most} into one file. In a shell, "ulimit -f unlimited" lifts the bound]`,
    ];
  }
  if (code !== "137" || bounds.memory === undefined) return [];
  const most = sizeText(bounds.memory.bytes);
  return [
    `[Code 137 is that of SIGKILL: Linux ends a program so when all contained ones would take more than ${most} of memory]`,
  ];
}

function sizeText(bytes: number): string {
  if (bytes % 2 ** 20 !== 0) return `${bytes} bytes`;
  return bytes % 2 ** 30 === 0 ? `${bytes / 2 ** 30} GiB` : `${bytes / 2 ** 20} MiB`;
}

/**
 * Tells whether a program did not start because of `prlimit`: it then writes one line, and exits with 126 or 127, or with 1 when it could
 * not set a bound.
 * @param command its name. What `prlimit` says as the command itself is a result
 */
export function isNotBegun(
  command: string,
  { code, stderr }: { readonly code: number; readonly stderr: string },
): boolean {
  return command !== "prlimit" && [1, 126, 127].includes(code) && /^prlimit: failed to (?:execute|set) /.test(stderr);
}

/** Name of the cgroup that a unit puts the gateway in (`DelegateSubgroup` of `postern service install`). The one above it holds no process */
const GATEWAY_CGROUP = "gateway";
const PROGRAMS_CGROUP = "contained";
const MIB = 2 ** 20;

/**
 * Makes the cgroup of contained programs beside that of the gateway, bounded to half of the memory. The cgroup above both must have been
 * delegated to the gateway: elsewhere another program, as systemd, divides it.
 * Source: Documentation/admin-guide/cgroup-v2.rst "No Internal Process Constraint"; systemd.resource-control(5) `DelegateSubgroup`
 * @param places.root where cgroups of the second version are. Default: `/sys/fs/cgroup`
 * @param places.own content of `/proc/self/cgroup`. Default: this process's
 * @param places.memory bytes of the machine. Default: this one's
 * @returns undefined where nothing was delegated with the memory controller
 */
export function memoryBoundHere(
  { root = "/sys/fs/cgroup", own, memory = totalmem() }: {
    readonly root?: string;
    readonly own?: string;
    readonly memory?: number;
  } = {},
): MemoryBound | undefined {
  const cgroups = own ?? unlessGone(() => readFileSync("/proc/self/cgroup", "utf8")) ?? "";
  const [, path] = /^0::(\/.+)$/m.exec(cgroups) ?? [];
  if (path === undefined || !path.endsWith(`/${GATEWAY_CGROUP}`)) return undefined;
  const unit = join(root, dirname(path));
  const folder = join(unit, PROGRAMS_CGROUP);
  const valueOf = (file: string) => readFileSync(file, "utf8").trim();
  try {
    if (!valueOf(join(unit, "cgroup.controllers")).split(" ").includes("memory")) return undefined;
    // "max" where the unit has no bound of its own
    const most = Math.min(memory, Number(valueOf(join(unit, "memory.max"))) || Infinity);
    const bytes = Math.floor(most / 2 / MIB) * MIB;
    writeFileSync(join(unit, "cgroup.subtree_control"), "+memory");
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "memory.max"), String(bytes));
    const swap = join(folder, "memory.swap.max");
    // A machine without swap does not have it
    if (existsSync(swap)) writeFileSync(swap, "0");
    return Number(valueOf(join(folder, "memory.max"))) === bytes
      ? { bytes, entry: join(folder, "cgroup.procs") }
      : undefined;
  } catch {
    // No right to divide it
    return undefined;
  }
}

const NOT_ENTERED = "postern: the cgroup of contained programs cannot be entered";
/** Enters the cgroup that `$0` names, and becomes the program. */
const ENTER = `{ echo 0 > "$0"; } 2> /dev/null || { echo "${NOT_ENTERED}" >&2; exit 1; }
unset PWD OLDPWD SHLVL; exec "$@"`;

/** Returns the line of a program that begins within the bound, or does not begin. */
export function withinMemory<Line extends Pick<CommandLine, "file" | "args">>(
  line: Line,
  bound: MemoryBound | undefined,
): Line {
  if (bound === undefined) return line;
  return { ...line, file: "/bin/sh", args: ["-c", ENTER, bound.entry, line.file, ...line.args] };
}

/** Tells whether a program did not begin since its cgroup was gone: it then writes one line. */
export function isNotEntered({ code, stderr }: { readonly code: number; readonly stderr: string }): boolean {
  return code === 1 && stderr.startsWith(NOT_ENTERED);
}
