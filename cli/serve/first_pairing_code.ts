import { neverAborted } from "../../lib/base/cancel.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { createPatience, isStorageAway } from "../../lib/storage/read_records.ts";
import { type FirstPairing, PAIRED } from "./banner.ts";

/** Services that a gateway makes its first pairing code with. */
export interface PairingServices extends Pick<GatewayServices, "clock" | "log"> {
  readonly tokens: Pick<GatewayServices["tokens"], "count">;
  readonly pairing: Pick<GatewayServices["pairing"], "isPending" | "createCode">;
  readonly cluster: {
    /** Undefined: there are no other gateways */
    readonly shown?:
      | { readonly overview: { status(): Promise<{ readonly gateways: readonly unknown[] }> } }
      | undefined;
  };
}

/** Time for which a database is waited for that does not answer. Milliseconds */
const WAIT_MS = 30_000;
const PAUSE_MS = 500;

/**
 * Makes a code for the first client. There is none while a token is stored, or another gateway of the cluster has shown a code, and when
 * the database does not answer for 30 seconds: the port is open by then, and the gateway goes on.
 */
export async function firstPairingCode(services: PairingServices): Promise<FirstPairing> {
  const { clock, log } = services;
  try {
    return await createPatience({ clock, signal: neverAborted(), pauseMs: PAUSE_MS, giveUpMs: WAIT_MS })(() =>
      makeCode(services)
    );
  } catch (error) {
    if (!isStorageAway(error)) throw error;
    log.warn('No pairing code is shown, since the database does not answer; "postern pair" makes one', { error });
    return { code: null, reason: "No code is shown, since the database does not answer" };
  }
}

async function makeCode({ tokens, cluster, pairing }: PairingServices): Promise<FirstPairing> {
  if (await tokens.count() > 0) return PAIRED;
  // A new code would end the one that another gateway of the cluster has just shown
  const others = await cluster.shown?.overview.status();
  if (others !== undefined && others.gateways.length > 1 && await pairing.isPending()) {
    return {
      code: null,
      reason: "Another gateway of the cluster has shown a pairing code, which counts here until there is a further one",
    };
  }
  return { code: (await pairing.createCode()).code };
}
