import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { type FileTree, readTree, writeTree } from "./file_tree.ts";

/** A test that needs git, and perhaps another program; where one is missing it is skipped. */
export function gitTest(
  name: string,
  run: (context: TestContext) => Promise<void>,
  alsoNeeds: readonly string[] = [],
): void {
  const missing = ["git", ...alsoNeeds].find((program) => !isThere(program));
  test(name, { skip: missing === undefined ? false : `${missing} is not installed` }, run);
}

/** Nothing else of the environment: another test file of this process may just try what its variables do to git */
const PATH = process.env["PATH"] ?? "";

const known = new Map<string, boolean>();

/** Returns true when a program is installed that knows `version`. */
export function isThere(program: string): boolean {
  const there = known.get(program) ?? spawnSync(program, ["version"], { env: { PATH } }).status === 0;
  known.set(program, there);
  return there;
}

/** Newer versions would begin it in the background, and change the git folder while a test looks at it */
const NO_MAINTENANCE = ["-c", "maintenance.auto=false"];

/** Git of the test itself, with no configuration but the repository's; throws when it fails. */
export function git(folder: string, ...args: readonly string[]): string {
  return execFileSync("git", [...NO_MAINTENANCE, ...args], {
    cwd: folder,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      PATH,
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
  writeTree(join(folder, ".git"), madeOnce("work", ["init", "-q", "-b", "main"], AUTHOR));
  git(folder, "add", "-A", "-f");
  git(folder, "commit", "-q", "--allow-empty", "-m", "first");
}

/** A new bare repository on branch `main`, which takes pushes over HTTP. */
export function initBareRepository(folder: string): void {
  writeTree(folder, madeOnce("bare", ["init", "-q", "--bare", "-b", "main"], PUSHES));
}

const AUTHOR = [["user.name", "Ada"], ["user.email", "ada@example.com"]] as const;
const PUSHES = [["http.receivepack", "true"], ["receive.autogc", "false"]] as const;

const made = new Map<string, FileTree>();

/** The git folder that `git init` makes, which is the same each time: later ones are copies of the first. */
function madeOnce(
  kind: "work" | "bare",
  init: readonly string[],
  config: readonly (readonly [string, string])[],
): FileTree {
  const there = made.get(kind);
  if (there !== undefined) return there;
  const folder = mkdtempSync(join(tmpdir(), "postern-git-"));
  try {
    git(folder, ...init);
    for (const entry of config) git(folder, "config", ...entry);
    const tree = readTree(kind === "bare" ? folder : join(folder, ".git"));
    made.set(kind, tree);
    return tree;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
