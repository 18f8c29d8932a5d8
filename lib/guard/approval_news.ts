import type { Clock } from "../base/clock.ts";
import { createKeyedNotifier, type Listening } from "../base/keyed_queues.ts";
import { Poller } from "../base/poller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { RunOwnership } from "../cluster/run_ownership.ts";
import { isStorageAway, scanAll } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";

/** Pause between two looks at what is still open. Milliseconds */
const POLL_MS = 1_000;

/** Parts of `ApprovalNews`. */
export interface ApprovalNewsOptions {
  readonly store: Store;
  /** Collection with a record for each approval that is open, by approval id. */
  readonly collection: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Notes to and from the other gateways of a cluster. Default: the gateway is alone */
  readonly cluster?: Pick<RunOwnership, "tell" | "onNote"> | undefined;
}

/**
 * Wakes whoever waits for the settlement of an approval.
 *
 * In a cluster another gateway may settle it. A note says so, and may be lost: one look a second finds all that were settled of those that
 * somebody here waits for, and none is made while nobody waits.
 */
export class ApprovalNews {
  readonly #options: ApprovalNewsOptions;
  readonly #notifier = createKeyedNotifier();
  /** Number of waits by approval id, in a cluster. */
  readonly #waits = new Map<string, number>();
  readonly #poller = new Poller(() => this.#look());

  constructor(options: ApprovalNewsOptions) {
    this.#options = options;
    options.cluster?.onNote(({ kind, id }) => void (kind === "approval" && this.#notifier.wake(id)));
  }

  /** Begins to wait for the settlement of an approval, whichever caller settles it. It may be heard without one. */
  listen(id: string, signal: AbortSignal): Listening {
    const listening = this.#notifier.listen(id, signal);
    if (this.#options.cluster === undefined) return listening;
    if (this.#waits.size === 0) this.#poller.start(this.#options.clock, POLL_MS);
    this.#waits.set(id, (this.#waits.get(id) ?? 0) + 1);
    let isStopped = false;
    return {
      ...listening,
      stop: () => {
        listening.stop();
        if (!isStopped) this.#leave(id);
        isStopped = true;
      },
    };
  }

  /** Tells here and at the other gateways that an approval was settled. */
  tell(id: string): void {
    this.#notifier.wake(id);
    this.#options.cluster?.tell("approval", id);
  }

  #leave(id: string): void {
    const left = (this.#waits.get(id) ?? 1) - 1;
    if (left > 0) this.#waits.set(id, left);
    else this.#waits.delete(id);
    if (this.#waits.size === 0) void this.#poller.stop();
  }

  async #look(): Promise<void> {
    try {
      const { store, collection } = this.#options;
      const settled = new Set(this.#waits.keys());
      for await (const { key } of scanAll(store, collection)) settled.delete(key);
      for (const id of settled) this.#notifier.wake(id);
    } catch (error) {
      if (isStorageAway(error)) return;
      this.#options.log.error("Approvals could not be looked at: the gateway tries again in a second", { error });
    }
  }
}
