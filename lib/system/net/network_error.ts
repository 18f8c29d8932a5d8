import { ProviderError, systemCodeOf } from "../../base/errors.ts";

const SENTENCES: Readonly<Record<string, string>> = {
  ECONNREFUSED: "the connection was refused",
  ECONNRESET: "the connection was reset",
  EPIPE: "the connection was closed",
  ENOTFOUND: "the host name is unknown",
  EAI_AGAIN: "the host name could not be looked up",
  EHOSTUNREACH: "the host cannot be reached",
  ENETUNREACH: "the network cannot be reached",
  ETIMEDOUT: "the connection timed out",
  UND_ERR_CONNECT_TIMEOUT: "the connection timed out",
  UND_ERR_SOCKET: "the connection was closed",
  UND_ERR_HEADERS_OVERFLOW: "the reply's head is too large",
  UND_ERR_DESTROYED: "the client was closed",
  UND_ERR_CLOSED: "the client was closed",
};

/** Failure without a code of the network. The message ends a sentence. */
export class PinError extends Error {
  override readonly name = "PinError";
}

/** The server at an address is not one that may be used. The message is a sentence part, such as `it is run by mallory (uid 1001)` */
export class ForeignServerError extends Error {
  override readonly name = "ForeignServerError";
  readonly code = "ERR_FOREIGN_SERVER";
}

/** Returns a sentence part about a failed connection, such as `the connection was refused`, from the error's code or that of its cause. */
export function describeNetworkError(error: unknown): string {
  if (error instanceof ForeignServerError) return error.message;
  const code = systemCodeOf(error) ?? systemCodeOf(error instanceof Error ? error.cause : undefined);
  if (code === undefined) return "the connection failed";
  if (code.startsWith("HPE_")) return `the reply is not HTTP (${code})`;
  if (code.includes("CERT") || code.includes("TLS") || code.includes("SSL") || code.includes("SIGNATURE")) {
    return `the TLS connection failed (${code})`;
  }
  return SENTENCES[code] ?? `the connection failed (${code})`;
}

/** A request to a provider that failed. */
export interface FailedExchange {
  /** Name of the provider */
  readonly provider: string;
  readonly origin: string;
  /** Status of the reply; 0 before its head has arrived */
  readonly status: number;
}

/** Returns the error for a connection that failed before or during a reply. Another attempt may help, except with a foreign server. */
export function failedConnection(error: Error, { provider, origin, status }: FailedExchange): ProviderError {
  const place = status === 0 ? "before its reply" : "in the middle of its reply";
  const isForeign = error instanceof ForeignServerError;
  const said = isForeign
    ? `Cannot use the server at "${origin}": ${error.message}`
    : `Cannot read from "${origin}": ${describeNetworkError(error)} ${place}`;
  return new ProviderError("provider_error", said, { provider, retryable: !isForeign, cause: error });
}

/** Returns the error for a server that sent nothing for `timeoutMs`. Another attempt may help when there was no reply at all. */
export function silentReply(timeoutMs: number, { provider, origin, status }: FailedExchange): ProviderError {
  const what = status === 0 ? "no reply" : "no further part of its reply";
  return new ProviderError("provider_timeout", `Gave up on "${origin}": ${what} within ${timeoutMs / 1000} s`, {
    provider,
    retryable: status === 0,
  });
}

/** Returns the error for a reply whose parts said nothing for `silenceMs`: it came, and was paid, so that nobody asks again. */
export function nothingSaid(silenceMs: number, { provider, origin }: FailedExchange): ProviderError {
  const sentence = `Gave up on "${origin}": its reply said nothing within ${silenceMs / 1000} s (silence_secs)`;
  return new ProviderError("provider_timeout", sentence, { provider });
}

/** Returns the error for a reply that is a redirect or compressed; undefined for a reply that can be read. */
export function refusedHead(
  { location, encoding }: { readonly location: string | undefined; readonly encoding: string | undefined },
  { provider, origin, status }: FailedExchange,
): ProviderError | undefined {
  const problem = status >= 300 && status < 400
    ? `it redirects (${status}) to "${location ?? ""}", and redirects are not followed`
    : isPlain(encoding)
    ? undefined
    : `its reply is compressed ("${encoding}"), which was not asked for`;
  if (problem === undefined) return undefined;
  return new ProviderError("provider_error", `Cannot use the reply of "${origin}": ${problem}`, { provider, status });
}

function isPlain(encoding: string | undefined): boolean {
  return encoding === undefined || encoding === "" || encoding === "identity";
}
