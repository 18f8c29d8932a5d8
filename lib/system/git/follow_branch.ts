import { constants } from "node:fs";
import { open, rm } from "node:fs/promises";
import { systemCodeOf, ToolError } from "../../base/errors.ts";

/** Branch of a remote that a local branch follows. */
export interface FollowedBranch {
  /** Name of the remote */
  readonly remote: string;
  /** Name of its branch, such as `main` */
  readonly branch: string;
}

const APPEND = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW;

/**
 * Notes in a repository's configuration which branch a local branch follows. The lines are added at the end of the file. Git would put a new
 * file in its place, and a contained program that runs would see that file, not the copy without credentials that covers the old one.
 * @param path of the configuration, absolute and without links
 * @param branch is checked out
 * @returns the lines that were added
 * @throws {ToolError} `git_failed` while somebody else changes the configuration, and where it cannot be written: it is as it was
 */
export async function followBranch(path: string, branch: string, upstream: FollowedBranch): Promise<string> {
  const lock = `${path}.lock`;
  const failing = (error: unknown) => {
    const code = systemCodeOf(error) ?? "an unknown error";
    const why = code === "EEXIST"
      ? `the configuration is locked; if no git runs, remove ${JSON.stringify(lock)}`
      : `${JSON.stringify(path)} cannot be written (${code})`;
    const { remote, branch: followed } = upstream;
    throw new ToolError(
      "git_failed",
      `Cannot note the upstream of ${JSON.stringify(branch)}, which is checked out: ${why}; it is ` +
        `${JSON.stringify(`${remote}/${followed}`)}, for "git branch --set-upstream-to"`,
    );
  };
  const held = await open(lock, "wx").catch(failing);
  try {
    return await append(path, linesOf(branch, upstream)).catch(failing);
  } finally {
    await held.close();
    await rm(lock, { force: true });
  }
}

function linesOf(branch: string, upstream: FollowedBranch): string {
  const value = (text: string) => `"${text.replace(/["\\]/g, "\\$&")}"`;
  const entries = `\tremote = ${value(upstream.remote)}\n\tmerge = ${value(`refs/heads/${upstream.branch}`)}\n`;
  // Two ends of a line: the last line may have none, and may end in a backslash, which takes one
  return `\n\n[branch ${value(branch)}]\n${entries}`;
}

/** Adds lines to a file, all of them or none: git reads nothing of a configuration with half a line. */
async function append(path: string, lines: string): Promise<string> {
  const file = await open(path, APPEND, 0o644);
  try {
    const { size } = await file.stat();
    await file.writeFile(lines).catch(async (error: unknown) => {
      await file.truncate(size);
      throw error;
    });
    return lines;
  } finally {
    await file.close();
  }
}
