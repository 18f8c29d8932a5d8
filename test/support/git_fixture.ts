import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";

/** A test that needs git, and perhaps another program; where one is missing it is skipped. */
export function gitTest(name: string, run: () => Promise<void>, alsoNeeds: readonly string[] = []): void {
  const missing = ["git", ...alsoNeeds].find((program) => !isThere(program));
  test(name, { skip: missing === undefined ? false : `${missing} is not installed` }, run);
}

const known = new Map<string, boolean>();

/** Whether a program is installed that knows `version`. */
export function isThere(program: string): boolean {
  const there = known.get(program) ?? spawnSync(program, ["version"]).status === 0;
  known.set(program, there);
  return there;
}

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
