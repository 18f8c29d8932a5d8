import type { Clock } from "../../lib/base/clock.ts";
import type { Logger } from "../../lib/base/telemetry/log.ts";
import { isStorageAway } from "../../lib/storage/read_records.ts";

/** Outcomes that wait for the database at the same time, and their bytes. Further ones are lost, and logged. */
const MAX_LATE = { outcomes: 1_000, bytes: 64 * 1024 * 1024 } as const;
const AGAIN_MS = 1_000;
/** Time after which an outcome is lost. Milliseconds */
const GIVE_UP_MS = 60 * 60 * 1_000;

/** Write of the end of a request, which may have to wait. */
export interface RequestOutcome {
  /** Writes it. May be called again after `storage_unavailable` */
  readonly write: () => Promise<void>;
  /** Bytes that are kept in memory until it is written */
  readonly bytes: number;
  readonly requestId: string;
  /** Runs once, when the first try found the database down */
  readonly onLate: () => void;
}

/** Writes the ends of requests. While the database is down, a write is tried again each second: the claim of the request would stay. */
export class LateOutcomes {
  readonly #services: { readonly clock: Pick<Clock, "after" | "monotonic">; readonly log: Pick<Logger, "warn"> };
  #outcomes = 0;
  #bytes = 0;

  constructor(services: { readonly clock: Pick<Clock, "after" | "monotonic">; readonly log: Pick<Logger, "warn"> }) {
    this.#services = services;
  }

  /** Resolves when the outcome is written or lost. Never rejects, and keeps no process alive. */
  async write(outcome: RequestOutcome): Promise<void> {
    const { clock, log } = this.#services;
    const lost = (error: unknown) =>
      log.warn("Reply is not kept for repeats", { request_id: outcome.requestId, error });
    const failed = await tried(outcome);
    if (failed === undefined) return;
    const isFull = this.#outcomes >= MAX_LATE.outcomes || this.#bytes + outcome.bytes > MAX_LATE.bytes;
    if (!isStorageAway(failed.error) || isFull) return void lost(failed.error);
    this.#outcomes++;
    this.#bytes += outcome.bytes;
    outcome.onLate();
    try {
      for (const end = clock.monotonic() + GIVE_UP_MS;;) {
        await new Promise<void>((resolve) => clock.after(AGAIN_MS, resolve));
        const failed = await tried(outcome);
        if (failed === undefined) return;
        if (!isStorageAway(failed.error) || clock.monotonic() >= end) return void lost(failed.error);
      }
    } finally {
      this.#outcomes--;
      this.#bytes -= outcome.bytes;
    }
  }
}

/** Tries to write an outcome. @returns the error; undefined once it is written */
async function tried({ write }: RequestOutcome): Promise<{ readonly error: unknown } | undefined> {
  try {
    return void await write();
  } catch (error) {
    return { error };
  }
}
