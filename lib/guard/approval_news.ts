import type { Clock } from "../base/clock.ts";
import { KeyedNotifier, type Listening } from "../base/keyed_queues.ts";
import { Poller } from "../base/poller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { ClusterBus } from "../cluster/cluster_news.ts";
import { isStorageAway } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";
import { type ApprovalNews, OPEN_APPROVALS } from "./approval_records.ts";
import type { Askers } from "./askers.ts";

/** Pause between two looks at what is still open. Milliseconds */
const POLL_MS = 1_000;

/** Parts of `SharedApprovalNews`. */
export interface SharedApprovalNewsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  /** Notes to and from the other gateways. */
  readonly bus: ClusterBus;
}

/**
 * The news of approvals that any gateway of a cluster may settle. A note says so, and may be lost: one look a second finds all that were
 * settled of those that somebody here waits for, and none is made while nobody waits.
 */
export class SharedApprovalNews implements ApprovalNews {
  readonly mayWaitElsewhere = true;
  readonly #options: SharedApprovalNewsOptions;
  readonly #notifier = new KeyedNotifier();
  /** Number of waits by approval id. */
  readonly #waits = new Map<string, number>();
  readonly #poller = new Poller(() => this.#look());

  constructor(options: SharedApprovalNewsOptions) {
    this.#options = options;
    options.bus.onNote(({ kind, id }) => void (kind === "approval" && this.#notifier.wake(id)));
  }

  /** Begins to wait for the settlement of an approval, whichever caller settles it. It may be heard without one. */
  listen(id: string, signal: AbortSignal): Listening {
    const listening = this.#notifier.listen(id, signal);
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
    this.#options.bus.tell("approval", id);
  }

  /** Joins the looks of people at each gateway: whoever looks at one of them can be asked by all. */
  shareLooks(askers: Askers): void {
    const { bus } = this.#options;
    bus.onNote(({ kind }) => void (kind === "look" && askers.looked(false)));
    askers.share(() => bus.tell("look", "approvals"));
  }

  #leave(id: string): void {
    const left = (this.#waits.get(id) ?? 1) - 1;
    if (left > 0) this.#waits.set(id, left);
    else this.#waits.delete(id);
    if (this.#waits.size === 0) void this.#poller.stop();
  }

  async #look(): Promise<void> {
    try {
      const settled = new Set(this.#waits.keys());
      for await (const id of OPEN_APPROVALS.keys(this.#options.store)) settled.delete(id);
      for (const id of settled) this.#notifier.wake(id);
    } catch (error) {
      if (isStorageAway(error)) return;
      this.#options.log.error("Approvals could not be looked at: the gateway tries again in a second", { error });
    }
  }
}
