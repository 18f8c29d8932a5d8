import type { ProviderEvent } from "../base/records/provider_event.ts";

/** What a vendor's stream means: the data of its events in, provider events out. One per turn. */
export interface TurnDecoder {
  /**
   * Adds the events of one stream event to `out`; what was added before an error stays valid.
   * @returns whether `finish` was added: nothing after it is of interest
   * @throws {ProviderError} an error told by the upstream, or data that is none of its format
   */
  push(data: string, out: ProviderEvent[]): boolean;
  /**
   * The stream has ended without its end mark.
   * @param rest an event that was not closed; undefined when nothing is left
   * @throws {ProviderError} when the reply is incomplete
   */
  end(rest: string | undefined, out: ProviderEvent[]): void;
  /** A whole reply as plain JSON, sent in place of a stream. @throws {ProviderError} as `push` */
  whole(body: string, out: ProviderEvent[]): void;
}
