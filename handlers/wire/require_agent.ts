import type { Nodes } from "../../lib/extensions/nodes/nodes.ts";
import type { Services } from "../../lib/gateway.ts";
import type { StoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import type { RequestContext } from "../route.ts";
import { type ErrorCode, httpError } from "./http_errors.ts";

/** Errors of a route that starts a run or acts on one. */
export const RUN_ERRORS = [
  "agent_unavailable",
  "shutting_down",
  "overloaded",
  "conflict",
] as const satisfies readonly ErrorCode[];

/**
 * Errors of a route that replies with the output of a run, including errors of the model's provider. A provider may use its own codes
 * for 400, 404, 413 and 422.
 */
export const REPLY_ERRORS = [
  ...RUN_ERRORS,
  "unsupported_parameter",
  "model_not_found",
  "needs_review",
  "rate_limited",
  "loop_detected",
  "run_interrupted",
  "provider_error",
  "provider_timeout",
  "payload_too_large",
  422,
] as const satisfies readonly (ErrorCode | number)[];

/** Returns the agent's services. @throws {HttpError} 503 agent_unavailable when the gateway was started without agent configuration */
export function requireAgent(services: Services): NonNullable<Services["agent"]> {
  if (services.agent !== undefined) return services.agent;
  throw httpError(
    "agent_unavailable",
    'Cannot reach an agent: the gateway was started with --no-agent or [provider] kind = "none"',
  );
}

/** Returns the runs for a route that only reads, which works without an agent. */
export function runsToRead({ services }: RequestContext): StoredRuns {
  return services.agent?.runs ?? services.storedRuns;
}

/** Returns the nodes of the gateway. @throws {HttpError} 404 not_found while node control is off */
export function requireNodes({ nodes }: Services): Nodes {
  if (nodes !== undefined) return nodes;
  throw httpError(
    "not_found",
    "Cannot find this path: node control is off; set [gateway.node_control] enabled = true and start the gateway anew",
  );
}
