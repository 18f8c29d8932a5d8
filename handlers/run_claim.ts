import type { Write } from "../lib/storage/store.ts";

/**
 * What an Idempotency-Key has a hold on: the one run that answers all requests under it.
 *
 * The hold is on disk from the moment the run is accepted, so that a repeat finds the run, also after a crash.
 * Source: docs/design/http.md "Idempotency"
 */
export interface RunClaim {
  /** To be handed to the start of the run: recorded in the transaction that accepts it */
  readonly write: (runId: string) => Write;
  /** Whether text of this turn went to a client, or may have, that this reply cannot take back: in this process or before a crash */
  wasTold(turn: number): boolean;
  /** To be awaited before the first text of a turn goes out: from then on `wasTold`, on disk too */
  tell(turn: number): Promise<void>;
  /** Says that the reply is a failure without an effect: a repeat runs anew, whatever the client is told about retries */
  reopen(): void;
}
