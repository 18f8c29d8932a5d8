import type { StatusReply } from "../handlers/status.ts";
import { systemClock } from "../lib/base/clock.ts";
import type { ControlRecord } from "../lib/host/control_file.ts";
import { createGatewayClient } from "../lib/system/net/gateway_client.ts";

const TIMEOUT_MS = 10_000;

/** What a gateway on this machine tells its administrator; undefined when it does not answer, or not here. Never throws. */
export async function readGatewayStatus(
  { address, token }: Pick<ControlRecord, "address" | "token">,
): Promise<StatusReply | undefined> {
  if (token === "") return undefined;
  const client = createGatewayClient({ address, token, clock: systemClock, timeoutMs: TIMEOUT_MS });
  const reply = await client.request({ method: "GET", path: "/v1/status" }).catch(() => undefined);
  // The route's own schema is what its test holds it to
  return reply?.status === 200 ? reply.body as StatusReply : undefined;
}
