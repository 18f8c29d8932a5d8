import type { Clock } from "../../base/clock.ts";
import { ConfigError } from "../../base/errors.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { DedicatedSession, PostgresDatabase } from "./postgres_database.ts";
import type { ServerWatch } from "./server_watch.ts";

/** Time that a start waits for the gateway before it, whose connection may end a moment after its process. Milliseconds */
const WAIT_MS = 5_000;
const PAUSE_MS = 100;
/** Pause between two attempts to take a lost lock again. Milliseconds */
const AGAIN_MS = 1_000;
/** A server that hears nothing of a machine ends its connections, and the locks with them, after 25 s. */
const KEEP_ALIVE =
  "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET statement_timeout = 0";

/** Options of `GatewayHold.take`. */
export interface GatewayHoldOptions {
  readonly database: PostgresDatabase;
  readonly schema: string;
  readonly watch: ServerWatch;
  readonly clock: Clock;
  readonly log: Pick<Logger, "warn" | "error" | "info">;
}

/**
 * Holds a schema for one gateway, by an advisory lock of a connection outside the pool. When the connection is lost, nothing may be
 * written until the lock is taken again: another gateway may have it.
 */
export class GatewayHold {
  readonly #options: GatewayHoldOptions;
  readonly #closed = new AbortController();
  #session: DedicatedSession | undefined;

  private constructor(options: GatewayHoldOptions) {
    this.#options = options;
  }

  /** Takes the lock. @throws {ConfigError} `database_locked`: another gateway has it; {DatabaseAwayError} */
  static async take(options: GatewayHoldOptions): Promise<GatewayHold> {
    const { clock, database, schema } = options;
    const hold = new GatewayHold(options);
    for (const end = clock.monotonic() + WAIT_MS; !await hold.#take();) {
      if (clock.monotonic() >= end) {
        throw new ConfigError(
          "database_locked",
          `Cannot use the schema "${schema}" of the database ${database.name}: another gateway uses it; end that one, or name another by storage.schema`,
          { key: "storage.schema" },
        );
      }
      await clock.sleep(PAUSE_MS);
    }
    return hold;
  }

  isHeld(): boolean {
    return this.#session !== undefined;
  }

  /** Releases the lock. */
  async close(): Promise<void> {
    this.#closed.abort();
    const session = this.#session;
    this.#session = undefined;
    await session?.close();
  }

  async #take(): Promise<boolean> {
    const { database, schema, watch } = this.#options;
    const session = await database.dedicated();
    try {
      await session.query(KEEP_ALIVE);
      const [row] = await session.query(
        "SELECT pg_try_advisory_lock(hashtext('postern gateway'), hashtext($1)) AS held",
        [schema],
      );
      if (row?.["held"] !== true || this.#closed.signal.aborted) {
        await session.close();
        return false;
      }
    } catch (error) {
      await session.close();
      throw error;
    }
    this.#session = session;
    session.onLost((error) => {
      this.#session = undefined;
      watch.refusalOf(error);
      void session.close();
      void this.#takeAgain().catch(() => {});
    });
    return true;
  }

  async #takeAgain(): Promise<void> {
    const { clock, database, log, watch } = this.#options;
    for (let hasTold = false; !this.#closed.signal.aborted;) {
      await clock.sleep(watch.jittered(AGAIN_MS), this.#closed.signal);
      const isTaken = await this.#take().catch(() => undefined);
      if (isTaken === true) return;
      if (isTaken === false && !hasTold) {
        hasTold = true;
        log.error(
          "Another gateway took the database while it was out of reach: nothing is written until that one ends",
          {
            database: database.name,
          },
        );
      }
    }
  }
}
