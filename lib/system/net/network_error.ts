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

/** The server at an address is not one that may be used. The message is a sentence part, as `it is run by mallory (uid 1001)` */
export class ForeignServerError extends Error {
  override readonly name = "ForeignServerError";
  readonly code = "ERR_FOREIGN_SERVER";
}

/** A sentence part about a failed connection, as `the connection was refused`, from the error's code or that of its cause. */
export function describeNetworkError(error: unknown): string {
  if (error instanceof ForeignServerError) return error.message;
  const code = codeOf(error) ?? codeOf(error instanceof Error ? error.cause : undefined);
  if (code === undefined) return "the connection failed";
  if (code.startsWith("HPE_")) return `the reply is not HTTP (${code})`;
  if (code.includes("CERT") || code.includes("TLS") || code.includes("SSL") || code.includes("SIGNATURE")) {
    return `the TLS connection failed (${code})`;
  }
  return SENTENCES[code] ?? `the connection failed (${code})`;
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}
