import type { StatusReply } from "../../lib/base/records/gateway_status.ts";
import type { DaemonState, Health } from "../../lib/host/daemon/daemon_state.ts";
import { daemonLogPath } from "../../lib/host/daemon/log_file.ts";
import { printableLine, toDefinitions } from "../terminal/terminal_text.ts";

/** Output of `daemon status --json`. Every field but `running` and `state` is null while no daemon runs. */
export interface DaemonStatus {
  /** True: the process is there and its port was opened. `health` tells how it answers */
  readonly running: boolean;
  /** Phase of the daemon. `stale`: it was killed and left its PID file, which the next start removes */
  readonly state: DaemonState["kind"];
  readonly pid: number | null;
  readonly uptime_seconds: number | null;
  /** URL by which this machine reaches the daemon, with a slash at the end */
  readonly address: string | null;
  /** Host that the daemon listens on */
  readonly host: string | null;
  readonly port: number | null;
  /** Time of the start, ISO 8601 */
  readonly started_at: string | null;
  readonly version: string | null;
  readonly log_file: string | null;
  /** Folder the agent works in */
  readonly workspace: string | null;
  /** Health that the daemon reports. `silent`: it does not answer */
  readonly health: "ok" | "degraded" | "draining" | "silent" | null;
  /** Daemon among the gateways of its database. Null: it is alone, or does not answer */
  readonly cluster: NonNullable<StatusReply["cluster"]> | null;
  /** Provider and model that answer new runs, such as `ollama/llama3.2:latest`. Null also when the daemon does not answer */
  readonly provider: string | null;
  /** Reason why this provider was chosen */
  readonly provider_reason: string | null;
  /** Containment of the commands that tools run. Null also when the daemon does not answer */
  readonly containment: string | null;
  /** Keys of the configuration whose changed value waits for a restart */
  readonly config_needs_restart: readonly string[] | null;
  /** Reason why the last change of the configuration was refused. Null: it was taken over */
  readonly config_problem: string | null;
}

/** Gathers what is known about the daemon. Every field is always there. */
export function toDaemonStatus(state: DaemonState, { dataDir, now, reply }: {
  readonly dataDir: string;
  /** Milliseconds since the epoch */
  readonly now: number;
  /** Status that the daemon reports. Undefined when it does not answer */
  readonly reply?: StatusReply | undefined;
}): DaemonStatus {
  if (state.kind !== "running") {
    return {
      running: false,
      state: state.kind,
      pid: null,
      uptime_seconds: null,
      address: null,
      host: null,
      port: null,
      started_at: null,
      version: null,
      log_file: null,
      workspace: null,
      health: null,
      cluster: null,
      provider: null,
      provider_reason: null,
      containment: null,
      config_needs_restart: null,
      config_problem: null,
    };
  }
  const { record, health, process: { pid } } = state;
  const { hostname, port } = new URL(record.address);
  return {
    running: true,
    state: "running",
    pid,
    uptime_seconds: Math.max(0, Math.floor((now - Date.parse(record.started_at)) / 1000)),
    address: record.address,
    host: record.host ?? hostname,
    // A URL omits port 80
    port: Number(port || 80),
    started_at: record.started_at,
    version: record.version,
    log_file: daemonLogPath(dataDir),
    workspace: record.workspace,
    health,
    cluster: reply?.cluster ?? null,
    provider: reply?.provider ? `${reply.provider.name}/${reply.provider.model}` : null,
    provider_reason: reply?.provider?.reason ?? null,
    containment: reply?.containment.text ?? null,
    config_needs_restart: reply?.config.needs_restart ?? null,
    config_problem: reply?.config.last_reload?.problem ?? null,
  };
}

/** Returns the status for people. @param columns width of the terminal in characters. Undefined: nothing is wrapped */
export function daemonStatusText(state: DaemonState, status: DaemonStatus, columns?: number | undefined): string {
  if (state.kind === "running") {
    const { record, health, process: { pid } } = state;
    const rows = [
      ["Address", record.address],
      ["Health", healthText(health, status)],
      ...clusterRows(status),
      ["Since", `${record.started_at} (${durationText(status.uptime_seconds ?? 0)})`],
      ...(status.containment === null ? [] : [["Sandbox", status.containment]]),
      ...(status.provider === null ? [] : [["Provider", `${status.provider}, since ${status.provider_reason}`]]),
      ["Workspace", record.workspace],
      ...configRows(status),
      ["Log", status.log_file ?? ""],
    ].map(([name = "", value = ""]) => [name, printableLine(value)] as const);
    return `The daemon is running: Postern ${record.version}, process ${pid}\n\n${toDefinitions(rows, columns)}`;
  }
  if (state.kind === "starting") return `The daemon is starting: process ${state.process.pid} does not listen yet`;
  if (state.kind === "stopping") return `The daemon is stopping: process ${state.process.pid} finishes its work`;
  const killed = state.kind === "stale" ? ": it was killed; the next start cleans up after it" : "";
  const other = state.gateway === undefined
    ? ""
    : `\nA gateway runs at ${state.gateway.address} (process ${state.gateway.pid}), started by postern gateway`;
  return `No daemon is running${killed}${other}`;
}

function healthText(health: Health, { cluster }: DaemonStatus): string {
  if (health === "silent") return "it does not answer; see the log, or restart it";
  return cluster === null || cluster.reason === null ? health : `${health}: ${cluster.reason}`;
}

function clusterRows({ cluster }: DaemonStatus): string[][] {
  if (cluster === null) return [];
  const { gateway, gateways } = cluster;
  const count = gateways === null ? "" : `, ${gateways === 1 ? "the only gateway" : `one of ${gateways} gateways`}`;
  return [["Cluster", `${gateway}${count}; postern cluster status shows all`]];
}

/** Returns rows about changes of the configuration file that are not in use. */
function configRows({ config_needs_restart: waiting, config_problem: problem }: DaemonStatus): string[][] {
  return [
    ...(waiting === null || waiting.length === 0 ? [] : [["Restart", `needed for changes of ${waiting.join(", ")}`]]),
    ...(problem === null ? [] : [["Refused", `the last change of the configuration: ${problem}`]]),
  ];
}

function durationText(seconds: number): string {
  const parts = [[Math.floor(seconds / 86_400), "d"], [Math.floor(seconds / 3600) % 24, "h"], [
    Math.floor(seconds / 60) % 60,
    "min",
  ], [seconds % 60, "s"]] as const;
  const first = parts.findIndex(([value]) => value > 0);
  return parts.slice(first < 0 ? 3 : first).slice(0, 2).map(([value, unit]) => `${value} ${unit}`).join(" ");
}
