import { readFileSync } from "node:fs";
import { availableParallelism, release } from "node:os";
import process from "node:process";
import { unlessGone } from "./remembered_folders.ts";

/**
 * Bounds on what a contained program takes of the machine. `prlimit` of util-linux sets them inside the sandbox and becomes the program:
 * there Linux counts the processes of that sandbox alone, however many its user has.
 *
 * Memory is not among them: Linux bounds what one process reserves, and V8 reserves 512 MiB for each thread of JavaScript.
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
export function boundsText({ processes, openFiles, fileBytes }: Bounds): string {
  const each = `each opens at most ${openFiles} files, writes at most ${
    sizeText(fileBytes)
  } into one, and leaves no core`;
  return processes === undefined
    ? `A contained program may start any number of processes: Linux counts them from 5.14 on, and not for root; ${each}`
    : `A contained program has at most ${processes} processes and threads; ${each}`;
}

/** Returns the line for the model about a program that SIGXFSZ has ended, as far as an exit code tells. */
export function fileBoundLines(code: string, bounds: Pick<Bounds, "fileBytes"> | undefined): readonly string[] {
  if (bounds === undefined || code !== "153") return [];
  const most = sizeText(bounds.fileBytes);
  return [
    `[Code 153 is that of SIGXFSZ: a program wrote more than ${most} into one file. In a shell, "ulimit -f unlimited" lifts the bound]`,
  ];
}

function sizeText(bytes: number): string {
  return bytes % 2 ** 30 === 0 ? `${bytes / 2 ** 30} GiB` : `${bytes} bytes`;
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
