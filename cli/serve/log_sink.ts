import { createConsola } from "consola/basic";
import type { LogRecord, LogSink } from "../../lib/base/telemetry/log.ts";
import { harmlessLine } from "../terminal/terminal_text.ts";

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

export interface LogLineOptions {
  readonly format: "pretty" | "json";
  /** Whether a line for people has the date too, as in a file that is kept. Default false */
  readonly withDate?: boolean;
}

/** A record as one line, without its newline: for people, or one JSON object. */
export function toLogLine(
  { time, level, message, fields }: LogRecord,
  { format, withDate = false }: LogLineOptions,
): string {
  const stamp = new Date(time).toISOString();
  if (format === "json") return JSON.stringify({ time: stamp, level, message, ...fields });
  const shown = Object.entries(fields).filter(([, value]) => value !== undefined).map(([key, value]) =>
    `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`
  );
  return harmlessLine([withDate ? stamp : stamp.slice(11, 23), level.padEnd(5), message, ...shown].join(" "));
}
