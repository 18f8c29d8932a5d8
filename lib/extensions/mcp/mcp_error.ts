import { ToolError } from "../../base/errors.ts";

/**
 * Codes of failures between the gateway and an MCP server.
 *
 * - `mcp_unavailable`: the server is off, cannot be started, or cannot be reached.
 * - `mcp_timeout`: the server gave no answer in time.
 * - `mcp_lost`: the session ended before the answer came.
 * - `mcp_refused`: the server answered with an error of the protocol.
 * - `mcp_invalid`: the server's answer breaks the protocol or a bound.
 */
export type McpErrorCode = "mcp_unavailable" | "mcp_timeout" | "mcp_lost" | "mcp_refused" | "mcp_invalid";

/** Facts about a failure beside its message. */
export interface McpErrorOptions {
  /** Name of the server in the configuration */
  readonly server: string;
  /** False: no byte of the request reached the server. Default true */
  readonly written?: boolean | undefined;
  /** True: the server may not know the session any more, so that the next request opens another one. Default false */
  readonly isStale?: boolean | undefined;
  /** Code of the JSON-RPC error that the server answered with */
  readonly protocolCode?: number | undefined;
  /** Data of that error */
  readonly data?: unknown;
  readonly cause?: unknown;
}

/** Characters of a server's own words that an error quotes. */
const MAX_QUOTED = 2_000;

/** Error of a request to an MCP server. The model is told of it as of any ToolError. */
export class McpError extends ToolError {
  override readonly code: McpErrorCode;
  readonly server: string;
  /** False: the request can be repeated without risk, since the server never saw it. */
  readonly written: boolean;
  readonly isStale: boolean;
  readonly protocolCode: number | undefined;
  readonly data: unknown;

  constructor(code: McpErrorCode, message: string, options: McpErrorOptions) {
    super(code, message, { cause: options.cause });
    this.code = code;
    this.server = options.server;
    this.written = options.written ?? true;
    this.isStale = options.isStale ?? false;
    this.protocolCode = options.protocolCode;
    this.data = options.data;
  }
}

/** Returns an error of what comes before a request, such as its session, as one of a request that the server never saw. */
export function beforeRequest(error: unknown): unknown {
  if (!(error instanceof McpError) || !error.written) return error;
  const { code, message, server, protocolCode, data, isStale } = error;
  return new McpError(code, message, { server, protocolCode, data, isStale, cause: error, written: false });
}

/** Returns words of a server for a message: one line, without characters that control or turn a line around, at most 2,000 characters. */
export function foreignWords(words: string): string {
  // deno-lint-ignore no-control-regex
  const line = words.slice(0, MAX_QUOTED * 2).replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]+/g, " ")
    .trim();
  return line.length > MAX_QUOTED ? `${line.slice(0, MAX_QUOTED)}...` : line;
}

/** Scopes that can stand in a command line as they are. */
const PLAIN_SCOPE = /^[\w:./*-]{1,128}(?: [\w:./*-]{1,128}){0,15}$/;

/** Returns what a person does where a server wants more rights than the sign-in has, as the rest of a sentence. @param scope words of the server */
export function wantsScope(server: string, scope: string | undefined): string {
  const isPlain = scope !== undefined && PLAIN_SCOPE.test(scope);
  const flag = isPlain ? ` --scope "${scope}"` : "";
  return `it wants more rights than the sign-in has; sign in again with: postern mcp login ${server}${flag}`;
}
