import type { Config } from "../lib/config/config.ts";
import type { Services } from "../lib/services.ts";
import { SILENCE_MS, unconfirmed } from "../lib/access/identity.ts";

/**
 * Kinds of work that go on while it is not certain which tokens count, since the database of the cluster is down: for
 * `[cluster] stale_auth_secs`, with the tokens that the gateway knows. A door that names none of them is closed until it is certain again. So
 * tools, runs, approvals and administration are refused.
 * Source: docs/design/cluster.md "Tokens"
 */
export const STEADY_WORK = {
  completion: "A completion without the agent's tools and without a record",
  models: "The lists of models",
  echo: "An answer that proves that the gateway is there",
  link: "Requests of the other gateways of the cluster, whose token no database keeps",
  connection: "What a client says about its open connection or its own run at work there",
} as const;

/** Kind of work that goes on while it is not certain which tokens count. */
export type SteadyWork = keyof typeof STEADY_WORK;

/** Time that work which goes on without certainty waits for a slow database. Milliseconds */
const STEADY_WAIT_MS = 1_000;

/** Returns how many milliseconds a request waits for certainty about the tokens. Undefined: until the database answers or counts as down. */
export function patienceOf({ steady }: { readonly steady?: SteadyWork }, { cluster }: Config): number | undefined {
  return steady !== undefined && cluster.stale_auth_secs * 1_000 > SILENCE_MS ? STEADY_WAIT_MS : undefined;
}

/**
 * Checks that it is certain which tokens count, or that the work behind a door goes on without that. Every door asks here: routes, frames of
 * WebSockets and methods of MCP, with any token, the command line's too.
 * @throws {HttpError} 503 storage_unavailable
 */
export function checkCertainty(
  { steady }: { readonly access: unknown; readonly steady?: SteadyWork },
  { tokenId }: { readonly tokenId: string | null },
  { tokens, config }: Pick<Services, "tokens" | "config">,
): void {
  const standing = tokens.standing();
  if (standing.isConfirmed) return;
  if (steady === undefined) throw unconfirmed();
  // Nobody can revoke a token that no database keeps
  if (steady === "link" || tokens.isFixed(tokenId) || standing.forMs <= config().cluster.stale_auth_secs * 1_000) {
    return;
  }
  throw unconfirmed();
}
