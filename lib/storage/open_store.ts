import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { removeUnfinished } from "../base/durable_files.ts";
import { takeGatewayLock } from "./gateway_lock.ts";
import type { ConfiguredPostgres, PostgresSettings } from "./open_configured_postgres.ts";
import { openSqliteStore } from "./open_sqlite_store.ts";
import type { Store } from "./store.ts";

/** Options of `openStore`. */
export interface OpenStoreOptions {
  /** `[storage]` */
  readonly storage: PostgresSettings & { readonly driver: "sqlite" | "memory" | "postgres" };
  /** Reads an environment variable */
  readonly environment: (name: string) => string | undefined;
  /** Absolute path */
  readonly dataDir: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Gets the store, and before it the lock of the data directory. */
  readonly opened: OpenedList;
  /** Aborts at the end of the gateway's start, whose calls wait for a database that goes away. Default: no call waits */
  readonly started?: AbortSignal | undefined;
  /** Aborts when the start is given up, which ends each wait of it. Default: it never does */
  readonly signal?: AbortSignal | undefined;
}

/** Store of a gateway. */
export interface OpenedStore {
  readonly store: Store;
  /** Database of the store, where other gateways may use it too */
  readonly database?: ConfiguredPostgres["database"];
}

/**
 * Opens the store of a gateway, and holds the lock of the data directory until it is closed. Each damaged record that the store sets
 * aside is logged.
 * @throws {ConfigError} `data_dir_locked`: a data directory in use; and what `openSqliteStore` and `openConfiguredPostgres` throw
 */
export async function openStore(options: OpenStoreOptions): Promise<OpenedStore> {
  const found = await openDriver(options);
  const { store } = found;
  options.opened.own(store, (opened) => opened.close());
  store.unreadable.watch(({ collection, key, reason }) =>
    options.log.error('A damaged record was set aside: "postern doctor --repair" removes it while no gateway runs', {
      collection,
      key,
      reason,
    })
  );
  return found;
}

async function openDriver(options: OpenStoreOptions): Promise<OpenedStore> {
  const { storage, dataDir, clock, log } = options;
  switch (storage.driver) {
    case "postgres": {
      await takeDataDirectory(options);
      const { openConfiguredPostgres } = await import("./open_configured_postgres.ts");
      return await openConfiguredPostgres(options);
    }
    case "memory": {
      const { createMemoryStore } = await import("./create_memory_store.ts");
      return { store: createMemoryStore() };
    }
    case "sqlite":
      await takeDataDirectory(options);
      return { store: await openSqliteStore({ path: join(dataDir, "postern.db"), clock, log }) };
  }
}

async function takeDataDirectory({ dataDir, opened }: OpenStoreOptions): Promise<void> {
  const lock = takeGatewayLock(dataDir);
  if (lock === undefined) {
    throw new ConfigError(
      "data_dir_locked",
      `Cannot use the data directory "${dataDir}": another gateway, node or command uses it; end that one, or give --data-dir`,
    );
  }
  opened.own(lock, (held) => held.release());
  await removeUnfinished(dataDir);
}
