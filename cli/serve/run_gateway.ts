import { existsSync } from "node:fs";
import * as nodeModule from "node:module";
import { join } from "node:path";
import { CancelError } from "../../lib/base/cancel.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { lazily } from "../../lib/base/lazily.ts";
import type { LogSink } from "../../lib/base/telemetry/log.ts";
import { VERSION } from "../../lib/base/version.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { missingVariables } from "../../lib/config/secrets.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { checkBeside } from "../../lib/host/check_beside.ts";
import { readControlFile, removeControlFile, writeControlFile } from "../../lib/host/control_file.ts";
import { processIdentity } from "../../lib/host/process_identity.ts";
import { DATABASE_NAME } from "../../lib/storage/back_up.ts";
import { loadHttpClient } from "../../lib/system/net/provider_client.ts";
import { type CommandContext, CommandError, EXIT } from "../command.ts";
import { bannerFacts, bannerText, type FirstPairing, PAIRED } from "./banner.ts";
import { firstPairingCode } from "./first_pairing_code.ts";
import { checkBind, isOnLoopback, ownAddress } from "./listen_address.ts";
import { loadRoutes, type RunningServer, serveGateway } from "./serve_gateway.ts";
import { randomControlToken, type StartOptions, startServices } from "./start_services.ts";
import { limitYoungGeneration, raiseInliningLimits } from "./tune_v8.ts";
import { watchConfig } from "./watch_config.ts";

/** Time between the start and what it can leave for later, in ms: after the first /health, and mostly before anybody chats. */
const WARM_UP_AFTER_MS = 500;
/** Longest wait of the banner for what a model server says of its model's tools, in ms. */
const TOOL_SUPPORT_MS = 1_000;

/** Options of `runGateway`. */
export interface RunGatewayOptions {
  readonly loaded: LoadedConfig;
  /** Loads the configuration again, in the same way as `loaded` */
  readonly reload: () => Promise<LoadedConfig>;
  /** False: serves without an agent */
  readonly agent: boolean;
  /** True: revokes every token before the port opens */
  readonly newPairing: boolean;
  /** True: prints address and pairing code to stdout */
  readonly banner: boolean;
  /** Log to write to. Default: stderr */
  readonly log?: { readonly write: LogSink; healthy(): boolean };
  /** Runs once the port answers and the control file is written */
  readonly onStarted?: (address: string) => Promise<void>;
  /** Runs when the drain begins, or a start under way is given up */
  readonly onStopping?: () => void;
}

/**
 * Runs a gateway until SIGINT or SIGTERM, then drains it. A second signal ends the process at once (docs/design/http.md "Drain").
 * @throws {ConfigError} {ListenError} {CommandError} it cannot start
 */
export async function runGateway(context: CommandContext, options: RunGatewayOptions): Promise<void> {
  const { config, dataDir } = options.loaded;
  raiseInliningLimits();
  const limitSpace = limitYoungGeneration();
  checkBind(config, { hasEnvironmentToken: (context.io.env["POSTERN_TOKEN"] ?? "") !== "" });
  const controlToken = randomControlToken();
  const stop = watchStop(context, options);
  try {
    const path = join(dataDir, DATABASE_NAME);
    const checked = config.storage.driver === "sqlite" && existsSync(path) ? path : undefined;
    const services = await startUnlessStopped(context, { ...options, controlToken, stop });
    if (services === undefined) return;
    try {
      if (stop.asked()) return;
      await serveUntilStopped(context, { options, services, controlToken, stop, limitSpace, checked });
    } finally {
      await removeControlFile(dataDir, process.pid);
      await services.close();
    }
  } finally {
    stop.ignore();
  }
}

/** Started gateway, on its way from the services to the open port. */
interface Start {
  readonly options: RunGatewayOptions;
  readonly services: GatewayServices;
  readonly controlToken: string;
  readonly stop: ReturnType<typeof watchStop>;
  readonly limitSpace: ReturnType<typeof limitYoungGeneration>;
  /** Path of the database, which is checked for damage once the gateway runs. Undefined for a new database */
  readonly checked: string | undefined;
}

/** Opens the port, tells so, and returns once a signal has drained the server. */
async function serveUntilStopped(context: CommandContext, start: Start): Promise<void> {
  const { options, services, stop } = start;
  const { loaded, reload, newPairing, onStarted } = options;
  const { host, port } = loaded.config.gateway;
  // Before the port opens: an old token must not work even for a moment
  if (newPairing) await services.tokens.revokeAll({ via: "cli", tokenId: null });
  const onRequest = start.limitSpace(() => services.agent?.runs.active() ?? 0);
  const server = await serveGateway({ services, host, port, onRequest });
  const stopped = stop.drains(server);
  const stopWatching = await watchConfig(context, { services, loaded, reload });
  try {
    const isWanted = options.banner && loaded.config.gateway.require_pairing;
    const pairing = isWanted ? await firstPairingCode(services) : PAIRED;
    const address = await publishAddress(server, start);
    if (options.banner) await printBanner(context, { start, server, pairing });
    await onStarted?.(address);
    for (const { name, key } of missingVariables(loaded.config, context.io.env)) {
      services.log.warn("A variable that the configuration names is not set", { variable: name, key });
    }
    await untilStopped(context, { server, stopped, start });
  } finally {
    stopWatching();
  }
}

/** Writes the control file, by which commands on this machine find the gateway. @returns the address for them */
async function publishAddress(server: RunningServer, { options, services, controlToken }: Start): Promise<string> {
  const { dataDir, workspace } = options.loaded;
  const address = ownAddress(server);
  await writeControlFile(dataDir, {
    address,
    pid: process.pid,
    identity: await processIdentity(process.pid),
    host: server.host,
    // The token counts on the loopback interface alone, and must be sent nowhere else
    token: isOnLoopback(address) ? controlToken : "",
    started_at: new Date(services.startedAt).toISOString(),
    version: VERSION,
    workspace,
  });
  return address;
}

async function printBanner(
  { flags, io, named }: CommandContext,
  { start: { options: { loaded }, services }, server, pairing }: {
    readonly start: Start;
    readonly server: RunningServer;
    readonly pairing: FirstPairing;
  },
): Promise<void> {
  const { kind, base_url } = loaded.config.provider;
  // A server that was not looked for is asked after the start, when the HTTP client is loaded
  const isFound = kind === "auto" && base_url === "";
  const [containment, supportsTools] = await Promise.all([
    services.containment(),
    isFound ? readToolSupport(services) : undefined,
  ]);
  const facts = bannerFacts({ services, loaded, server, pairing, containment, supportsTools, pid: process.pid });
  // Print one line of JSON, so that a script that starts the gateway can wait for it
  if (flags.json) io.stdout(`${JSON.stringify(facts)}\n`);
  else {
    const requiresPairing = loaded.config.gateway.require_pairing;
    io.stdout(bannerText(facts, { requiresPairing, pairing, dataDir: flags.dataDir, columns: io.columns, named }));
  }
}

/** Asks a local server whether the default model is shown tools. Undefined where it does not say in time. */
async function readToolSupport({ agent, clock }: GatewayServices): Promise<boolean | undefined> {
  if (agent === undefined) return undefined;
  const { provider, model } = agent.providers.resolve(undefined);
  const timeout = clock.timeoutSignal(TOOL_SUPPORT_MS);
  try {
    return await provider.takesTools?.(model, timeout.signal);
  } finally {
    timeout.clear();
  }
}

/** Logs settings that do nothing, and MCP servers that are fetched at each start. */
async function logDoubtfulSettings({ options, services }: Start): Promise<void> {
  const { config } = options.loaded;
  const { warnOfIdleSettings } = await import("../../lib/tools/idle_settings.ts");
  warnOfIdleSettings(config, services);
  if (Object.keys(config.mcp.servers).length === 0) return;
  const { floatingServers } = await import("../../lib/extensions/mcp/install/floating_command.ts");
  for (const { message } of floatingServers(config.mcp.servers)) services.log.warn(message);
}

/** Waits for the end of the drain, or for damage of the database. @throws {Error} the damage, after all work was cancelled */
async function untilStopped(
  context: CommandContext,
  { server, stopped, start }: {
    readonly server: RunningServer;
    readonly stopped: Promise<void>;
    readonly start: Start;
  },
): Promise<void> {
  const { services, checked } = start;
  const { clock } = services;
  // Not earlier: starting a process would hold up the first replies
  const check = checked === undefined ? undefined : checkBeside({ path: checked, clock, env: context.io.env });
  const tellOfSettings = lazily(() => logDoubtfulSettings(start));
  const later = clock.after(WARM_UP_AFTER_MS, async () => {
    await tellOfSettings();
    await warm(services);
  });
  try {
    await (check === undefined ? stopped : Promise.race([stopped, check.damage]));
    // A gateway that is stopped at once tells of them too
    await tellOfSettings();
  } catch (error) {
    // Each further write could spread the damage
    await server.drain(0);
    throw error;
  } finally {
    check?.stop();
    later.clear();
  }
}

/** Loads what the first chat would wait for, and writes the compiled code for the next start: at the end a kill would lose it. */
async function warm(services: GatewayServices): Promise<void> {
  const { agent, containment } = services;
  // Found out now, so that the first command need not wait for it on a busy machine
  await containment();
  await loadRoutes();
  if (agent !== undefined && agent.providers.inUse.name !== "offline") {
    await loadHttpClient();
    if (await readToolSupport(services) === false) {
      const { model } = agent.providers.inUse;
      services.log.warn(
        `The model "${model}" is shown no tools, since its chat template knows none: load another model`,
      );
    }
  }
  if (agent !== undefined) await import("../../lib/runs/supervisor/start_run.ts");
  nodeModule.flushCompileCache?.();
}

/** Starts the services. @returns undefined for a start that a signal has ended. @throws as `startAlone` */
async function startUnlessStopped(
  context: CommandContext,
  { stop, ...options }: Omit<StartOptions, "quiet"> & { readonly stop: ReturnType<typeof watchStop> },
): Promise<GatewayServices | undefined> {
  try {
    return await startAlone(context, { ...options, signal: stop.starting });
  } catch (error) {
    if (stop.asked() && error instanceof CancelError) return undefined;
    throw error;
  }
}

/** Starts the services. @throws {CommandError} another gateway runs on the data directory */
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

/** Listens for signals from the beginning, so that a signal during the start ends the start in good order. */
function watchStop({ io, say }: CommandContext, { loaded, onStopping }: RunGatewayOptions) {
  const graceSeconds = loaded.config.gateway.shutdown_grace_secs;
  const { promise: stopped, resolve, reject } = Promise.withResolvers<void>();
  let server: RunningServer | undefined;
  let asked = false;
  const starting = new AbortController();
  const drain = () => server?.drain(graceSeconds * 1000).then(resolve, reject).finally(ignore);
  const ignore = io.onInterrupt(() => {
    if (asked) return io.exit(EXIT.failed);
    asked = true;
    const hint = io.isTerminal.stderr ? "; press Ctrl-C again to stop at once" : "";
    const what = server === undefined ? "the start ends" : `work has up to ${graceSeconds} s to finish`;
    say(`Stopping: ${what}${hint}`);
    starting.abort(new CancelError("shutdown"));
    onStopping?.();
    void drain();
  });
  return {
    asked: () => asked,
    /** Aborts at the first signal, which ends a start that waits */
    starting: starting.signal,
    ignore,
    /** Resolves once the server has drained after the first signal */
    drains(running: RunningServer): Promise<void> {
      server = running;
      if (asked) void drain();
      return stopped;
    },
  };
}
