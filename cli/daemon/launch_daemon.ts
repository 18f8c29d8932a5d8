import { stat } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { systemClock } from "../../lib/base/clock.ts";
import { prepareDataDir } from "../../lib/config/folders.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { type DaemonState, readDaemonState } from "../../lib/host/daemon/daemon_state.ts";
import { endProcess } from "../../lib/host/daemon/end_process.ts";
import { type DetachedProcess, launchDetached } from "../../lib/host/daemon/launch.ts";
import { daemonLogPath, readLogEnd } from "../../lib/host/daemon/log_file.ts";
import { processIdentity } from "../../lib/host/process_identity.ts";
import { type CommandContext, CommandError, HANDOVER_VARIABLE } from "../command.ts";
import { probeGateway } from "../reach_gateway.ts";

/** State of a daemon that answers. */
export type RunningDaemon = Extract<DaemonState, { kind: "running" }>;

const LOOK_MS = 50;
/** Time for a start, in ms. The first start of a new version may have to convert a large database */
const START_LIMIT_MS = 120_000;
/** Time for the process to end when its start is given up, in ms */
const END_GRACE_MS = 5_000;

/**
 * Starts the daemon in a process of its own and waits until it answers.
 * @throws {CommandError} a daemon runs already, or this one did not start; with the last lines of its log
 */
export async function launchDaemon(context: CommandContext, options: {
  readonly loaded: LoadedConfig;
  /** Flags of `daemon start` that are handed on, such as `--port=8080` */
  readonly flags: readonly string[];
}): Promise<RunningDaemon> {
  const { dataDir } = options.loaded;
  await prepareDataDir(dataDir);
  refuseSecond(await readDaemonState(dataDir, probeGateway), dataDir);
  const logFile = daemonLogPath(dataDir);
  const from = await stat(logFile).then(({ size }) => size, () => 0);
  const { config, dataDir: inDir, workspace } = context.flags;
  const globals = Object.entries({ config, "data-dir": inDir, workspace })
    .flatMap(([name, value]) => (value === undefined ? [] : [`--${name}=${value}`]));
  const launched = await launchDetached({
    command: [...ownCommand(), "daemon", "start", "--foreground", ...globals, ...options.flags],
    cwd: context.io.cwd,
    env: { ...context.io.env, HOME: context.io.home },
    handover: HANDOVER_VARIABLE,
    logFile,
  });
  const over = new AbortController();
  let reason = `it did not answer within ${START_LIMIT_MS / 1000} s`;
  const giveUp = (because: string) => {
    if (!over.signal.aborted) reason = because;
    over.abort();
  };
  void launched.ended.then((how) => giveUp(`it ended ${how}`), (error) => giveUp(String(error)));
  const ignore = context.io.onInterrupt(() => giveUp("it was interrupted"));
  const timer = systemClock.after(START_LIMIT_MS, () => over.abort());
  try {
    const running = await untilItAnswers(dataDir, { pid: launched.pid, signal: over.signal });
    if (running !== undefined) {
      launched.release();
      return running;
    }
    await endLaunched(launched);
    // Another start at the same time may have been first
    refuseSecond(await readDaemonState(dataDir, probeGateway), dataDir);
    const lines = await readLogEnd(logFile, from);
    const told = lines === "" ? "" : `; the last lines of ${logFile} are\n${lines}`;
    throw new CommandError(`Cannot start the daemon: ${reason}${told}`);
  } finally {
    timer.clear();
    ignore();
  }
}

/** Refuses a start beside another daemon or gateway. @throws {CommandError} */
function refuseSecond(state: DaemonState, dataDir: string): void {
  if (state.kind === "running") {
    const { record, process: { pid } } = state;
    throw new CommandError(
      `Cannot start: the daemon is running already at ${record.address} (process ${pid}); stop it with postern daemon stop`,
    );
  }
  if (state.kind === "starting" || state.kind === "stopping") {
    throw new CommandError(
      `Cannot start: a daemon is ${state.kind} already (process ${state.process.pid}); see postern daemon status`,
    );
  }
  const { gateway } = state;
  if (gateway !== undefined) {
    throw new CommandError(
      `Cannot start: the gateway at ${gateway.address} (process ${gateway.pid}) uses "${dataDir}"; stop it, or give --data-dir and --port`,
    );
  }
}

/** Waits until the daemon answers. @returns undefined when `signal` was aborted first */
async function untilItAnswers(
  dataDir: string,
  { pid, signal }: { readonly pid: number; readonly signal: AbortSignal },
): Promise<RunningDaemon | undefined> {
  while (!signal.aborted) {
    const state = await readDaemonState(dataDir, probeGateway);
    if (state.kind === "running" && state.process.pid === pid && state.health !== "silent") return state;
    await systemClock.sleep(LOOK_MS);
  }
  return undefined;
}

async function endLaunched({ pid }: DetachedProcess): Promise<void> {
  const identity = await processIdentity(pid);
  if (identity === undefined) return;
  await endProcess({ pid, identity, leads_group: true }, { clock: systemClock, graceMs: END_GRACE_MS });
}

/** Returns the command line that starts this program again, by the same runtime and from the same place. Arguments follow. */
export function ownCommand(): readonly string[] {
  // The build puts this module into the folder "chunks", beside "cli"
  const main = fileURLToPath(
    new URL(import.meta.url.endsWith(".ts") ? "../main.ts" : "../cli/main.js", import.meta.url),
  );
  return "Deno" in globalThis ? [process.execPath, "run", "--allow-all", "--no-check", main] : [process.execPath, main];
}
