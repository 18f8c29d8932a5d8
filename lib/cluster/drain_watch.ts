import type { Clock } from "../base/clock.ts";
import { Poller } from "../base/poller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { type ClusterBus, POLL_MS } from "./cluster_news.ts";
import type { DrainRequest } from "./cluster_records.ts";
import type { GatewayDrains } from "./gateway_drains.ts";
import type { GatewayLease } from "./gateway_lease.ts";

/** Reason of a refusal by a drained gateway, as the end of a sentence. */
export const DRAINED =
  "somebody has drained this gateway (postern cluster drain), so it takes no work until its process is started again";

/** Options of `DrainWatch`. */
export interface DrainWatchOptions {
  readonly id: string;
  readonly drains: Pick<GatewayDrains, "all">;
  readonly lease: Pick<GatewayLease, "announceDrain" | "joinAgain">;
  readonly bus: Pick<ClusterBus, "onNote">;
  readonly clock: Clock;
  readonly log: Logger;
  /** Records that the drain begins. */
  readonly record: (asked: DrainRequest) => Promise<void>;
  /** Ends or hands on the work of this gateway, which takes no new work from its call on. */
  readonly letGo: () => Promise<void>;
  /** Gives all work back that this gateway owns. */
  readonly giveWorkBack: () => Promise<void>;
}

/**
 * Waits for the drain of this gateway: hears of it by a note, and looks once a second. The gateway then lets go of its work, gives up all
 * that it has claimed, and stays a member of the cluster without work until it ends.
 */
export class DrainWatch {
  readonly #options: DrainWatchOptions;
  readonly #poller: Poller;
  #stopListening = () => {};
  /** True: the gateway itself ends, also while it is drained. */
  #isStopped = false;

  constructor(options: DrainWatchOptions) {
    this.#options = options;
    this.#poller = new Poller(() => this.#look(), (error) => {
      options.log.warn("Nobody can drain this gateway: the database does not answer", { error });
    });
  }

  start(): void {
    const { id, bus, clock } = this.#options;
    this.#stopListening = bus.onNote((note) => void (note.kind === "drain" && note.id === id && this.#poller.look()));
    this.#poller.start(clock, POLL_MS);
  }

  /** Ends the waiting. Resolves when a look that is at work has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#end();
  }

  #end(): Promise<void> {
    this.#stopListening();
    return this.#poller.stop();
  }

  async #look(): Promise<void> {
    const asked = (await this.#options.drains.all()).get(this.#options.id);
    if (asked === undefined) return;
    void this.#end();
    void this.#drain(asked);
  }

  async #drain({ requested_at, by }: DrainRequest): Promise<void> {
    const { id, lease, letGo, giveWorkBack, record, log } = this.#options;
    log.warn("Somebody drains this gateway: its work goes to the others", { gateway: id, requested_at, by });
    const told = lease.announceDrain("draining");
    // Whoever asked without a gateway has recorded nothing
    const recorded = record({ requested_at, by }).catch((error: unknown) =>
      log.error("The drain of this gateway could not be recorded in the audit", { gateway: id, error })
    );
    try {
      await letGo();
      await giveWorkBack();
    } catch (error) {
      log.error("Some work of a drained gateway did not end: the others take it over", { gateway: id, error });
    }
    await Promise.all([told, recorded]);
    await lease.joinAgain("drained");
    if (this.#isStopped) return;
    log.warn("This gateway is drained: it takes no work until it is started again", { gateway: id });
  }
}
