import { type ChildProcess, spawn, type SpawnOptions } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { get } from "node:http";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";
import { freePort } from "../support/free_port.ts";

const PATIENCE_MS = 60_000;
/** Milliseconds between looks: more of them would take the processor from the start */
const ASK_EVERY_MS = 3;

/** A server in a process of its own, which has answered. */
export interface StartedServer {
  readonly child: ChildProcess;
  readonly port: number;
  /** From the start of the process to the first 200 of /health */
  readonly startMs: number;
  /** Kills it, and waits for its end. */
  end(): Promise<void>;
}

/** Options of `startServer`. */
export interface StartServerOptions {
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  /** Opens a channel for messages of Node's. Default: false */
  readonly takesMessages?: boolean;
}

/** Starts a server and waits for its first answer. @throws {Error} it ends before, or does not answer in time */
export async function startServer(
  commandOf: (port: number) => readonly string[],
  { takesMessages = false, ...options }: StartServerOptions,
): Promise<StartedServer> {
  const port = await freePort();
  const begun = performance.now();
  const stdio = ["ignore", "pipe", "pipe", ...(takesMessages ? ["ipc"] as const : [])] as const;
  const child = spawnReaped(commandOf(port), { ...options, stdio: [...stdio] });
  const ended = once(child, "exit");
  const end = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (part) => (output += part));
  try {
    while (!await answers(port)) {
      if (child.exitCode !== null) throw new Error(`It ended before it answered: ${output}`);
      if (performance.now() - begun > PATIENCE_MS) throw new Error(`It never answered: ${output}`);
      await systemClock.sleep(ASK_EVERY_MS);
    }
    return { child, port, startMs: performance.now() - begun, end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** Starts a process that is killed when this one exits. */
export function spawnReaped([command = "", ...argv]: readonly string[], options: SpawnOptions): ChildProcess {
  const child = spawn(command, argv, options);
  const kill = () => child.kill("SIGKILL");
  // Before whoever removes the folders that it writes into
  process.prependListener("exit", kill);
  child.once("exit", () => process.off("exit", kill));
  return child;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = get({ host: "127.0.0.1", port, path: "/health", agent: false }, (reply) => {
      reply.resume();
      resolve(reply.statusCode === 200);
    });
    asked.on("error", () => resolve(false));
  });
}

/** True where the system tells the memory of a process, as Linux does. */
export const HAS_MEMORY = existsSync(`/proc/${process.pid}/smaps_rollup`);

/** Returns the memory of a process in MiB; NaN where the system does not tell. */
export function memoryOf(pid: number | undefined): { readonly rss: number; readonly pss: number } {
  const memory = HAS_MEMORY ? readFileSync(`/proc/${pid}/smaps_rollup`, "utf8") : "";
  const mebibytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(memory)?.[1]) / 1024;
  return { rss: mebibytes("Rss"), pss: mebibytes("Pss") };
}
