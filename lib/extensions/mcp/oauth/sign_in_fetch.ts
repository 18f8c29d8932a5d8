import type { FetchLike } from "@modelcontextprotocol/client";
import { ToolError } from "../../../base/errors.ts";
import type { GuardedFetch, GuardedMethod, GuardedRequest } from "../../../system/net/guarded_fetch.ts";
import type { UrlRules } from "../../../system/net/url_rules.ts";
import { McpError } from "../mcp_error.ts";

/** Services of the requests of a sign-in. */
export interface SignInFetchOptions {
  /** Name of the server in the configuration */
  readonly server: string;
  /** Address of the server: the operator has allowed requests to its origin, and all others obey `[url_access]` */
  readonly url: URL;
  readonly guardedFetch: () => Promise<GuardedFetch>;
  readonly rules: () => UrlRules;
  readonly signal: AbortSignal;
}

/** Metadata and replies of token endpoints are a few kilobytes. */
const MAX_BYTES = 262_144;
const TIMEOUT_MS = 15_000;

/**
 * Makes the fetch of a sign-in, over guarded fetch: for metadata, registrations and tokens. Bodies and time are bounded, and no redirect to
 * another origin is followed, since credentials would go with it.
 */
export function createSignInFetch({ server, url: home, guardedFetch, rules, signal }: SignInFetchOptions): FetchLike {
  return async (input, init = {}) => {
    const url = new URL(input);
    const { body } = init;
    const method: GuardedMethod = init.method === "POST" ? "POST" : "GET";
    const guarded = await guardedFetch();
    const request: GuardedRequest = {
      ...{ method, url: url.href, guard: { rules: rules(), fromConfig: url.origin === home.origin } },
      headers: () => Object.fromEntries(new Headers(init.headers ?? undefined)),
      // The SDK sends texts and forms
      body: body === undefined || body === null ? undefined : String(body),
      ...{ maxBytes: MAX_BYTES, timeoutMs: TIMEOUT_MS, redirects: "give_back", signal },
    };
    const reply = await guarded(request).catch((error: unknown) => {
      if (error instanceof ToolError) throw cannotSignIn(server, error.message, error);
      throw error;
    });
    if (reply.truncated) throw cannotSignIn(server, `"${url.host}" sends more than ${MAX_BYTES} bytes`);
    const { status } = reply;
    const hasBody = status >= 200 && status !== 204 && status !== 205 && status !== 304;
    const kept = Object.entries(reply.headers).filter(([name]) =>
      !/^(?:content-(?:encoding|length)|set-cookie)$/.test(name)
    );
    return new Response(hasBody ? new Uint8Array(reply.body) : null, {
      status: status >= 200 && status <= 599 ? status : 502,
      headers: Object.fromEntries(kept),
    });
  };
}

/** Returns the error of a sign-in that does not work. @param reason rest of the sentence, without a word of the authorization server that was not checked */
export function cannotSignIn(server: string, reason: string, cause?: unknown): McpError {
  const message = `Cannot sign in to the MCP server "${server}": ${reason}`;
  return new McpError("mcp_unavailable", message, { server, cause, written: false });
}

/** Error of a request that needs a person to sign in. */
export class SignInNeeded extends McpError {}

/** Returns the error of a request that needs a person to sign in. */
export function needsSignIn(server: string, reason: string): SignInNeeded {
  const message = `Cannot use the MCP server "${server}": ${reason}; sign in with: postern mcp login ${server}`;
  return new SignInNeeded("mcp_unavailable", message, { server, written: false, isStale: true });
}
