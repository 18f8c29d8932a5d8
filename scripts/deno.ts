/** Runs Deno through npm, at the version the project is tested with: `node scripts/deno.ts <arguments>`. */
import { spawnSync } from "node:child_process";
import process from "node:process";

/** Program and arguments that start Deno. */
export const denoCommand = ["npm", "exec", "--yes", "--package=deno@2.9.6", "--", "deno"] as const;

if (import.meta.main) {
  const result = spawnSync(denoCommand[0], [...denoCommand.slice(1), ...process.argv.slice(2)], { stdio: "inherit" });
  process.exitCode = result.status ?? 1;
}
