import { CancelError } from "../base/cancel.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { createPatience } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import { fenceCheck, type JoinedGateway } from "./leases.ts";

/** Work whose workspace has no gateway. */
export interface StrandedWork {
  /** True: it has waited for as long as it may. */
  readonly isTooLate: boolean;
  /** `[cluster] workspace_wait_secs`, in milliseconds. */
  readonly waitMs: number;
  /** Lets it wait for a gateway of its workspace. */
  wait(): Promise<void>;
}

/** Parts of a cluster that a hold uses. */
export interface HoldParts {
  readonly store: Store;
  readonly lease: GatewayLease;
  readonly clock: Clock;
}

/** Pause before owned work tries a call of the store again while the database is down. Milliseconds */
export const RETRY_MS = 250;

/** The right of this gateway to one piece of work, under the fence of its claim. Nothing counts any more once others own the work. */
export class WorkHold {
  /** Precondition of each batch that the work writes. */
  readonly check: readonly Write[];
  /** Aborts with `shutdown` when others may own the work. */
  readonly lost: AbortSignal;
  /** Present for work of a workspace that this gateway does not have, and that has no gateway: the work ends here, or waits. */
  readonly stranded: StrandedWork | undefined;
  /** Says that the work has ended: it is not taken up again, also where its mark was left behind. */
  readonly end: () => void;
  /** Lets the next look take the work up again, here or elsewhere. */
  readonly giveBack: () => void;
  readonly #parts: HoldParts;
  readonly #fence: number;
  readonly #lost: AbortController;

  constructor(
    parts: HoldParts,
    own: JoinedGateway,
    { lost, end, giveBack, stranded }: Pick<WorkHold, "end" | "giveBack" | "stranded"> & {
      readonly lost: AbortController;
    },
  ) {
    this.stranded = stranded;
    this.#parts = parts;
    this.#fence = own.fence;
    this.#lost = lost;
    this.check = [fenceCheck(own)];
    this.lost = lost.signal;
    this.end = end;
    this.giveBack = giveBack;
  }

  /** Resolves when an effect may begin. @throws {CancelError} `shutdown` when others own the work; the signal's reason when it aborts first */
  async mayAct(signal: AbortSignal): Promise<void> {
    if (await this.#parts.lease.mayActUnder(this.#fence, signal)) return;
    this.#lost.abort(takenOver());
    throw takenOver();
  }

  /** Tells whether an effect may begin now, at once. */
  mayActNow(): boolean {
    return this.#parts.lease.mayActNowUnder(this.#fence);
  }

  /** Returns a signal that aborts with `shutdown` at the deadline of this gateway, unless its lease is renewed before. Clear it at the end. */
  deadline(): { readonly signal: AbortSignal; clear(): void } {
    const { lease, clock } = this.#parts;
    const over = new AbortController();
    let timer: Timer | undefined;
    const end = () => over.abort(takenOver());
    const look = () => {
      const left = lease.deadline() - clock.monotonic();
      if (left > 0) timer = clock.after(left, look);
      else end();
    };
    if (this.lost.aborted) end();
    else look();
    this.lost.addEventListener("abort", end, { once: true });
    return {
      signal: over.signal,
      clear: () => {
        timer?.clear();
        this.lost.removeEventListener("abort", end);
      },
    };
  }

  /**
   * Makes a batch with the precondition, again and again while the database is down. A batch whose answer was lost is made twice.
   * @throws {CancelError} `shutdown` when others own the work
   */
  async write(writes: readonly Write[], signal: AbortSignal): Promise<void> {
    const { store, clock } = this.#parts;
    const patience = createPatience({ clock, signal, pauseMs: RETRY_MS, afterPause: () => this.mayAct(signal) });
    if (!await patience(() => store.batch([...this.check, ...writes]))) throw takenOver();
  }
}

/** Returns the reason for which work stops that this gateway does not own any more. */
export function takenOver(what: "run" | "work" = "work"): CancelError {
  return new CancelError("shutdown", `Another gateway has taken the ${what} over`);
}
