import { HttpError } from "../../lib/base/errors.ts";
import type { Audit } from "../../lib/guard/audit/audit.ts";
import type { RequestContext } from "../route.ts";

/** Codes of refused credentials. */
const REFUSALS: ReadonlySet<string> = new Set([
  "auth_required",
  "auth_invalid",
  "pairing_code_required",
  "pairing_code_invalid",
  "pairing_locked",
  "insufficient_scope",
]);

/** Tells the audit of an error that means refused credentials; other errors are none of its business. */
export function auditRefusal(audit: Audit, { remoteAddress }: RequestContext, error: unknown): void {
  if (error instanceof HttpError && REFUSALS.has(error.code)) audit.accessFailed(remoteAddress, error.code);
}
