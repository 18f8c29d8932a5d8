import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
} from "node:fs";
import { renameSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import process from "node:process";
import { ROOT } from "../../support/gateway_process.ts";

/** Runs git. @returns its output without the last line break; undefined when it fails */
export type Git = (...argv: readonly string[]) => string | undefined;

/** The commit that this tree is compared with. */
export interface Base {
  /** The name that it was chosen by */
  readonly name: string;
  readonly commit: string;
}

/** A folder with a built package has a name as long as that of `buildPackage()`: Node reads paths letter by letter, and long ones cost memory */
const PREFIX = "base-";
const DIGITS = 15;

/** Git in the project's folder. */
export const git: Git = (...argv) => {
  const { status, stdout } = spawnSync("git", argv, { cwd: ROOT, encoding: "utf8", maxBuffer: 64 * 2 ** 20 });
  return status === 0 ? stdout.replace(/\n$/, "") : undefined;
};

/**
 * Chooses the base: the commit that is asked for, or else the last tag that HEAD descends from.
 * @throws {Error} there is no such commit, with the way out
 */
export function chooseBase(wanted: string | undefined, git: Git): Base {
  const name = wanted || git("describe", "--tags", "--abbrev=0");
  if (name === undefined) {
    throw new Error(
      "Cannot choose a base: no git tag is reachable from HEAD; name a commit, as in BASE=HEAD~20 npm run bench:guard",
    );
  }
  const commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", `${name}^{commit}`);
  if (commit === undefined) {
    throw new Error(`Cannot compare with "${name}": git knows no such commit; set BASE to a commit, a branch or a tag`);
  }
  return { name, commit };
}

/**
 * Builds the package of a commit in a folder of its own, with this tree's dependencies, or with its own where package-lock.json differs.
 * The folder stays, and is used again for the same commit; those of other commits are removed.
 * @returns the folder's path
 * @throws {Error} it cannot be built, with the output of the step that failed
 */
export function buildBase(commit: string): string {
  const modules = realpathSync(join(ROOT, "node_modules"));
  const cache = join(modules, ".cache");
  const place = join(cache, PREFIX + commit.slice(0, DIGITS));
  if (existsSync(place)) return place;
  mkdirSync(cache, { recursive: true });
  for (const entry of readdirSync(cache).filter((entry) => entry.startsWith(PREFIX))) {
    rmSync(join(cache, entry), { recursive: true, force: true });
  }
  const fresh = mkdtempSync(join(cache, PREFIX));
  // Node takes no types away from files below a folder node_modules
  const source = mkdtempSync(join(tmpdir(), "postern-bench-"));
  try {
    run(["git", "archive", "--output", join(source, "tree.tar"), commit], ROOT);
    run(["tar", "-xf", "tree.tar"], source);
    symlinkSync(isLockOf(source) ? modules : installFrom(source, fresh), join(source, "node_modules"), "dir");
    run([process.execPath, "scripts/build.ts"], source);
    cpSync(join(source, "dist"), fresh, { recursive: true });
    renameSync(fresh, place);
    return place;
  } finally {
    for (const folder of [source, fresh]) rmSync(folder, { recursive: true, force: true });
  }
}

function isLockOf(source: string): boolean {
  const [theirs, ours] = [source, ROOT].map((folder) => readFileSync(join(folder, "package-lock.json"), "utf8"));
  return theirs === ours;
}

/** Installs what the base asks for. @returns the folder node_modules */
function installFrom(source: string, folder: string): string {
  const names = ["package.json", "package-lock.json"];
  for (const name of names) copyFileSync(join(source, name), join(folder, name));
  run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder);
  // The package of this tree is in a folder without them too
  for (const name of names) rmSync(join(folder, name));
  return join(folder, "node_modules");
}

function run([command = "", ...argv]: readonly string[], cwd: string): void {
  const PATH = [join(cwd, "node_modules/.bin"), process.env["PATH"]].join(delimiter);
  const { status, error, stdout, stderr } = spawnSync(command, argv, {
    cwd,
    encoding: "utf8",
    env: { ...process.env, PATH },
    maxBuffer: 64 * 2 ** 20,
  });
  if (status === 0) return;
  throw new Error(`Cannot build the base: "${command} ${argv.join(" ")}" failed: ${error ?? stdout + stderr}`);
}
