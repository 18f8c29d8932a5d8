import { constants } from "node:fs";
import { open, rm } from "node:fs/promises";
import { ToolError } from "../../base/errors.ts";

/** Branch of a remote that a local branch follows. */
export interface FollowedBranch {
  /** Name of the remote */
  readonly remote: string;
  /** Name of its branch, as `main` */
  readonly branch: string;
}

const APPEND = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW;

/**
 * Notes in a repository's configuration which branch a local branch follows. The lines are added at the end of the file. Git would put a new
 * file in its place, and a contained program that runs would see that file, not the copy without credentials that covers the old one.
 * @param path of the configuration, absolute
 * @returns the lines that were added
 * @throws {ToolError} `git_failed` while somebody else changes the configuration @throws the error of the system
 */
export async function followBranch(path: string, branch: string, upstream: FollowedBranch): Promise<string> {
  const lock = `${path}.lock`;
  const held = await open(lock, "wx").catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") {
      throw new ToolError(
        "git_failed",
        `Cannot note the upstream of ${
          JSON.stringify(branch)
        }: the configuration is locked; if no git runs, remove "${lock}"`,
      );
    }
    throw error;
  });
  try {
    const file = await open(path, APPEND, 0o644);
    try {
      const value = (text: string) => `"${text.replace(/["\\]/g, "\\$&")}"`;
      // A first empty line: the last one may have no end
      const lines = `\n[branch ${value(branch)}]\n\tremote = ${value(upstream.remote)}\n\tmerge = ${
        value(`refs/heads/${upstream.branch}`)
      }\n`;
      await file.write(lines);
      return lines;
    } finally {
      await file.close();
    }
  } finally {
    await held.close();
    await rm(lock, { force: true });
  }
}
