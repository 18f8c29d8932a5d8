import { createConsola, LogLevels } from "consola/core";
import type { LogLevel, LogRecord, LogSink } from "../../lib/base/telemetry/log.ts";
import { paint, printableLine, type TextColour } from "../terminal/terminal_text.ts";

/** Returns a place of the log: lines for people, or one JSON object a line. */
export function createLogSink({ format, write, colour = false }: {
  readonly format: "pretty" | "json";
  /** Writes a whole line with its newline, for example to stderr */
  readonly write: (line: string) => void;
  /** True: the level of a line for people is coloured, so that warnings and errors stand out. Default false */
  readonly colour?: boolean;
}): LogSink {
  return (record) => write(`${toLogLine(record, { format, colour })}\n`);
}

/**
 * Returns the log of a process: consola hands each record of at least `level` to every place, as one of its reporters.
 * @param level default: every record, since the gateway's own logger has left out what is below its level
 */
export function createProcessLog(places: readonly LogSink[], level: LogLevel = "debug"): LogSink {
  const log = createConsola({
    level: LogLevels[level],
    // Repeated lines are written too
    throttle: 0,
    reporters: places.map((place) => ({ log: ({ args: [record] }) => place(record) })),
  });
  return (record) => log[record.level].raw(record);
}

const COLOURS: Partial<Readonly<Record<LogLevel, TextColour>>> = { warn: "yellow", error: "red" };

/** Tells whether a value is a text that stands without quotes. With a blank and `=` in it, it could pass for further fields. */
function isPlain(value: unknown): boolean {
  return typeof value === "string" && !(value.includes("=") && /\s/.test(value));
}

/** Returns a record as one line without its newline, for people or as one JSON object. */
export function toLogLine(
  { time, level, message, fields }: LogRecord,
  { format, withDate = false, colour = false }: {
    readonly format: "pretty" | "json";
    /** True: a line for people has the date too, as in a file that is kept. Default false */
    readonly withDate?: boolean;
    readonly colour?: boolean;
  },
): string {
  const stamp = new Date(time).toISOString();
  if (format === "json") return JSON.stringify({ time: stamp, level, message, ...fields });
  let text = message;
  for (const key in fields) {
    const value = fields[key];
    if (value !== undefined) text += ` ${key}=${isPlain(value) ? value : JSON.stringify(value)}`;
  }
  const name = level.padEnd(5);
  const shownLevel = colour ? paint(name, COLOURS[level]) : name;
  return `${withDate ? stamp : stamp.slice(11, 23)} ${shownLevel} ${printableLine(text)}`;
}
