import { type HttpError, refuse } from "../base/errors.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import { unknownFieldsOf } from "../base/records/stored_object.ts";
import type { Store, Write } from "../storage/store.ts";
import { CLUSTER_DRAINS, type DrainRequest, type DrainsBody } from "./cluster_records.ts";
import type { GatewayView, Leases } from "./leases.ts";

/** Parts of `GatewayDrains`. */
export interface GatewayDrainsOptions {
  readonly store: Pick<Store, "get" | "batch" | "unreadable">;
  readonly leases: Pick<Leases, "list" | "now">;
  /** Tells the gateways at once that a gateway was drained. They look once a second too. */
  readonly tell: (gateway: string) => void;
}

/** Options of `GatewayDrains.request`. */
export interface DrainOptions {
  readonly by: Actor;
  /** True: drains also the last gateway that takes work. */
  readonly force: boolean;
  /** Makes the writes of the drain, with a record of it. @returns false when a precondition does not hold. Default: the writes alone */
  readonly write?: (asked: DrainRequest, writes: readonly Write[]) => Promise<boolean>;
}

/** Drain of a gateway, as it was asked for. */
export interface RequestedDrain extends DrainRequest {
  readonly gateway: string;
  /** True: it was asked for before. */
  readonly isRepeated: boolean;
}

/** Key of the one record. */
const KEY = "gateways";
/** Time that the drain of a gateway is kept which has no lease: it may be paused, and come back. Milliseconds */
const KEPT_MS = 24 * 60 * 60 * 1_000;
/** Writes that others may be faster with. */
const MAX_TRIES = 20;

/**
 * Drains of gateways, as a person asks for them at any gateway. They are one record, so that two people cannot drain the last two gateways
 * at the same time. A gateway has a new id at each start, so a drain ends with the process.
 */
export class GatewayDrains {
  readonly #options: GatewayDrainsOptions;

  constructor(options: GatewayDrainsOptions) {
    this.#options = options;
  }

  /** Returns the drains by the ids of their gateways. A damaged record counts as none. */
  async all(): Promise<ReadonlyMap<string, DrainRequest>> {
    return new Map(Object.entries((await this.#read()).drains));
  }

  /**
   * Asks a gateway to let go of its work.
   * @throws {HttpError} 404 `not_found`: no gateway of this id has a lease; 409 `conflict`: it is the last one that takes work
   */
  async request(gateway: string, { by, force, write }: DrainOptions): Promise<RequestedDrain> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const [{ version, drains, stored }, gateways, now] = await Promise.all([
        this.#read(),
        this.#options.leases.list(),
        this.#options.leases.now(),
      ]);
      if (!gateways.some(({ id }) => id === gateway)) throw unknownGateway(gateway, gateways);
      const before = drains[gateway];
      if (before !== undefined) return { gateway, ...before, isRepeated: true };
      const takesWork = ({ id, leftMs }: GatewayView) => id !== gateway && leftMs > 0 && drains[id] === undefined;
      if (!force && !gateways.some(takesWork)) throw lastGateway(gateway);
      const asked: DrainRequest = { requested_at: new Date(now).toISOString(), by: storedActor(by) };
      const isThere = new Set(gateways.map(({ id }) => id));
      const kept = Object.entries(drains).filter(([id, { requested_at }]) =>
        isThere.has(id) || now - Date.parse(requested_at) < KEPT_MS
      );
      const body: DrainsBody = {
        ...unknownFieldsOf(stored),
        v: 1,
        gateways: { ...Object.fromEntries(kept), [gateway]: asked },
      };
      const writes = [CLUSTER_DRAINS.putOver(KEY, version, body)];
      if (await (write?.(asked, writes) ?? this.#options.store.batch(writes))) {
        this.#options.tell(gateway);
        return { gateway, ...asked, isRepeated: false };
      }
    }
    throw refuse("conflict", "Cannot drain the gateway: others drain gateways at the same time; try again");
  }

  async #read(): Promise<{
    readonly version: number;
    readonly drains: DrainsBody["gateways"];
    readonly stored: DrainsBody | undefined;
  }> {
    const { value: stored, version } = await CLUSTER_DRAINS.readForChange(this.#options.store, KEY);
    return { version, drains: stored?.gateways ?? {}, stored };
  }
}

function unknownGateway(gateway: string, gateways: readonly GatewayView[]): HttpError {
  const known = gateways.length === 0
    ? "none has one"
    : `those that have one: ${gateways.map(({ id }) => id).join(", ")}`;
  const message = `Cannot find the gateway "${gateway}": it has no lease, so it has ended or is gone; ${known}`;
  return refuse("not_found", message, { param: "id" });
}

function lastGateway(gateway: string): HttpError {
  const reason = "no other gateway of the cluster takes work, so that all new requests would be refused";
  const wayOut = 'start another one first, or force it: postern cluster drain --force, or "force": true over HTTP';
  return refuse("conflict", `Cannot drain the gateway "${gateway}": ${reason}; ${wayOut}`);
}
