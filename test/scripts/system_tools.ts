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
import { join } from "node:path";
import { promisify } from "node:util";
import { ROOT } from "../support/gateway_process.ts";

const FILES = ["package.json", "package-lock.json"];
const PREFIX = "system-tools-";

/**
 * Installs the programs of `test/system/package.json` as its lock file has them, once for each state of it: `npm ci` of the project brings
 * none of them, and neither does a run of other tests.
 * @returns their `node_modules`
 * @throws {Error} npm cannot bring them, with its output
 */
export async function systemTools(): Promise<string> {
  const cache = join(realpathSync(join(ROOT, "node_modules")), ".cache");
  const digest = createHash("sha256");
  for (const file of FILES) digest.update(readFileSync(join(ROOT, "test/system", file)));
  const folder = join(cache, `${PREFIX}${digest.digest("hex").slice(0, 12)}`);
  if (!existsSync(folder)) {
    mkdirSync(cache, { recursive: true });
    const fresh = mkdtempSync(join(cache, "installing-"));
    try {
      for (const file of FILES) copyFileSync(join(ROOT, "test/system", file), join(fresh, file));
      await promisify(execFile)("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: fresh });
      const former = readdirSync(cache).filter((name) => name.startsWith(PREFIX));
      for (const name of former) rmSync(join(cache, name), { recursive: true, force: true });
      renameSync(fresh, folder);
    } catch (error) {
      rmSync(fresh, { recursive: true, force: true });
      // Another process was faster
      if (!existsSync(folder)) throw error;
    }
  }
  return join(folder, "node_modules");
}
