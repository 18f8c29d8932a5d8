import { systemClock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import { createMemoryStore } from "../storage/create_memory_store.ts";
import type { Store } from "../storage/store.ts";
import { createLocalWire } from "./cluster_news.ts";
import type { ClusterDatabase } from "./join_cluster.ts";

/** A database in memory that gateways of one process share, and that forgets everything with the process. */
export class ProcessDatabase {
  readonly #store = createMemoryStore();
  readonly #wire = createLocalWire();

  /** Returns the database behind what a program gave. @throws {ConfigError} `database_invalid` for anything else */
  static of(value: unknown): { readonly store: Store; readonly cluster: ClusterDatabase } {
    if (typeof value !== "object" || value === null || !(#store in value)) {
      throw new ConfigError(
        "database_invalid",
        'Cannot use the option "database": make it with createMemoryDatabase()',
        { key: "database" },
      );
    }
    const database = value as ProcessDatabase; // it has the private field
    const leases = { store: database.#store, now: () => Promise.resolve(systemClock.now()) };
    return { store: database.#store, cluster: { leases, wire: database.#wire } };
  }
}
