import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
} from "node:fs";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { ROOT } from "../support/gateway_process.ts";

/**
 * Installs the programs of a package of the tests as its lock file has them, once for each state of it: `npm ci` of the project brings
 * none of them, and neither does a run of other tests.
 * @param name of the package, a folder in `test/system/`
 * @returns their `node_modules`
 * @throws {Error} npm cannot bring them, with its output
 */
export async function systemTools(name: "clients" | "servers" | "tools"): Promise<string> {
  const folder = await installOnce({
    prefix: `system-${name}-`,
    files: ["package.json", "package-lock.json"].map((file) => join(ROOT, "test/system", name, file)),
    command: ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
  });
  return join(folder, "node_modules");
}

/**
 * Installs the packages of `test/system/clients/requirements.txt`, which has versions and digests of all of them, in the same way.
 * @returns the folder for `PYTHONPATH`
 * @throws {Error} there is no Python with pip, it cannot bring them, or this machine needs files that have no digest in the list
 */
export async function systemPython(): Promise<string> {
  const words = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--require-hashes"];
  const folder = await installOnce({
    prefix: "system-python-",
    files: [join(ROOT, "test/system/clients/requirements.txt")],
    command: ["python3", "-m", "pip", "install", ...words, "--target", "packages", "-r", "requirements.txt"],
  });
  return join(folder, "packages");
}

interface Installation {
  /** Beginning of the folder's name */
  readonly prefix: string;
  /** Files that the command reads, copied into the folder */
  readonly files: readonly string[];
  /** Runs in the folder */
  readonly command: readonly [program: string, ...words: string[]];
}

async function installOnce({ prefix, files, command: [program, ...words] }: Installation): Promise<string> {
  const cache = join(realpathSync(join(ROOT, "node_modules")), ".cache");
  const digest = createHash("sha256");
  for (const file of files) digest.update(readFileSync(file));
  const folder = join(cache, `${prefix}${digest.digest("hex").slice(0, 12)}`);
  if (existsSync(folder)) return folder;
  mkdirSync(cache, { recursive: true });
  const fresh = mkdtempSync(join(cache, "installing-"));
  try {
    for (const file of files) copyFileSync(file, join(fresh, basename(file)));
    await promisify(execFile)(program, words, { cwd: fresh });
    const former = readdirSync(cache).filter((entry) => entry.startsWith(prefix));
    for (const entry of former) rmSync(join(cache, entry), { recursive: true, force: true });
    renameSync(fresh, folder);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    // Another process was faster
    if (!existsSync(folder)) throw error;
  }
  return folder;
}
