import type { Clock } from "../clock.ts";
import type { OpenedList } from "../opened_list.ts";
import { withProgramName } from "../program_name.ts";
import { createRedactor, type Redactor } from "../redact.ts";
import { createLogger, createRecentLog, type Logger, type LogLevel, type LogSink, type RecentLog } from "./log.ts";
import { createMetrics, type Metrics, observeProcess } from "./metrics.ts";

/** Options of `createTelemetry`. */
export interface TelemetryOptions {
  readonly clock: Clock;
  /** Version of the gateway, for the metrics. */
  readonly version: string;
  /** Returns the lowest level that is logged now. */
  readonly level: () => LogLevel;
  readonly sink: LogSink;
  /** Secrets known at the start, with their names. */
  readonly secrets: Iterable<readonly [secret: string, name: string]>;
  readonly opened: OpenedList;
  /** Words that start the program where its reader is, for lines of the log. Default: `postern` */
  readonly programName?: string | undefined;
}

/** Log and metrics of one gateway. */
export interface Telemetry {
  readonly log: Logger;
  /** The last log lines, for reading. */
  readonly recentLog: RecentLog;
  readonly metrics: Metrics;
  /** Redactor of the log and of everything else that is shown. */
  readonly redactor: Redactor;
}

/** Creates log and metrics, and begins to measure the process. */
export function createTelemetry(
  { clock, version, level, sink, secrets, opened, programName = "postern" }: TelemetryOptions,
): Telemetry {
  const redactor = createRedactor(secrets);
  const recentLog = createRecentLog();
  const write: LogSink = (record) => {
    recentLog.add(record);
    sink(record);
  };
  const log = createLogger({
    get level() {
      return level();
    },
    now: clock.now,
    sink: programName === "postern"
      ? write
      : (record) => write({ ...record, message: withProgramName(record.message, programName) }),
    redact: redactor.redact,
  });
  const metrics = createMetrics();
  opened.own(observeProcess(metrics, { clock, version }), (stop) => stop());
  return { log, recentLog, metrics, redactor };
}
