import type { Clock } from "../base/clock.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store } from "../storage/store.ts";
import type { RecordAccess } from "./identity.ts";
import { createPairing, type Pairing } from "./pairing.ts";
import { createTickets, type Tickets } from "./tickets.ts";
import type { SharedTicketsOptions } from "./shared_tickets.ts";
import { Tokens, type TokensOptions } from "./tokens.ts";

/** Gateways with which this one shares tokens and tickets. */
export interface AccessCluster {
  /** Opens the sharing of the tokens, see `TokensOptions` */
  readonly openSharing: TokensOptions["openSharing"];
  /** Opens the tickets that count at every gateway. Undefined: a ticket counts here alone */
  openTickets(parts: Omit<SharedTicketsOptions, "gateway">): Tickets | undefined | Promise<Tickets>;
}

/** Options of `createAccessServices`. */
export interface AccessServicesOptions {
  readonly store: Store;
  /** In a cluster the clock of the database */
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Writes a change of who may call, together with its audit event. */
  readonly record: RecordAccess;
  /** Token of POSTERN_TOKEN. Undefined or empty: none */
  readonly envToken: string | undefined;
  /** Token of the control file. Default: none */
  readonly controlToken?: string | undefined;
  /** Seconds that a new pairing code is valid. */
  readonly pairingTtlSeconds: () => number;
  readonly cluster: AccessCluster;
  readonly opened: OpenedList;
}

/** Everything that decides who may call. */
export interface AccessServices {
  readonly tokens: Pick<Tokens, keyof Tokens>;
  readonly pairing: Pairing;
  readonly tickets: Tickets;
}

/** Loads the tokens, and creates pairing and tickets over them. */
export async function createAccessServices(options: AccessServicesOptions): Promise<AccessServices> {
  const { store, clock, random, record, pairingTtlSeconds, cluster } = options;
  const tokens = options.opened.own(
    await Tokens.open({ ...options, openSharing: cluster.openSharing }),
    (open) => open.close(),
  );
  return {
    tokens,
    pairing: createPairing({ store, clock, random, tokens, record, ttlSeconds: pairingTtlSeconds }),
    tickets: await cluster.openTickets({ store, clock, random, tokens }) ?? createTickets({ clock, random, tokens }),
  };
}
