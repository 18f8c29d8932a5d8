import type { Kit } from "../base/kit.ts";
import { defineWing, type OpenedList } from "../base/opened_list.ts";
import type { Config } from "../config/config.ts";
import type { Store } from "../storage/store.ts";
import type { RecordAccess } from "./identity.ts";
import { Pairing } from "./pairing.ts";
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

/** Needs of `accessWing`. */
export interface AccessNeeds {
  readonly kit: Kit;
  readonly config: () => Pick<Config, "gateway">;
  readonly storage: { readonly store: Store };
  /** Writes a change of who may call, together with its audit event. */
  readonly guard: { readonly recordAccess: RecordAccess };
  /** Token of the control file. Default: none */
  readonly program: { readonly controlToken?: string | undefined };
  readonly cluster: AccessCluster;
}

/** Everything that decides who may call. */
export interface AccessServices {
  readonly tokens: Pick<Tokens, keyof Tokens>;
  readonly pairing: Pick<Pairing, keyof Pairing>;
  readonly tickets: Tickets;
}

/** Everything that decides who may call. */
export const accessWing = defineWing({ name: "access", start: startAccess });

/** Loads the tokens, and creates pairing and tickets over them. */
async function startAccess(needs: AccessNeeds, opened: OpenedList): Promise<AccessServices> {
  const { kit: { clock, random, log, environment }, config, storage: { store }, guard, program, cluster } = needs;
  const record = guard.recordAccess;
  const fixed = { envToken: environment("POSTERN_TOKEN"), controlToken: program.controlToken };
  const tokens = opened.own(
    await Tokens.open({ store, clock, random, log, record, openSharing: cluster.openSharing, ...fixed }),
    (open) => open.close(),
  );
  const ttlSeconds = () => config().gateway.pairing_code_ttl_secs;
  return {
    tokens,
    pairing: new Pairing({ store, clock, random, tokens, record, ttlSeconds }),
    tickets: await cluster.openTickets({ store, clock, random, tokens }) ?? createTickets({ clock, random, tokens }),
  };
}
