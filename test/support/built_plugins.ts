import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, symlinkSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";

const ROOT = resolve(import.meta.dirname ?? ".", "../..");
const CACHE = join(ROOT, "node_modules/.cache/postern-plugins");

/** `skip` of a test of what is built by another program than the runtime: false, or the reason that is printed. */
export const NO_BUILD_TEST: string | false = process.versions.deno === undefined
  ? false
  : "what the compiler makes is the same on every runtime, and the tests on Node build it";

/** Tells why a program of the developer's own search path does not run, such as `there is no go`. */
export function cannotRun(command: string, ...args: readonly string[]): string | false {
  try {
    execFileSync(command, args, { stdio: "pipe" });
    return false;
  } catch {
    return `there is no ${command}`;
  }
}

/** Puts the sample that reads, lists and writes the workspace in place of the source of a new AssemblyScript plugin. */
export function useSampleSource(folder: string): void {
  copyFileSync(join(ROOT, "fixtures/plugins/wasm-assemblyscript/index.as"), join(folder, "assembly/index.ts"));
}

/**
 * Builds the AssemblyScript plugin in a folder by the command of its `package.json`, with the compiler of this project. The same sources
 * are built once: a compiler that reads them again makes the same module.
 */
export function buildAssemblyScript(folder: string): void {
  const sources = ["package.json", ...readdirSync(join(folder, "assembly")).map((name) => `assembly/${name}`)].sort();
  const hash = createHash("sha256").update(readFileSync(join(ROOT, "node_modules/assemblyscript/package.json")));
  for (const path of sources) hash.update(`\0${path}\0`).update(readFileSync(join(folder, path)));
  const built = join(CACHE, `${hash.digest("hex")}.wasm`);
  const module = join(folder, "plugin.wasm");
  if (existsSync(built)) return copyFileSync(built, module);
  const { scripts } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
    readonly scripts: { readonly build: string };
  };
  const [compiler, ...args] = scripts.build.split(" ");
  if (compiler !== "asc") throw new TypeError(`The plugin is built by ${compiler}, not by AssemblyScript's compiler`);
  const modules = join(folder, "node_modules");
  if (!existsSync(modules)) symlinkSync(join(ROOT, "node_modules"), modules);
  execFileSync(join(ROOT, "node_modules/.bin/node"), [join(ROOT, "node_modules/assemblyscript/bin/asc.js"), ...args], {
    cwd: folder,
    stdio: "pipe",
  });
  mkdirSync(CACHE, { recursive: true });
  // Another test may build the same
  const unfinished = `${built}.${process.pid}`;
  copyFileSync(module, unfinished);
  renameSync(unfinished, built);
}
