import { createSystemRandom } from "../../lib/base/random.ts";
import type { LogSink } from "../../lib/base/telemetry/log.ts";
import { VERSION } from "../../lib/base/version.ts";
import { prepareDataDir } from "../../lib/config/folders.ts";
import { type LoadedConfig, trustDirectory } from "../../lib/config/load_config.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices } from "../../lib/services.ts";
import type { CommandContext } from "../command.ts";
import { programName } from "../program_name.ts";
import { takesColour } from "../terminal/terminal_text.ts";
import { configWriterOf } from "./config_writer.ts";
import { createLogSink, createProcessLog } from "./log_sink.ts";

/** Options of `startServices`. */
export interface StartOptions {
  readonly loaded: LoadedConfig;
  /** Loads the configuration again, in the same way as for the start. Default: without flags of one command */
  readonly reload?: (() => Promise<LoadedConfig>) | undefined;
  /** False: no agent and no provider is started */
  readonly agent: boolean;
  /** Admin token of this start, from `randomControlToken` */
  readonly controlToken: string;
  /** True: the log shows warnings and errors only, for a command that does one thing and ends */
  readonly quiet: boolean;
  /** Log to write to, and whether it can be written. Default: stderr */
  readonly log?: { readonly write: LogSink; healthy(): boolean };
  /** Aborts when the start is given up. Default: it never does */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Starts the gateway's services in this process.
 * @throws {ConfigError} `data_dir_locked` while another gateway runs; {CancelError} when the signal aborts during a wait for the database
 */
export async function startServices(context: CommandContext, options: StartOptions): Promise<GatewayServices> {
  const { io, loadOptions } = context;
  const { loaded } = options;
  await prepareDataDir(loaded.dataDir);
  const { format } = loaded.config.logging;
  const terminal = createLogSink({ format, write: io.stderr, colour: takesColour(io, "stderr") });
  const sink = options.log?.write ?? createProcessLog([terminal], options.quiet ? "warn" : "debug");
  return await createServices({
    config: loaded.config,
    folders: {
      dataDir: loaded.dataDir,
      workspaceRoot: loaded.workspace,
      home: io.home,
      ownPaths: loaded.ownPaths,
      trustDir: trustDirectory(loadOptions),
    },
    configWriter: await configWriterOf(loaded, { loadOptions, reload: options.reload ?? (() => context.loadConfig()) }),
    about: { version: VERSION, programName: programName(io.env), help: context.help },
    environment: io.env,
    models: { agent: options.agent },
    controlToken: options.controlToken,
    signal: options.signal,
    log: { isHealthy: options.log?.healthy, sink },
  });
}

/** Returns a fresh admin token for one start: `pst_` and 32 random bytes in base64url. */
export function randomControlToken(): string {
  return `pst_${Buffer.from(createSystemRandom().bytes(32)).toString("base64url")}`;
}
