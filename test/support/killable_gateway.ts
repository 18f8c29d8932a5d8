import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ChatClient, openGatewayChat } from "./chat_client.ts";
import { callGateway, type CallInit } from "./gateway_call.ts";
import { killIfThere } from "./kill_if_there.ts";
import { startPostern } from "./postern_process.ts";
import type { StartedProcess } from "./started_process.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";

/** A gateway in a process of its own that is killed and started again on the same data. */
export interface KillableGateway {
  /** Without a slash at the end; of the process that runs now */
  readonly url: string;
  /** An admin token */
  readonly token: string;
  readonly workspace: string;
  /** Holds the workspace and the data directory */
  readonly folder: string;
  readonly dataDir: string;
  call(path: string, init?: CallInit): Promise<Response>;
  /** Opens `/ws/chat` of the process that runs now. @throws {HandshakeRefused} for a refusal */
  chat(): Promise<ChatClient>;
  /** All that the process that runs now wrote so far */
  output(): string;
  /** Sends SIGSTOP or SIGCONT */
  signal(signal: "SIGSTOP" | "SIGCONT"): void;
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

const TOKEN = "token-of-a-gateway-that-is-killed-0123456789";

/** A command with an effect that can be counted: a line when it begins, and then as many seconds of waiting. */
export const countingCommand = (seconds = 0) => `sh -c "echo begun >> counter; sleep ${seconds}"`;

export interface KillableGatewayOptions {
  /** Base URL of an upstream of the chat-completions format */
  readonly baseUrl: string;
  /** Tools that a person is asked about. Default: none */
  readonly alwaysAsk?: readonly string[];
  /** Workspace that is there. Default: a fresh one */
  readonly workspace?: string;
  /** Folder with another build of the program. Default: this project */
  readonly program?: string;
  /** Further variables, such as `POSTERN__RUNS__MAX_CONCURRENT` */
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs `use` with a gateway at level `full` whose model is the upstream, and which may run `countingCommand`. */
export async function withKillableGateway(
  { baseUrl, alwaysAsk = [], env: further = {}, ...options }: KillableGatewayOptions,
  use: (gateway: KillableGateway) => Promise<void>,
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const workspace = options.workspace ?? join(folder, "work");
    mkdirSync(workspace, { recursive: true });
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
    const env = { HOME: folder, POSTERN_TOKEN: TOKEN, ...further };
    const dataDir = join(folder, "data");
    const argv = ["gateway", "--port", "0", "--config", config, "--workspace", workspace, "--data-dir", dataDir];
    const start = () =>
      startPostern(argv, { env, program: options.program, ready: /Address +(http:\/\/127\.0\.0\.1:\d+)\// });
    let running = await start();
    try {
      await use({
        get url() {
          return urlOf(running);
        },
        token: TOKEN,
        workspace,
        folder,
        dataDir,
        call: (path, init) => callGateway({ url: urlOf(running), token: TOKEN }, path, init),
        chat: () => openGatewayChat({ url: urlOf(running), token: TOKEN }),
        output: () => running.output(),
        signal: (signal) => killIfThere(running.pid, signal),
        async kill() {
          await running.end("SIGKILL");
        },
        stop: async () => ({ exitCode: await running.end("SIGTERM"), output: running.output() }),
        async restart() {
          running = await start();
        },
        counted: () => linesOf(join(workspace, "counter")),
      });
    } finally {
      await running.end("SIGKILL");
    }
  });
}

const urlOf = ({ match: [, url = ""] }: StartedProcess) => url;

function linesOf(path: string): number {
  try {
    return readFileSync(path, "utf8").split("\n").length - 1;
  } catch {
    return 0;
  }
}
