import type { Write } from "./store.ts";

/** A record that was set aside, since no reader can use it. */
export interface UnreadableRecord {
  /** Collection of a record, name of a stream */
  readonly collection: string;
  /** Key of a record, position in a stream */
  readonly key: string;
  /** Reason why the record cannot be read. Never holds a part of its content */
  readonly reason: string;
}

/** The records of a store that were found unreadable since it was opened, until each is written or deleted. */
export interface UnreadableRecords {
  add(record: UnreadableRecord): void;
  /** Call after the record was written or deleted. Without `key`: all of a stream that was dropped */
  forget(collection: string, key?: string): void;
  /** In the order in which they were found, at most 1,000 */
  list(): readonly UnreadableRecord[];
  count(): number;
  /** Tells of each record that is found, those found before first */
  watch(listener: (record: UnreadableRecord) => void): void;
}

/** More are left out: the list is for people, and the first thousand say enough. */
const MAX_KEPT = 1_000;

export function createUnreadableRecords(): UnreadableRecords {
  const found = new Map<string, UnreadableRecord>();
  const listeners: ((record: UnreadableRecord) => void)[] = [];
  const placeOf = (collection: string, key: string) => JSON.stringify([collection, key]);
  return {
    add(record) {
      const place = placeOf(record.collection, record.key);
      if (found.has(place) || found.size >= MAX_KEPT) return;
      found.set(place, record);
      for (const listener of listeners) listener(record);
    },
    forget(collection, key) {
      if (key !== undefined) found.delete(placeOf(collection, key));
      else for (const [place, record] of found) if (record.collection === collection) found.delete(place);
    },
    list: () => [...found.values()],
    count: () => found.size,
    watch(listener) {
      listeners.push(listener);
      for (const record of found.values()) listener(record);
    },
  };
}

/** Forgets the records that these writes, which are done, have replaced or removed. */
export function forgetWritten(unreadable: UnreadableRecords, writes: readonly Write[]): void {
  if (unreadable.count() === 0) return;
  for (const write of writes) {
    if (write.op === "drop") unreadable.forget(write.stream);
    else if (write.op !== "append") unreadable.forget(write.collection, write.key);
  }
}
