/**
 * Publishes to JSR: `node scripts/publish_jsr.ts [options of deno publish]`, with `--dry-run` nothing.
 *
 * The types of the handlers are those of the whole gateway. Most are inferred, which JSR refuses, so one file of declarations goes with them. It
 * is written into a copy of what is published.
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { declareHandlers } from "./declarations.ts";
import { denoCommand } from "./deno.ts";

const HANDLERS = "handlers/handlers_of_jsr";
const MODULE = `// @ts-self-types="./handlers_of_jsr.d.ts"
/**
 * The handlers of the package, every endpoint as a function of its parts.
 * @module
 */
export * from "./handlers.ts";
`;

process.chdir(join(import.meta.dirname, ".."));
const folder = mkdtempSync(join(tmpdir(), "postern-jsr-"));
try {
  const config = JSON.parse(readFileSync("deno.json", "utf8"));
  for (const path of [...config.publish.include, "package.json"]) {
    cpSync(path, join(folder, path), { recursive: true });
  }
  symlinkSync(join(process.cwd(), "node_modules"), join(folder, "node_modules"));
  config.exports["./handlers"] = `./${HANDLERS}.js`;
  writeFileSync(join(folder, "deno.json"), JSON.stringify(config));
  writeFileSync(join(folder, `${HANDLERS}.js`), MODULE);
  await declareHandlers(join(folder, `${HANDLERS}.d.ts`));
  const [command, ...argv] = denoCommand;
  const words = [...argv, "publish", "--allow-dirty", ...process.argv.slice(2)];
  process.exitCode = spawnSync(command, words, { cwd: folder, stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
