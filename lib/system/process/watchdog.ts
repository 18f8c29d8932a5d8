import { type ChildProcess, spawn } from "node:child_process";
import process from "node:process";
import type { Logger } from "../../base/telemetry/log.ts";
import { MARKER_VARIABLE, temporaryName } from "./leftover_processes.ts";

/** Options of `Watchdog`. */
export interface WatchdogOptions {
  /** Marker that the gateway's programs carry, see `killLeftovers`. */
  readonly marker: string;
  /** Environment variables of this process */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Logger;
}

/**
 * The program of the watchdog. Each line on its input is a number of milliseconds; the end of the input without a line "stop" is the death of
 * the gateway.
 */
const PROGRAM = `import("node:fs").then(({ readdirSync, readFileSync }) => {
  const { POSTERN_WATCHED: marker, POSTERN_TEMPORARY: temporary } = process.env;
  const isMark = (entry) => entry === "${MARKER_VARIABLE}=" + marker ||
    (entry.startsWith("TMPDIR=") && entry.includes("/" + temporary + "/"));
  const killAll = () => {
    for (let pass = 0, found = true; pass < 10 && found; pass++) {
      found = false;
      for (const id of readdirSync("/proc")) {
        if (!/^[0-9]+$/.test(id) || Number(id) === process.pid || Number(id) === process.ppid) continue;
        try {
          if (!readFileSync("/proc/" + id + "/environ", "utf8").split("\\0").some(isMark)) continue;
          process.kill(Number(id), "SIGKILL");
          found = true;
        } catch {}
      }
    }
  };
  // Counts the time that the machine was suspended too
  const uptime = () => 1000 * Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);
  let left = Infinity, since = 0, isStopped = false;
  process.stdin.setEncoding("utf8").on("data", (text) => {
    const line = text.trim().split("\\n").at(-1);
    isStopped = line === "stop";
    left = isStopped ? Infinity : Number(line);
    since = uptime();
  }).on("end", () => {
    if (!isStopped) killAll();
    clearInterval(looking);
  });
  const looking = setInterval(() => {
    if (left === Infinity || uptime() - since < left) return;
    left = Infinity;
    killAll();
  }, 25);
});`;

/**
 * Kills the programs of a gateway whose heartbeats stop, from a process of its own: the gateway may be paused or gone. A process that ends is
 * started again with the next heartbeat. Linux alone: elsewhere programs cannot be found by their marker.
 */
export class Watchdog {
  readonly #options: WatchdogOptions;
  #child: ChildProcess | undefined = undefined;
  #isStopped = false;

  constructor(options: WatchdogOptions) {
    this.#options = options;
  }

  /** Says that the gateway's programs may run for so many milliseconds from now. */
  beat(leftMs: number): void {
    if (this.#isStopped || process.platform !== "linux") return;
    this.#child ??= this.#start();
    this.#child.stdin?.write(`${Math.max(0, Math.floor(leftMs))}\n`);
  }

  /** Ends the watch, and leaves the programs alone. */
  stop(): void {
    this.#isStopped = true;
    this.#child?.stdin?.end("stop\n");
  }

  #start(): ChildProcess {
    const { marker, env, log } = this.#options;
    const { PATH = "", HOME = "", DENO_DIR } = env;
    const args = "Deno" in globalThis ? ["eval", PROGRAM] : ["--no-warnings", "-e", PROGRAM];
    const child = spawn(process.execPath, args, {
      // Not in the group of the gateway: a signal to the group must not end the watch
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
      env: {
        ...{ PATH, HOME, POSTERN_WATCHED: marker, POSTERN_TEMPORARY: temporaryName(marker) },
        ...(DENO_DIR === undefined ? {} : { DENO_DIR }),
      },
    });
    const end = (reason: unknown) => {
      if (this.#child !== child) return;
      this.#child = undefined;
      if (!this.#isStopped) {
        log.error("The watchdog of this gateway's programs has ended, and is started again", { reason });
      }
    };
    child.on("error", end);
    child.on("close", end);
    child.stdin?.on("error", () => {});
    child.unref();
    return child;
  }
}
