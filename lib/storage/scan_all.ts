import type { ScanOptions, Store, Stored } from "./store.ts";

/** As ScanOptions, with as many records as there are. */
export interface ScanAllOptions extends Omit<ScanOptions, "after" | "limit"> {
  readonly after?: string | undefined;
}

const PAGE = 100;

/**
 * Every record of a collection, read a page at a time, so that one who stops early reads no more than that.
 *
 * Records may be deleted meanwhile where the order is `key`; with `created` the one yielded last must stay.
 */
export async function* scanAll(
  store: Store,
  collection: string,
  { after, ...options }: ScanAllOptions = {},
): AsyncGenerator<Stored> {
  for (let last = after;;) {
    const page = await store.scan(collection, {
      ...options,
      limit: PAGE,
      ...(last === undefined ? {} : { after: last }),
    });
    yield* page;
    if (page.length < PAGE) return;
    last = page.at(-1)?.key;
  }
}
