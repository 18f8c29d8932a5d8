import { execFile } from "node:child_process";
import { cpSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { addHandlerTypes } from "./build_package.ts";
import { ROOT } from "./gateway_process.ts";

/**
 * Packs the package as `npm pack` does in the checkout, with `dist` from a build that is there already.
 * @param built folder of `buildPackage`
 * @param folder where the tarball is written
 * @returns path of the tarball
 */
export async function packPackage(built: string, folder: string): Promise<string> {
  await addHandlerTypes(built);
  const source = join(folder, "source");
  mkdirSync(source);
  for (const file of ["package.json", "README.md", "LICENSE", "CHANGELOG.md"]) {
    cpSync(join(ROOT, file), join(source, file));
  }
  cpSync(join(ROOT, "docs"), join(source, "docs"), { recursive: true });
  cpSync(built, join(source, "dist"), { recursive: true });
  const { stdout } = await promisify(execFile)("npm", ["pack", "--ignore-scripts", "--pack-destination", folder], {
    cwd: source,
  });
  return join(folder, stdout.trim());
}
