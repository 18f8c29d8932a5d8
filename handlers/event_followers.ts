import type { Services } from "../lib/gateway.ts";
import { httpError } from "./wire/error_codes.ts";

/** Someone who reads the events of runs over HTTP. */
export interface EventFollower {
  /** Of the token it came with; null while pairing is off */
  readonly tokenId: string | null;
  /** Ends its stream; the run goes on */
  close(): void;
}

/** The open event streams of one gateway. */
export interface EventFollowers {
  /** @returns what takes it out again. @throws {HttpError} 503 `overloaded` above 4,096 */
  add(follower: EventFollower): () => void;
  count(): number;
  /** For the start of a shutdown: they come back with their position */
  closeAll(): void;
}

const MAX_FOLLOWERS = 4096;
const gateways = new WeakMap<Services, EventFollowers>();

/** The registry that belongs to these services, made when first asked for. A revoked token ends its streams. */
export function eventFollowersOf(services: Services): EventFollowers {
  const known = gateways.get(services);
  if (known !== undefined) return known;
  const open = new Set<EventFollower>();
  const made: EventFollowers = {
    add(follower) {
      if (open.size >= MAX_FOLLOWERS) {
        throw httpError("overloaded", `Cannot follow the run: ${MAX_FOLLOWERS} streams of events are open already`);
      }
      open.add(follower);
      return () => void open.delete(follower);
    },
    count: () => open.size,
    closeAll() {
      for (const follower of [...open]) follower.close();
    },
  };
  services.tokens.onRevoke((tokenId) => {
    for (const follower of [...open]) if (follower.tokenId === tokenId) follower.close();
  });
  gateways.set(services, made);
  return made;
}
