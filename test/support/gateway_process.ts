import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Folder of the project. */
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

const ON_DENO = "Deno" in globalThis;

/** The command that runs a TypeScript file on the runtime of this test. */
export const RUN: readonly string[] = ON_DENO
  ? [process.execPath, "run", "--allow-all", "--no-check"]
  : [process.execPath];

/** A gateway in a process of its own. */
export interface GatewayProcess {
  /** Address of the gateway, without a slash at the end */
  readonly url: string;
  /** The pairing code it printed */
  readonly code: string;
  /** Sends SIGTERM. @returns exit code, and what was written to stderr */
  stop(): Promise<{ readonly exitCode: number | null; readonly stderr: string }>;
}

/**
 * Runs a command that prints an address ending in a slash and then `Pairing code: ...`; the process is ended afterwards.
 * @throws {Error} when it ends before that, with its stderr
 */
export async function withGatewayProcess(
  [command = "", ...options]: readonly string[],
  use: (gateway: GatewayProcess) => Promise<void>,
): Promise<void> {
  const child = spawn(command, options, { cwd: ROOT });
  let stderr = "";
  child.stderr.on("data", (bytes) => (stderr += bytes));
  const ended = once(child, "exit");
  try {
    const address = await readAddress(child);
    if (address === undefined) throw new Error(`The gateway ended before it listened: ${stderr}`);
    await use({
      ...address,
      async stop() {
        // On Deno, child.kill() reports the signal in place of the exit code
        if (child.pid !== undefined) process.kill(child.pid, "SIGTERM");
        const [exitCode] = await ended;
        return { exitCode, stderr };
      },
    });
  } finally {
    child.kill("SIGKILL");
    await ended;
  }
}

async function readAddress(
  { stdout }: ChildProcess,
): Promise<{ readonly url: string; readonly code: string } | undefined> {
  if (stdout === null) return undefined;
  let url: string | undefined;
  for await (const line of createInterface({ input: stdout })) {
    url ??= /(http:\S+)\/$/.exec(line)?.[1];
    const code = /^Pairing code: (\S+)$/.exec(line)?.[1];
    if (url !== undefined && code !== undefined) {
      // What comes later is read and dropped, so that the pipe never fills
      stdout.resume();
      return { url, code };
    }
  }
  return undefined;
}
