import { HttpError } from "../../lib/base/errors.ts";
import type { GatewayServices } from "../../lib/services.ts";

/** Services that a gateway makes its first pairing code with. */
export interface PairingServices extends Pick<GatewayServices, "clock" | "log"> {
  readonly tokens: Pick<GatewayServices["tokens"], "count">;
  readonly pairing: Pick<GatewayServices["pairing"], "isPending" | "createCode">;
  /** Undefined for a gateway alone */
  readonly cluster?:
    | { readonly overview: Pick<NonNullable<GatewayServices["cluster"]>["overview"], "status"> }
    | undefined;
}

/** Time for which a database is waited for that does not answer. Milliseconds */
const WAIT_MS = 30_000;
const PAUSE_MS = 500;

/**
 * Makes a code for the first client. Undefined while a token is stored, or another gateway of the cluster has shown a code, and when the
 * database does not answer for 30 seconds: the port is open by then, and the gateway goes on.
 */
export async function firstPairingCode(services: PairingServices): Promise<string | undefined> {
  const { clock, log } = services;
  for (const end = clock.monotonic() + WAIT_MS;;) {
    try {
      return await makeCode(services);
    } catch (error) {
      if (!(error instanceof HttpError) || error.code !== "storage_unavailable") throw error;
      if (clock.monotonic() >= end) {
        log.warn('No pairing code is shown, since the database does not answer; "postern pair" makes one', { error });
        return undefined;
      }
    }
    await clock.sleep(PAUSE_MS);
  }
}

async function makeCode({ tokens, cluster, pairing, log }: PairingServices): Promise<string | undefined> {
  if (await tokens.count() > 0) return undefined;
  // A new code would end the one that another gateway of the cluster has just shown
  const others = await cluster?.overview.status();
  if (others !== undefined && others.gateways.length > 1 && await pairing.isPending()) {
    log.info('Another gateway of the cluster has shown the pairing code; "postern pair" makes a new one');
    return undefined;
  }
  return (await pairing.createCode()).code;
}
