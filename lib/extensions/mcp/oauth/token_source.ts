import type { AuthProvider, OAuthTokens } from "@modelcontextprotocol/client";
import type { Clock } from "../../../base/clock.ts";
import { withoutEffectRight } from "../../../base/effect_right.ts";
import type { Logger } from "../../../base/telemetry/log.ts";
import { loadSdk, type McpClientSdk } from "../load_sdk.ts";
import { McpError } from "../mcp_error.ts";
import type { McpServerSettings } from "../start_program.ts";
import { clientInformation, type ClientServices } from "./client_choice.ts";
import { faultOfSecrets, type McpCredential, type McpCredentials, secretsOf } from "./credentials.ts";
import { discoverServer, type FoundAuthorizationServer } from "./discover_server.ts";
import {
  cannotSignIn,
  createSignInFetch,
  needsSignIn,
  type SignInFetchOptions,
  SignInNeeded,
} from "./sign_in_fetch.ts";

/** Services that tokens need. */
export interface TokenServices extends ClientServices, Pick<SignInFetchOptions, "guardedFetch"> {
  readonly credentials: McpCredentials;
  readonly clock: Clock;
  readonly log: Logger;
  /** Makes the secrets of a server known to the redactor in place of those before: what `tokenName` returns, and its tokens. */
  readonly onTokens: (name: string, secrets: readonly string[]) => void;
  /** Aborts when the gateway closes. No caller's abort ends a refresh: its new refresh token would be lost */
  readonly signal: AbortSignal;
}

/** A token is renewed this long before its end. */
const MARGIN_MS = 30_000;
/** A token that came this short ago is not renewed again: another call has done that. */
const FRESH_MS = 10_000;

/** Tokens of all servers: one refresh at a time for each server, whoever asks. */
export class TokenSource {
  readonly #services: TokenServices;
  readonly #renewing = new Map<string, Promise<McpCredential>>();
  /** Tokens of clients without a person, which no record keeps */
  readonly #own = new Map<string, OwnToken>();
  readonly #fetching = new Map<string, Promise<OwnToken>>();
  /** Sign-ins whose new tokens could not be written: the old refresh token is used up */
  readonly #unwritten = new Map<string, McpCredential>();
  /** Servers that want a person to sign in */
  readonly #needing = new Set<string>();

  constructor(services: TokenServices) {
    this.#services = services;
  }

  /** Returns what gives the SDK's transport its tokens. */
  provider(server: string, settings: McpServerSettings): AuthProvider {
    return {
      token: () => this.#noting(server, () => this.#token(server, settings)),
      onUnauthorized: ({ response }) => this.#noting(server, () => this.#refused(server, settings, response)),
    };
  }

  /** Tells whether a server wanted a person to sign in, and nobody has since. */
  needsSignIn(server: string): boolean {
    return this.#needing.has(server);
  }

  /** Forgets what is kept in memory of a server. */
  forget(server: string): void {
    this.#own.delete(server);
    this.#unwritten.delete(server);
    this.#needing.delete(server);
  }

  async #noting<T>(server: string, work: () => Promise<T>): Promise<T> {
    try {
      const token = await work();
      // A refresh that failed late must not hide a sign-in that came meanwhile
      if (token !== undefined) this.#needing.delete(server);
      return token;
    } catch (error) {
      if (error instanceof SignInNeeded) this.#needing.add(server);
      throw error;
    }
  }

  async #token(server: string, settings: McpServerSettings): Promise<string | undefined> {
    if (settings.oauth.grant === "client_credentials") return (await this.#ownToken(server, settings)).value;
    const credential = await this.#credential(server, settings);
    if (credential === undefined) return undefined;
    if (!this.#isOver(credential)) return credential.access_token;
    if (credential.refresh_token === undefined) throw needsSignIn(server, "the sign-in has ended");
    return (await this.#renew(server, settings)).access_token;
  }

  async #refused(server: string, settings: McpServerSettings, { headers }: Response): Promise<void> {
    if (settings.oauth.grant === "client_credentials") {
      const known = this.#own.get(server);
      if (known !== undefined && !this.#isFresh(known.obtainedAt)) this.#own.delete(server);
      await this.#ownToken(server, settings);
      return;
    }
    const credential = await this.#credential(server, settings);
    // A server that names no way to sign in may mean a session that it does not know any more: whoever asked sees the status
    if (credential === undefined && !headers.has("www-authenticate")) return;
    if (credential === undefined) throw needsSignIn(server, "it wants a sign-in");
    if (this.#isFresh(credential.obtained_at)) return;
    if (credential.refresh_token === undefined) throw needsSignIn(server, "it no longer takes the token");
    await this.#renew(server, settings);
  }

  /** A clock that was set back makes no token fresh. */
  #isFresh(obtainedAt: number): boolean {
    const age = this.#services.clock.now() - obtainedAt;
    return age >= 0 && age < FRESH_MS;
  }

  #isOver({ expires_at: end }: McpCredential): boolean {
    return end !== undefined && end - MARGIN_MS <= this.#services.clock.now();
  }

  async #credential(server: string, settings: McpServerSettings): Promise<McpCredential | undefined> {
    const unwritten = this.#unwritten.get(server);
    if (unwritten !== undefined) return await this.#write(unwritten);
    const found = await this.#services.credentials.get(server, settings.url);
    if (typeof found === "string") throw needsSignIn(server, `the sign-in cannot be read: ${found}`);
    if (found !== undefined) this.#tellSecrets(found);
    return found;
  }

  #tellSecrets(credential: McpCredential): void {
    this.#services.onTokens(tokenName(credential.server), secretsOf(credential));
  }

  #renew(server: string, settings: McpServerSettings): Promise<McpCredential> {
    const running = this.#renewing.get(server);
    if (running !== undefined) return running;
    const work = withoutEffectRight(() => this.#refresh(server, settings)).finally(() => this.#renewing.delete(server));
    this.#renewing.set(server, work);
    return work;
  }

  async #refresh(server: string, settings: McpServerSettings): Promise<McpCredential> {
    // Read once more: a sign-in, or the refresh before this one, may have replaced it meanwhile
    const credential = await this.#credential(server, settings);
    if (credential?.refresh_token === undefined) throw needsSignIn(server, "the sign-in has ended");
    if (!this.#isOver(credential) && this.#isFresh(credential.obtained_at)) return credential;
    const sdk = await loadSdk(server);
    const { issuer, token_endpoint: tokenEndpoint, refresh_token: refreshToken, resource } = credential;
    const { signal } = this.#services;
    const client = await clientInformation(
      credential.client,
      { server, settings, issuer, tokenEndpoint, signal },
      this.#services,
    );
    let tokens: OAuthTokens;
    try {
      tokens = await sdk.refreshAuthorization(issuer, {
        metadata: metadataOf(credential),
        clientInformation: client,
        refreshToken,
        resource,
        fetchFn: this.#reach(server, settings),
      });
    } catch (error) {
      throw await this.#notRenewed(credential, sdk, error);
    }
    return await this.#write(renewed(credential, checkedTokens(server, tokens), this.#services.clock.now()));
  }

  /** Writes new tokens before anybody uses them: the authorization server may take the old refresh token no more. */
  async #write(credential: McpCredential): Promise<McpCredential> {
    const { server } = credential;
    this.#tellSecrets(credential);
    this.#unwritten.set(server, credential);
    const isKept = await this.#services.credentials.renew(credential);
    this.#unwritten.delete(server);
    if (isKept) return credential;
    // A sign-in or a sign-out came between, and counts
    const newer = await this.#services.credentials.get(server, credential.url);
    if (newer === undefined || typeof newer === "string") throw needsSignIn(server, "the sign-in has ended");
    this.#tellSecrets(newer);
    return newer;
  }

  async #notRenewed({ server, url, version }: McpCredential, sdk: McpClientSdk, error: unknown): Promise<unknown> {
    if (error instanceof McpError) return error;
    const isRefused = error instanceof sdk.OAuthError &&
      /^(?:invalid_grant|invalid_client|unauthorized_client)$/.test(error.code);
    if (!isRefused) return cannotSignIn(server, "its authorization server gives no new token", withoutWords(error));
    this.#services.log.warn("The sign-in to an MCP server has ended", { server, reason: error.code });
    const now = await this.#services.credentials.get(server, url);
    // A person who signed in meanwhile stays signed in
    if (typeof now === "object" && now.version?.digest === version?.digest) {
      await this.#services.credentials.remove(server);
    }
    return needsSignIn(server, "its authorization server no longer accepts the sign-in");
  }

  async #ownToken(server: string, settings: McpServerSettings): Promise<OwnToken> {
    const known = this.#own.get(server);
    const { clock } = this.#services;
    if (known !== undefined && (known.expiresAt === undefined || known.expiresAt - MARGIN_MS > clock.now())) {
      return known;
    }
    const running = this.#fetching.get(server);
    if (running !== undefined) return await running;
    const work = withoutEffectRight(() => this.#fetchOwn(server, settings)).finally(() =>
      this.#fetching.delete(server)
    );
    this.#fetching.set(server, work);
    const token = await work;
    this.#own.set(server, token);
    return token;
  }

  /** Gets a token for the client itself (RFC 6749 section 4.4). */
  async #fetchOwn(server: string, settings: McpServerSettings): Promise<OwnToken> {
    const { oauth } = settings;
    const { clock, signal } = this.#services;
    const sdk = await loadSdk(server);
    const fetch = this.#reach(server, settings);
    const place = { sdk, server, url: new URL(settings.url), fetch, issuer: oauth.issuer, needsPkce: false };
    const found = await discoverServer(place);
    const { issuer, metadata } = found;
    const client = { kind: "configured", client_id: oauth.client_id } as const;
    const tokenEndpoint = metadata.token_endpoint;
    const information = await clientInformation(
      client,
      { server, settings, issuer, tokenEndpoint, signal },
      this.#services,
    );
    try {
      const tokens = checkedTokens(
        server,
        await fetchForClient({ sdk, found, information, fetch, scopes: oauth.scopes }),
      );
      this.#services.onTokens(tokenName(server), [tokens.access_token]);
      const now = clock.now();
      return { value: tokens.access_token, expiresAt: endOf(tokens, now), obtainedAt: now };
    } catch (error) {
      if (error instanceof McpError) throw error;
      const code = error instanceof sdk.OAuthError ? `: ${shownCode(error.code)}` : "";
      throw cannotSignIn(server, `its authorization server gives the client no token${code}`, withoutWords(error));
    }
  }

  #reach(server: string, settings: McpServerSettings) {
    const { guardedFetch, config, signal } = this.#services;
    return createSignInFetch({
      server,
      url: new URL(settings.url),
      guardedFetch,
      rules: () => config().url_access,
      signal,
    });
  }
}

interface OwnToken {
  readonly value: string;
  readonly expiresAt: number | undefined;
  readonly obtainedAt: number;
}

function fetchForClient(
  { sdk, found: { issuer, metadata, resource, scope }, information, fetch, scopes }: {
    readonly sdk: McpClientSdk;
    readonly found: FoundAuthorizationServer;
    readonly information: Awaited<ReturnType<typeof clientInformation>>;
    readonly fetch: SignInFetch;
    readonly scopes: readonly string[];
  },
): Promise<OAuthTokens> {
  const wanted = scopes.length > 0 ? scopes.join(" ") : scope;
  const nothing = () => {};
  return sdk.fetchToken(
    {
      redirectUrl: undefined,
      clientMetadata: { redirect_uris: [], grant_types: ["client_credentials"] },
      clientInformation: () => information,
      tokens: () => undefined,
      ...{ saveTokens: nothing, redirectToAuthorization: nothing, saveCodeVerifier: nothing, codeVerifier: () => "" },
      prepareTokenRequest: (asked) =>
        new URLSearchParams({ grant_type: "client_credentials", ...asked === undefined ? {} : { scope: asked } }),
    },
    issuer,
    {
      metadata,
      resource,
      fetchFn: fetch,
      ...wanted === undefined ? {} : { scope: wanted },
    },
  );
}

type SignInFetch = ReturnType<typeof createSignInFetch>;

/** Returns the metadata that a refresh needs, as they were checked at the sign-in. */
function metadataOf(credential: McpCredential) {
  return {
    issuer: credential.issuer,
    authorization_endpoint: credential.authorization_endpoint,
    token_endpoint: credential.token_endpoint,
    response_types_supported: ["code"],
    token_endpoint_auth_methods_supported: [...credential.token_endpoint_auth_methods],
  };
}

function renewed(credential: McpCredential, tokens: OAuthTokens, now: number): McpCredential {
  const { expires_at: _, ...rest } = credential;
  const end = endOf(tokens, now);
  return {
    ...rest,
    access_token: tokens.access_token,
    obtained_at: now,
    ...end === undefined ? {} : { expires_at: end },
    ...tokens.refresh_token === undefined ? {} : { refresh_token: tokens.refresh_token },
    ...tokens.scope === undefined ? {} : { scope: tokens.scope },
  };
}

/** Returns the end of a token, ms since the epoch. Undefined: no end is known */
export function endOf({ expires_in: seconds }: Pick<OAuthTokens, "expires_in">, now: number): number | undefined {
  return seconds === undefined || !Number.isFinite(seconds) ? undefined : now + Math.max(0, seconds) * 1000;
}

/** Checks that tokens can be sent, and masked, as they are. @throws {McpError} */
export function checkedTokens(server: string, tokens: OAuthTokens): OAuthTokens {
  if (tokens.token_type.toLowerCase() !== "bearer") {
    throw cannotSignIn(server, "its authorization server gives a token of a kind that Postern does not know");
  }
  const fault = faultOfSecrets(tokens);
  if (fault !== undefined) throw cannotSignIn(server, `its authorization server gives what is no token: ${fault}`);
  return tokens;
}

/** Returns the name of a server's secrets for the redactor and for a person. */
export function tokenName(server: string): string {
  return `a token of the MCP server "${server}"`;
}

/** Returns the code of an OAuth error as it may be shown. */
export function shownCode(code: string): string {
  return /^[a-z_]{1,64}$/.test(code) ? `"${code}"` : "an error without a code";
}

/** Keeps the kind of an error and drops its words: an authorization server may repeat in them what it was sent. */
function withoutWords(error: unknown): Error {
  return new Error(error instanceof Error ? error.name : "unknown");
}
