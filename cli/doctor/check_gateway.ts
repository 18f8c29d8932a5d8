import { existsSync } from "node:fs";
import { isAbsolute } from "node:path";
import { VERSION } from "../../lib/base/version.ts";
import { DRAINED } from "../../lib/cluster/drain_watch.ts";
import { readDaemonState } from "../../lib/host/daemon/daemon_state.ts";
import { readServiceFile } from "../../lib/host/service/service_file.ts";
import { readServiceMark, ServiceError } from "../../lib/host/service/service_manager.ts";
import { CommandError } from "../command.ts";
import { serviceManagerOf } from "../daemon/service_setup.ts";
import { readServiceStatus } from "../daemon/service_status.ts";
import { type Check, failure, type Finding, fine, type Installation, type RunningFacts, warning } from "./finding.ts";

const NAME = "gateway";

/** Checks what runs on the data directory: the daemon, a gateway in a terminal, or nothing. */
export const gatewayCheck: Check = {
  name: NAME,
  async run(installation) {
    const { loaded: { dataDir }, running } = installation;
    const state = await readDaemonState(dataDir, () => Promise.resolve(running?.health ?? "silent"));
    switch (state.kind) {
      case "starting":
        return warning(NAME, `The daemon is starting: process ${state.process.pid}`, "postern daemon status");
      case "stopping":
        return warning(NAME, `The daemon is stopping: process ${state.process.pid}`, "postern daemon status");
      case "running":
        return judge(installation, "The daemon", "postern daemon stop && postern daemon start");
      case "stale":
        if (running !== undefined) return judge(installation, "A gateway in a terminal", "start it again");
        return warning(NAME, "The daemon was killed; the next start cleans up after it", "postern daemon start");
      case "stopped":
        if (running === undefined) return fine(NAME, "None runs; postern gateway or postern daemon start starts one");
        return judge(installation, "A gateway in a terminal", "start it again");
    }
  },
};

function judge({ running }: Installation, who: string, restart: string): readonly Finding[] {
  if (running === undefined) return [failure(NAME, `${who} ended while it was looked at`, restart)];
  return [judgeHealth(running, who, restart), ...judgeReload(running, restart)];
}

function judgeHealth({ record, health, status }: RunningFacts, who: string, restart: string): Finding {
  const what = `${who} runs at ${record.address} (process ${record.pid})`;
  if (health === "silent") return failure(NAME, `${what} and does not answer`, restart);
  // A gateway that takes no work claims no run either
  if (health === "draining" && status?.cluster?.reason === DRAINED) {
    return warning(NAME, `${what} and stays without work, since somebody has drained it`, restart);
  }
  if (health === "draining") return warning(NAME, `${what} and is about to end`, "postern daemon status");
  const problem = status?.shared_workspace?.problem ?? null;
  if (problem !== null) {
    const why = `${what} and claims no run that needs its workspace: ${problem}`;
    // Other gateways have another folder, or have not answered yet
    return health === "degraded"
      ? failure(NAME, why, "[cluster] workspace_id")
      : warning(NAME, why, "postern cluster status");
  }
  if (health === "degraded" && (status?.unreadable_records ?? []).length > 0) {
    return failure(NAME, `${what} and has set damaged records aside`, "see the line on the database");
  }
  if (health === "degraded") {
    return failure(NAME, `${what} and cannot write its records or its log`, "see the line on the database");
  }
  if (record.version === VERSION) return fine(NAME, what);
  return warning(NAME, `${what} as version ${record.version}, and this program is ${VERSION}`, restart);
}

/** Warns about changes of the configuration file that are not in use. */
function judgeReload({ status }: RunningFacts, restart: string): readonly Finding[] {
  const { needs_restart: waiting = [], last_reload: reload = null } = status?.config ?? {};
  const problem = reload?.problem ?? null;
  return [
    ...(waiting.length === 0 ? [] : [warning(NAME, `It still uses the old value of ${waiting.join(", ")}`, restart)]),
    ...(problem === null
      ? []
      : [warning(NAME, `It refused the last change of the configuration: ${problem}`, "postern config check")]),
  ];
}

const SERVICE = "service";

/** Checks that the service, if one is installed, starts an existing program and runs. */
export const serviceCheck: Check = {
  name: SERVICE,
  async run({ context }) {
    const manager = serviceManagerOf(context, undefined);
    if (manager === undefined) {
      return fine(SERVICE, "Neither systemd nor OpenRC runs here; postern daemon start works without them");
    }
    const text = await readServiceFile(manager.file);
    if (text === undefined) return fine(SERVICE, "Not installed; postern service install has it started by the system");
    const missing = readServiceMark(text)?.command.find((word) => isAbsolute(word) && !existsSync(word));
    if (missing !== undefined) {
      return failure(SERVICE, `${manager.file} starts "${missing}", which is gone`, "postern service install");
    }
    const status = await readServiceStatus(context, manager).catch(toUnknown);
    if ("unknown" in status) return warning(SERVICE, status.unknown, "postern service status");
    const { running, unit, unit_detail, health, enabled, address } = status;
    if (unit === "failed") return failure(SERVICE, `It failed: ${unit_detail}`, "postern service start");
    if (running && enabled) return fine(SERVICE, `Runs under ${manager.init} and answers at ${address}`);
    if (running) return warning(SERVICE, "It runs, and does not start by itself", "postern service install");
    if (unit === "running") {
      return failure(SERVICE, `It runs and is ${health} at ${address}`, "postern service restart");
    }
    return warning(SERVICE, `Installed and not running: ${unit_detail}`, "postern service start");
  },
};

/** Returns the reason why the state is unknown: a service of another user, or a session without the bus of systemd, cannot be asked. */
function toUnknown(error: unknown): { readonly unknown: string } {
  if (error instanceof CommandError || error instanceof ServiceError) return { unknown: error.message };
  throw error;
}
