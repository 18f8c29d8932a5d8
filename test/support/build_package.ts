import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";
import { ROOT, RUN } from "./gateway_process.ts";

/**
 * Builds the package from the source as it is, into a fresh folder from where it finds what it imports; the caller removes it.
 * @returns the folder's path
 * @throws {Error} it cannot be built, with the output of the build
 */
export function buildPackage(): string {
  const cache = join(realpathSync(join(ROOT, "node_modules")), ".cache");
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, "postern-test-"));
  const [command = "", ...options] = RUN;
  const PATH = [join(ROOT, "node_modules/.bin"), process.env["PATH"]].join(delimiter);
  const { status, stdout, stderr } = spawnSync(command, [...options, "scripts/build.ts", folder], {
    cwd: ROOT,
    encoding: "utf8",
    env: { ...process.env, PATH },
  });
  if (status === 0) return folder;
  rmSync(folder, { recursive: true, force: true });
  throw new Error(`Cannot build the package: ${stdout}${stderr}`);
}
