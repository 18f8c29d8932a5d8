import type { ProviderError } from "../base/errors.ts";

/** Codes of errors that come before the request has left. */
const UNSENT: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ERR_FOREIGN_SERVER",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/**
 * Whether a provider may have worked, and charges, for a request it never answered: it was sent, and then there was silence or the
 * connection broke. An answer with an error status says that nothing was made.
 */
export function mayHaveBeenServed({ status, cause }: ProviderError): boolean {
  if (status !== undefined) return false;
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  return !UNSENT.has(code);
}
