import { tooLarge } from "../request_context.ts";
import { httpError } from "../wire/http_errors.ts";

/**
 * Refuses by its headers a request whose body cannot be taken, before a byte of the body is read and before `100 Continue`.
 * Bodies without a length are counted as they are read.
 * @throws {HttpError} 417 expectation_failed, 501 not_implemented for a transfer coding, 415 unsupported_media_type for a content
 *   coding, 413 payload_too_large, 400 invalid_request for a length that is no number. Source: RFC 9110 sections 8.4 and 10.1.1,
 *   RFC 9112 section 6.1
 */
export function guardBody(request: Request, maxBytes: number): void {
  const { headers } = request;
  const expect = headers.get("expect");
  if (expect !== null && !CONTINUE.test(expect)) {
    throw httpError(
      "expectation_failed",
      'Cannot meet the expectation of the header Expect: "100-continue" is the only one that is known here',
    );
  }
  const coding = headers.get("content-encoding");
  if (coding !== null && !IDENTITY.test(coding)) {
    throw httpError(
      "unsupported_media_type",
      "Cannot read the request body: it is compressed; send it without Content-Encoding",
      { headers: { "accept-encoding": "identity" } },
    );
  }
  const length = headers.get("content-length");
  if (length === null) return checkTransfer(headers.get("transfer-encoding"));
  if (request.method === "GET" || request.method === "HEAD") return; // bodies of GET and HEAD are never read
  const bytes = Number(length);
  if (!/^\d+$/.test(length)) {
    throw httpError("invalid_request", "Cannot accept the request body: its Content-Length is no number");
  }
  if (bytes > maxBytes) throw tooLarge(maxBytes);
}

const CONTINUE = /^(?:100-continue)?$/i;
const IDENTITY = /^(?:identity)?$/i;

/** The server beneath decodes `chunked`. The handler would take the bytes of any other coding for the body itself. */
function checkTransfer(coding: string | null): void {
  if (coding === null || /^chunked$/i.test(coding)) return;
  throw httpError("not_implemented", UNKNOWN_TRANSFER_CODING);
}

/** Message of a 501. Node's own parser refuses some transfer codings before the gateway sees them, with the same message. */
export const UNKNOWN_TRANSFER_CODING =
  'Cannot read the request body: "chunked" is the only Transfer-Encoding that is known here';

/** Tells whether a request is a WebSocket handshake. */
export function isHandshake(request: Request): boolean {
  const upgrade = request.headers.get("upgrade");
  return upgrade !== null && upgrade.toLowerCase() === "websocket";
}

/** Facts that decide whether a request may become a WebSocket. */
export interface UpgradeGuardOptions {
  readonly handshake: boolean;
  /** The path is a WebSocket route's */
  readonly socketRoute: boolean;
  /** The server beneath can hand the connection over; a plain fetch-based mount cannot */
  readonly canUpgrade: boolean;
}

/**
 * Checks that a handshake goes to a socket route, and that a GET of a socket route is a handshake.
 * @throws {HttpError} 400 invalid_request for a handshake elsewhere, 426 upgrade_required for a plain GET of a socket route
 */
export function guardUpgrade(request: Request, { handshake, socketRoute, canUpgrade }: UpgradeGuardOptions): void {
  if (handshake && !socketRoute) {
    throw httpError("invalid_request", "Cannot open a WebSocket here: /ws/chat and /ws/node are the routes for it");
  }
  const reads = request.method === "GET" || request.method === "HEAD";
  if (!socketRoute || !reads || (handshake && canUpgrade)) return;
  throw httpError(
    "upgrade_required",
    "Cannot answer a plain request here: this route is a WebSocket, so send an upgrade request",
    {
      headers: { upgrade: "websocket" },
    },
  );
}
