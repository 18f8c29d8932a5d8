import { existsSync } from "node:fs";
import * as nodeModule from "node:module";
import { join } from "node:path";
import { ConfigError } from "../../lib/base/errors.ts";
import type { LogSink } from "../../lib/base/telemetry/log.ts";
import { VERSION } from "../../lib/base/version.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { missingVariables } from "../../lib/config/secrets.ts";
import type { GatewayServices } from "../../lib/gateway.ts";
import { checkBeside } from "../../lib/host/check_beside.ts";
import { readControlFile, removeControlFile, writeControlFile } from "../../lib/host/control_file.ts";
import { processIdentity } from "../../lib/host/process_identity.ts";
import { DATABASE_NAME } from "../../lib/storage/back_up.ts";
import { loadHttpClient } from "../../lib/system/net/provider_client.ts";
import { CommandError, EXIT } from "../cli_error.ts";
import type { CommandContext } from "../command.ts";
import { bannerFacts, bannerText } from "./banner.ts";
import { checkBind, isOnLoopback, ownAddress } from "./listen_address.ts";
import { type RunningServer, serveGateway } from "./serve_gateway.ts";
import { randomControlToken, type StartOptions, startServices } from "./start_services.ts";
import { inlineFurther, limitYoungGeneration } from "./tune_v8.ts";

/** After the start and its first /health, and mostly before anybody chats. Milliseconds */
const WARM_UP_AFTER_MS = 500;

export interface RunGatewayOptions {
  readonly loaded: LoadedConfig;
  /** Loads it again, as `loaded` was */
  readonly reload: () => Promise<LoadedConfig>;
  /** false: serve without an agent */
  readonly agent: boolean;
  /** Revokes every token before the port opens */
  readonly newPairing: boolean;
  /** Whether address and pairing code are told on stdout */
  readonly banner: boolean;
  /** Where the log goes. Default: stderr */
  readonly log?: { readonly write: LogSink; healthy(): boolean };
  /** The port answers, and the control file is written */
  readonly onStarted?: (address: string) => Promise<void>;
  /** The drain begins, or a start that was under way is given up */
  readonly onStopping?: () => void;
}

/**
 * Runs a gateway until SIGINT or SIGTERM, then drains it; a second signal ends the process at once (docs/design/http.md "Drain").
 * @throws {ConfigError} {ListenError} {CommandError} it cannot start
 */
export async function runGateway(context: CommandContext, options: RunGatewayOptions): Promise<void> {
  const { loaded } = options;
  const { config } = loaded;
  inlineFurther();
  const limitSpace = limitYoungGeneration();
  checkBind(config, { hasEnvironmentToken: (context.io.env["POSTERN_TOKEN"] ?? "") !== "" });
  const token = randomControlToken();
  const stop = watchStop(context, options);
  try {
    const database = join(loaded.dataDir, DATABASE_NAME);
    const isChecked = config.storage.driver === "sqlite" && existsSync(database);
    const services = await startAlone(context, { ...options, controlToken: token });
    const check = isChecked ? checkBeside({ path: database, clock: services.clock, env: context.io.env }) : undefined;
    let stopFresh = () => {};
    try {
      if (stop.asked()) return;
      // Before the port opens: an old token must not work even for a moment
      if (options.newPairing) await services.tokens.revokeAll({ via: "cli", tokenId: null });
      const server = await serveGateway({
        services,
        host: config.gateway.host,
        port: config.gateway.port,
        onRequest: () => limitSpace(services.agent?.runs.active() ?? 0),
      });
      const stopped = stop.drains(server);
      const { keepConfigFresh } = await import("./keep_config_fresh.ts");
      stopFresh = await keepConfigFresh(context, { services, loaded, reload: options.reload });
      const wantsCode = options.banner && config.gateway.require_pairing && await services.tokens.count() === 0;
      const pairingCode = wantsCode ? (await services.pairing.createCode()).code : undefined;
      const address = ownAddress(server);
      await writeControlFile(loaded.dataDir, {
        address,
        pid: process.pid,
        identity: await processIdentity(process.pid),
        host: server.host,
        // It counts on the loopback interface alone, and must be sent nowhere else
        token: isOnLoopback(address) ? token : "",
        started_at: new Date(services.startedAt).toISOString(),
        version: VERSION,
        workspace: loaded.workspace,
      });
      if (options.banner) {
        const containment = await services.containment();
        const facts = bannerFacts({ services, loaded, server, pairingCode, containment, pid: process.pid });
        // One line, so that a script that starts the gateway can wait for it
        if (context.flags.json) context.io.stdout(`${JSON.stringify(facts)}\n`);
        else context.io.stdout(bannerText(facts, { requiresPairing: config.gateway.require_pairing }));
      }
      await options.onStarted?.(address);
      const { agent, clock, log } = services;
      for (const { name, key } of missingVariables(config, context.io.env)) {
        log.warn("A variable that the configuration names is not set", { variable: name, key });
      }
      const { warnOfIdleSettings } = await import("../../lib/tools/idle_settings.ts");
      warnOfIdleSettings(config, log);
      const needsHttp = agent !== undefined && agent.providers.inUse.name !== "offline";
      const warmUp = clock.after(WARM_UP_AFTER_MS, () => void warm({ needsHttp, services }));
      try {
        await (check === undefined ? stopped : Promise.race([stopped, check.damage]));
      } catch (error) {
        // Each further write could spread the damage
        await server.drain(0);
        throw error;
      } finally {
        warmUp.clear();
      }
    } finally {
      check?.stop();
      stopFresh();
      await removeControlFile(loaded.dataDir, process.pid);
      await services.close();
    }
  } finally {
    stop.ignore();
  }
}

/** Loads what the first chat would wait for, and keeps the compiled code for the next start: at its end alone, a kill would lose it. */
async function warm(
  { needsHttp, services }: { readonly needsHttp: boolean; readonly services: GatewayServices },
): Promise<void> {
  // Found before the first command: a machine that is busy by then does not delay it
  await services.containment();
  if (needsHttp) await loadHttpClient();
  nodeModule.flushCompileCache?.();
}

/** @throws {CommandError} another gateway runs on the data directory */
async function startAlone(context: CommandContext, options: Omit<StartOptions, "quiet">): Promise<GatewayServices> {
  try {
    return await startServices(context, { ...options, quiet: false });
  } catch (error) {
    if (!(error instanceof ConfigError) || error.code !== "data_dir_locked") throw error;
    const other = await readControlFile(options.loaded.dataDir);
    const who = other === undefined ? "another gateway" : `the gateway at ${other.address} (process ${other.pid})`;
    throw new CommandError(
      `Cannot start: ${who} uses "${options.loaded.dataDir}"; stop it, or give --data-dir and --port`,
    );
  }
}

/** Listens for signals from the beginning, so that one during a start ends it in good order. */
function watchStop({ io, say }: CommandContext, { loaded, onStopping }: RunGatewayOptions) {
  const graceSeconds = loaded.config.gateway.shutdown_grace_secs;
  const { promise: stopped, resolve, reject } = Promise.withResolvers<void>();
  let server: RunningServer | undefined;
  let asked = false;
  const drain = () => server?.drain(graceSeconds * 1000).then(resolve, reject).finally(ignore);
  const ignore = io.onInterrupt(() => {
    if (asked) return io.exit(EXIT.failed);
    asked = true;
    const hint = io.isTerminal.stderr ? "; press Ctrl-C again to stop at once" : "";
    say(`Stopping: work has up to ${graceSeconds} s to finish${hint}`);
    onStopping?.();
    void drain();
  });
  return {
    asked: () => asked,
    ignore,
    /** Resolves once the server has drained after the first signal */
    drains(running: RunningServer): Promise<void> {
      server = running;
      if (asked) void drain();
      return stopped;
    },
  };
}
