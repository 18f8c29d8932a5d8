/** What was made, or makes it. */
export interface Lazy<T> {
  (): T;
  /** Without making it: undefined before the first use, and after one that failed */
  made(): T | undefined;
}

/**
 * Something made at its first use and kept from then on: a heavy module, or a table that few requests need.
 *
 * A start is as fast as what it loads, so what the gateway can answer /health without is made this way:
 * `const adapter = lazily(() => import("./adapter.ts"))`, then `(await adapter()).open()` where it is used. Where a whole service
 * can wait, its factory goes in: `const git = lazily(async () => (await import("./git.ts")).createGit(options))`.
 * What throws or rejects is not kept: whoever asked gets the error, and the next use tries again.
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
