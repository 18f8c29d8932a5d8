import { tooLarge } from "../request_context.ts";
import { httpError } from "../wire/error_codes.ts";

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
  if (request.method === "GET" || request.method === "HEAD") return; // their bodies are never read
  const bytes = Number(length);
  if (!/^\d+$/.test(length)) {
    throw httpError("invalid_request", "Cannot accept the request body: its Content-Length is no number");
  }
  if (bytes > maxBytes) throw tooLarge(maxBytes);
}

const CONTINUE = /^(?:100-continue)?$/i;
const IDENTITY = /^(?:identity)?$/i;

/** The server beneath undoes `chunked`; any coding before it would be taken for the body itself. */
function checkTransfer(coding: string | null): void {
  if (coding === null || /^chunked$/i.test(coding)) return;
  throw httpError("not_implemented", UNKNOWN_TRANSFER_CODING);
}

/** The sentence of a 501, which Node's own parser is a reason for too. */
export const UNKNOWN_TRANSFER_CODING =
  'Cannot read the request body: "chunked" is the only Transfer-Encoding that is known here';
