import type { Write } from "../../storage/store.ts";
import type { DeliveryAction, DeliveryRecord } from "./delivery_record.ts";

/** A message whose reply is to be delivered. */
export interface PromisedReply {
  readonly channel: string;
  readonly sender: string | undefined;
  readonly messageId: string | undefined;
}

export interface DeliveryQuery {
  /** Default: all */
  readonly status?: DeliveryRecord["status"] | undefined;
  /** 1-1000 */
  readonly limit: number;
  /** Only those accepted before this run's */
  readonly after?: string | undefined;
}

/**
 * Delivers the replies of channels to their `reply_url`, at least once, across restarts.
 * Source: docs/design/automation.md "Deliveries"
 */
export interface Deliveries {
  /**
   * Promises replies of a channel: gives the writes for the transaction that accepts the run. undefined: the channel has no `reply_url`.
   * @throws {HttpError} 503 `overloaded` when too many replies wait for their receiver
   */
  promise(reply: PromisedReply): Promise<((runId: string) => readonly Write[]) | undefined>;
  /** To be called once the promise is accepted: the reply is delivered when the run is over */
  watch(runId: string): Promise<void>;
  /** Newest first */
  page(query: DeliveryQuery): Promise<{ readonly deliveries: readonly DeliveryRecord[]; readonly hasMore: boolean }>;
  /**
   * Decides about a delivery that goes on no more. A released one is `waiting` again, with all its attempts, and on disk before this
   * resolves.
   * @throws {HttpError} 404 `not_found`; 409 `conflict` in a state other than `held` (for a release also `failed`), or where the channel
   *   has no `reply_url`; 503 `overloaded` when too many replies wait for their receiver
   */
  resolve(runId: string, action: DeliveryAction): Promise<DeliveryRecord>;
  /** Goes on with what an earlier process left. Call once runs are recovered */
  start(): Promise<void>;
  /** Begins no attempt any more and lets those under way end for 2 s; what is left is for the next start */
  stop(): Promise<void>;
}
