import type { AuthInfo, ServerContext } from "@modelcontextprotocol/server";
import type { Identity } from "../../lib/access/identity.ts";
import { type Caller, commonScopes } from "../../lib/base/records/caller.ts";

/** A request to `/mcp` that has passed every check of the router. */
export interface McpRequest {
  /** Method and headers; the body is taken already */
  readonly http: Pick<Request, "method" | "url" | "headers">;
  /** JSON of the body. undefined where the request has none */
  readonly body: unknown;
  readonly identity: Identity;
  readonly requestId: string;
  /** Address of the gateway as the client names it, without a slash at its end */
  readonly gatewayUrl: string;
  /** Aborts when the client goes away before the reply begins, or the time of the request is over */
  readonly signal: AbortSignal;
}

/** The server of MCP behind `/mcp`, as routes and a shutdown use it. */
export interface McpDoor {
  /**
   * Answers a request.
   * @throws {HttpError} 403 insufficient_scope for a method that the token may not use, 404 not_found for a session, 503
   */
  answer(asked: McpRequest): Promise<Response>;
  /** Tells the clients that subscribed to a resource of the program that it has changed */
  resourceChanged(uri: string): void;
  /** Ends what waits for news, for the start of a shutdown. Calls at work go on */
  closeIdle(): void;
  /** Ends all sessions and streams, for the end of a shutdown. Waits up to 1 s for the replies of calls that have just ended */
  closeAll(): Promise<void>;
}

/** Scopes that a client of MCP may use at most: an agent asks for approvals and never answers them. */
const AGENT_SCOPES = ["chat", "runs", "tools"] as const;

/** Returns the caller of what a client of MCP asks for. */
export function mcpCallerOf({ identity: { tokenId, scopes } }: Pick<McpRequest, "identity">): Caller {
  return { via: "mcp", tokenId, scopes: commonScopes(scopes, AGENT_SCOPES) };
}

/** Returns the request in the form that the SDK hands to its handlers. It holds no token. */
export function toAuthInfo(asked: McpRequest): AuthInfo {
  const { tokenId, scopes } = asked.identity;
  return { token: "", clientId: tokenId ?? "", scopes: [...scopes], extra: { asked } };
}

/** Returns the request that a handler of the SDK works for. */
export function requestOf({ http }: Pick<ServerContext, "http">): McpRequest {
  const asked = http?.authInfo?.extra?.["asked"];
  if (asked === undefined) throw new TypeError("A handler of MCP was called outside a request");
  return asked as McpRequest; // toAuthInfo put it there, and no client reaches it
}

/** Does the work of a handler of the SDK, and gives its errors the form of JSON-RPC. */
export type McpGuard = <T>(context: ServerContext, work: () => T | Promise<T>) => Promise<T>;

/** Tells whether a request belongs to a revision with sessions: it has no envelope. */
export function isOfSession({ mcpReq }: ServerContext): boolean {
  return mcpReq.envelope === undefined;
}
