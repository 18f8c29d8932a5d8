import { homedir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { startProcess } from "./started_process.ts";

/** Folder of the project, with a slash at the end. */
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

const ON_DENO = "Deno" in globalThis;

/** The command that runs a TypeScript file on the runtime of this test. */
export const RUN: readonly string[] = ON_DENO
  ? [process.execPath, "run", "--allow-all", "--no-check"]
  : [process.execPath];

/** Environment that the command needs, also with another home. */
export const RUN_ENV: Readonly<Record<string, string>> = {
  PATH: process.env["PATH"] ?? "",
  // Deno keeps what it has translated there, and would do so anew for each home
  ...(ON_DENO ? { DENO_DIR: process.env["DENO_DIR"] ?? join(homedir(), ".cache/deno") } : {}),
};

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
 * @throws {Error} when it ends before that, or after 60 s, with its output
 */
export async function withGatewayProcess(
  command: readonly string[],
  use: (gateway: GatewayProcess) => Promise<void>,
): Promise<void> {
  const gateway = await startProcess(command, {
    cwd: ROOT,
    ready: /(http:\S+)\/\n[\s\S]*^Pairing code: (\S+)\n/m,
  });
  const [, url = "", code = ""] = gateway.match;
  try {
    await use({
      url,
      code,
      stop: async () => ({ exitCode: await gateway.end("SIGTERM"), stderr: gateway.errors() }),
    });
  } finally {
    await gateway.end("SIGKILL");
  }
}
