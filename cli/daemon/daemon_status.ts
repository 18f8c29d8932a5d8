import type { StatusReply } from "../../handlers/status.ts";
import type { DaemonState } from "../../lib/host/daemon/daemon_state.ts";
import { daemonLogPath } from "./daemon_log.ts";
import { harmlessLine } from "../terminal/terminal_text.ts";

/** What `daemon status` tells. Of a daemon that does not run, everything but `running` and `state` is null. */
export interface DaemonStatus {
  /** Its process is there and its port was opened; `health` says how it answers */
  readonly running: boolean;
  /** `stale`: it was killed and left its PID file; the next start cleans up */
  readonly state: DaemonState["kind"];
  readonly pid: number | null;
  readonly uptime_seconds: number | null;
  /** Where this machine reaches it, with a slash at the end */
  readonly address: string | null;
  /** What it listens on */
  readonly host: string | null;
  readonly port: number | null;
  /** ISO 8601 */
  readonly started_at: string | null;
  readonly version: string | null;
  readonly log_file: string | null;
  /** The folder the agent works in */
  readonly workspace: string | null;
  /** `silent`: it does not answer */
  readonly health: "ok" | "degraded" | "draining" | "silent" | null;
  /** Who answers new runs, as `ollama/llama3.2:latest`, and why; null also where it does not say */
  readonly provider: string | null;
  readonly provider_reason: string | null;
  /** How commands of tools are contained; null also where it does not say */
  readonly containment: string | null;
  /** Keys of the configuration whose changed value waits for a restart */
  readonly config_needs_restart: readonly string[] | null;
  /** Why the last change of the configuration was refused; null: it was not */
  readonly config_problem: string | null;
}

export interface DaemonStatusOptions {
  readonly dataDir: string;
  /** Milliseconds since the epoch */
  readonly now: number;
  /** undefined where it does not answer */
  readonly reply?: StatusReply | undefined;
}

/** What is known of a daemon: every field is always there, and null while none runs. */
export function toDaemonStatus(state: DaemonState, { dataDir, now, reply }: DaemonStatusOptions): DaemonStatus {
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
    // A URL leaves the port of its scheme out
    port: Number(port || 80),
    started_at: record.started_at,
    version: record.version,
    log_file: daemonLogPath(dataDir),
    workspace: record.workspace,
    health,
    provider: reply?.provider ? `${reply.provider.name}/${reply.provider.model}` : null,
    provider_reason: reply?.provider?.reason ?? null,
    containment: reply?.containment.text ?? null,
    config_needs_restart: reply?.config.needs_restart ?? null,
    config_problem: reply?.config.last_reload?.problem ?? null,
  };
}

/** The same for people. */
export function daemonStatusText(state: DaemonState, status: DaemonStatus): string {
  if (state.kind === "running") {
    const { record, health, process: { pid } } = state;
    const rows = [
      ["Address", record.address],
      ["Health", health === "silent" ? "it does not answer; see the log, or restart it" : health],
      ["Since", `${record.started_at} (${durationText(status.uptime_seconds ?? 0)})`],
      ...(status.containment === null ? [] : [["Commands", status.containment]]),
      ...(status.provider === null ? [] : [["Provider", `${status.provider}, since ${status.provider_reason}`]]),
      ["Workspace", record.workspace],
      ...configRows(status),
      ["Log", status.log_file ?? ""],
    ].map(([name = "", value = ""]) => `  ${name.padEnd(9)}  ${harmlessLine(value)}`);
    return `The daemon is running: Postern ${record.version}, process ${pid}\n\n${rows.join("\n")}`;
  }
  if (state.kind === "starting") return `The daemon is starting: process ${state.process.pid} does not listen yet`;
  if (state.kind === "stopping") return `The daemon is stopping: process ${state.process.pid} finishes its work`;
  const killed = state.kind === "stale" ? ": it was killed; the next start cleans up after it" : "";
  const other = state.gateway === undefined
    ? ""
    : `\nA gateway runs at ${state.gateway.address} (process ${state.gateway.pid}), started by postern gateway`;
  return `No daemon is running${killed}${other}`;
}

/** What is in the file and not in use. */
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
