import type { Store } from "../../lib/storage/store.ts";

/** A store over another that stops at one of its writes, as a process that is killed. */
export interface CrashingStore extends Store {
  /** Writes so far */
  writes(): number;
  /** Resolves when it was killed */
  readonly crashed: Promise<void>;
}

/** The error that every use of a killed store rejects with. */
export class Killed extends Error {
  override readonly name = "Killed";
}

/**
 * @param crashAt the write, counted from 1, that is the last one
 * @param when whether that write was made before the process ended, or not
 */
export function createCrashingStore(
  store: Store,
  { crashAt, when }: { readonly crashAt: number; readonly when: "before" | "after" },
): CrashingStore {
  let writes = 0;
  let dead = false;
  const crash = Promise.withResolvers<void>();
  const write = async <T>(work: () => Promise<T>): Promise<T> => {
    if (dead) throw new Killed("The process was killed");
    if (++writes < crashAt) return await work();
    dead = true;
    if (when === "after") await work();
    crash.resolve();
    throw new Killed("The process was killed");
  };
  const read = async <T>(work: () => Promise<T>): Promise<T> => {
    if (dead) throw new Killed("The process was killed");
    return await work();
  };
  return {
    writes: () => writes,
    crashed: crash.promise,
    get: (...given) => read(() => store.get(...given)),
    scan: (...given) => read(() => store.scan(...given)),
    count: (...given) => read(() => store.count(...given)),
    search: (...given) => read(() => store.search(...given)),
    nearest: (...given) => read(() => store.nearest(...given)),
    vectorless: (...given) => read(() => store.vectorless(...given)),
    read: (...given) => read(() => store.read(...given)),
    takeOnce: (...given) => write(() => store.takeOnce(...given)),
    insertOnce: (...given) => write(() => store.insertOnce(...given)),
    putIfVersion: (...given) => write(() => store.putIfVersion(...given)),
    append: (...given) => write(() => store.append(...given)),
    batch: (...given) => write(() => store.batch(...given)),
    healthy: () => !dead,
    unreadable: store.unreadable,
    close: () => Promise.resolve(),
  };
}
