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

/**
 * Installs the programs of a package of the tests as its lock file has them, once for each state of it: `npm ci` of the project brings
 * none of them, and neither does a run of other tests.
 * @param name of the package, a folder in `test/system/`
 * @returns their `node_modules`
 * @throws {Error} npm cannot bring them, with its output
 */
export async function systemTools(name: "clients" | "tools"): Promise<string> {
  const cache = join(realpathSync(join(ROOT, "node_modules")), ".cache");
  const digest = createHash("sha256");
  for (const file of FILES) digest.update(readFileSync(join(ROOT, "test/system", name, file)));
  const prefix = `system-${name}-`;
  const folder = join(cache, `${prefix}${digest.digest("hex").slice(0, 12)}`);
  if (!existsSync(folder)) {
    mkdirSync(cache, { recursive: true });
    const fresh = mkdtempSync(join(cache, "installing-"));
    try {
      for (const file of FILES) copyFileSync(join(ROOT, "test/system", name, file), join(fresh, file));
      await promisify(execFile)("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: fresh });
      const former = readdirSync(cache).filter((entry) => entry.startsWith(prefix));
      for (const entry of former) rmSync(join(cache, entry), { recursive: true, force: true });
      renameSync(fresh, folder);
    } catch (error) {
      rmSync(fresh, { recursive: true, force: true });
      // Another process was faster
      if (!existsSync(folder)) throw error;
    }
  }
  return join(folder, "node_modules");
}
