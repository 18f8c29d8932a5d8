import type { Kit } from "../base/kit.ts";
import { defineWing, type OpenedList } from "../base/opened_list.ts";
import type { Config } from "../config/config.ts";
import type { Store } from "../storage/store.ts";
import type { RecordAccess } from "./identity.ts";
import { createPairing, type Pairing } from "./pairing.ts";
import { createTickets, type Tickets } from "./tickets.ts";
import type { AccessCluster } from "./token_sharing.ts";
import { Tokens } from "./tokens.ts";

/** Needs of `accessWing`. */
export interface AccessNeeds {
  readonly kit: Kit;
  readonly config: () => Pick<Config, "gateway">;
  readonly storage: { readonly store: Store };
  /** Writes a change of who may call, together with its audit event. */
  readonly guard: { readonly recordAccess: RecordAccess };
  /** Token of the control file. Default: none */
  readonly program: { readonly controlToken?: string | undefined };
  /** The other gateways that use the store. Undefined: the gateway is alone */
  readonly cluster: { readonly access: AccessCluster } | undefined;
}

/** Everything that decides who may call. */
export interface AccessServices {
  readonly tokens: Pick<Tokens, keyof Tokens>;
  readonly pairing: Pairing;
  readonly tickets: Tickets;
}

/** Everything that decides who may call. */
export const accessWing = defineWing({ name: "access", start: startAccess });

/** Loads the tokens, and creates pairing and tickets over them. */
async function startAccess(needs: AccessNeeds, opened: OpenedList): Promise<AccessServices> {
  const { kit: { clock, random, log, environment }, config, storage: { store }, guard, program } = needs;
  const cluster = needs.cluster?.access;
  const record = guard.recordAccess;
  const fixed = { envToken: environment("POSTERN_TOKEN"), controlToken: program.controlToken };
  const tokens = opened.own(
    await Tokens.open({ store, clock, random, log, record, cluster, ...fixed }),
    (open) => open.close(),
  );
  const ttlSeconds = () => config().gateway.pairing_code_ttl_secs;
  return {
    tokens,
    pairing: createPairing({ store, clock, random, tokens, record, ttlSeconds }),
    tickets: cluster === undefined
      ? createTickets({ clock, random, tokens })
      : (await import("./shared_tickets.ts")).createSharedTickets({
        ...{ store, clock, random, tokens },
        gateway: cluster.gateway,
      }),
  };
}
