import { LOG_LEVELS, type LogLevel, type LogRecord } from "./log.ts";

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

/** Keeps the last 1,000 lines. */
export function createRecentLog(): RecentLog {
  const kept: NumberedLine[] = [];
  let seq = 0;
  return {
    add(record) {
      // The place of the oldest line is taken by the newest
      kept[seq % RECENT_LINES] = { seq: seq + 1, ...record };
      seq++;
    },
    list({ sinceSeq, beforeSeq, level, limit }) {
      const levels = LOG_LEVELS.slice(0, LOG_LEVELS.indexOf(level) + 1);
      const lines = kept.filter((line) => line.seq > sinceSeq && line.seq < beforeSeq && levels.includes(line.level))
        .sort((a, b) => b.seq - a.seq);
      return { lines: lines.slice(0, limit), hasMore: lines.length > limit };
    },
  };
}
