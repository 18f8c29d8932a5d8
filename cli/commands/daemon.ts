import { systemClock } from "../../lib/base/clock.ts";
import { findDataDir } from "../../lib/config/load_config.ts";
import { type ControlRecord, readControlFile } from "../../lib/host/control_file.ts";
import { readDaemonState } from "../../lib/host/daemon/daemon_state.ts";
import { createGatewayClient } from "../../lib/system/net/gateway_client.ts";
import { CommandError, defineCliCommand, EXIT } from "../command.ts";
import { daemonStatusText, toDaemonStatus } from "../daemon/daemon_status.ts";
import { callsBy, expectSuccess, probeGateway, readGatewayStatus, requireControl } from "../reach_gateway.ts";
import { type FirstPairing, PAIRED, pairingText } from "../serve/banner.ts";
import { bindFlags, bindKeys, checkBind } from "../serve/listen_address.ts";

/** Command `postern daemon start`: runs the daemon in the background, or with --foreground in this process, as service managers need it. */
export const daemonStartCommand = defineCliCommand({
  args: {
    ...bindFlags,
    foreground: { type: "boolean", description: "Stay in this process, for debugging or a service manager" },
  },
  example: "postern daemon start --port 8080",
  async run(context, { host, port, foreground }) {
    if (process.platform === "win32") {
      throw new CommandError("Cannot run a daemon on Windows: use postern gateway");
    }
    const keys = bindKeys({ host, port });
    if (foreground === true) {
      const { runDaemon } = await import("../daemon/run_daemon.ts");
      await runDaemon(context, keys);
      return EXIT.ok;
    }
    const loaded = await context.loadConfig(keys);
    // Refused here, so that the reason is shown in the terminal and not in a log
    checkBind(loaded.config, { hasEnvironmentToken: (context.io.env["POSTERN_TOKEN"] ?? "") !== "" });
    const { launchDaemon } = await import("../daemon/launch_daemon.ts");
    const flags = Object.entries({ host, port }).flatMap(([name, value]) =>
      value === undefined ? [] : [`--${name}=${value}`]
    );
    const state = await launchDaemon(context, { loaded, flags });
    const reply = await readGatewayStatus(state.record);
    const status = toDaemonStatus(state, { dataDir: loaded.dataDir, now: systemClock.now(), reply });
    const { require_pairing: requiresPairing } = loaded.config.gateway;
    const pairing = !requiresPairing ? PAIRED : await firstPairingOf(state.record).catch((error: Error) => {
      context.say(`The daemon runs, and there is no pairing code: ${error.message}`);
      return undefined;
    });
    const parts = [`${daemonStatusText(state, status, context.io.columns)}\n`];
    if (pairing !== undefined) {
      parts.push(
        pairingText(state.record.address, {
          requiresPairing,
          pairing,
          dataDir: context.flags.dataDir,
          named: context.named,
        }),
      );
    }
    parts.push(context.named("Stop it with postern daemon stop"));
    context.print({ ...status, pairing_code: pairing?.code ?? null }, parts.join("\n"));
    return EXIT.ok;
  },
});

/** Command `postern daemon status`: exit code 0 whether the daemon runs or not. */
export const daemonStatusCommand = defineCliCommand({
  args: {},
  example: "postern daemon status --json",
  async run(context) {
    const dataDir = await findDataDir(context.loadOptions, context.say);
    const state = await readDaemonState(dataDir, probeGateway);
    const answers = state.kind === "running" && state.health !== "silent";
    const reply = answers ? await readGatewayStatus(state.record) : undefined;
    const status = toDaemonStatus(state, { dataDir, now: systemClock.now(), reply });
    context.print(status, daemonStatusText(state, status, context.io.columns));
    return EXIT.ok;
  },
});

/** Command `postern daemon stop`: lets work finish, kills the daemon when that takes too long, and says which of the two happened. */
export const daemonStopCommand = defineCliCommand({
  args: {},
  example: "postern daemon stop",
  async run(context) {
    const dataDir = await findDataDir(context.loadOptions, context.say);
    const { stopDaemon } = await import("../daemon/stop_daemon.ts");
    const stopped = await stopDaemon(dataDir);
    if (stopped === undefined) {
      const gateway = await readControlFile(dataDir);
      const other = gateway === undefined
        ? ""
        : `; the gateway at ${gateway.address} (process ${gateway.pid}) was started by postern gateway: stop it in its terminal`;
      throw new CommandError(`Cannot stop: no daemon is running${other}`);
    }
    const { pid, endedBy, service, waitedSeconds } = stopped;
    context.print(
      { pid, ended_by: endedBy },
      endedBy === "itself"
        ? `Stopped the daemon (process ${pid})`
        : `Killed the daemon (process ${pid}): it had not ended ${waitedSeconds} s after it was told to`,
    );
    if (service !== undefined) {
      context.say(`The daemon ran under ${service}, which may start it again: postern service stop`);
    }
    return EXIT.ok;
  },
});

/** Makes a pairing code for the first client, to be shown in this terminal. There is none while a client is paired. */
async function firstPairingOf(record: ControlRecord): Promise<FirstPairing> {
  requireControl(record);
  const { address, token } = record;
  const client = createGatewayClient({ address, token, clock: systemClock });
  const call = callsBy(async (request) => expectSuccess(await client.request(request)));
  const tokens = await call("GET /v1/tokens");
  if (tokens.data.length > 0) return PAIRED;
  const { cluster } = await call("GET /v1/cluster");
  if (cluster !== null && cluster.gateways.length > 1) {
    return {
      code: null,
      reason:
        "Nobody is paired yet. Another gateway of the cluster may have shown a pairing code, which counts here too",
    };
  }
  return await call("POST /v1/pairing-code");
}
