import type { FetchLike, StoredOAuthClientInformation } from "@modelcontextprotocol/client";
import type { Clock } from "../../../base/clock.ts";
import type { Random } from "../../../base/random.ts";
import type { Logger } from "../../../base/telemetry/log.ts";
import { loadSdk } from "../load_sdk.ts";
import { McpError } from "../mcp_error.ts";
import type { McpServerSettings } from "../start_program.ts";
import { clientInformation, type ClientServices, type KeptClient } from "./client_choice.ts";
import { type McpCredential, secretsOf } from "./credentials.ts";
import { type FoundAuthorizationServer, requireSafe } from "./discover_server.ts";
import { cannotSignIn } from "./sign_in_fetch.ts";
import { checkedTokens, endOf, shownCode, tokenName } from "./token_source.ts";

/** Sign-in between its begin and its answer. */
export interface PendingSignIn {
  readonly server: string;
  /** Address of the server when the sign-in began */
  readonly url: string;
  readonly found: FoundAuthorizationServer;
  readonly client: KeptClient;
  readonly codeVerifier: string;
  readonly redirectUri: string;
  readonly scope: string | undefined;
  /** End of the wait for the person, ms since the epoch */
  readonly until: number;
}

/** Services that an exchange and a revocation need. */
export interface ExchangeServices extends ClientServices {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** As in TokenServices. */
  readonly onTokens: (name: string, secrets: readonly string[]) => void;
  /** Reaches the authorization server. */
  readonly fetch: FetchLike;
  readonly signal: AbortSignal;
}

/** Settings of the server, and the code with the issuer that came with it. */
interface ReceivedCode {
  readonly settings: McpServerSettings;
  readonly code: string;
  readonly iss: string | undefined;
}

/** Exchanges the code of a sign-in for tokens. Keeps nothing. @throws {McpError} the authorization server gives none */
export async function exchangeCode(
  pending: PendingSignIn,
  { settings, code, iss }: ReceivedCode,
  services: ExchangeServices,
): Promise<McpCredential> {
  const { server, url, found, client, codeVerifier, redirectUri, scope } = pending;
  const { issuer, metadata, resource } = found;
  const sdk = await loadSdk(server);
  const place = { server, settings, issuer, tokenEndpoint: metadata.token_endpoint };
  const information = await informationOf(client, place, services);
  try {
    const tokens = checkedTokens(
      server,
      await sdk.exchangeAuthorization(issuer, {
        metadata,
        ...{ clientInformation: information, authorizationCode: code, codeVerifier, redirectUri },
        ...iss === undefined ? {} : { iss },
        resource,
        fetchFn: services.fetch,
      }),
    );
    services.onTokens(tokenName(server), secretsOf({ ...tokens, client }));
    const { clock, random } = services;
    const now = clock.now();
    const end = endOf(tokens, now);
    const granted = tokens.scope ?? scope;
    const revocation = "revocation_endpoint" in metadata ? metadata.revocation_endpoint : undefined;
    return {
      ...{ server, url, issuer, client, resource, version: undefined, obtained_at: now, account: random.id("") },
      access_token: tokens.access_token,
      ...tokens.refresh_token === undefined ? {} : { refresh_token: tokens.refresh_token },
      ...granted === undefined ? {} : { scope: granted },
      ...end === undefined ? {} : { expires_at: end },
      token_endpoint: metadata.token_endpoint,
      authorization_endpoint: metadata.authorization_endpoint,
      ...typeof revocation === "string" ? { revocation_endpoint: revocation } : {},
      token_endpoint_auth_methods: metadata.token_endpoint_auth_methods_supported ?? [],
    };
  } catch (error) {
    if (error instanceof McpError) throw error;
    const said = error instanceof sdk.OAuthError ? `: ${shownCode(error.code)}` : "";
    throw cannotSignIn(server, `its authorization server gives no token for the code${said}`);
  }
}

/** Tells the authorization server that the tokens are used no more (RFC 7009). It may be away: the sign-in is removed here in any case. */
export async function revokeTokens(
  credential: McpCredential,
  settings: McpServerSettings,
  services: ExchangeServices,
): Promise<void> {
  const { server, issuer, revocation_endpoint: endpoint, refresh_token, access_token, client } = credential;
  if (endpoint === undefined) return;
  try {
    const place = { server, settings, issuer, tokenEndpoint: endpoint };
    const { client_id, client_secret } = await informationOf(client, place, services);
    const hint = refresh_token === undefined ? "access_token" : "refresh_token";
    const body = new URLSearchParams({ token: refresh_token ?? access_token, token_type_hint: hint, client_id });
    if (client_secret !== undefined) body.set("client_secret", client_secret);
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    await services.fetch(requireSafe(server, endpoint, "the revocation_endpoint"), {
      ...{ method: "POST", headers, body },
    });
  } catch {
    services.log.warn("The authorization server of an MCP server was not told of a sign-out", { server });
  }
}

function informationOf(
  client: KeptClient,
  place: Omit<Parameters<typeof clientInformation>[1], "signal">,
  services: ExchangeServices,
): Promise<StoredOAuthClientInformation> {
  return clientInformation(client, { ...place, signal: services.signal }, services);
}
