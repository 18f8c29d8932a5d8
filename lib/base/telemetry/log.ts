import { HttpError } from "../errors.ts";

/** Levels from the loudest need to the quietest detail; `logging.level` shows its own and those before it. */
export const LOG_LEVELS = ["error", "warn", "info", "debug"] as const;
/** Level of a log line. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Log line before it is written. `time` is milliseconds since the epoch. */
export interface LogRecord {
  readonly level: LogLevel;
  readonly time: number;
  readonly message: string;
  /** snake_case; request_id, run_id, call_id and parent_id where they exist */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Where lines go: the terminal, a file, a test's array. Must not throw. */
export type LogSink = (record: LogRecord) => void;

/** Structured log. Values are redacted before the sink sees them. */
export interface Logger {
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  debug(message: string, fields?: Readonly<Record<string, unknown>>): void;
  /** Tells whether lines of this level are written, for callers whose fields cost time to build. */
  shows(level: LogLevel): boolean;
  /** A logger that adds these fields to each of its lines */
  child(fields: Readonly<Record<string, unknown>>): Logger;
}

/** Level, clock and sink of a logger. */
export interface LoggerOptions {
  /** Level, read with each line, so it may change */
  readonly level: LogLevel;
  readonly now: () => number;
  readonly sink: LogSink;
  /** Removes known secrets; see redact.ts */
  readonly redact: (text: string) => string;
}

/**
 * Creates a logger over one sink. Errors among the fields become `{name, code, message, stack, cause}`, and those that only say that something
 * is away or busy (503) become `{code, message}`.
 */
export function createLogger(options: LoggerOptions, fields: Readonly<Record<string, unknown>> = {}): Logger {
  const shows = (level: LogLevel) => LOG_LEVELS.indexOf(level) <= LOG_LEVELS.indexOf(options.level);
  const write = (level: LogLevel, message: string, extra?: Readonly<Record<string, unknown>>) => {
    if (!shows(level)) return;
    const all: Record<string, unknown> = {};
    // Lists of entries would cost a third of the memory of a line
    for (const key in fields) all[key] = plain(fields[key], options.redact, 0);
    for (const key in extra) all[key] = plain(extra[key], options.redact, 0);
    options.sink({ level, time: options.now(), message: options.redact(message), fields: all });
  };
  return {
    error: (message, extra) => write("error", message, extra),
    warn: (message, extra) => write("warn", message, extra),
    info: (message, extra) => write("info", message, extra),
    debug: (message, extra) => write("debug", message, extra),
    shows,
    child: (extra) => createLogger(options, { ...fields, ...extra }),
  };
}

/** A logger that writes nothing. */
export const SILENT: Logger = {
  error() {},
  warn() {},
  info() {},
  debug() {},
  shows: () => false,
  child: () => SILENT,
};

const MAX_DEPTH = 5;

function plain(value: unknown, redact: (text: string) => string, depth: number): unknown {
  if (typeof value === "string") return redact(value);
  if (value === null || typeof value !== "object") return typeof value === "bigint" ? String(value) : value;
  if (depth >= MAX_DEPTH) return "...";
  if (value instanceof Error) {
    const { name, message, stack, cause } = value;
    // A dependency that is away is no fault of the code: the place in it says nothing, and an outage would fill the log
    if (value instanceof HttpError && value.status === 503) return plain({ code: value.code, message }, redact, depth);
    return plain(
      {
        name,
        ...("code" in value ? { code: value.code } : {}),
        message,
        stack,
        ...(cause === undefined ? {} : { cause }),
      },
      redact,
      depth,
    );
  }
  if (Array.isArray(value)) return value.map((item) => plain(item, redact, depth + 1));
  // Bytes would spell a secret in numbers
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [redact(key), plain(item, redact, depth + 1)]));
}

/** A line of the log with its place: they count from 1 since the start. */
export interface NumberedLine extends LogRecord {
  readonly seq: number;
}

/** The last lines of the log, in memory, as they were written: redacted. */
export interface RecentLog {
  readonly add: (record: LogRecord) => void;
  /**
   * Returns lines, newest first: those of at least this level that are newer than `sinceSeq` and older than `beforeSeq`.
   * @param options.limit 1-1000
   */
  list(options: {
    readonly sinceSeq: number;
    readonly beforeSeq: number;
    readonly level: LogLevel;
    readonly limit: number;
  }): { readonly lines: readonly NumberedLine[]; readonly hasMore: boolean };
}

/** How many lines are kept. */
export const RECENT_LINES = 1000;

/** A kept line, which a newer line is written over. */
interface KeptLine extends LogRecord {
  seq: number;
  level: LogLevel;
  time: number;
  message: string;
  readonly fields: Record<string, unknown>;
}

/**
 * Keeps the last 1,000 lines.
 *
 * The newest line is written over the oldest one. With an object of its own, each line would live just long enough to be copied twice by
 * the collector and then fill the space for old objects: under load that made up half of what the collector copies.
 */
export function createRecentLog(): RecentLog {
  const kept: KeptLine[] = [];
  let seq = 0;
  return {
    add({ level, time, message, fields }) {
      const at = seq++ % RECENT_LINES;
      const line = kept[at];
      if (line === undefined || !haveSameNames(line.fields, fields)) {
        kept[at] = { seq, level, time, message, fields: { ...fields } };
        return;
      }
      line.seq = seq;
      line.level = level;
      line.time = time;
      line.message = message;
      for (const name in fields) line.fields[name] = fields[name];
    },
    list({ sinceSeq, beforeSeq, level, limit }) {
      const levels = LOG_LEVELS.slice(0, LOG_LEVELS.indexOf(level) + 1);
      const lines = kept.filter((line) => line.seq > sinceSeq && line.seq < beforeSeq && levels.includes(line.level))
        .sort((a, b) => b.seq - a.seq);
      const shown = lines.slice(0, limit).map((line) => ({ ...line, fields: { ...line.fields } }));
      return { lines: shown, hasMore: lines.length > limit };
    },
  };
}

/** Tells whether two objects have the same names in the same order. */
function haveSameNames(a: object, b: object): boolean {
  const names = Object.keys(a);
  const others = Object.keys(b);
  return names.length === others.length && names.every((name, i) => name === others[i]);
}
