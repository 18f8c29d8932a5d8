/** A value by key, of which the one used longest ago is given up for a new one. */
export interface RecentKeys<T> {
  /** The value of `key`, which becomes the one used last */
  use(key: string): T;
}

interface Node<T> {
  key: string;
  readonly value: T;
  newer: Node<T>;
  older: Node<T>;
}

/**
 * At most `maxKeys` values. Beyond that the value used longest ago is made as new by `reset` and given to the new key, so that
 * a flood of keys makes no garbage. Each use costs the same: a ring of neighbours rather than the order of a Map, whose first
 * key is found by stepping over all that were deleted.
 */
export function createRecentKeys<T>(
  options: { readonly maxKeys: number; readonly create: () => T; readonly reset: (value: T) => void },
): RecentKeys<T> {
  const { maxKeys, create, reset } = options;
  const nodes = new Map<string, Node<T>>();
  /** The node used last. The ring is closed, so `newest.newer` is the oldest node */
  let newest: Node<T> | undefined;

  function placeAfterNewest(node: Node<T>): void {
    if (newest === undefined) return;
    node.older = newest;
    node.newer = newest.newer;
    newest.newer.older = node;
    newest.newer = node;
  }

  function add(key: string): Node<T> {
    if (newest !== undefined && nodes.size >= maxKeys) {
      // The oldest stands right after the newest: renamed, it is in its place already
      const oldest = newest.newer;
      nodes.delete(oldest.key);
      oldest.key = key;
      reset(oldest.value);
      return oldest;
    }
    const node = { key, value: create() } as Node<T>;
    // A ring of one, which makes the node whole
    node.newer = node.older = node;
    placeAfterNewest(node);
    return node;
  }

  return {
    use(key) {
      if (newest?.key === key) return newest.value;
      let node = nodes.get(key);
      if (node === undefined) {
        node = add(key);
        nodes.set(key, node);
      } else if (node !== newest?.newer) {
        node.older.newer = node.newer;
        node.newer.older = node.older;
        placeAfterNewest(node);
      }
      newest = node;
      return node.value;
    },
  };
}
