import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { systemClock, type Timer } from "../../lib/base/clock.ts";
import { messageOf } from "../../lib/base/errors.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import type { LogLevel, LogSink } from "../../lib/base/telemetry/log.ts";
import { VERSION } from "../../lib/base/version.ts";
import { prepareDataDir } from "../../lib/config/folders.ts";
import { loadConfig, type LoadedConfig, trustDirectory } from "../../lib/config/load_config.ts";
import { allSecrets, environmentSecrets } from "../../lib/config/secrets.ts";
import { type DaemonProcess, readPidFile, removePidFile, writePidFile } from "../../lib/host/daemon/daemon_state.ts";
import { daemonLogPath, openLogFile } from "../../lib/host/daemon/log_file.ts";
import { processIdentity } from "../../lib/host/process_identity.ts";
import { createNotifier } from "../../lib/host/service/create_notifier.ts";
import { SERVICE_VARIABLE } from "../../lib/host/service/service_manager.ts";
import { type CliIo, type CommandContext, CommandError } from "../command.ts";
import { probeGateway } from "../reach_gateway.ts";
import { createLogSink, createProcessLog, toLogLine } from "../serve/log_sink.ts";
import { runGateway } from "../serve/run_gateway.ts";
import { takesColour } from "../terminal/terminal_text.ts";
import { takeDaemonLock } from "./stop_daemon.ts";

/** Time between two looks whether the supervisor is still there, in ms */
const LOOK_MS = 1_000;

/**
 * Runs the daemon in this process until a signal ends it. Holds `{data_dir}/daemon.lock`, keeps the PID file, writes the log, and
 * tells systemd when it is ready. Source: docs/design/processes.md "System service"
 * @param keys values of the command line by configuration key
 * @throws {CommandError} another daemon runs; {ConfigError} {ListenError} it cannot start
 */
export async function runDaemon(context: CommandContext, keys: Readonly<Record<string, unknown>>): Promise<void> {
  const { io } = context;
  const service = io.env[SERVICE_VARIABLE] || undefined;
  const reload = () => loadFor(context, { keys, isService: service !== undefined });
  const loaded = await reload().catch((error) => tellInLog(context, error));
  const { dataDir, config } = loaded;
  await prepareDataDir(dataDir);
  const lock = await takeDaemonLock(dataDir);
  if (lock === undefined) return tellInLog(context, await alreadyRuns(dataDir));
  const log = openDaemonLog(io, { dataDir, format: config.logging.format });
  try {
    await runLocked(context, { loaded, reload, service, log });
  } finally {
    log.close();
    lock.release();
  }
}

/** Log of a daemon: its file, and also stderr where somebody may read that. */
interface DaemonLog {
  readonly write: LogSink;
  /** Writes a line of the daemon itself. The message must hold no secret */
  say(level: LogLevel, message: string, fields?: Readonly<Record<string, unknown>>): void;
  /** Returns false while lines are lost */
  healthy(): boolean;
  close(): void;
}

interface LockedDaemon {
  readonly loaded: LoadedConfig;
  readonly reload: () => Promise<LoadedConfig>;
  /** Service manager that runs the daemon. Undefined without one */
  readonly service: string | undefined;
  readonly log: DaemonLog;
}

/** Runs the gateway of the daemon that holds the lock, and tells PID file, log and service manager about each phase. */
async function runLocked(context: CommandContext, { loaded, reload, service, log }: LockedDaemon): Promise<void> {
  const { io } = context;
  const { redact } = createRedactor(await allSecrets(loaded.config, io.env));
  io.onCrash((error) =>
    log.say("error", "The process ends after an error that nothing caught", { error: redact(textOf(error)) })
  );
  const pidFile = await keepPidFile(loaded, { leadsGroup: io.isLaunched, service });
  let address = "";
  const notifier = createNotifier({
    env: io.env,
    pid: process.pid,
    clock: systemClock,
    answers: async () => await probeGateway({ address, token: "" }) !== "silent",
    onError: (message) => log.say("error", message),
  });
  const supervised = service === "openrc" ? endWithoutParent() : undefined;
  const onStarted = async (at: string) => {
    address = at;
    await pidFile.tell("running");
    log.say("info", "The daemon listens", { address });
    await notifier.ready(`Listening at ${address}`);
  };
  const onStopping = () => {
    // A full disk must not interrupt the drain
    pidFile.tell("stopping").catch((error) =>
      log.say("warn", "The PID file does not tell that the daemon stops", { error: String(error) })
    );
    void notifier.stopping();
  };
  try {
    await pidFile.tell("starting");
    log.say("info", "The daemon starts", { pid: process.pid, version: VERSION });
    const banner = !io.isLaunched && service === undefined;
    const options = { loaded, reload, agent: true, newPairing: false, banner, log, onStarted, onStopping };
    await runGateway({ ...context, say: (message) => log.say("info", message) }, options);
    log.say("info", "The daemon has ended");
  } catch (error) {
    // Stderr of a launched process is the log file: the command line reports the error there
    if (!io.isLaunched) {
      log.say("error", redact(`The daemon ${address === "" ? "does not start" : "ends"}: ${messageOf(error)}`));
    }
    throw error;
  } finally {
    supervised?.clear();
    await notifier.close();
    await pidFile.remove();
  }
}

/**
 * Loads the configuration. A service whose configuration names no workspace gets a folder in the data directory: no person chose
 * its current folder.
 */
async function loadFor(
  context: CommandContext,
  { keys, isService }: { readonly keys: Readonly<Record<string, unknown>>; readonly isService: boolean },
): Promise<LoadedConfig> {
  const loaded = await context.loadConfig(keys);
  const { flags } = context.loadOptions;
  if (!isService || flags.workspace !== undefined || loaded.sources.has("workspace")) return loaded;
  const workspace = join(loaded.dataDir, "workspace");
  await mkdir(workspace, { recursive: true, mode: 0o700 });
  return await loadConfig({ ...context.loadOptions, flags: { ...flags, workspace, keys } });
}

/** Writes the error that keeps the daemon from starting to the log, since nobody sees a service's stderr. Then throws it. */
function tellInLog({ io, loadOptions }: CommandContext, error: unknown): never {
  const dataDir = trustDirectory(loadOptions);
  if (!io.isLaunched && existsSync(dataDir)) {
    const log = openDaemonLog({ ...io, stderr: () => {} }, { dataDir, format: "pretty" });
    const { redact } = createRedactor(environmentSecrets(io.env));
    log.say("error", redact(`The daemon does not start: ${messageOf(error)}`));
    log.close();
  }
  throw error;
}

/** Ends this process when its supervisor was killed: OpenRC could then neither stop the service nor start another one. */
function endWithoutParent(): Timer {
  const { pid, ppid: parent } = process;
  const timer = systemClock.every(LOOK_MS, () => {
    if (process.ppid === parent) return;
    timer.clear();
    process.kill(pid, "SIGTERM");
  });
  return timer;
}

async function alreadyRuns(dataDir: string): Promise<CommandError> {
  const other = await readPidFile(dataDir);
  const who = other?.kind === "alive" ? ` (process ${other.process.pid})` : "";
  return new CommandError(
    `Cannot start: a daemon${who} runs on "${dataDir}" already; stop it with postern daemon stop`,
  );
}

async function keepPidFile(
  { dataDir, config }: LoadedConfig,
  { leadsGroup, service }: { readonly leadsGroup: boolean; readonly service: string | undefined },
) {
  const own: Omit<DaemonProcess, "phase"> = {
    pid: process.pid,
    identity: await processIdentity(process.pid) ?? "",
    leads_group: leadsGroup,
    service,
    grace_seconds: config.gateway.shutdown_grace_secs,
  };
  // Written one after the other: the last phase must be the last one in the file
  let written = Promise.resolve();
  return {
    tell(phase: DaemonProcess["phase"]): Promise<void> {
      return written = written.catch(() => {}).then(() => writePidFile(dataDir, { ...own, phase }));
    },
    remove(): Promise<void> {
      return written.catch(() => {}).then(() => removePidFile(dataDir));
    },
  };
}

function textOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** Opens the log. A log that cannot be written is no error: `healthy` then returns false. */
function openDaemonLog(
  io: CliIo,
  { dataDir, format }: { readonly dataDir: string; readonly format: "pretty" | "json" },
): DaemonLog {
  const file = openLogFile({
    path: daemonLogPath(dataDir),
    clock: systemClock,
    toLine: (record) => toLogLine(record, { format, withDate: true }),
  });
  const terminal = createLogSink({ format, write: io.stderr, colour: takesColour(io, "stderr") });
  // Stderr of a process that was launched in the background is the log file already
  const write = createProcessLog(io.isLaunched ? [file.write] : [file.write, terminal]);
  return {
    write,
    say: (level, message, fields = {}) => write({ level, time: systemClock.now(), message, fields }),
    healthy: file.healthy,
    close: file.close,
  };
}
