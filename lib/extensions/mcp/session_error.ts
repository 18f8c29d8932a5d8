import { messageOf } from "../../base/errors.ts";
import { STREAM_ENDED } from "./http_transport.ts";
import type { McpClientSdk } from "./load_sdk.ts";
import { foreignWords, McpError, type McpErrorOptions, wantsScope } from "./mcp_error.ts";
import { BROKEN_REPLY } from "./message_filter.ts";

/** Session that a request failed in. */
export interface FailedSession {
  /** Name of the server in the configuration */
  readonly server: string;
  readonly sdk: McpClientSdk;
  /** Returns the reason of the end as the rest of a sentence about the server. Undefined: nobody knows it */
  readonly fault: () => string | undefined;
}

/** Makes an error about the server. @param reason rest of a sentence about it */
type Fail = (code: McpError["code"], reason: string, more?: Partial<McpErrorOptions>) => McpError;

/** Returns the error of a request that took too long. */
export function tooSlow(
  { server, timeoutMs }: { readonly server: string; readonly timeoutMs: number },
  cause: unknown,
): McpError {
  const key = `[mcp.servers.${server}] timeout_secs`;
  const reason = `the MCP server "${server}" gave no answer within ${timeoutMs / 1000} s; ${key} sets the time`;
  return new McpError("mcp_timeout", `Cannot wait longer: ${reason}`, { server, cause });
}

/** Returns an error of the SDK as one that says whether the request was written, and why it failed. */
export function toSessionError(error: unknown, session: FailedSession): Error {
  const { server, sdk } = session;
  if (error instanceof McpError) return error;
  const fail: Fail = (code, reason, more = {}) =>
    new McpError(code, `Cannot use the MCP server "${server}": ${reason}`, { server, cause: error, ...more });
  if (error instanceof sdk.ProtocolError && error.code === STREAM_ENDED.code) {
    return fail("mcp_lost", ENDED_STREAM, { isStale: true });
  }
  if (error instanceof sdk.InsufficientScopeError) {
    return fail("mcp_refused", wantsScope(server, error.requiredScope));
  }
  if (error instanceof sdk.SdkHttpError) return httpError(error.status ?? 0, server, fail);
  if (error instanceof sdk.UnauthorizedError) return httpError(401, server, fail);
  if (error instanceof sdk.ProtocolError) {
    const { code: protocolCode, data } = error;
    if (data === BROKEN_REPLY) return fail("mcp_invalid", error.message);
    return fail("mcp_refused", `it refuses the request: ${foreignWords(error.message)}`, { protocolCode, data });
  }
  return otherError(error, session, fail);
}

/**
 * Returns the error of a server by `url` with which no session began.
 * @param session.hasHeaders the configuration gives the server headers of its own
 */
export function toStartError(
  error: unknown,
  session: FailedSession & { readonly hasHeaders: boolean },
): McpError {
  const { server, sdk, hasHeaders, fault } = session;
  if (error instanceof McpError) return error;
  const fail = (reason: string) => notReached(server, reason, error);
  if (error instanceof sdk.InsufficientScopeError) return fail(wantsScope(server, error.requiredScope));
  if (error instanceof sdk.UnauthorizedError || (error instanceof sdk.SdkHttpError && error.status === 401)) {
    const token = hasHeaders ? `the headers of [mcp.servers.${server}]` : "a sign-in";
    return fail(`it refuses ${token}; sign in with: postern mcp login ${server}`);
  }
  if (error instanceof sdk.SdkHttpError && error.status !== undefined) {
    const [, redirect] = /: (Redirect .*)$/.exec(error.message) ?? [];
    return fail(
      `it answers with the status ${error.status}${redirect === undefined ? "" : `: ${foreignWords(redirect)}`}`,
    );
  }
  // The question for the era has what went wrong inside
  if (error instanceof sdk.SdkError && error.cause instanceof Error) return toStartError(error.cause, session);
  if (error instanceof sdk.ProtocolError && error.code === STREAM_ENDED.code) return fail(ENDED_STREAM);
  return fail(fault() ?? answerFault(error) ?? foreignWords(messageOf(error)));
}

/** Returns the error of a server by `url` with which no session began. @param reason rest of a sentence about it */
export function notReached(server: string, reason: string, cause: unknown): McpError {
  const message = `Cannot reach the MCP server "${server}": ${reason}`;
  return new McpError("mcp_unavailable", message, { server, cause, written: false });
}

const ENDED_STREAM = "it ended the stream of the request before it answered";

/** Returns why an answer is none, as the rest of a sentence. Undefined for another error */
function answerFault(error: unknown): string | undefined {
  if (error instanceof SyntaxError) return "its answer is no JSON";
  // The SDK lists each way in which a message is none, and quotes what it found there
  return error instanceof Error && "issues" in error ? "its answer is no message of MCP" : undefined;
}

/**
 * Returns the error of a request that was answered with an HTTP status. Servers that were restarted answer an old session with 404, and many
 * with another status. A request that got 4xx was refused, and one that got 503 never reached the server: neither was done.
 */
function httpError(status: number, server: string, fail: Fail): McpError {
  const isStale = status >= 400 && status !== 429;
  const written = !(status >= 400 && status < 500 && status !== 408) && status !== 503;
  switch (status) {
    case 404:
      return fail("mcp_lost", "it does not know the session any more", { written, isStale });
    case 401:
      return fail("mcp_unavailable", `it wants a sign-in; sign in with: postern mcp login ${server}`, {
        ...{ written, isStale },
      });
    default:
      return fail("mcp_refused", `it answers with the status ${status}`, { written, isStale });
  }
}

function otherError(error: unknown, { server, sdk, fault }: FailedSession, fail: Fail): McpError {
  const message = answerFault(error) ?? foreignWords(messageOf(error));
  if (!(error instanceof sdk.SdkError)) return fail("mcp_invalid", message);
  switch (error.code) {
    case sdk.SdkErrorCode.ConnectionClosed:
    case sdk.SdkErrorCode.SendFailed:
      return fail("mcp_lost", `${fault() ?? "its session ended"} before it answered`);
    case sdk.SdkErrorCode.NotConnected:
      return sessionEnded(server, fault(), error);
    case sdk.SdkErrorCode.CapabilityNotSupported:
    case sdk.SdkErrorCode.MethodNotSupportedByProtocolVersion:
      return fail("mcp_refused", message, { written: false });
    case sdk.SdkErrorCode.ClientHttpUnexpectedContent:
      return fail("mcp_invalid", message, { isStale: true });
    default:
      return fail("mcp_invalid", message);
  }
}

/** Returns the error of a request that was not sent, since its session was over. @param reason rest of a sentence. Default: it is not known */
export function sessionEnded(server: string, reason = "its session has ended", cause?: unknown): McpError {
  const message = `Cannot use the MCP server "${server}": ${reason}`;
  return new McpError("mcp_lost", message, { server, cause, written: false });
}

/** Returns the error of a connection that takes no request now. */
export function connectionUnavailable(server: string, reason: string): McpError {
  const message = `Cannot use the MCP server "${server}": ${reason}`;
  return new McpError("mcp_unavailable", message, { server, written: false });
}

/** Returns the refusal of a call whose tool is another than the one that was looked at. */
export function toolChanged(server: string, tool: string): McpError {
  const message =
    `Cannot call "${tool}" of the MCP server "${server}": the server has changed the tool since; look at it again`;
  return new McpError("mcp_refused", message, { server, written: false });
}

/** Returns the error of a server that failed a moment ago. @param options.lastError message of its last error */
export function startPaused(
  server: string,
  { waitMs, lastError = "it failed" }: { readonly waitMs: number; readonly lastError: string | undefined },
): McpError {
  const message = `${lastError}; it is tried again in ${Math.ceil(waitMs / 1000)} s`;
  return new McpError("mcp_unavailable", message, { server, written: false });
}

/** Returns the error of a server that was not ready in time. @param options.lastWords end of its output, as the message ends with it */
export function startTooSlow(
  server: string,
  { seconds, lastWords, cause }: { readonly seconds: number; readonly lastWords: string; readonly cause: unknown },
): McpError {
  const key = `[mcp.servers.${server}] startup_timeout_secs`;
  const message =
    `Cannot start the MCP server "${server}": it was not ready within ${seconds} s, as ${key} has it${lastWords}`;
  return new McpError("mcp_unavailable", message, { server, cause, written: false });
}
