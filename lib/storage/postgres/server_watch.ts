import { Backoff, type Clock } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { DatabaseAwayError, sqlStateOf } from "./database_errors.ts";
import type { PostgresDatabase } from "./postgres_database.ts";

/** First and longest pause between two attempts to reach a server that is down; each is cut by up to a half at random. Milliseconds */
const PAUSES = { firstMs: 100, mostMs: 5_000 } as const;
/** Least time between two questions whether the server is there: each request may want to know. Milliseconds */
const PROBE_EVERY_MS = 1_000;
/** States of SQLSTATE in which the server works and cannot do this now: out of something, read only, too slow */
const CANNOT_NOW = /^(?:53|25006$|57014$|55P03$)/;

/** Time for which a start waits for a server that goes away in the middle of it. Milliseconds */
const PATIENT_MS = 30_000;

/** Options of `ServerWatch`. */
export interface ServerWatchOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Pick<Logger, "warn" | "info">;
  /** Aborts at the end of the start. Until then, and for 30 seconds at most, calls wait for a server that is down. Default: no call waits */
  readonly started?: AbortSignal | undefined;
  /** Aborts when the start is given up: no call waits any more. Default: it never does */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Knows whether the server answers. While it is away, every call is refused at once, and one loop tries to reach the server, with pauses
 * that double and differ between gateways. Calls of a start wait, since what a gateway could not read then it would lack until its end.
 */
export class ServerWatch {
  readonly #database: Pick<PostgresDatabase, "name" | "query">;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Pick<Logger, "warn" | "info">;
  readonly #stopped = new AbortController();
  #outage: DatabaseAwayError | undefined;
  #isProbing = false;
  /** Monotonic time before which nobody asks again. */
  #probeAt = -Infinity;

  /** Present while the server is down: resolves when it is back. */
  #back: PromiseWithResolvers<void> | undefined = undefined;
  readonly #patience: { readonly until: number; readonly signal: AbortSignal } | undefined;
  /** Aborts when the start is given up. */
  readonly givenUp: AbortSignal | undefined;

  constructor(database: Pick<PostgresDatabase, "name" | "query">, options: ServerWatchOptions) {
    this.#database = database;
    this.#clock = options.clock;
    this.#random = options.random;
    this.#log = options.log;
    const { started, signal } = options;
    this.givenUp = signal;
    this.#patience = started && {
      until: this.#clock.monotonic() + PATIENT_MS,
      signal: AbortSignal.any([started, this.#stopped.signal, ...signal === undefined ? [] : [signal]]),
    };
  }

  /** Returns whether the server answered when it was last asked. */
  isThere(): boolean {
    return this.#outage === undefined;
  }

  /** Returns whether calls wait for a server that is down. */
  isPatient(): boolean {
    const { until = 0, signal } = this.#patience ?? {};
    return signal?.aborted === false && this.#clock.monotonic() < until;
  }

  /** @throws {HttpError} `storage_unavailable` while the server is down, and calls do not wait for it */
  requireThere(): void {
    if (this.#outage !== undefined && !this.isPatient()) throw storageUnavailable(this.#outage);
  }

  /** Waits for a server that is down, while the gateway starts. @throws {HttpError} `storage_unavailable` */
  async whenThere(): Promise<void> {
    const { until, signal } = this.#patience ?? {};
    if (this.#back !== undefined && until !== undefined && signal?.aborted === false) {
      const ended = Promise.withResolvers<void>();
      const end = () => ended.resolve();
      signal.addEventListener("abort", end, { once: true });
      const timer = this.#clock.after(Math.max(0, until - this.#clock.monotonic()), end);
      await Promise.race([this.#back.promise, ended.promise]);
      timer.clear();
      signal.removeEventListener("abort", end);
    }
    if (this.#outage !== undefined) throw storageUnavailable(this.#outage);
  }

  /**
   * Reads from the server. A connection that was lost on the way is tried once more, since reading twice changes nothing.
   * @throws {HttpError} `storage_unavailable`
   */
  async read<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      if (this.#outage !== undefined) await this.whenThere();
      try {
        return await work().catch((error) => {
          if (error instanceof DatabaseAwayError && error.wasSent) return work();
          throw error;
        });
      } catch (error) {
        const refusal = this.refusalOf(error);
        if (!(error instanceof DatabaseAwayError) || !this.isPatient()) throw refusal;
      }
    }
  }

  /** Returns the error for the caller, and begins to look for the server when the error says that it is away. */
  refusalOf(error: unknown): unknown {
    if (error instanceof DatabaseAwayError) {
      this.#noteDown(error);
      return storageUnavailable(error);
    }
    return isNotNow(error) ? storageUnavailable(error) : error;
  }

  /** Asks the server whether it is there, in the background and once a second: a gateway at rest has nobody else to notice. */
  probe(): void {
    const now = this.#clock.monotonic();
    if (this.#outage !== undefined || this.#isProbing || now < this.#probeAt || this.#stopped.signal.aborted) return;
    this.#isProbing = true;
    this.#probeAt = now + PROBE_EVERY_MS;
    this.#database.query("SELECT 1")
      .catch((error) => void this.refusalOf(error))
      .finally(() => this.#isProbing = false);
  }

  stop(): void {
    this.#stopped.abort();
  }

  #noteDown(error: DatabaseAwayError): void {
    if (this.#outage !== undefined || this.#stopped.signal.aborted) return;
    this.#outage = error;
    this.#back = Promise.withResolvers();
    this.#log.warn("The database is down: what needs it is refused until it answers again", { reason: error.message });
    void this.#search().catch(() => {});
  }

  async #search(): Promise<void> {
    for (const backoff = new Backoff(PAUSES, this.#random);;) {
      await this.#clock.sleep(backoff.next(), this.#stopped.signal);
      try {
        await this.#database.query("SELECT 1");
        break;
      } catch (error) {
        if (error instanceof DatabaseAwayError) continue;
        break; // The server answers, whatever it says
      }
    }
    this.#outage = undefined;
    this.#back?.resolve();
    this.#back = undefined;
    this.#log.info("The database answers again", { database: this.#database.name });
  }
}

/** Tells whether the server works and cannot do now what it was asked: it is out of something, only reads, or is too slow. */
export function isNotNow(error: unknown): boolean {
  return CANNOT_NOW.test(sqlStateOf(error) ?? "");
}

/** Returns the error for the client: 503, with the reason. */
export function storageUnavailable(cause: unknown): HttpError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return refuse("storage_unavailable", `Cannot use the database: ${reason}; try again`, { cause });
}
