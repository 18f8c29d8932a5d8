import * as v from "valibot";
import { storedObject } from "../../../base/records/stored_object.ts";
import { Collection } from "../../../storage/read_records.ts";

/** Client that Postern is to an authorization server. */
const clientSchema = v.strictObject({
  /** Origin of the client id: the configuration, the document of `client_metadata_url`, or a registration. A configured secret is not kept. */
  kind: v.picklist(["configured", "document", "registered"]),
  client_id: v.string(),
  /** Secret that the authorization server gave with the registration */
  client_secret: v.optional(v.string()),
  token_endpoint_auth_method: v.optional(v.string()),
});

const keptSchema = v.strictObject({
  client: clientSchema,
  access_token: v.string(),
  refresh_token: v.optional(v.string()),
  /** Scopes of the token, with blanks between them. Absent: the server did not say */
  scope: v.optional(v.string()),
  /** Milliseconds since the epoch. Absent: no end is known */
  expires_at: v.optional(v.number()),
  /** Time at which the tokens came, ms since the epoch */
  obtained_at: v.number(),
  /** Resource that the token is for (RFC 8707) */
  resource: v.string(),
  token_endpoint: v.string(),
  authorization_endpoint: v.string(),
  revocation_endpoint: v.optional(v.string()),
  token_endpoint_auth_methods: v.array(v.string()),
  /** Random id of the sign-in, which stays with each refresh */
  account: v.string(),
});
/** Sign-in to an MCP server as its record holds it, sealed. */
export type KeptMcpCredential = v.InferOutput<typeof keptSchema>;

const bodySchema = storedObject({
  v: v.literal(1),
  /** Address of the server that the tokens go to */
  url: v.string(),
  /** Authorization server that the client and the tokens belong to */
  issuer: v.string(),
  sealed: storedObject({ key: v.string(), nonce: v.string(), data: v.string() }),
});

/** Collection of the sign-ins to MCP servers, by the server's name. */
export const MCP_CREDENTIALS = new Collection("mcp_credentials", bodySchema);

/** Parses the opened text of a sign-in. @throws {v.ValiError} {SyntaxError} for a text that no version sealed */
export function parseKeptMcpCredential(text: string): KeptMcpCredential {
  return v.parse(keptSchema, JSON.parse(text));
}
