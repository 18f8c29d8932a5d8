import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
} from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { ROOT } from "./gateway_process.ts";

/** Everything that the build reads */
const SOURCES = ["{cli,handlers,lib}/**/*.*", "scripts/{build,declarations}.ts", "package-lock.json", "tsconfig*.json"];
/** Short: Node reads paths letter by letter, and V8 optimises that loop when they are long, which costs 5 MiB that the bench would count */
const PREFIX = "package-";

/**
 * Builds the package from the source as it is, into a folder from where it finds what it imports. The folder stays, and is used
 * again while the source is the same: the tests of both runtimes look at one package.
 * @returns the folder's path; nothing may be changed there
 * @throws {Error} it cannot be built, with the output of the build
 */
export async function buildPackage(): Promise<string> {
  const folder = packageFolder();
  if (existsSync(folder)) return folder;
  const cache = dirname(folder);
  mkdirSync(cache, { recursive: true });
  const fresh = await build(cache);
  for (const entry of readdirSync(cache).filter((entry) => entry.startsWith(PREFIX))) {
    rmSync(join(cache, entry), { recursive: true, force: true });
  }
  renameSync(fresh, folder);
  return folder;
}

/** Writes the types of the handlers into a built package that has none, which takes longer than the rest of its build. */
export async function addHandlerTypes(built: string): Promise<void> {
  const file = join(built, "handlers/handlers.d.ts");
  if (existsSync(file)) return;
  const fresh = `${file}.${process.pid}`;
  await runScript("scripts/declarations.ts", fresh);
  renameSync(fresh, file);
}

/** Returns the folder that `buildPackage()` builds the package of this source into. */
export function packageFolder(): string {
  return join(realpathSync(join(ROOT, "node_modules")), ".cache", `${PREFIX}${digestOfSources()}`);
}

async function build(cache: string): Promise<string> {
  const folder = mkdtempSync(join(cache, "postern-test-"));
  try {
    await runScript("scripts/build.ts", folder);
    return folder;
  } catch (cause) {
    rmSync(folder, { recursive: true, force: true });
    const { stdout, stderr } = cause as { readonly stdout?: string; readonly stderr?: string };
    throw new Error(`Cannot build the package: ${stdout ?? ""}${stderr ?? ""}`, { cause });
  }
}

async function runScript(...words: readonly string[]): Promise<void> {
  const node = "Deno" in globalThis ? "node" : process.execPath;
  await promisify(execFile)(node, words, { cwd: ROOT });
}

function digestOfSources(): string {
  const digest = createHash("sha256");
  for (const path of globSync(SOURCES, { cwd: ROOT }).sort()) {
    digest.update(`${path}\0`).update(readFileSync(join(ROOT, path))).update("\0");
  }
  return digest.digest("hex").slice(0, 12);
}
