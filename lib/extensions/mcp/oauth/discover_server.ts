import type { AuthorizationServerMetadata, FetchLike } from "@modelcontextprotocol/client";
import type { McpClientSdk } from "../load_sdk.ts";
import { McpError } from "../mcp_error.ts";
import { cannotSignIn } from "./sign_in_fetch.ts";

/** Authorization server of an MCP server, checked. */
export interface FoundAuthorizationServer {
  /** As its metadata name it, which is checked against the place that they come from (RFC 8414 section 3.3) */
  readonly issuer: string;
  readonly metadata: AuthorizationServerMetadata;
  /** Resource that tokens are for (RFC 8707), word for word as the server names it */
  readonly resource: string;
  /** Scopes that the server asks for, with blanks between them. Undefined: it does not say */
  readonly scope: string | undefined;
}

/** Options of `discoverServer`. */
export interface DiscoverOptions {
  readonly sdk: McpClientSdk;
  /** Name of the server in the configuration */
  readonly server: string;
  readonly url: URL;
  readonly fetch: FetchLike;
  /** `issuer` of the configuration; empty: the first that the server names */
  readonly issuer: string;
  /** True: the server must know PKCE with S256 */
  readonly needsPkce: boolean;
}

const ASK = JSON.stringify({ jsonrpc: "2.0", id: 0, method: "ping" });

/**
 * Finds the authorization server of an MCP server: by the challenge of the server, its metadata (RFC 9728) and those of the authorization
 * server (RFC 8414, OpenID Connect Discovery). All of it is the word of strangers: each address obeys the rules of guarded fetch, is https
 * or on this machine, the resource is the server's own, and the issuer is the one that was asked.
 * @throws {McpError} `mcp_unavailable` with the reason
 */
export async function discoverServer(options: DiscoverOptions): Promise<FoundAuthorizationServer> {
  const { server, url, issuer, needsPkce } = options;
  const challenge = await readChallenge(options);
  const resource = await readResource(options, challenge.resourceMetadataUrl);
  const named = resource?.authorization_servers ?? [];
  const wanted = issuer === "" ? named[0] ?? url.origin : issuer;
  if (issuer !== "" && named.length > 0 && !named.some((one) => isSameIssuer(one, issuer))) {
    throw cannotSignIn(server, `it does not name what [mcp.servers.${server}.oauth] issuer has`);
  }
  requireSafe(server, wanted, "its authorization server");
  const metadata = await readMetadata(options, wanted);
  for (const [key, value] of Object.entries(metadata)) {
    if (/_endpoint$/.test(key) && typeof value === "string") requireSafe(server, value, `the ${key}`);
  }
  if (needsPkce && metadata.code_challenge_methods_supported?.includes("S256") !== true) {
    throw cannotSignIn(
      server,
      "its authorization server does not know PKCE with S256, which keeps others from using the code",
    );
  }
  return {
    issuer: metadata.issuer,
    metadata,
    resource: resource?.resource ?? options.sdk.resourceUrlFromServerUrl(url).href,
    scope: challenge.scope ?? resource?.scopes_supported?.join(" "),
  };
}

/** Asks the server without a token for its challenge. A server that gives none is asked for its metadata at the usual places. */
async function readChallenge({ sdk, url, fetch: reach }: DiscoverOptions) {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const response = await reach(url, { method: "POST", headers, body: ASK });
  return response.status === 401 || response.status === 403 ? sdk.extractWWWAuthenticateParams(response) : {};
}

/** @returns undefined for a server without metadata: its own origin is asked then */
async function readResource({ sdk, server, url, fetch }: DiscoverOptions, place: URL | undefined) {
  const opts = place === undefined ? {} : { resourceMetadataUrl: place };
  if (place !== undefined) requireSafe(server, place.href, "the address of its metadata");
  let found;
  try {
    found = await sdk.discoverOAuthProtectedResourceMetadata(url, opts, fetch);
  } catch (error) {
    if (error instanceof McpError) throw error;
    // Metadata that are named and not there, and those that break their form, lead nowhere else
    const isAbsent = error instanceof Error && /does not implement/.test(error.message);
    if (place === undefined && isAbsent) return undefined;
    throw cannotSignIn(server, "its metadata cannot be read", error);
  }
  const requestedResource = sdk.resourceUrlFromServerUrl(url);
  if (
    URL.canParse(found.resource) && sdk.checkResourceAllowed({ requestedResource, configuredResource: found.resource })
  ) {
    return found;
  }
  throw cannotSignIn(server, "its metadata are those of another resource");
}

async function readMetadata(
  { sdk, server, fetch }: DiscoverOptions,
  issuer: string,
): Promise<AuthorizationServerMetadata> {
  try {
    const metadata = await sdk.discoverAuthorizationServerMetadata(issuer, { fetchFn: fetch });
    if (metadata !== undefined) return metadata;
  } catch (error) {
    if (error instanceof McpError) throw error;
    if (!(error instanceof sdk.IssuerMismatchError)) {
      throw cannotSignIn(server, "the metadata of its authorization server cannot be read", error);
    }
    const { received = "" } = error;
    // RFC 8414 has them equal letter by letter. Whoever operates the gateway may know better
    const way = isSameIssuer(received, issuer)
      ? `: they end with and without "/"; [mcp.servers.${server}.oauth] issuer = ${JSON.stringify(received)} takes it`
      : "";
    throw cannotSignIn(server, `the metadata of its authorization server are those of another issuer${way}`, error);
  }
  throw cannotSignIn(server, `"${new URL(issuer).host}" has no metadata of an authorization server`);
}

/** Requires https, or http on this machine. @throws {McpError} */
export function requireSafe(server: string, text: string, what: string): URL {
  const url = URL.parse(text);
  const isHere = url?.protocol === "http:" && /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  if (url !== null && (url.protocol === "https:" || isHere) && url.username === "" && url.password === "") return url;
  throw cannotSignIn(server, `${what} is no https address`);
}

function isSameIssuer(one: string, other: string): boolean {
  return one.replace(/\/$/, "") === other.replace(/\/$/, "");
}
