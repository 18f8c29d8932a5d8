import {
  closeSync,
  existsSync,
  fchmodSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  statSync,
  writeSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { LogRecord, LogSink } from "../../base/telemetry/log.ts";

/** Returns the path of the daemon's log. Older parts of the log stand beside it as `.1` to `.5`. */
export function daemonLogPath(dataDir: string): string {
  return join(dataDir, "daemon.log");
}

/** A file of lines that one process writes and rotates. */
export interface LogFile {
  /** Writes a whole line before it returns, so that a killed process loses none. Never throws */
  readonly write: LogSink;
  /** false while lines are lost; looks whether writing works again, at most once in a second */
  healthy(): boolean;
  /** Later lines are dropped */
  close(): void;
}

/** Path, size and format of a log file. */
export interface LogFileOptions {
  /** Absolute; older files get `.1` (the newest) to `.5` */
  readonly path: string;
  readonly clock: Clock;
  /** Writes a record as one line, without its newline */
  readonly toLine: (record: LogRecord) => string;
  /** A file grows no larger. Default 10,000,000 */
  readonly maxBytes?: number;
}

const MAX_BYTES = 10_000_000;
/** Older files beside the one that is written (docs/design/processes.md "Daemon") */
const KEPT = 5;
/** A longer line is written without its long parts */
const MAX_LINE_BYTES = 1_000_000;
const MAX_CUT_MESSAGE = 10_000;
const MAX_CUT_FIELD = 200;
const MAX_CUT_FIELDS = 20;
/** Between two looks at the file's place, and two tries while nothing can be written */
const LOOK_MS = 1_000;
const MODE = 0o600;
const NEWLINE = 10;

/**
 * Opens the log of a daemon; what cannot be written is counted, and said in the log once writing works again. A full disk or a
 * folder that cannot be written is no failure.
 *
 * Files are only ever renamed, from the oldest on, into the first free number: a process that is killed in between loses no line and
 * overwrites none. A torn last line, as a power loss leaves it, is ended before the next one. A file that someone moved or
 * removed is made again.
 */
export function openLogFile({ path, clock, toLine, maxBytes = MAX_BYTES }: LogFileOptions): LogFile {
  let file: OpenFile | undefined;
  let trouble: { readonly since: number; readonly reason: string; dropped: number; retryAt: number } | undefined;
  let lookAt = 0;
  let closed = false;

  const append = (record: LogRecord) => {
    const bytes = encode(record, toLine);
    file ??= openFile(path);
    if (file.size > 0 && file.size + bytes.length > maxBytes) {
      closeFile();
      rotate(path);
      file = openFile(path);
    }
    writeWhole(file.fd, bytes);
    file.size += bytes.length;
  };
  const closeFile = () => {
    const open = file;
    file = undefined;
    if (open !== undefined) closeSync(open.fd);
  };
  const followPlace = () => {
    if (file === undefined || clock.monotonic() < lookAt) return;
    lookAt = clock.monotonic() + LOOK_MS;
    if (statSync(path, { throwIfNoEntry: false })?.ino !== file.inode) closeFile();
  };
  const fail = (error: unknown) => {
    const reason = messageOf(error);
    trouble ??= { since: clock.now(), reason, dropped: 0, retryAt: 0 };
    trouble.retryAt = clock.monotonic() + LOOK_MS;
    // The next try starts over, with whatever is at the path then
    try {
      closeFile();
    } catch {
      // A file whose close fails is closed all the same
    }
  };
  /** @returns whether lines can be written */
  const recover = (): boolean => {
    if (trouble === undefined) return true;
    if (clock.monotonic() < trouble.retryAt) return false;
    const { since, reason, dropped } = trouble;
    const fields = { dropped, since: new Date(since).toISOString(), reason };
    try {
      append({ level: "error", time: clock.now(), message: "Log lines were lost", fields });
      trouble = undefined;
      return true;
    } catch (error) {
      fail(error);
      return false;
    }
  };
  const attempt = (work: () => void) => {
    try {
      work();
    } catch (error) {
      fail(error);
    }
  };

  attempt(() => file = openFile(path));
  return {
    write(record) {
      if (closed) return;
      if (recover()) {
        attempt(() => {
          followPlace();
          append(record);
        });
      }
      if (trouble !== undefined) trouble.dropped++;
    },
    healthy: () => recover(),
    close() {
      closed = true;
      attempt(closeFile);
    },
  };
}

interface OpenFile {
  readonly fd: number;
  readonly inode: number;
  size: number;
}

function openFile(path: string): OpenFile {
  const fd = openSync(path, "a+", MODE);
  try {
    const info = fstatSync(fd);
    const { size, ino: inode } = info;
    // A link may lead to a device, which is not ours to close
    if (info.isFile()) fchmodSync(fd, MODE);
    const last = new Uint8Array(1);
    if (size === 0 || (readSync(fd, last, 0, 1, size - 1) === 1 && last[0] === NEWLINE)) return { fd, inode, size };
    writeWhole(fd, Uint8Array.of(NEWLINE));
    return { fd, inode, size: size + 1 };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function rotate(path: string): void {
  if (!existsSync(path)) return;
  const nameOf = (number: number) => (number === 0 ? path : `${path}.${number}`);
  let free = 1;
  while (free < KEPT && existsSync(nameOf(free))) free++;
  for (let number = free; number > 0; number--) renameSync(nameOf(number - 1), nameOf(number));
}

/** All of it or nothing: a disk that fills up within a line must not leave a part of it. */
function writeWhole(fd: number, bytes: Uint8Array): void {
  let written = 0;
  try {
    while (written < bytes.length) written += writeSync(fd, bytes, written);
  } catch (error) {
    if (written > 0) ftruncateSync(fd, fstatSync(fd).size - written);
    throw error;
  }
}

function encode(record: LogRecord, toLine: LogFileOptions["toLine"]): Uint8Array {
  const bytes = Buffer.from(`${toLine(record)}\n`);
  return bytes.length <= MAX_LINE_BYTES ? bytes : Buffer.from(`${toLine(shorten(record, bytes.length))}\n`);
}

function shorten({ message, fields, ...rest }: LogRecord, bytes: number): LogRecord {
  const short = Object.entries(fields).filter(([name, value]) =>
    name.length <= MAX_CUT_FIELD && (typeof value === "string" ? value.length <= MAX_CUT_FIELD : isPlain(value))
  );
  return {
    ...rest,
    message: message.slice(0, MAX_CUT_MESSAGE),
    fields: { ...Object.fromEntries(short.slice(0, MAX_CUT_FIELDS)), cut_from_bytes: bytes },
  };
}

function isPlain(value: unknown): boolean {
  return typeof value === "number" || typeof value === "boolean";
}

const MAX_END_BYTES = 16_384;
const MAX_LINES = 20;

/**
 * The last lines of a log, at most 20 or 16 KiB, for a person who wants to know why a start failed.
 * @param from bytes to leave out at the beginning: what was there before. A shorter file has been rotated since, and is read whole
 * @returns "" when it cannot be read
 */
export async function readLogEnd(path: string, from = 0): Promise<string> {
  try {
    const file = await open(path, "r");
    try {
      const { size } = await file.stat();
      const begin = Math.max(size >= from ? from : 0, size - MAX_END_BYTES);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - begin), 0, size - begin, begin);
      return buffer.subarray(0, bytesRead).toString("utf8").trimEnd().split("\n").slice(-MAX_LINES).join("\n");
    } finally {
      await file.close();
    }
  } catch {
    return "";
  }
}
