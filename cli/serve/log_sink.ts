import { createConsola } from "consola/basic";
import type { LogRecord, LogSink } from "../../lib/base/telemetry/log.ts";
import { printableLine } from "../terminal/terminal_text.ts";

/** Options of `createLogSink`. */
export interface LogSinkOptions {
  readonly format: "pretty" | "json";
  /** Writes a whole line with its newline, for example to stderr */
  readonly write: (line: string) => void;
}

/** Returns the place where a process writes its log: lines for people, or one JSON object a line. */
export function createLogSink({ format, write }: LogSinkOptions): LogSink {
  const consola = createConsola({
    // All levels: the logger has already left out what is below its level
    level: 999,
    throttle: 0,
    reporters: [{ log: ({ args }) => write(`${args[0]}\n`) }],
  });
  return (record) => consola[record.level](toLogLine(record, { format }));
}

/** Options of `toLogLine`. */
export interface LogLineOptions {
  readonly format: "pretty" | "json";
  /** True: a line for people has the date too, as in a file that is kept. Default false */
  readonly withDate?: boolean;
}

/** Returns a record as one line without its newline, for people or as one JSON object. */
export function toLogLine(
  { time, level, message, fields }: LogRecord,
  { format, withDate = false }: LogLineOptions,
): string {
  const stamp = new Date(time).toISOString();
  if (format === "json") return JSON.stringify({ time: stamp, level, message, ...fields });
  const shown = Object.entries(fields).filter(([, value]) => value !== undefined).map(([key, value]) =>
    `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`
  );
  return printableLine([withDate ? stamp : stamp.slice(11, 23), level.padEnd(5), message, ...shown].join(" "));
}
