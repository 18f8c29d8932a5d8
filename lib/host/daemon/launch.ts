import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";

/** Variables that a process needs from its start on and that hold no secret. All others go through the pipe. */
const PLAIN = new Set(
  `DENO_CERT DENO_DIR DENO_TLS_CA_STORE HOME LANG LANGUAGE LOGNAME NODE_COMPILE_CACHE NODE_EXTRA_CA_CERTS NODE_OPTIONS PATH SHELL
  SSL_CERT_DIR SSL_CERT_FILE TMPDIR TZ USER`.split(/\s+/),
);
const PLAIN_PREFIX = /^(LC|XDG)_/;
/** V8's and the runtimes' own words before the log is open must be readable by the user alone */
const LOG_MODE = 0o600;

/** Command, folder, environment and log file of a process to start. */
export interface DetachedLaunch {
  /** Program and arguments; no shell in between */
  readonly command: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Variable whose value `stdin` tells the process to read `env` from its standard input, as one JSON object */
  readonly handover: string;
  /** Gets what the process writes to stderr; when it cannot be opened that is dropped */
  readonly logFile: string;
}

/** A process that outlives this one. */
export interface DetachedProcess {
  readonly pid: number;
  /** How it ended, such as `with exit code 1`; pending while it runs */
  readonly ended: Promise<string>;
  /** Lets this process end before it */
  release(): void;
}

/**
 * Starts a process in a session of its own, with nothing of this terminal. Its environment in `/proc/<pid>/environ`, which every
 * program of the same user can read, holds no secret: the whole environment is handed over through a pipe on its standard input.
 * @throws {Error} it cannot be started
 */
export async function launchDetached(
  { command, cwd, env, handover, logFile }: DetachedLaunch,
): Promise<DetachedProcess> {
  const [program = "", ...options] = command;
  const plain = Object.entries(env).filter(([name]) => PLAIN.has(name) || PLAIN_PREFIX.test(name));
  const log = openLog(logFile);
  const child = spawn(program, options, {
    cwd,
    detached: true,
    env: { ...Object.fromEntries(plain), [handover]: "stdin" },
    stdio: ["pipe", "ignore", log ?? "ignore"],
  });
  if (log !== undefined) closeSync(log);
  const ended = new Promise<string>((resolve, reject) => {
    child.once("exit", (code, signal) => resolve(signal === null ? `with exit code ${code}` : `by ${signal}`));
    child.once("error", reject);
  });
  // Whoever waits is told; nobody has to wait
  ended.catch(() => {});
  const { pid } = child;
  if (pid === undefined) {
    await ended;
    throw new Error("The process has no number");
  }
  // A program that ends at once does not read its input; its exit code says why
  child.stdin?.on("error", () => {});
  // Without the last part the pipe would stay with both
  child.stdin?.end(JSON.stringify(env), () => child.stdin?.destroy());
  return { pid, ended, release: () => child.unref() };
}

function openLog(path: string): number | undefined {
  try {
    return openSync(path, "a", LOG_MODE);
  } catch {
    return undefined;
  }
}
