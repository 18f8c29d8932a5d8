import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Variable with the words that start this program where its reader is, such as `docker compose exec gateway postern`. A checkout sets it. */
export const PROGRAM_VARIABLE = "POSTERN_PROGRAM";
/** Printable ASCII: the words stand in messages on a terminal */
const WORDS = /^[\x21-\x7e][\x20-\x7e]{0,199}$/;

/**
 * Returns the words that start this program where its reader is: those of the variable, else `npx postern` for a package among those of a
 * project, which no PATH has, else `postern`. The folder of `npx` is such a project; global packages have no package.json above them, or
 * stand in a folder `global`.
 * @param file path of a file of the program
 */
export function programName(
  env: Readonly<Record<string, string | undefined>>,
  file: string = fileURLToPath(import.meta.url),
): string {
  const given = env[PROGRAM_VARIABLE] ?? "";
  if (WORDS.test(given)) return given;
  const [, project] = /^(.*?)[\\/]node_modules[\\/](?:.*[\\/])?postern[\\/]/.exec(file) ?? [];
  const isOfProject = project !== undefined && !/[\\/]global[\\/]/.test(file) &&
    existsSync(join(project, "package.json"));
  return isOfProject ? "npx postern" : "postern";
}
