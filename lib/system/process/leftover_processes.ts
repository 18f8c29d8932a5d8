import { hash } from "node:crypto";
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";

/** Looks through all processes before it stops: more than what starts others as fast as it is killed can need */
const MAX_PASSES = 10;

/** The variable that marks every program a gateway starts, and what those start in turn. */
export const MARKER_VARIABLE = "POSTERN_GATEWAY";

/**
 * Kills what an earlier gateway with the same marker left running when it was killed itself: programs that still carry the
 * marker in the environment they were started with. Only for the one gateway that holds the data directory's lock, before it
 * starts programs of its own.
 *
 * The programs that have an environment of their own carry its digest in the path of `TMPDIR`. What they left there is removed.
 *
 * A process is known by the marker, read just before it is killed, never by its id alone: another one that got the id has no
 * marker. One that cleared its environment is not found. Linux alone; elsewhere, or where `/proc` cannot be read, nothing is.
 * @returns how many were killed
 */
export async function killLeftovers(marker: string): Promise<number> {
  const name = temporaryName(marker);
  const killed = await killWhere((entry) =>
    entry === `${MARKER_VARIABLE}=${marker}` || (entry.startsWith("TMPDIR=") && entry.includes(`/${name}/`))
  );
  await rm(temporaryFolder(marker), { recursive: true, force: true, maxRetries: 2 }).catch(() => {});
  return killed;
}

/** Returns the name of a folder for temporary files of the programs that have an environment of their own. */
export function temporaryName(marker: string): string {
  return `postern-${hash("sha256", marker).slice(0, 16)}`;
}

/**
 * Returns the absolute path of the folder for temporary files of those programs. It is short, whatever the data directory is: a browser makes
 * Unix sockets there, each in a folder of its own, and the path of a socket may have 107 bytes.
 */
export function temporaryFolder(marker: string): string {
  return join("/tmp", temporaryName(marker));
}

/**
 * Kills what a program has left that had a `TMPDIR` of its own, for example one that began a process group of its own. Knows processes as
 * `killLeftovers` does.
 * @param folder absolute path that no other program had
 */
export function killRestOf(folder: string): Promise<number> {
  return killWhere((entry) => entry === `TMPDIR=${folder}`);
}

async function killWhere(isMark: (entry: string) => boolean): Promise<number> {
  if (process.platform !== "linux") return 0;
  const killed = new Set<string>();
  // Until a pass finds nothing new: what started another program, or became one, during a pass was not seen whole
  for (let pass = 0, before = -1; pass < MAX_PASSES && killed.size > before; pass++) {
    before = killed.size;
    const names = await readdir("/proc").catch(() => []);
    await Promise.all(
      names.filter((name) => /^[0-9]+$/.test(name)).map(async (id) => {
        const environment = await readFile(`/proc/${id}/environ`, "utf8").catch(() => "");
        if (environment.split("\0").some(isMark) && kill(Number(id))) killed.add(id);
      }),
    );
  }
  return killed.size;
}

function kill(id: number): boolean {
  if (id === process.pid) return false;
  try {
    process.kill(id, "SIGKILL");
    return true;
  } catch {
    // The process has ended meanwhile, or belongs to someone else
    return false;
  }
}

/** Collection of one record: the marker that a data directory's processes are known by. */
export const PROCESSES = "processes";

/** Returns the marker of a stored body. @throws {TypeError} for a body that no version wrote */
export function parseMarker(body: unknown): string {
  const marker = typeof body === "object" && body !== null && "marker" in body ? body.marker : undefined;
  if (typeof marker !== "string") throw new TypeError("The body is no marker of processes");
  return marker;
}
