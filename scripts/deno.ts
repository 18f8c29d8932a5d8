/** Runs Deno through npm, at the version the project is tested with: `node scripts/deno.ts <arguments>`. */
import { spawnSync } from "node:child_process";
import process from "node:process";

export const DENO_VERSION = "2.9.6";

const result = spawnSync("npm", ["exec", "--yes", `--package=deno@${DENO_VERSION}`, "--", "deno", ...process.argv.slice(2)], {
  stdio: "inherit",
});
process.exitCode = result.status ?? 1;
