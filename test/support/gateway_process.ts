import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { systemClock } from "../../lib/base/clock.ts";
import { callGateway, type CallInit } from "./gateway_call.ts";
import { jsonOf } from "./json_of.ts";
import { startProcess } from "./started_process.ts";

/** Folder of the project, with a slash at the end. */
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

const ON_DENO = "Deno" in globalThis;

/** The command that runs a TypeScript file on the runtime of this test. */
export const RUN: readonly string[] = ON_DENO
  ? [process.execPath, "run", "--allow-all", "--no-check"]
  : [process.execPath];

/** Folder of the package built from this source: a run of all tests names it, and builds it meanwhile */
const PACKAGE = process.env["TEST_PACKAGE"];
// Without a limit of its own: a build that fails ends the run
while (PACKAGE !== undefined && !existsSync(PACKAGE)) await systemClock.sleep(50);

/**
 * Returns the path of `cli/main`: of the source, or of the package in a run of all tests, since it starts in half the processor time.
 * @param program folder with the source of another build
 */
export function mainOf(program?: string): string {
  if (program !== undefined) return join(program, "cli/main.ts");
  return PACKAGE === undefined ? join(ROOT, "cli/main.ts") : join(PACKAGE, "cli/main.js");
}

const COMPILE_CACHE: Readonly<Record<string, string>> = process.env["NODE_COMPILE_CACHE"] === undefined
  ? {}
  : { NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"] };

/** Environment that the command needs, also with another home. */
export const RUN_ENV: Readonly<Record<string, string>> = {
  PATH: process.env["PATH"] ?? "",
  // The runtime keeps what it has translated there, and would do so again for each home
  ...(ON_DENO ? { DENO_DIR: process.env["DENO_DIR"] ?? join(homedir(), ".cache/deno") } : COMPILE_CACHE),
};

/** A gateway in a process of its own. */
export interface GatewayProcess {
  /** Address of the gateway, without a slash at the end */
  readonly url: string;
  /** The pairing code it printed */
  readonly code: string;
  /** Sends SIGTERM. @returns exit code, and what was written to stderr */
  stop(): Promise<{ readonly exitCode: number | null; readonly stderr: string }>;
  /** Fetches a path with the token of `ServedFolder`, or of `pair()` */
  call(path: string, init?: CallInit): Promise<Response>;
  /** Exchanges the pairing code. @returns the token, with which `call` goes on */
  pair(): Promise<string>;
}

/** A folder that `postern gateway` works in: the workspace, with the data directory `data` in it. */
export interface ServedFolder {
  readonly folder: string;
  /** Text of `postern.toml`. Default: the file that is in the folder already */
  readonly config?: string;
  /** An admin token. Default: none, so that clients pair */
  readonly token?: string;
  /** Further options of the command */
  readonly flags?: readonly string[];
}

/** Runs `use` with `postern gateway` on the folder, which is killed afterwards. @throws {Error} as `withGatewayProcess` does */
export function withServedFolder(
  { folder, config, token, flags = [] }: ServedFolder,
  use: (gateway: GatewayProcess) => Promise<void>,
): Promise<void> {
  const path = join(folder, "postern.toml");
  if (config !== undefined) writeFileSync(path, config);
  const folders = ["--config", path, "--data-dir", join(folder, "data"), "--workspace", folder];
  const command = [...RUN, mainOf(), "gateway", "--port", "0", ...folders, ...flags];
  return withGatewayProcess(command, use, token);
}

/**
 * Runs a command that prints an address ending in a slash and then `Pairing code: ...`; the process is killed afterwards.
 * @param given an admin token. Default: none
 * @throws {Error} when it ends before that, or after 60 s, with its output
 */
export async function withGatewayProcess(
  command: readonly string[],
  use: (gateway: GatewayProcess) => Promise<void>,
  given?: string,
): Promise<void> {
  const gateway = await startProcess(command, {
    cwd: ROOT,
    ...(given === undefined ? {} : { env: { ...process.env, POSTERN_TOKEN: given } }),
    ready: /(http:\S+)\/\n[\s\S]*^Pairing code: (\S+)\n/m,
  });
  const [, url = "", code = ""] = gateway.match;
  let token = given ?? "";
  try {
    await use({
      url,
      code,
      stop: async () => ({ exitCode: await gateway.end("SIGTERM"), stderr: gateway.errors() }),
      call: (path, init) => callGateway({ url, token }, path, init),
      async pair() {
        const reply = await fetch(`${url}/pair`, { method: "POST", headers: { "x-pairing-code": code } });
        assert.equal(reply.status, 200);
        return token = (await jsonOf(reply)).token;
      },
    });
  } finally {
    await gateway.end("SIGKILL");
  }
}
