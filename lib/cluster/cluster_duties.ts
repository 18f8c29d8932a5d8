import type { Store } from "../storage/store.ts";
import { CLUSTER_DUTIES } from "./cluster_records.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import { fenceCheck, isOwned, type Leases } from "./leases.ts";

/** Work that one gateway of a cluster does at a time, by a name: work that others need not do again, and may. */
export class ClusterDuties {
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #lease: GatewayLease;

  constructor({ store, leases, lease }: {
    readonly store: Store;
    readonly leases: Leases;
    readonly lease: GatewayLease;
  }) {
    this.#store = store;
    this.#leases = leases;
    this.#lease = lease;
  }

  /**
   * Does work, unless another gateway does it now. One that dies holds nothing up.
   * @returns false when another gateway does the work, or when this one may not act now
   * @throws the error of the work
   */
  async alone(name: string, work: () => Promise<void>): Promise<boolean> {
    const version = await this.#take(name);
    if (version === undefined) return false;
    try {
      await work();
    } finally {
      await this.#giveBack(name, version);
    }
    return true;
  }

  /** @returns the version of the record that names this gateway. Undefined when another has the duty */
  async #take(name: string): Promise<number | undefined> {
    const own = this.#lease.own();
    if (own === undefined || !this.#lease.mayAct()) return undefined;
    const found = await CLUSTER_DUTIES.read(this.#store, name);
    if (found !== undefined && isOwned(found.value, await this.#leases.fences([found.value.gateway]))) return undefined;
    const version = found?.version ?? 0;
    const write = CLUSTER_DUTIES.putOver(name, version, { v: 1, gateway: own.id, fence: own.fence });
    return await this.#store.batch([fenceCheck(own), write]) ? version + 1 : undefined;
  }

  /** Never throws: a duty that stays is free once its gateway has left. */
  async #giveBack(name: string, version: number): Promise<void> {
    await this.#store.batch([CLUSTER_DUTIES.check(name, version), CLUSTER_DUTIES.remove(name)]).catch(() => false);
  }
}
