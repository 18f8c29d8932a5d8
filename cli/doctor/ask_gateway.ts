import { systemClock } from "../../lib/base/clock.ts";
import { createGatewayClient, type GatewayClient } from "../../lib/system/net/gateway_client.ts";
import type { Installation } from "./finding.ts";

/** Milliseconds for one request to the running gateway. */
const TIMEOUT_MS = 10_000;

/**
 * Returns a client of the gateway that runs on the data directory. Undefined when none runs, and when the one that runs does not answer
 * or gives its token to nobody.
 */
export function clientOf(
  { running }: Pick<Installation, "running">,
  timeoutMs = TIMEOUT_MS,
): GatewayClient | undefined {
  if (running === undefined || running.health === "silent" || running.record.token === "") return undefined;
  return createGatewayClient({ ...running.record, clock: systemClock, timeoutMs });
}
