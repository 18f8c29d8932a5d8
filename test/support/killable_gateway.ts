import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { ROOT, RUN } from "./gateway_process.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";

/** A gateway in a process of its own that is killed and started again on the same data. */
export interface KillableGateway {
  /** Without a slash at the end; of the process that runs now */
  readonly url: string;
  /** As `Bearer ...` */
  readonly authorization: string;
  readonly workspace: string;
  /** Holds the workspace and the data directory */
  readonly folder: string;
  readonly dataDir: string;
  call(path: string, init?: CallInit): Promise<Response>;
  /** SIGKILL; resolves when the process is gone */
  kill(): Promise<void>;
  /** SIGTERM; resolves when the process is gone */
  stop(): Promise<Stopped>;
  /** Starts it again */
  restart(): Promise<void>;
  /** How often `countingCommand` began, over all processes */
  counted(): number;
}

/** How a gateway ended that was asked to. */
export interface Stopped {
  /** null: by a signal */
  readonly exitCode: number | null;
  /** All that it wrote */
  readonly output: string;
}

export interface CallInit {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

const TOKEN = "token-of-a-gateway-that-is-killed-0123456789";

/** A command with an effect that can be counted: a line when it begins, and then as many seconds of waiting. */
export const countingCommand = (seconds = 0) => `sh -c "echo begun >> counter; sleep ${seconds}"`;

/**
 * Runs `use` with a gateway at level `full` whose model is an upstream of the chat-completions format, and which may run
 * `countingCommand`.
 * @param options.alwaysAsk tools that a person is asked about
 * @param options.env further variables, as `POSTERN__RUNS__MAX_CONCURRENT`
 */
export async function withKillableGateway(
  { baseUrl, alwaysAsk = [], env: further = {} }: {
    readonly baseUrl: string;
    readonly alwaysAsk?: readonly string[];
    readonly env?: Readonly<Record<string, string>>;
  },
  use: (gateway: KillableGateway) => Promise<void>,
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const workspace = join(folder, "work");
    mkdirSync(workspace);
    const config = join(folder, "postern.toml");
    writeFileSync(
      config,
      `[gateway]
rate_limit_max = 0
[provider]
kind = "openai_compatible"
base_url = "${baseUrl}"
model = "upstream-model"
max_retries = 0
[autonomy]
level = "full"
always_ask = ${JSON.stringify(alwaysAsk)}
[cron]
enabled = true
[security]
allowed_commands = ["sh"]
[security.shell]
sandbox = "off"
`,
    );
    const env = {
      PATH: process.env["PATH"] ?? "",
      HOME: folder,
      POSTERN_TOKEN: TOKEN,
      NO_COLOR: "1",
      ...further,
    };
    const dataDir = join(folder, "data");
    const argv = ["cli/main.ts", "gateway", "--port", "0", "--config", config, "--workspace", workspace];
    const start = () => startProcess([...RUN, ...argv, "--data-dir", dataDir], env);
    let running = await start();
    const authorization = `Bearer ${TOKEN}`;
    try {
      await use({
        get url() {
          return running.url;
        },
        authorization,
        workspace,
        folder,
        dataDir,
        call(path, { method, headers, body, signal } = {}) {
          return fetch(running.url + path, {
            method: method ?? (body === undefined ? "GET" : "POST"),
            headers: {
              authorization,
              ...(body === undefined ? {} : { "content-type": "application/json" }),
              ...headers,
            },
            ...(body === undefined ? {} : { body: JSON.stringify(body) }),
            ...(signal === undefined ? {} : { signal }),
          });
        },
        kill: () => kill(running.child),
        stop: () => running.stop(),
        async restart() {
          running = await start();
        },
        counted: () => linesOf(join(workspace, "counter")),
      });
    } finally {
      await kill(running.child);
    }
  });
}

interface Running {
  readonly child: ChildProcess;
  readonly stop: () => Promise<Stopped>;
  readonly url: string;
}

async function startProcess([command = "", ...argv]: readonly string[], env: Record<string, string>): Promise<Running> {
  const child = spawn(command, argv, { cwd: ROOT, env, stdio: "pipe" });
  let output = "";
  const ended = once(child, "close");
  child.stderr.on("data", (part) => (output += part));
  const stop = async () => {
    // On Deno, child.kill() reports the signal in place of the exit code
    if (child.pid !== undefined) process.kill(child.pid, "SIGTERM");
    const [exitCode] = await ended;
    return { exitCode: exitCode as number | null, output };
  };
  for await (const part of child.stdout) {
    output += part;
    const url = /(http:\/\/127\.0\.0\.1:\d+)\//.exec(output)?.[1];
    if (url === undefined) continue;
    // What comes later is read and dropped, so that the pipe never fills
    child.stdout.resume();
    return { child, stop, url };
  }
  await ended;
  throw new Error(`The gateway ended before it listened: ${output}`);
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

function linesOf(path: string): number {
  try {
    return readFileSync(path, "utf8").split("\n").length - 1;
  } catch {
    return 0;
  }
}
