import type { Services } from "../../lib/gateway.ts";
import { httpError } from "./error_codes.ts";

/** The agent's services. @throws {HttpError} 503 agent_unavailable when the gateway was started without agent configuration */
export function requireAgent(services: Services): NonNullable<Services["agent"]> {
  if (services.agent !== undefined) return services.agent;
  throw httpError(
    "agent_unavailable",
    'Cannot reach an agent: the gateway was started with --no-agent or [provider] kind = "none"',
  );
}
