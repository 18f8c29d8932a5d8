/** One piece of work after the other for each key, in the order they came; other keys go on meanwhile. */
export type KeyedTurns = <T>(key: string, work: () => Promise<T>) => Promise<T>;

export function createKeyedTurns(): KeyedTurns {
  const tails = new Map<string, Promise<unknown>>();
  return async (key, work) => {
    const before = tails.get(key);
    const mine = before === undefined ? work() : before.then(work, work);
    const tail = mine.catch(() => {});
    tails.set(key, tail);
    try {
      return await mine;
    } finally {
      if (tails.get(key) === tail) tails.delete(key);
    }
  };
}
