import { systemClock } from "../lib/base/clock.ts";
import type { ControlRecord } from "../lib/host/control_file.ts";
import type { Health } from "../lib/host/daemon/daemon_state.ts";
import { createGatewayClient } from "../lib/system/net/gateway_client.ts";

const PROBE_TIMEOUT_MS = 10_000;

/** Asks a gateway on this machine for its health; never throws. */
export async function probeGateway({ address, token }: Pick<ControlRecord, "address" | "token">): Promise<Health> {
  const client = createGatewayClient({ address, token, clock: systemClock, timeoutMs: PROBE_TIMEOUT_MS });
  const reply = await client.request({ method: "GET", path: "/health" }).catch(() => undefined);
  const said = (reply?.body as { status?: unknown } | undefined)?.status;
  if (said === "ok" || said === "degraded" || said === "draining") return said;
  // Probes have a limit too: one that is told so has been answered
  return reply?.status === 429 ? "ok" : "silent";
}
