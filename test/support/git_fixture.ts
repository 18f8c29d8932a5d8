import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import process from "node:process";

/** Git of the test itself, with no configuration but the repository's; throws when it fails. */
export function git(folder: string, ...args: readonly string[]): string {
  return execFileSync("git", args, {
    cwd: folder,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: "/nonexistent",
      GIT_CONFIG_NOSYSTEM: "1",
      GIT_CONFIG_GLOBAL: "/dev/null",
      GIT_AUTHOR_DATE: "2026-01-02T03:04:05Z",
      GIT_COMMITTER_DATE: "2026-01-02T03:04:05Z",
    },
  });
}

/** A new repository on branch `main`, with an author of its own; all files there are in its first commit. */
export function initRepository(folder: string): void {
  mkdirSync(folder, { recursive: true });
  git(folder, "init", "-q", "-b", "main");
  git(folder, "config", "user.name", "Ada");
  git(folder, "config", "user.email", "ada@example.com");
  git(folder, "add", "-A", "-f");
  git(folder, "commit", "-q", "--allow-empty", "-m", "first");
}
