/** The runs at work, in no order. */
export interface ActiveRuns<T extends { readonly id: string }> {
  readonly size: () => number;
  add(run: T): void;
  /** Removes a run. Repeating it does nothing. */
  remove(run: T): void;
  find(id: string): T | undefined;
  all(): readonly T[];
}

/**
 * Returns an empty list of runs over one array. A Map or Set would keep ended runs alive: each table that V8 replaces holds all runs of its
 * time until the next major collection. Finding by id is rare and looks through the runs at work alone.
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
