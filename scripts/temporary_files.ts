/** Decides where the temporary files of tests lie. */
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";

/** Machine and settings that the choice depends on. */
export interface Machine {
  /** The person's own choice: goes first */
  readonly TMPDIR?: string | undefined;
  /** Where Linux has a file system in memory. Default: `/dev/shm` */
  readonly memory?: string;
  /** Bytes that must be free there, and in memory. Default: 4 GiB, several times what the tests keep at one time */
  readonly minBytes?: number;
}

/** Type of file system that statfs(2) tells for tmpfs. */
const TMPFS = 0x01021994;

/**
 * Makes a folder for the temporary files of tests.
 *
 * The folder lies in memory where there is enough of that and programs may be run from it: most tests have a data directory, and on a disk its
 * syncs and its removal take longer than the test. Elsewhere it lies in the system's folder for temporary files.
 * @returns its path, which is short enough for the paths of sockets below it
 */
export function makeTemporaryFolder({ TMPDIR, memory = "/dev/shm", minBytes = 4 * 2 ** 30 }: Machine): string {
  const isFree = (TMPDIR ?? "") === "" && process.availableMemory() >= minBytes && bytesInMemory(memory) >= minBytes;
  const inMemory = isFree ? makeFolder(memory) : undefined;
  if (inMemory === undefined) return makeFolder(tmpdir());
  if (runsPrograms(inMemory)) return inMemory;
  rmSync(inMemory, { recursive: true });
  return makeFolder(tmpdir());
}

/**
 * Makes a folder that others may pass through, since some tests run programs as a user without rights, and may not list. Its name is
 * short: three characters more, and the path of a socket of Chromium's profile is too long.
 */
function makeFolder(parent: string): string {
  const folder = mkdtempSync(join(parent, "/"));
  chmodSync(folder, 0o711);
  return folder;
}

/** Returns the free bytes of a file system in memory; 0 for any other, and for none. */
function bytesInMemory(path: string): number {
  try {
    const { type, bavail, bsize } = statfsSync(path);
    return type === TMPFS ? bavail * bsize : 0;
  } catch {
    return 0;
  }
}

/** Containers often mount it with `noexec`. */
function runsPrograms(folder: string): boolean {
  const program = join(folder, "program");
  writeFileSync(program, "#!/bin/sh\nexit 0\n", { mode: 0o700 });
  const { status } = spawnSync(program);
  rmSync(program);
  return status === 0;
}
