/** Makes a process of Deno a test of Node's runner, so that one runner starts the processes of both runtimes. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { test } from "node:test";

/** Variable that names the program */
export const DENO_PROGRAM = "TEST_DENO";
/** Characters of Deno's output that a failure repeats: Deno lists what has failed at its end */
const MAX_REASON = 8_000;

/** Adds a test that runs a file on Deno, and prints what Deno says. @param name tells which test files it loads */
export function runOnDeno(path: string, name: string): void {
  test(`on Deno: ${name}`, async ({ signal }) => {
    const program = process.env[DENO_PROGRAM];
    if (program === undefined) throw new TypeError(`The variable ${DENO_PROGRAM} does not name the program`);
    const child = spawn(program, ["test", "--allow-all", "--no-check", "--quiet", path], {
      stdio: ["ignore", "pipe", "pipe"],
      // Deno has a runner of its own
      env: { ...process.env, NODE_TEST_CONTEXT: undefined, NO_COLOR: "1" },
      signal,
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => (output += text));
    }
    const [status] = await once(child, "close");
    console.log(output);
    assert.equal(status, 0, `Deno ended with ${status}:\n${output.slice(-MAX_REASON)}`);
  });
}
