import type { Client } from "pg";

/** Error of a connection: there is none to be had, or it was lost. */
export class DatabaseAwayError extends Error {
  override readonly name = "DatabaseAwayError";
  /** A statement was on its way, so nobody knows whether it was done. False: nothing was sent */
  readonly wasSent: boolean;
  /** True: something answers at the address, and it is not PostgreSQL. */
  readonly isStranger: boolean;
  constructor(
    message: string,
    options: { readonly wasSent: boolean; readonly isStranger?: boolean; readonly cause: unknown },
  ) {
    super(message, { cause: options.cause });
    this.wasSent = options.wasSent;
    this.isStranger = options.isStranger ?? false;
  }
}

/** Returns the SQLSTATE of an error of the server, for example "40P01". Undefined for any other error. */
export function sqlStateOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return undefined;
  return /^[0-9A-Z]{5}$/.test(error.code) && "severity" in error ? error.code : undefined;
}

/** Classes and states of SQLSTATE by which a server, or a pooler, ends a connection */
const CONNECTION_ENDED = /^(?:08|57P0[1-5]$)/;

/** Returns the error of a statement that failed: the server's own, or that its connection was lost. @param name of the database, for the message */
export function statementError(name: string, error: unknown): unknown {
  if (error instanceof DatabaseAwayError) return error;
  const state = sqlStateOf(error);
  return state === undefined || CONNECTION_ENDED.test(state) ? connectionLost(name, error) : error;
}

/** Returns the error of a connection that was lost. @param cause undefined: the server closed it */
export function connectionLost(name: string, cause: unknown): DatabaseAwayError {
  const reason = cause === undefined ? "the server closed it" : reasonOf(cause);
  return new DatabaseAwayError(`Lost the connection to the database ${name}: ${reason}`, { wasSent: true, cause });
}

/** Returns the error of a server that reads and does not write. */
export function onlyReads(name: string): DatabaseAwayError {
  const message = `The server of the database ${name} only reads, such as a standby that is not promoted yet`;
  return new DatabaseAwayError(message, { wasSent: false, cause: undefined });
}

/** Returns the error of a database to which there is no connection. */
export function noConnection(name: string, cause: unknown): DatabaseAwayError {
  return new DatabaseAwayError(`Cannot reach the database ${name}: ${reasonOf(cause)}`, { wasSent: false, cause });
}

/** Bytes that an answer of PostgreSQL to the first message begins with: to a start without TLS, and to the question for TLS. */
const FIRST_BYTES = { plain: "RENv", tls: "SNE" } as const;
/** Reason that pg gives for a connection that the other side closes before it has said anything */
const CLOSED = "Connection terminated unexpectedly";

/** Returns a function that tells the first byte which the server has sent on a new connection. Undefined: none has come yet */
export function watchFirstByte({ connection }: Client): () => string | undefined {
  let first: string | undefined;
  connection.stream.once("data", (bytes: Uint8Array) => void (first = String.fromCharCode(bytes[0] ?? 0)));
  return () => first;
}

/** Returns the error of a connection that did not come about. A server that is starting may close connections too; it says nothing else first. */
export function refusedStart(
  name: string,
  { cause, firstByte, hasTls }: {
    readonly cause: unknown;
    readonly firstByte: string | undefined;
    readonly hasTls: boolean;
  },
): DatabaseAwayError {
  if (firstByte !== undefined && !FIRST_BYTES[hasTls ? "tls" : "plain"].includes(firstByte)) {
    const message = `Cannot reach the database ${name}: something else than PostgreSQL answers there`;
    return new DatabaseAwayError(message, { wasSent: false, isStranger: true, cause });
  }
  if (firstByte === undefined && reasonOf(cause) === CLOSED) {
    const message = `Cannot reach the database ${name}: the connection is closed before the first answer, ` +
      "as by a server that starts, and by one that is not PostgreSQL";
    return new DatabaseAwayError(message, { wasSent: false, cause });
  }
  return noConnection(name, cause);
}

function reasonOf(cause: unknown): string {
  // Trying each address of a name fails with all errors at once, and no message of its own
  const error = cause instanceof AggregateError ? cause.errors.at(0) : cause;
  return error instanceof Error && error.message !== "" ? error.message : "it gave no reason";
}
