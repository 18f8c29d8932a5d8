import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import type { Identity } from "./identity.ts";
import { secretHash } from "./stored_token.ts";
import type { Tokens } from "./tokens.ts";

/** Ticket just given. */
export interface IssuedTicket {
  readonly ticket: string;
  readonly expiresInSeconds: number;
}

/** Single-use tickets for WebSocket handshakes of browsers, which cannot send a header. They count for 30 s and end with their token. */
export interface Tickets {
  issue(identity: Identity): IssuedTicket | Promise<IssuedTicket>;
  /** Takes a ticket of a gateway alone. Undefined in a cluster */
  take(ticket: string): Identity | undefined;
  /** Takes a ticket that any gateway of the cluster gave. The caller bounds how many are taken at once. @throws {HttpError} 503 storage_unavailable */
  takeAnywhere(ticket: string): Promise<Identity | undefined>;
}

/** Seconds that a ticket counts. */
export const TICKET_SECONDS = 30;
/** Tickets that one gateway has given and that nobody has come with. */
export const MAX_TICKETS = 1_000;
const MAX_PRESENTED_CHARACTERS = 128;

/** Tickets of a gateway alone. */
export interface LocalTickets extends Tickets {
  issue(identity: Identity): IssuedTicket;
}

/** Tickets in memory: `tkt_` + 32 random bytes base64url, taken once, within 30 s. Beyond 1,000 the oldest goes first. */
export function createTickets({ clock, random, tokens }: {
  readonly clock: Clock;
  readonly random: Random;
  /** The tokens that tickets are issued for. A ticket ends with its token */
  readonly tokens: Pick<Tokens, "isLive">;
}): LocalTickets {
  /** By hash, in order of issue and so of expiry */
  const tickets = new Map<string, { readonly identity: Identity; readonly expiresAt: number }>();

  function prune(): void {
    for (const [hash, { expiresAt }] of tickets) {
      if (tickets.size < MAX_TICKETS && expiresAt > clock.monotonic()) return;
      tickets.delete(hash);
    }
  }

  const take = (ticket: string) => {
    if (ticket.length > MAX_PRESENTED_CHARACTERS) return undefined;
    const hash = secretHash(ticket);
    const found = tickets.get(hash);
    tickets.delete(hash);
    if (found === undefined || found.expiresAt <= clock.monotonic()) return undefined;
    return tokens.isLive(found.identity.tokenId) ? found.identity : undefined;
  };
  return {
    issue(identity) {
      prune();
      const ticket = `tkt_${Buffer.from(random.bytes(32)).toString("base64url")}`;
      tickets.set(secretHash(ticket), { identity, expiresAt: clock.monotonic() + TICKET_SECONDS * 1000 });
      return { ticket, expiresInSeconds: TICKET_SECONDS };
    },
    take,
    takeAnywhere: async (ticket) => take(ticket),
  };
}
