import { createConsola } from "consola/basic";
import type { LogSink } from "../../lib/base/telemetry/log.ts";
import { toLogLine } from "./log_line.ts";

export interface LogSinkOptions {
  readonly format: "pretty" | "json";
  /** Takes whole lines with their newline; stderr in a terminal session */
  readonly write: (line: string) => void;
}

/** Where a process writes its log: lines for people, or one JSON object a line. */
export function createLogSink({ format, write }: LogSinkOptions): LogSink {
  const consola = createConsola({
    // All levels: the logger before it has chosen already
    level: 999,
    throttle: 0,
    reporters: [{ log: ({ args }) => write(`${args[0]}\n`) }],
  });
  return (record) => consola[record.level](toLogLine(record, { format }));
}
