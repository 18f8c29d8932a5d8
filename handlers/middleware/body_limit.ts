import { tooLarge } from "../request_context.ts";
import { httpError } from "../wire/error_codes.ts";

/**
 * Refuses by `Content-Length` before a byte of the body is read; bodies without one are counted as they are read.
 * @throws {HttpError} 413 payload_too_large, 400 invalid_request for a length that is no number
 */
export function limitBody(request: Request, maxBytes: number): void {
  if (request.method === "GET" || request.method === "HEAD") return; // their bodies are never read
  const length = request.headers.get("content-length");
  if (length === null) return;
  const bytes = Number(length);
  if (!/^\d+$/.test(length)) {
    throw httpError("invalid_request", "Cannot accept the request body: its Content-Length is no number");
  }
  if (bytes > maxBytes) throw tooLarge(maxBytes);
}
