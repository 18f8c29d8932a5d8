/** Function that makes a value at its first call and returns that value from then on. */
export interface Lazy<T> {
  (): T;
  /** Returns the value without making it: undefined before the first use, and after one that failed. */
  made(): T | undefined;
}

/**
 * Makes a value at its first use and keeps it: a heavy module, or a table that few requests need.
 *
 * A start is as fast as what it loads, so the gateway makes everything this way that it can answer /health without:
 * `const adapter = lazily(() => import("./adapter.ts"))`, then `(await adapter()).open()` where it is used. A service that others hold
 * from the start on forwards each method so: `open: async (...given) => await (await adapter()).open(...given)`. A value that throws or
 * rejects is not kept: whoever asked gets the error, and the next use tries again.
 */
export function lazily<T>(make: () => T): Lazy<T> {
  let made: { readonly value: T } | undefined;
  const use = () => {
    if (made === undefined) {
      const kept = made = { value: make() };
      if (kept.value instanceof Promise) kept.value.catch(() => made === kept && (made = undefined));
    }
    return made.value;
  };
  return Object.assign(use, { made: () => made?.value });
}

/** Closes a service that was left for its first use, where it was made. A load that failed has nothing to close. */
export async function closeMade(load: Lazy<Promise<{ close(): unknown }>>): Promise<void> {
  const made = await load.made()?.catch(() => undefined);
  await made?.close();
}

/** Service that works by itself from `start()` until `stop()`. */
interface StartedService {
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** Service that is loaded at its first use, or by `start()` when there is work for it. */
export interface LateService<T> extends StartedService {
  /** Returns the service, and loads it where nobody did. A load that fails is tried again at the next call. */
  readonly load: () => Promise<T>;
}

/**
 * Leaves a service that works by itself for its first use.
 *
 * A service that is loaded after `start()` is started before `load()` returns it. `stop()` stops a loaded service and loads nothing.
 * @param load imports the service's module and makes the service
 * @param isNeeded tells at `start()` whether the service has work to go on with
 */
export function lazilyStarted<T extends StartedService>(
  load: () => Promise<T>,
  isNeeded: () => Promise<boolean>,
): LateService<T> {
  let started = false;
  const loaded = lazily(async () => {
    const service = await load();
    if (started) await service.start();
    return service;
  });
  return {
    load: loaded,
    async start() {
      started = true;
      const known = loaded.made();
      if (known !== undefined) await (await known).start();
      else if (await isNeeded()) await loaded();
    },
    async stop() {
      started = false;
      await (await loaded.made())?.stop();
    },
  };
}

/** Returns a function that makes the value of an object at its first use, and keeps it as long as the object. The object must never change. */
export function lazilyEach<Key extends object, T>(make: (key: Key) => T): (key: Key) => T {
  const made = new WeakMap<Key, { readonly value: T }>();
  return (key) => {
    const known = made.get(key);
    if (known !== undefined) return known.value;
    const value = make(key);
    made.set(key, { value });
    return value;
  };
}
