import type { ProtocolError } from "@modelcontextprotocol/server";
import { CancelError } from "../../lib/base/cancel.ts";
import type { Logger } from "../../lib/base/telemetry/log.ts";
import { toHttpError } from "../wire/http_errors.ts";

/** The official SDK for servers, which is loaded with the first request. */
export type McpSdk = typeof import("@modelcontextprotocol/server");

/**
 * Returns the error of JSON-RPC for anything that a handler throws: a request that is wrong is -32602, a failure is -32603. `data.code` is
 * the code that the routes have. A bug is logged whole and shown as one fixed sentence.
 */
export function toProtocolError(
  error: unknown,
  { sdk, log, requestId }: { readonly sdk: McpSdk; readonly log: Logger; readonly requestId: string },
): Error {
  if (error instanceof sdk.ProtocolError || error instanceof CancelError) return error;
  const { status, code, message } = toHttpError(error, { log, requestId });
  const rpcCode = status < 500 ? sdk.ProtocolErrorCode.InvalidParams : sdk.ProtocolErrorCode.InternalError;
  return new sdk.ProtocolError(rpcCode, message, { code });
}

/** Returns the error of a request whose parameters are wrong. */
export function invalidParams(sdk: McpSdk, message: string, data?: Readonly<Record<string, unknown>>): ProtocolError {
  return new sdk.ProtocolError(sdk.ProtocolErrorCode.InvalidParams, message, data);
}
