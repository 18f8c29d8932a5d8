import { Buffer } from "node:buffer";
import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";
import { type Identity, unconfirmed } from "./identity.ts";
import { secretHash } from "./stored_token.ts";
import type { Tokens } from "./tokens.ts";
import { type IssuedTicket, MAX_TICKETS, TICKET_SECONDS, type Tickets } from "./tickets.ts";

/** Options of `SharedTickets`. */
export interface SharedTicketsOptions {
  readonly store: Store;
  /** Clock of the cluster */
  readonly clock: Clock;
  readonly random: Random;
  readonly tokens: Pick<Tokens, "isFixed" | "scopesOf" | "standing" | "confirm">;
  /** Id of this gateway. */
  readonly gateway: string;
}

const TICKET_TEXT = /^tkt_[\w-]{43}$/;
/** Oldest tickets that are looked at, with each new one, for those that nobody came with in time. */
const SWEPT = 20;

const ticketSchema = v.object({
  v: v.literal(1),
  /** Token that the ticket was given for; null: pairing was off */
  token_id: v.nullable(v.string()),
  /** Gateway that gave the ticket */
  gateway: v.string(),
  /** Milliseconds since the epoch, by the database's clock */
  expires_at: v.number(),
});
/** Collection of the tickets of a cluster, by the hash of their text. */
export const WS_TICKETS = new Collection("ws_tickets", ticketSchema, { replaced: "never changed" });

/**
 * The tickets of a gateway in a cluster: each is a record, so that a ticket that was given at one gateway works once at any. A gateway
 * gives 1,000 at a time, and the oldest goes first. A ticket has the scopes that its token has when it is taken.
 *
 * A ticket without a token, and one of the command line's, counts where it was given alone: another gateway may ask everybody for a token.
 */
export class SharedTickets implements Tickets {
  readonly #options: SharedTicketsOptions;
  /** Tickets that this gateway gave, in order of their end. */
  #given: { readonly hash: string; readonly expiresAt: number }[] = [];

  constructor(options: SharedTicketsOptions) {
    this.#options = options;
  }

  async issue({ tokenId }: Identity): Promise<IssuedTicket> {
    const { store, clock, random, gateway } = this.#options;
    const ticket = `tkt_${Buffer.from(random.bytes(32)).toString("base64url")}`;
    const hash = secretHash(ticket);
    const now = clock.now();
    const expiresAt = now + TICKET_SECONDS * 1_000;
    const leftOver = await WS_TICKETS.removeOldest(store, SWEPT, ({ expires_at }) => expires_at <= now);
    const deletes = [...this.#dropOld(now).map((key) => WS_TICKETS.remove(key)), ...leftOver];
    const insert = WS_TICKETS.insert(hash, { v: 1, token_id: tokenId, gateway, expires_at: expiresAt });
    await store.batch([...deletes, insert]);
    this.#given.push({ hash, expiresAt });
    return { ticket, expiresInSeconds: TICKET_SECONDS };
  }

  take(): undefined {
    return undefined;
  }

  async takeAnywhere(ticket: string): Promise<Identity | undefined> {
    const { store, clock, tokens, gateway } = this.#options;
    if (!TICKET_TEXT.test(ticket)) return undefined;
    if (!tokens.standing().isConfirmed) throw unconfirmed();
    const found = WS_TICKETS.parsed(store, await store.takeOnce(WS_TICKETS.name, secretHash(ticket)));
    if (found === undefined || found.value.expires_at <= clock.now()) return undefined;
    const { token_id: tokenId } = found.value;
    if (tokens.isFixed(tokenId) && tokenId !== "env" && found.value.gateway !== gateway) return undefined;
    // Another gateway may have made the token in the last moment
    await tokens.confirm({ tokenId });
    const scopes = tokens.scopesOf(tokenId);
    if (scopes === undefined && !tokens.standing().isConfirmed) throw unconfirmed();
    return scopes && { tokenId, scopes };
  }

  /** Forgets the tickets of this gateway that are over, and those above the bound. @returns the hashes of the latter */
  #dropOld(now: number): readonly string[] {
    this.#given = this.#given.filter(({ expiresAt }) => expiresAt > now);
    return this.#given.splice(0, Math.max(0, this.#given.length + 1 - MAX_TICKETS)).map(({ hash }) => hash);
  }
}
