import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import type { Identity, Tokens } from "./identity.ts";
import { secretHash } from "./stored_token.ts";

/** Single-use tickets for WebSocket handshakes of browsers, which cannot send a header. Kept in memory, 30 s, 1,000 at most; they end with their token. */
export interface Tickets {
  issue(identity: Identity): { readonly ticket: string; readonly expiresInSeconds: number };
  take(ticket: string): Identity | undefined;
}

const TTL_SECONDS = 30;
const MAX_TICKETS = 1_000;
const MAX_PRESENTED_CHARACTERS = 128;

/** Clock, randomness and tokens that tickets work with. */
export interface CreateTicketsOptions {
  readonly clock: Clock;
  readonly random: Random;
  /** The tokens that tickets are issued for. A ticket ends with its token */
  readonly tokens: Pick<Tokens, "isLive">;
}

/** Tickets in memory: `tkt_` + 32 random bytes base64url, taken once, within 30 s. Beyond 1,000 the oldest goes first. */
export function createTickets({ clock, random, tokens }: CreateTicketsOptions): Tickets {
  /** By hash, in order of issue and so of expiry */
  const tickets = new Map<string, { readonly identity: Identity; readonly expiresAt: number }>();

  function prune(): void {
    for (const [hash, { expiresAt }] of tickets) {
      if (tickets.size < MAX_TICKETS && expiresAt > clock.monotonic()) return;
      tickets.delete(hash);
    }
  }

  return {
    issue(identity) {
      prune();
      const ticket = `tkt_${Buffer.from(random.bytes(32)).toString("base64url")}`;
      tickets.set(secretHash(ticket), { identity, expiresAt: clock.monotonic() + TTL_SECONDS * 1000 });
      return { ticket, expiresInSeconds: TTL_SECONDS };
    },
    take(ticket) {
      if (ticket.length > MAX_PRESENTED_CHARACTERS) return undefined;
      const hash = secretHash(ticket);
      const found = tickets.get(hash);
      tickets.delete(hash);
      if (found === undefined || found.expiresAt <= clock.monotonic()) return undefined;
      return tokens.isLive(found.identity.tokenId) ? found.identity : undefined;
    },
  };
}
