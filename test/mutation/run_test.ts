import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

export type TestEnd = "passed" | "failed" | "timed_out";

export interface RunTestOptions {
  /** Copy of the project that the test file lies in */
  readonly tree: string;
  /** The checkout's `node_modules` */
  readonly modules: string;
  readonly timeoutMs: number;
  /** Ends it at once. What it gives then is of no use */
  readonly signal: AbortSignal;
}

/** Tells whether test files can run contained by bubblewrap on this machine. */
export function hasContainment(): boolean {
  return process.platform === "linux" && spawnSync("bwrap", [...CONTAINED, "true"], { stdio: "ignore" }).status === 0;
}

/**
 * A mutant of what kills processes and deletes files may kill and delete anything: it sees its own processes alone, an own
 * temporary folder, a network without a way out, and the rest of the disk read-only.
 */
const CONTAINED = [
  ...["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", tmpdir()],
  ...["--unshare-pid", "--unshare-net", "--die-with-parent"],
];

/** Runs one test file in a process of its own, and everything it started ends with it. */
export async function runTest(
  file: string,
  { tree, modules, timeoutMs, signal, isContained }: RunTestOptions & { readonly isContained: boolean },
): Promise<TestEnd> {
  const command = [process.execPath, file];
  const bound = ["--bind", tree, tree, "--ro-bind", modules, modules, "--chdir", tree, "--"];
  const [program = "", ...args] = isContained ? ["bwrap", ...CONTAINED, ...bound, ...command] : command;
  const child = spawn(program, args, {
    cwd: tree,
    stdio: "ignore",
    detached: true,
    env: { ...process.env, NODE_COMPILE_CACHE: join(tree, ".compile_cache") },
  });
  const over = new AbortController();
  const kill = () => {
    try {
      // The group: without containment a test's own children would stay
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    } catch {
      // The test has ended by itself
    }
  };
  const ended = once(child, "exit").then(
    ([code]): TestEnd => (code === 0 ? "passed" : "failed"),
    () => "failed" as const,
  );
  const late = sleep(timeoutMs, "timed_out" as const, { signal: AbortSignal.any([signal, over.signal]) });
  try {
    return await Promise.race([ended, late.catch(() => "failed" as const)]);
  } finally {
    over.abort();
    kill();
    await ended;
  }
}
