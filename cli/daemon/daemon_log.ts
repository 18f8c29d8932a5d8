import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import type { LogLevel, LogSink } from "../../lib/base/telemetry/log.ts";
import { openLogFile } from "../../lib/host/daemon/log_file.ts";
import type { CliIo } from "../command.ts";
import { createLogSink, toLogLine } from "../serve/log_sink.ts";
import { takesColour } from "../terminal/terminal_text.ts";

/** Returns the path of the daemon's log. Older parts of the log stand beside it as `.1` to `.5`. */
export function daemonLogPath(dataDir: string): string {
  return join(dataDir, "daemon.log");
}

/** Log of a daemon: its file, and also stderr where somebody may read that. */
export interface DaemonLog {
  readonly write: LogSink;
  /** Writes a line of the daemon itself. The message must hold no secret */
  say(level: LogLevel, message: string, fields?: Readonly<Record<string, unknown>>): void;
  /** Returns false while lines are lost */
  healthy(): boolean;
  close(): void;
}

/** Options of `openDaemonLog`. */
export interface DaemonLogOptions {
  readonly dataDir: string;
  readonly format: "pretty" | "json";
}

/** Opens the log. A log that cannot be written is no error: `healthy` then returns false. */
export function openDaemonLog(io: CliIo, { dataDir, format }: DaemonLogOptions): DaemonLog {
  const file = openLogFile({
    path: daemonLogPath(dataDir),
    clock: systemClock,
    toLine: (record) => toLogLine(record, { format, withDate: true }),
  });
  // Stderr of a process that was launched in the background is the log file already
  const shown = io.isLaunched ? undefined : createLogSink({
    format,
    write: io.stderr,
    colour: takesColour(io, "stderr"),
  });
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
