import { withoutEnd } from "../../base/text.ts";
import type { Config } from "../../config/config.ts";
import { hostAndPort } from "../../system/net/address.ts";
import type { OAuthClient } from "../secrets/oauth_tokens.ts";
import type { SecretUse, ToolSecrets } from "../secrets/tool_secrets.ts";

/** A credential with its value, for the origin alone that it was read for: hosts and cover were checked for no other. */
export interface HttpCredential {
  /** Name of the header, in lower case */
  readonly header: string;
  readonly value: string;
  /** Notes that the server refused it: a token is fetched again at the next use */
  refused(): Promise<void>;
}

type Settings = Config["http_request"]["credentials"][string];

/** Services that a credential is read with. */
export interface CredentialSources {
  readonly secrets: ToolSecrets;
  readonly environment: (name: string) => string | undefined;
}

/**
 * Reads the credential of an address, the first that names its host. undefined where none does.
 * @throws {ToolError} as ToolSecrets
 */
export async function readCredential(
  credentials: Config["http_request"]["credentials"],
  use: SecretUse,
  { secrets, environment }: CredentialSources,
): Promise<HttpCredential | undefined> {
  const found = Object.entries(credentials).find(([, { hosts }]) => isNamed(use.url, hosts));
  if (found === undefined) return undefined;
  const [name, settings] = found;
  const client = clientOf(name, settings);
  const token = client === undefined ? undefined : await secrets.token(client, use);
  const value = token ?? await plainValue(name, { settings, use, sources: { secrets, environment } });
  return {
    header: settings.header.toLowerCase(),
    value: token === undefined ? `${settings.prefix}${value}` : `Bearer ${value}`,
    async refused() {
      if (client !== undefined && token !== undefined) await secrets.dropToken(client, token);
    },
  };
}

async function plainValue(
  name: string,
  { settings, use, sources }: {
    readonly settings: Settings;
    readonly use: SecretUse;
    readonly sources: CredentialSources;
  },
): Promise<string> {
  if (settings.secret !== "") return await sources.secrets.value(settings.secret, use);
  const value = sources.environment(settings.value_env)?.trim() ?? "";
  const source = `"${settings.value_env}" of [http_request.credentials.${name}] value_env`;
  return await sources.secrets.guard(value, { source, url: use.url });
}

function clientOf(name: string, settings: Settings): OAuthClient | undefined {
  if (settings.token_url === "") return undefined;
  return {
    table: `http_request.credentials.${name}`,
    tokenUrl: settings.token_url,
    clientId: settings.client_id,
    secret: settings.client_secret,
    scopes: settings.scopes,
  };
}

function isNamed(url: URL, hosts: readonly string[]): boolean {
  const host = withoutEnd(hostAndPort(url).host, ".");
  return hosts.some((each) => each.toLowerCase().replace(/^\[|\]$/g, "") === host);
}
