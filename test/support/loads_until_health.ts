import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { PROJECT_ROOT } from "./source_files.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";

/** Node's option that has a process write what it loads into the file that LOADS_FILE names. */
export const RECORD_LOADS = ["--import", join(PROJECT_ROOT, "test/support/record_loads.ts")] as const;

/**
 * URLs of the modules that a gateway has loaded when it first answers. On Node alone.
 * @param main path of cli/main, as source or as built
 * @param config environment variables
 */
export async function loadsUntilHealth(
  main: string,
  config: Readonly<Record<string, string>>,
): Promise<readonly string[]> {
  let loads: readonly string[] = [];
  await withTemporaryFolder(async (home) => {
    const file = join(home, "loads");
    const env = { PATH: process.env["PATH"], HOME: home, LOADS_FILE: file, ...config };
    const argv = [...RECORD_LOADS, main, "gateway", "--port", "0", "--json"];
    const child = spawn(process.execPath, argv, { cwd: home, env });
    const ended = once(child, "exit");
    let stderr = "";
    child.stderr.on("data", (part) => (stderr += part));
    try {
      const lines = createInterface({ input: child.stdout });
      const [line] = await Promise.race([once(lines, "line"), ended.then(() => [stderr])]) as [string];
      const url = /http:\/\/[^\s"]+/.exec(line)?.[0];
      assert.ok(url !== undefined, line);
      assert.equal((await fetch(new URL("/health", url))).status, 200);
      const [before = ""] = readFileSync(file, "utf8").split("answered\n", 1);
      loads = before.trim().split("\n");
    } finally {
      child.kill("SIGKILL");
      await ended;
    }
  });
  return loads;
}
