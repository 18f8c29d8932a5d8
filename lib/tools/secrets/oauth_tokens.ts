import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { createKeyedMutex } from "../../base/keyed_queues.ts";
import type { GuardedFetch, GuardedReply } from "../../system/net/guarded_fetch.ts";
import type { UrlRules } from "../../system/net/url_rules.ts";
import { tokenFault } from "./foreign_token.ts";

const MAX_REPLY_BYTES = 65_536;
const TIMEOUT_MS = 10_000;
/** Life of a token whose server does not say how long it lives. */
const DEFAULT_LIFE_SECONDS = 300;
const MAX_LIFE_SECONDS = 86_400;
/** A token is fetched again this long before its end, or at nine tenths of a shorter life. */
const MARGIN_SECONDS = 60;

/** Client of an OAuth server, which gets tokens for itself. */
export interface OAuthClient {
  /** Table of the configuration, for messages, such as `http_request.credentials.shop` */
  readonly table: string;
  readonly tokenUrl: string;
  readonly clientId: string;
  /** Name of the `[secrets.<name>]` with the client's secret */
  readonly secret: string;
  readonly scopes: readonly string[];
}

/** Tokens of OAuth clients, in memory alone. */
export interface OAuthTokens {
  /**
   * Returns a token that is good for a while, kept or fetched. One request at a time is made for each client.
   * @param secret reads the client's secret
   * @throws {ToolError} `token_refused`, and what `secret` and a guarded fetch throw
   */
  get(client: OAuthClient, secret: () => Promise<string>, signal: AbortSignal): Promise<string>;
  /** Forgets a token that a server refused. */
  drop(client: OAuthClient, token: string): void;
}

/** Options of `createOAuthTokens`. */
export interface OAuthTokensOptions {
  readonly clock: Clock;
  readonly guardedFetch: () => Promise<GuardedFetch>;
  /** Returns the newest `[url_access]` */
  readonly rules: () => UrlRules;
  /** Makes a secret known to the redactor, by the name of the secret that it is made from */
  readonly onSecret: (secret: string, name: string) => void;
  /** Makes the token of a client known to the redactor in place of the one before */
  readonly onTokens: (name: string, secrets: readonly string[]) => void;
}

/** Source: RFC 6749 section 5.1 and 5.2. */
const replySchema = v.looseObject({
  access_token: v.string(),
  token_type: v.pipe(v.string(), v.regex(/^bearer$/i)),
  expires_in: v.optional(v.pipe(v.number(), v.minValue(1))),
});
const errorSchema = v.looseObject({ error: v.pipe(v.string(), v.regex(/^[\w-]{1,64}$/)) });

/** Creates the tokens of OAuth clients by the grant for client credentials. Source: RFC 6749 section 4.4 */
export function createOAuthTokens(options: OAuthTokensOptions): OAuthTokens {
  const { clock, onTokens } = options;
  const kept = new Map<string, { readonly token: string; readonly until: number }>();
  const oneAtATime = createKeyedMutex();
  return {
    get(client, secret, signal) {
      const key = keyOf(client);
      return oneAtATime(key, async () => {
        const known = kept.get(key);
        if (known !== undefined && known.until > clock.monotonic()) return known.token;
        const asked = clock.monotonic();
        const { access_token: token, expires_in: life = DEFAULT_LIFE_SECONDS } = await fetchToken(client, {
          ...options,
          secret: await secret(),
          signal,
        });
        onTokens(`the token of [${client.table}]`, [token]);
        const seconds = Math.min(life, MAX_LIFE_SECONDS);
        kept.set(key, { token, until: asked + Math.max(seconds - MARGIN_SECONDS, seconds * 0.9) * 1000 });
        return token;
      });
    },
    drop(client, token) {
      const key = keyOf(client);
      if (kept.get(key)?.token === token) kept.delete(key);
    },
  };
}

function keyOf({ tokenUrl, clientId, secret, scopes }: OAuthClient): string {
  return JSON.stringify([tokenUrl, clientId, secret, scopes]);
}

async function fetchToken(
  client: OAuthClient,
  { guardedFetch, rules, onSecret, secret, signal }: OAuthTokensOptions & {
    readonly secret: string;
    readonly signal: AbortSignal;
  },
): Promise<v.InferOutput<typeof replySchema>> {
  const origin = new URL(client.tokenUrl).origin;
  const encoded = encodeURIComponent(secret);
  const credentials = Buffer.from(`${encodeURIComponent(client.clientId)}:${encoded}`).toString("base64");
  onSecret(encoded, `[secrets.${client.secret}]`);
  onSecret(credentials, `[secrets.${client.secret}]`);
  const form = new URLSearchParams({ grant_type: "client_credentials" });
  if (client.scopes.length > 0) form.set("scope", client.scopes.join(" "));
  const send = await guardedFetch();
  const reply = await send({
    method: "POST",
    url: client.tokenUrl,
    headers: (url) => ({
      accept: "application/json",
      "content-type": "application/x-www-form-urlencoded",
      ...(url.origin === origin ? { authorization: `Basic ${credentials}` } : {}),
    }),
    body: form.toString(),
    guard: { rules: rules(), fromConfig: true },
    redirects: "keep_method",
    maxBytes: MAX_REPLY_BYTES,
    timeoutMs: TIMEOUT_MS,
    signal,
  });
  const parsed = v.safeParse(replySchema, reply.status === 200 ? jsonOf(reply) : undefined);
  if (!parsed.success) throw refusal(client, reply);
  const fault = tokenFault(parsed.output.access_token);
  if (fault === undefined) return parsed.output;
  throw new ToolError(
    "token_refused",
    `Cannot get a token from "${new URL(client.tokenUrl).host}": its access_token ${fault}`,
  );
}

function refusal({ table, tokenUrl }: OAuthClient, reply: GuardedReply): ToolError {
  const parsed = v.safeParse(errorSchema, jsonOf(reply));
  const said = parsed.success ? `, "${parsed.output.error}"` : "";
  const reason = reply.status === 200
    ? "its reply holds no bearer token"
    : `it refuses (status ${reply.status}${said}); check client_id, client_secret and scopes of [${table}]`;
  return new ToolError("token_refused", `Cannot get a token from "${new URL(tokenUrl).host}": ${reason}`);
}

function jsonOf({ body }: GuardedReply): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(body));
  } catch {
    return undefined;
  }
}
