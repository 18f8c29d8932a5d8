import {
  closeSync,
  type Dir,
  type Dirent,
  fstatSync,
  opendirSync,
  openSync,
  readlinkSync,
  readSync,
  type Stats,
} from "node:fs";
import { open, opendir, readlink } from "node:fs/promises";

/** An open file or folder. */
export interface Handle {
  readonly fd: number;
  stat(): Promise<Stats> | Stats;
  read(
    buffer: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesRead: number }> | { readonly bytesRead: number };
  close(): Promise<void> | void;
}

/** The calls a walk by handles is made of. */
export interface SystemCalls {
  open(path: string, flags: number): Promise<Handle> | Handle;
  readlink(path: string): Promise<string> | string;
  /** Leaving the loop over its entries closes the folder */
  entries(path: string): Promise<AsyncIterable<Dirent>> | Iterable<Dirent>;
}

/** The event loop goes on turning while the disk works. */
export const waitingCalls: SystemCalls = { open, readlink, entries: (path) => opendir(path) };

/** The thread stops until the disk answers, which costs a tenth: for threads that do nothing else. */
export const blockingCalls: SystemCalls = {
  open(path, flags) {
    const fd = openSync(path, flags);
    let closed = false;
    return {
      fd,
      stat: () => fstatSync(fd),
      read: (buffer, offset, length, position) => ({ bytesRead: readSync(fd, buffer, offset, length, position) }),
      close() {
        // By now the number may name another file
        if (closed) return;
        closed = true;
        closeSync(fd);
      },
    };
  },
  readlink: (path) => readlinkSync(path),
  entries: (path) => entriesOf(opendirSync(path, { bufferSize: 256 })),
};

function* entriesOf(dir: Dir): Generator<Dirent> {
  try {
    for (let entry = dir.readSync(); entry !== null; entry = dir.readSync()) yield entry;
  } finally {
    dir.closeSync();
  }
}
