import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import type { LogLevel, LogSink } from "../../lib/base/telemetry/log.ts";
import { openLogFile } from "../../lib/host/daemon/log_file.ts";
import type { CliIo } from "../command.ts";
import { createLogSink, toLogLine } from "../serve/log_sink.ts";

/** Where a data directory's daemon writes its log; older parts beside it as `.1` to `.5`. */
export function daemonLogPath(dataDir: string): string {
  return join(dataDir, "daemon.log");
}

/** The log of a daemon: its file, and stderr too where somebody may read that. */
export interface DaemonLog {
  readonly write: LogSink;
  /** A line of the daemon's own, which holds no secret */
  say(level: LogLevel, message: string, fields?: Readonly<Record<string, unknown>>): void;
  /** false while lines are lost */
  healthy(): boolean;
  close(): void;
}

export interface DaemonLogOptions {
  readonly dataDir: string;
  readonly format: "pretty" | "json";
}

/** Opens the log; that it cannot be written is no failure. */
export function openDaemonLog(io: CliIo, { dataDir, format }: DaemonLogOptions): DaemonLog {
  const file = openLogFile({
    path: daemonLogPath(dataDir),
    clock: systemClock,
    toLine: (record) => toLogLine(record, { format, withDate: true }),
  });
  // Of a process that was launched in the background, stderr is the file itself
  const shown = io.isLaunched ? undefined : createLogSink({ format, write: io.stderr });
  const write: LogSink = (record) => {
    file.write(record);
    shown?.(record);
  };
  return {
    write,
    say: (level, message, fields = {}) => write({ level, time: systemClock.now(), message, fields }),
    healthy: file.healthy,
    close: file.close,
  };
}
