/** Runs at work, in no order. */
export interface ActiveRuns<T extends { readonly id: string }> {
  readonly size: () => number;
  add(run: T): void;
  /** Twice does nothing */
  remove(run: T): void;
  find(id: string): T | undefined;
  all(): readonly T[];
}

/**
 * A bag over one array. Not a Map or Set: with runs coming and going, each of their tables that V8 replaces keeps all runs of its
 * time alive until the next major collection. Finding by id is rare and looks through at most the runs that may be at work.
 */
export function createActiveRuns<T extends { readonly id: string }>(): ActiveRuns<T> {
  const runs: T[] = [];
  return {
    size: () => runs.length,
    add: (run) => void runs.push(run),
    remove(run) {
      const at = runs.indexOf(run);
      if (at < 0) return;
      const last = runs.pop() as T; // it was found, so there is one
      if (last !== run) runs[at] = last;
    },
    find: (id) => runs.find((run) => run.id === id),
    all: () => [...runs],
  };
}
