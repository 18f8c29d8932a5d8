import type { Services } from "../../lib/gateway.ts";
import type { RunArchive } from "../../lib/runs/run_archive.ts";
import type { RequestContext } from "../route.ts";
import { httpError } from "./error_codes.ts";

/** The agent's services. @throws {HttpError} 503 agent_unavailable when the gateway was started without agent configuration */
export function requireAgent(services: Services): NonNullable<Services["agent"]> {
  if (services.agent !== undefined) return services.agent;
  throw httpError(
    "agent_unavailable",
    'Cannot reach an agent: the gateway was started with --no-agent or [provider] kind = "none"',
  );
}

/** The runs for a route that only looks: it needs no agent. */
export function runsToRead({ services }: RequestContext): RunArchive {
  return services.agent?.runs ?? services.runArchive;
}
