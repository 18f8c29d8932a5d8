import { Buffer } from "node:buffer";
import { ERROR_CODES, type ErrorCode, refuse } from "../../lib/base/errors.ts";
import { hasDotSegment } from "../request_context.ts";
import { errorBody } from "../wire/http_errors.ts";

/** Members of a request of `node:http` that `isSound` reads. */
interface RequestLine {
  readonly url?: string | undefined;
  readonly httpVersion: string;
  readonly headers: { readonly host?: string | undefined };
}

/**
 * Tells whether a request of `node:http` may be made a web request: it names a host, as HTTP/1.1 demands, and its target is in its plain
 * form. Attack: the URL of a web request has dot segments resolved and backslashes turned into slashes, so the router would check
 * another path than the one that was sent.
 */
export function isSound({ httpVersion, headers, url = "" }: RequestLine): boolean {
  if (headers.host === undefined && httpVersion === "1.1") return false;
  const [path = ""] = url.split("?", 1);
  if (hasDotSegment(path) || path.includes("\\")) return false;
  return url.startsWith("/") || url === "*" || (/^https?:\/\/[^/?#]/i.test(url) && URL.canParse(url));
}

/** Message of the refusal of a request that is not sound. */
export const UNSOUND = "Cannot read the request: it names no host, or its target is no address in its plain form";

/** Message of the refusal of an upgrade to anything but a WebSocket. */
export const OTHER_UPGRADE = "Cannot read the request: the only upgrade here is to a WebSocket";

/** Reply to a request that cannot reach the router. */
export interface EarlyRefusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | number>>;
  readonly body: string;
}

/** Returns a refusal in the error shape of the API. The connection ends with it. */
export function earlyRefusal(code: ErrorCode, message: string, requestId: string): EarlyRefusal {
  const error = refuse(code, message);
  const body = JSON.stringify(errorBody(error));
  const headers = {
    "x-request-id": requestId,
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    connection: "close",
    ...(ERROR_CODES[code].retry === "never" ? { "x-should-retry": "false" } : {}),
  };
  return { status: error.status, headers, body };
}

/** Returns a refusal as the text that is written to a connection. */
export function toHttpText({ status, headers, body }: EarlyRefusal): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_TEXT[status] ?? "Bad Request"}\r\n${lines.join("")}\r\n${body}`;
}

const STATUS_TEXT: Readonly<Record<number, string>> = {
  404: "Not Found",
  408: "Request Timeout",
  413: "Payload Too Large",
  431: "Request Header Fields Too Large",
  501: "Not Implemented",
};
