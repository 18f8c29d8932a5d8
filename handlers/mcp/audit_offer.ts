import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { CancelError } from "../../lib/base/cancel.ts";
import { refuse } from "../../lib/base/errors.ts";
import { canonicalDigest } from "../../lib/base/json.ts";
import type { OfferEvent } from "../../lib/guard/audit/audit_event.ts";
import type { Services } from "../../lib/services.ts";
import { mcpCallerOf, type McpRequest } from "./mcp_request.ts";

/** A prompt or resource of the program that a client asks for, as the audit names it. */
export interface AuditedOffer extends Pick<OfferEvent, "kind" | "name"> {
  /** Arguments or address, kept as a digest */
  readonly input: unknown;
  readonly asked: McpRequest;
}

/**
 * Does work of the program for a client, and records it in the audit by its digests. What cannot be recorded is not given to the client.
 * @throws {HttpError} 500 internal_error where the audit cannot be written; the error of the work
 */
export async function auditOffer<T>(
  { kind, name, input, asked }: AuditedOffer,
  { clock, audit }: Pick<Services, "clock" | "audit">,
  work: () => Promise<T>,
): Promise<T> {
  const startedAt = clock.monotonic();
  const [settled] = await Promise.allSettled([work()]);
  const { via, tokenId } = mcpCallerOf(asked);
  const given = settled.status === "fulfilled" && settled.value !== undefined
    ? JSON.stringify(settled.value)
    : undefined;
  const event: OfferEvent = {
    type: "offer",
    kind,
    name,
    input_digest: canonicalDigest(input),
    outcome: outcomeOf(settled),
    duration_ms: Math.round(clock.monotonic() - startedAt),
    output_bytes: given === undefined ? null : Buffer.byteLength(given),
    output_digest: given === undefined ? null : createHash("sha256").update(given).digest("hex"),
    request_id: asked.requestId,
    by: { via, token_id: tokenId },
  };
  await audit.append(event).catch((cause) => {
    const reason = "the audit cannot be written, and nothing is given without it; see the gateway's log";
    throw refuse("internal_error", `Cannot give the ${kind} "${name}": ${reason}`, { cause });
  });
  if (settled.status === "rejected") throw settled.reason;
  return settled.value;
}

function outcomeOf(settled: PromiseSettledResult<unknown>): OfferEvent["outcome"] {
  if (settled.status === "fulfilled") return settled.value === undefined ? "not_found" : "ok";
  if (!(settled.reason instanceof CancelError)) return "error";
  return settled.reason.reason === "timeout" ? "timeout" : "cancelled";
}
