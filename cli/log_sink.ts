import { createConsola } from "consola/basic";
import type { LogRecord, LogSink } from "../lib/base/telemetry/log.ts";
import { harmlessLine } from "./terminal_text.ts";

export interface LogSinkOptions {
  readonly format: "pretty" | "json";
  /** Takes whole lines with their newline; stderr in a terminal session */
  readonly write: (line: string) => void;
}

/** Where a process writes its log: lines for people, or one JSON object a line. */
export function createLogSink({ format, write }: LogSinkOptions): LogSink {
  const lineOf = format === "json" ? jsonLine : prettyLine;
  const consola = createConsola({
    // All levels: the logger before it has chosen already
    level: 999,
    throttle: 0,
    reporters: [{ log: ({ args }) => write(`${args[0]}\n`) }],
  });
  return (record) => consola[record.level](lineOf(record));
}

function jsonLine({ time, level, message, fields }: LogRecord): string {
  return JSON.stringify({ time: new Date(time).toISOString(), level, message, ...fields });
}

function prettyLine({ time, level, message, fields }: LogRecord): string {
  const shown = Object.entries(fields).map(([key, value]) =>
    `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`
  );
  return harmlessLine([new Date(time).toISOString().slice(11, 23), level.padEnd(5), message, ...shown].join(" "));
}
