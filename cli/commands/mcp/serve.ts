import { dirname } from "node:path";
import { systemClock } from "../../../lib/base/clock.ts";
import type { LoadedConfig } from "../../../lib/config/load_config.ts";
import { type ControlRecord, readControlFile } from "../../../lib/host/control_file.ts";
import { readDaemonState } from "../../../lib/host/daemon/daemon_state.ts";
import { createGatewayClient, type GatewayClient } from "../../../lib/system/net/gateway_client.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT } from "../../command.ts";
import { probeGateway, requireControl } from "../../reach_gateway.ts";
import { StdioBridge } from "./stdio_bridge.ts";

/**
 * Command `postern mcp serve`: a client of MCP starts it and speaks to it by standard input and output. It passes each message to `/mcp` of
 * the gateway of the data directory, and starts the daemon where none runs.
 */
export const mcpServeCommand = defineCliCommand({
  args: {
    start: {
      type: "boolean",
      default: true,
      description: "Refuse where no gateway runs, instead of starting the daemon",
    },
    "token-env": {
      type: "string",
      description: "Environment variable with the token to use. Default: the right of whoever started the gateway",
    },
  },
  example: "postern mcp serve --no-start",
  async run(context, { start, "token-env": tokenEnv }) {
    const loaded = await context.loadConfig();
    const token = tokenEnv === undefined ? undefined : readToken(context, tokenEnv);
    const reach = () => reachServing(context, { loaded, mayStart: start, token });
    const bridge = new StdioBridge({
      client: await reach(),
      reach,
      async write(line) {
        context.io.stdout(`${line}\n`);
        await context.io.stdoutReady();
      },
      warn: context.say,
      clock: systemClock,
    });
    const ended = Promise.withResolvers<boolean>();
    const ignore = context.io.onInterrupt(() => ended.resolve(true));
    let isInterrupted = false;
    try {
      const isRead = bridge.read(context.io.openStdin()).then(() => false);
      isInterrupted = await Promise.race([isRead, ended.promise]);
    } finally {
      ignore();
      await bridge.close();
    }
    // A client that reads nothing would hold up the end of a process that writes everything first
    if (isInterrupted) context.io.exit(EXIT.ok);
    return EXIT.ok;
  },
});

/** @throws {CommandError} the variable is not set */
function readToken({ io }: CommandContext, name: string): string {
  const token = io.env[name] ?? "";
  if (token !== "") return token;
  throw new CommandError(`Cannot take the token from the environment: the variable "${name}" is not set`);
}

interface ServingOptions {
  readonly loaded: LoadedConfig;
  readonly mayStart: boolean;
  readonly token: string | undefined;
}

const LOOK_MS = 100;
/** Time for another start of the daemon, which began before this one, in milliseconds. */
const OTHER_START_MS = 120_000;

/** Finds the gateway of the data directory, and starts the daemon where none runs. @throws {CommandError} */
async function reachServing(context: CommandContext, options: ServingOptions): Promise<GatewayClient> {
  const { dataDir } = options.loaded;
  const until = systemClock.monotonic() + OTHER_START_MS;
  for (;;) {
    const record = await readControlFile(dataDir);
    if (record !== undefined && await probeGateway(record) !== "silent") return toClient(record, context, options);
    const state = await readDaemonState(dataDir, probeGateway);
    const isComing = state.kind === "starting" || state.kind === "stopping" || record !== undefined;
    if (!isComing) {
      if (!options.mayStart) {
        throw new CommandError(
          `Cannot reach a gateway: none runs on "${dataDir}"; start it with postern daemon start, or leave --no-start out`,
        );
      }
      requireWorkspace(context, options);
      await startDaemon(context, options);
    } else if (systemClock.monotonic() > until) {
      throw new CommandError(`Cannot reach the gateway on "${dataDir}": it does not answer; see postern daemon status`);
    } else await systemClock.sleep(LOOK_MS);
  }
}

/** Refuses the folders in which programs start clients that were given none: nobody chose them for an agent. @throws {CommandError} */
function requireWorkspace({ flags, io }: CommandContext, { loaded }: ServingOptions): void {
  const { workspace, sources } = loaded;
  const isGiven = flags.workspace !== undefined || sources.has("workspace");
  if (isGiven || (workspace !== io.home && dirname(workspace) !== workspace)) return;
  throw new CommandError(
    `Cannot start the daemon: the agent would work in "${workspace}", where this program was started; name its folder with --workspace`,
  );
}

/** Starts the daemon. Another program may start it at the same moment: then that one is used. @throws {CommandError} */
async function startDaemon(context: CommandContext, { loaded }: ServingOptions): Promise<void> {
  const { launchDaemon } = await import("../../daemon/launch_daemon.ts");
  try {
    const { record } = await launchDaemon(context, { loaded, flags: [] });
    context.say(`Started the daemon at ${record.address}; stop it with postern daemon stop`);
  } catch (error) {
    const state = await readDaemonState(loaded.dataDir, probeGateway);
    if (state.kind !== "starting" && state.kind !== "running") throw error;
  }
}

function toClient(
  record: ControlRecord,
  { flags }: CommandContext,
  { loaded, token }: ServingOptions,
): GatewayClient {
  if (token === undefined) requireControl(record);
  if (flags.workspace !== undefined && loaded.workspace !== record.workspace) {
    throw new CommandError(
      `Cannot work in "${loaded.workspace}": the running gateway works in "${record.workspace}"; leave --workspace out, or use another --data-dir`,
    );
  }
  return createGatewayClient({ address: record.address, token: token ?? record.token, clock: systemClock });
}
