import { type ChildProcess, spawn } from "node:child_process";
import process from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** A child that runs a fixture on the runtime of the test. */
export interface FixtureProcess {
  /** Lines of its stdout as they come; ends with the process */
  readonly lines: AsyncIterable<string>;
  /** Kills it with SIGKILL and waits for its end */
  kill(): Promise<void>;
}

/** Starts `fixtures/<path>` with arguments. Its stderr is the test's own. */
export function runFixture(path: string, ...args: readonly string[]): FixtureProcess {
  const file = fileURLToPath(new URL(`../../fixtures/${path}`, import.meta.url));
  const runtime = "Deno" in globalThis ? ["run", "-A", "--no-check"] : [];
  const child: ChildProcess = spawn(process.execPath, [...runtime, file, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  if (child.stdout === null) throw new TypeError("Cannot read the child: its stdout is no pipe");
  return {
    lines: createInterface({ input: child.stdout }),
    kill() {
      child.kill("SIGKILL");
      return ended;
    },
  };
}
