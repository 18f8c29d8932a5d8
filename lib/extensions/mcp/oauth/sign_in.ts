import type { AuthProvider } from "@modelcontextprotocol/client";
import { hash } from "node:crypto";
import { type HttpError, refuse } from "../../../base/errors.ts";
import type { Random } from "../../../base/random.ts";
import { type Actor, storedActor } from "../../../base/records/caller.ts";
import type { AuditAppend } from "../../../guard/audit/audit_chain.ts";
import type { RecordCipher } from "../../../storage/record_cipher.ts";
import type { Store, Write } from "../../../storage/store.ts";
import type { RemoteServer, ServerSignIn } from "../http_transport.ts";
import { loadSdk } from "../load_sdk.ts";
import type { McpServerSettings } from "../start_program.ts";
import { chooseClient } from "./client_choice.ts";
import { createMcpCredentials, type McpCredential, type McpCredentials } from "./credentials.ts";
import { discoverServer, type FoundAuthorizationServer, requireSafe } from "./discover_server.ts";
import { exchangeCode, type ExchangeServices, type PendingSignIn, revokeTokens } from "./exchange_code.ts";
import { cannotSignIn, createSignInFetch } from "./sign_in_fetch.ts";
import { shownCode, tokenName, type TokenServices, TokenSource } from "./token_source.ts";

/** Sign-in that a person begins. */
export interface SignInRequest {
  /** Address on 127.0.0.1 that the browser is led back to */
  readonly redirectUri: string;
  /** Scopes beside those of the present sign-in, with blanks between them; empty: those of the configuration, else of the server */
  readonly scope: string;
  /** Client id that the person registered; empty: see `chooseClient` */
  readonly clientId: string;
}

/** Sign-in that waits for the person. */
export interface BegunSignIn {
  /** Address that the person opens */
  readonly authorizationUrl: string;
  /** Text that the answer must have, and that no other sign-in has */
  readonly state: string;
  readonly issuer: string;
}

/** Answer of the authorization server, as it came with the redirect. */
export interface SignInAnswer {
  readonly state: string;
  readonly code?: string | undefined;
  readonly iss?: string | undefined;
  readonly error?: string | undefined;
}

/** Sign-in that is kept, without its tokens. */
export interface KnownSignIn {
  readonly server: string;
  readonly issuer: string;
  readonly scope: string | null;
  /** End of the token, ms since the epoch; null: none is known */
  readonly expiresAt: number | null;
  /** True: it is renewed by itself */
  readonly isRenewed: boolean;
}

/**
 * State of the sign-in at a server.
 *
 * - `none`: it wants none as far as is known, or gets its credentials without a person.
 * - `needed`: it wants a person to sign in, or the sign-in has ended or cannot be read.
 * - `signed_in`: there is a sign-in.
 */
export type SignInState =
  | { readonly state: "none" | "needed" }
  | ({ readonly state: "signed_in" } & KnownSignIn);

/** Services that sign-ins need. */
export interface SignInOptions extends Omit<TokenServices, "credentials" | "signal"> {
  readonly store: Store;
  readonly random: Random;
  /** Opens the cipher of the sign-ins. @throws {ConfigError} a key that cannot be used */
  readonly cipher: () => Promise<RecordCipher>;
  readonly audit: AuditAppend;
  /** Receives the server when a person has signed in or out */
  readonly onAccount: (server: string) => void;
}

/** Sign-ins that wait at the same time, and how long each does. */
const MAX_PENDING = 16;
const PENDING_MS = 600_000;
const STATE_BYTES = 32;
const REDIRECT = /^http:\/\/127\.0\.0\.1:\d{1,5}\/callback$/;
const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*$/;

/** Sign-ins of people to MCP servers by `url` (docs/design/mcp.md "Sign-in"). Nothing is read before the first use. */
export class McpSignIn implements ServerSignIn {
  readonly #options: SignInOptions;
  readonly #credentials: McpCredentials;
  readonly #tokens: TokenSource;
  readonly #ending = new AbortController();
  readonly #pending = new Map<string, PendingSignIn>();

  constructor(options: SignInOptions) {
    const { store, cipher } = options;
    this.#options = options;
    this.#credentials = createMcpCredentials(store, cipher);
    this.#tokens = new TokenSource({ ...options, credentials: this.#credentials, signal: this.#ending.signal });
  }

  provider({ name }: RemoteServer): Promise<AuthProvider | undefined> {
    const settings = this.#settings(name);
    return Promise.resolve(hasOwnHeader(settings) ? undefined : this.#tokens.provider(name, settings));
  }

  async credential(name: string): Promise<string | undefined> {
    const { servers } = this.#options.config().mcp;
    const settings = Object.hasOwn(servers, name) ? servers[name] : undefined;
    if (settings === undefined || settings.url === "") return undefined;
    const { oauth: { grant, client_id: id } } = settings;
    if (grant === "client_credentials") return digestOf([grant, id]);
    const found = await this.#credentials.get(name, settings.url);
    return typeof found === "object" ? digestOf([found.issuer, found.client.client_id, found.account]) : undefined;
  }

  /** Returns the state of the sign-in at a configured server, without its tokens. */
  async state(name: string): Promise<SignInState> {
    const settings = this.#settings(name);
    if (settings.url === "" || hasOwnCredentials(settings)) return { state: "none" };
    const found = await this.#credentials.get(name, settings.url);
    if (typeof found === "string" || this.#tokens.needsSignIn(name)) return { state: "needed" };
    if (found === undefined) return { state: "none" };
    const { isRenewed, expiresAt, ...rest } = known(found);
    const isOver = !isRenewed && expiresAt !== null && expiresAt <= this.#options.clock.now();
    return isOver ? { state: "needed" } : { state: "signed_in", ...rest, isRenewed, expiresAt };
  }

  /** Finds the authorization server, and returns the address that the person opens. @throws {HttpError} {McpError} */
  async begin(server: string, { redirectUri, scope: asked, clientId }: SignInRequest): Promise<BegunSignIn> {
    const settings = this.#remote(server);
    const { oauth } = settings;
    if (oauth.grant === "client_credentials") {
      throw refused(server, 'its grant is "client_credentials", with which nobody signs in', "grant");
    }
    if (!REDIRECT.test(redirectUri)) throw refused(server, "the redirect must lead to 127.0.0.1", "redirect_uri");
    if (asked !== "" && !SCOPE.test(asked)) {
      throw refused(server, "the scope has characters that no scope has", "scope");
    }
    this.#dropOld();
    if (this.#pending.size >= MAX_PENDING) throw refused(server, `${MAX_PENDING} sign-ins wait already`);
    const sdk = await loadSdk(server);
    const fetch = this.#reach(server, settings);
    const url = new URL(settings.url);
    const found = await discoverServer({ sdk, server, url, fetch, issuer: oauth.issuer, needsPkce: true });
    const scope = await this.#scopeOf(server, settings, { found, asked });
    const client = await chooseClient(
      { sdk, server, settings, found, fetch, redirectUri, scope, clientId },
      this.#options,
    );
    const { issuer, metadata, resource } = found;
    const state = Buffer.from(this.#options.random.bytes(STATE_BYTES)).toString("base64url");
    const { authorizationUrl, codeVerifier } = await sdk.startAuthorization(issuer, {
      metadata,
      clientInformation: { client_id: client.client_id },
      ...{ redirectUrl: redirectUri, state },
      ...scope === undefined ? {} : { scope },
      resource,
    });
    requireSafe(server, authorizationUrl.href, "the page to sign in");
    const until = this.#options.clock.now() + PENDING_MS;
    const pending = { server, url: settings.url, found, client, codeVerifier, redirectUri, scope, until };
    this.#pending.set(state, pending);
    return { authorizationUrl: authorizationUrl.href, state, issuer };
  }

  /** Takes the answer, once, and keeps the tokens. @throws {HttpError} {McpError} nothing is kept */
  async complete(server: string, { state, code, iss, error }: SignInAnswer, by: Actor): Promise<KnownSignIn> {
    const settings = this.#remote(server);
    this.#dropOld();
    const pending = this.#pending.get(state);
    if (pending === undefined || pending.server !== server || pending.url !== settings.url) {
      throw refused(server, "no sign-in waits for this answer; begin again with postern mcp login", "state");
    }
    // An answer counts once, whatever becomes of it
    this.#pending.delete(state);
    const sdk = await loadSdk(server);
    const { found: { issuer, metadata } } = pending;
    try {
      const issParameterSupported = metadata.authorization_response_iss_parameter_supported === true;
      sdk.validateAuthorizationResponseIssuer({ iss, expectedIssuer: issuer, issParameterSupported });
    } catch {
      // The words of an answer that came from somewhere else are not repeated
      throw cannotSignIn(server, "the answer came from another authorization server than the one that was asked");
    }
    if (error !== undefined) throw cannotSignIn(server, `its authorization server says ${shownCode(error)}`);
    if (code === undefined) throw refused(server, "the answer has neither a code nor an error", "code");
    const credential = await exchangeCode(
      pending,
      { settings, code, iss },
      this.#exchangeServices(server, settings),
    );
    const event = this.#event("signed_in", server, { issuer, by });
    await this.#credentials.put(credential, (writes) => this.#options.audit(event, writes));
    this.#tokens.forget(server);
    this.#options.onAccount(server);
    return known(credential);
  }

  /** Removes the sign-in, and tells the authorization server where it takes that. @returns false where there is none */
  async remove(server: string, by: Actor): Promise<boolean> {
    const settings = this.#remote(server);
    const found = await this.#credentials.get(server, settings.url);
    const issuer = typeof found === "object" ? found.issuer : null;
    const event = this.#event("signed_out", server, { issuer, by });
    this.#tokens.forget(server);
    const isRemoved = await this.#credentials.remove(
      server,
      (writes: readonly Write[]) => this.#options.audit(event, writes),
    );
    if (isRemoved) this.#options.onAccount(server);
    if (typeof found === "object") await revokeTokens(found, settings, this.#exchangeServices(server, settings));
    this.#options.onTokens(tokenName(server), []);
    return isRemoved;
  }

  close(): void {
    this.#ending.abort();
    this.#pending.clear();
  }

  /** Asks for what the present sign-in has and for what was asked beside that: a sign-in for more rights keeps the others. */
  async #scopeOf(
    server: string,
    { url, oauth }: McpServerSettings,
    { found, asked }: { readonly found: FoundAuthorizationServer; readonly asked: string },
  ): Promise<string | undefined> {
    const sdk = await loadSdk(server);
    const present = asked === "" ? undefined : await this.#credentials.get(server, url);
    const had = typeof present === "object" && present.issuer === found.issuer ? present.scope : undefined;
    const usual = oauth.scopes.length > 0 ? oauth.scopes.join(" ") : found.scope;
    const wanted = sdk.computeScopeUnion(had ?? usual, asked === "" ? undefined : asked);
    if (wanted === undefined) return undefined;
    if (!SCOPE.test(wanted)) throw cannotSignIn(server, "it asks for a scope with characters that no scope has");
    const knowsOffline = found.metadata["scopes_supported"]?.includes("offline_access") === true;
    return knowsOffline ? sdk.computeScopeUnion(wanted, "offline_access") : wanted;
  }

  #exchangeServices(server: string, settings: McpServerSettings): ExchangeServices {
    return { ...this.#options, fetch: this.#reach(server, settings), signal: this.#ending.signal };
  }

  #event(action: "signed_in" | "signed_out", server: string, { issuer, by }: {
    readonly issuer: string | null;
    readonly by: Actor;
  }) {
    const actor = storedActor(by);
    return { type: "mcp_server", action, server, source: issuer, integrity: null, by: actor } as const;
  }

  #reach(server: string, { url }: McpServerSettings) {
    const { guardedFetch, config } = this.#options;
    const rules = () => config().url_access;
    return createSignInFetch({ server, url: new URL(url), guardedFetch, rules, signal: this.#ending.signal });
  }

  #dropOld(): void {
    const now = this.#options.clock.now();
    for (const [state, { until }] of this.#pending) if (until <= now) this.#pending.delete(state);
  }

  #settings(server: string): McpServerSettings {
    const { servers } = this.#options.config().mcp;
    const settings = Object.hasOwn(servers, server) ? servers[server] : undefined;
    if (settings !== undefined) return settings;
    const names = Object.keys(servers).map((name) => JSON.stringify(name)).join(", ");
    const known = names === "" ? "the configuration has none" : `there are ${names}`;
    const message = `Cannot find the MCP server ${JSON.stringify(server.slice(0, 64))}: ${known}`;
    throw refuse("not_found", message);
  }

  #remote(server: string): McpServerSettings {
    const settings = this.#settings(server);
    if (settings.url === "") throw refused(server, "it is a program, which gets its secrets in env");
    return settings;
  }
}

function hasOwnHeader({ headers }: McpServerSettings): boolean {
  return Object.keys(headers).some((header) => header.toLowerCase() === "authorization");
}

/** Tells whether requests go with credentials that no person signs in for. */
function hasOwnCredentials(settings: McpServerSettings): boolean {
  return hasOwnHeader(settings) || settings.oauth.grant === "client_credentials";
}

function known({ server, issuer, scope, expires_at, refresh_token }: McpCredential): KnownSignIn {
  const [scopes, expiresAt] = [scope ?? null, expires_at ?? null];
  return { server, issuer, scope: scopes, expiresAt, isRenewed: refresh_token !== undefined };
}

function digestOf(parts: readonly string[]): string {
  return hash("sha256", JSON.stringify(parts));
}

function refused(server: string, reason: string, param?: string): HttpError {
  const message = `Cannot sign in to the MCP server "${server}": ${reason}`;
  return refuse("invalid_request", message, { param: param ?? null });
}
