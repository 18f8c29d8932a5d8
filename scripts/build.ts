/** Builds `dist/`: JavaScript and types for npm, and the files that are read at run time. */
import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, rmSync } from "node:fs";
import process from "node:process";

rmSync("dist", { recursive: true, force: true });
const { status } = spawnSync("tsc", ["-p", "tsconfig.build.json"], { stdio: "inherit" });
if (status === 0) {
  cpSync("lib/dashboard/page", "dist/lib/dashboard/page", {
    recursive: true,
    filter: (file) => !file.endsWith("tsconfig.json"),
  });
  chmodSync("dist/cli/main.js", 0o755);
}
process.exitCode = status ?? 1;
