import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store } from "../storage/store.ts";
import type { RecordAccess, Tokens } from "./identity.ts";
import { createPairing, type Pairing } from "./pairing.ts";
import { createTickets, type Tickets } from "./tickets.ts";
import { createTokens } from "./tokens.ts";

/** Options of `createAccessServices`. */
export interface AccessServicesOptions {
  readonly store: Store;
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
}

/** Everything that decides who may call. */
export interface AccessServices {
  readonly tokens: Tokens;
  readonly pairing: Pairing;
  readonly tickets: Tickets;
}

/** Loads the tokens, and creates pairing and tickets over them. */
export async function createAccessServices(options: AccessServicesOptions): Promise<AccessServices> {
  const { store, clock, random, record, pairingTtlSeconds } = options;
  const tokens = await createTokens(options);
  return {
    tokens,
    pairing: createPairing({ store, clock, random, tokens, record, ttlSeconds: pairingTtlSeconds }),
    tickets: createTickets({ clock, random, tokens }),
  };
}
