import type { FetchLike, StoredOAuthClientInformation } from "@modelcontextprotocol/client";
import { refuse } from "../../../base/errors.ts";
import type { Config } from "../../../config/config.ts";
import type { KeptMcpCredential } from "./mcp_credential.ts";
import type { ToolSecrets } from "../../../tools/secrets/tool_secrets.ts";
import type { McpClientSdk } from "../load_sdk.ts";
import { McpError } from "../mcp_error.ts";
import type { McpServerSettings } from "../start_program.ts";
import type { FoundAuthorizationServer } from "./discover_server.ts";
import { cannotSignIn } from "./sign_in_fetch.ts";

/** Client that Postern is to an authorization server, as a sign-in keeps it. */
export type KeptClient = KeptMcpCredential["client"];

/** Services that clients need. */
export interface ClientServices {
  readonly config: () => Config;
  readonly secrets: Pick<ToolSecrets, "fill">;
  /** Returns a variable of the gateway's environment. */
  readonly environment: (name: string) => string | undefined;
}

/** Authorization server to register at, and the sign-in that needs it. */
export interface ClientRequest {
  readonly sdk: McpClientSdk;
  readonly server: string;
  readonly settings: McpServerSettings;
  readonly found: FoundAuthorizationServer;
  readonly fetch: FetchLike;
  readonly redirectUri: string;
  readonly scope: string | undefined;
  /** Client id that the person gave at this sign-in; empty: none */
  readonly clientId: string;
}

/**
 * Chooses the client: the one that the person registered, then the document of `client_metadata_url`, then a registration
 * (RFC 7591, `application_type: native`).
 * @throws {HttpError} 409 `conflict` where the authorization server takes none of them: a person has to register a client
 * @throws {McpError}
 */
export async function chooseClient(request: ClientRequest, { config }: ClientServices): Promise<KeptClient> {
  const { server, settings: { oauth }, found: { metadata, issuer }, clientId } = request;
  const configured = clientId === "" ? oauth.client_id : clientId;
  if (configured !== "") return { kind: "configured", client_id: configured };
  const document = config().mcp.client_metadata_url;
  if (document !== "" && metadata.client_id_metadata_document_supported === true) {
    return { kind: "document", client_id: document };
  }
  if (metadata.registration_endpoint !== undefined) return await register(request);
  const way = `register Postern there as a native client, and set [mcp.servers.${server}.oauth] client_id`;
  const reason = `the authorization server ${new URL(issuer).host} registers no client by itself`;
  throw refuse("conflict", `Cannot sign in to the MCP server "${server}": ${reason}; ${way}`, { param: "client_id" });
}

/** Fills in the secret of a client. @throws {McpError} {ToolError} a secret that cannot be read, or may not go to the token endpoint */
export async function clientInformation(
  client: KeptClient,
  { server, settings: { oauth }, issuer, tokenEndpoint, signal }: {
    readonly server: string;
    readonly settings: McpServerSettings;
    readonly issuer: string;
    readonly tokenEndpoint: string;
    readonly signal: AbortSignal;
  },
  { secrets, environment }: ClientServices,
): Promise<StoredOAuthClientInformation> {
  const { client_id, client_secret, token_endpoint_auth_method } = client;
  const kept = {
    ...{ client_id, issuer },
    ...client_secret === undefined ? {} : { client_secret },
    ...token_endpoint_auth_method === undefined ? {} : { token_endpoint_auth_method },
  };
  if (client.kind !== "configured" || client_id !== oauth.client_id) return kept;
  if (oauth.client_secret !== "") {
    const use = { child: { kind: "mcp", name: server }, url: new URL(tokenEndpoint), signal } as const;
    const filled = await secrets.fill({ value: { secret: oauth.client_secret, prefix: "" } }, use);
    return { ...kept, client_secret: filled["value"] ?? "" };
  }
  if (oauth.client_secret_env === "") return kept;
  const secret = environment(oauth.client_secret_env) ?? "";
  if (secret === "") throw cannotSignIn(server, `the variable "${oauth.client_secret_env}" is not set`);
  return { ...kept, client_secret: secret };
}

async function register({ sdk, server, found, fetch, redirectUri, scope }: ClientRequest): Promise<KeptClient> {
  try {
    const { client_id, client_secret, token_endpoint_auth_method } = await sdk.registerClient(found.issuer, {
      metadata: found.metadata,
      clientMetadata: {
        client_name: "Postern",
        redirect_uris: [redirectUri],
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        token_endpoint_auth_method: "none",
        application_type: "native",
      },
      ...scope === undefined ? {} : { scope },
      fetchFn: fetch,
    });
    return {
      ...{ kind: "registered", client_id },
      ...client_secret === undefined ? {} : { client_secret },
      ...token_endpoint_auth_method === undefined ? {} : { token_endpoint_auth_method },
    };
  } catch (error) {
    if (error instanceof McpError) throw error;
    const status = error instanceof sdk.RegistrationRejectedError ? ` (status ${error.status})` : "";
    throw cannotSignIn(server, `its authorization server refuses to register Postern${status}`, error);
  }
}
