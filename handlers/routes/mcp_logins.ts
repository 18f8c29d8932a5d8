import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { defineRoute } from "../define_route.ts";
import { emptyReply, jsonReply } from "../wire/reply.ts";

const text = (max: number) => v.pipe(v.string(), v.maxLength(max));

const beginSchema = v.strictObject({
  /** Address on 127.0.0.1 that the browser is led back to, such as `http://127.0.0.1:4711/callback` */
  redirect_uri: text(64),
  /** Scopes beside those of the present sign-in, with blanks between them */
  scope: v.optional(text(2048), ""),
  /** Client id that the person registered */
  client_id: v.optional(text(2048), ""),
});

const begunSchema = v.object({
  /** Page that the person opens */
  authorization_url: v.string(),
  /** Text that the answer must have */
  state: v.string(),
  issuer: v.string(),
});

const answerSchema = v.strictObject({
  state: text(256),
  code: v.optional(text(8192)),
  iss: v.optional(text(2048)),
  error: v.optional(text(256)),
});

const loginSchema = v.object({
  object: v.literal("mcp_login"),
  server: v.string(),
  issuer: v.string(),
  scope: v.nullable(v.string()),
  /** End of the token, ISO 8601; null: none is known */
  expires_at: v.nullable(v.string()),
  /** True: the token is renewed by itself */
  is_renewed: v.boolean(),
});

/** POST /v1/mcp-servers/:name/login: begins a person's sign-in. `postern mcp login` sends it. */
export const mcpLoginRoute = defineRoute({
  method: "POST",
  path: "/v1/mcp-servers/:name/login",
  access: "admin",
  strict: true,
  needs: ["mcpSignIn"],
  summary: "Begin the sign-in of a person to an MCP server, and return the page to open",
  body: beginSchema,
  reply: { status: 201, type: "application/json", schema: begunSchema },
  errors: ["not_found", "conflict"],
  idempotency: "harmless",
  async handle(parts, { params, body }) {
    const { redirect_uri: redirectUri, scope, client_id: clientId } = body;
    const { mcpSignIn } = parts;
    const begun = await mcpSignIn.begin(params.name, { redirectUri, scope, clientId });
    const { authorizationUrl: authorization_url, state, issuer } = begun;
    return jsonReply(201, { authorization_url, state, issuer });
  },
});

/** POST /v1/mcp-servers/:name/login/complete: takes the answer of the authorization server, once. */
export const completeMcpLoginRoute = defineRoute({
  method: "POST",
  path: "/v1/mcp-servers/:name/login/complete",
  access: "admin",
  strict: true,
  needs: ["mcpSignIn"],
  summary: "Take the answer to a sign-in that was begun, once, and keep the tokens, encrypted",
  body: answerSchema,
  reply: { status: 200, type: "application/json", schema: loginSchema },
  errors: ["not_found", "conflict"],
  idempotency: "harmless",
  async handle(parts, { params, body, caller }) {
    const answer = body;
    const name = params.name;
    const { mcpSignIn } = parts;
    const login = await mcpSignIn.complete(name, answer, caller);
    const { server, issuer, scope, expiresAt, isRenewed } = login;
    const end = expiresAt === null ? null : new Date(Math.min(expiresAt, 8.64e15)).toISOString();
    const shown = { server, issuer, scope, expires_at: end, is_renewed: isRenewed };
    return jsonReply(200, { object: "mcp_login", ...shown });
  },
});

/** DELETE /v1/mcp-servers/:name/login: removes a sign-in, and tells the authorization server where it takes that. */
export const removeMcpLoginRoute = defineRoute({
  method: "DELETE",
  path: "/v1/mcp-servers/:name/login",
  access: "admin",
  strict: true,
  needs: ["mcpSignIn"],
  summary: "Remove the sign-in to an MCP server, and revoke its tokens where the authorization server lets one",
  reply: { status: 204 },
  errors: ["not_found"],
  async handle(parts, { params, caller }) {
    const name = params.name;
    const isRemoved = await parts.mcpSignIn.remove(name, caller);
    if (isRemoved) return emptyReply();
    throw refuse(
      "not_found",
      `Cannot sign out of the MCP server ${JSON.stringify(name.slice(0, 64))}: nobody is signed in`,
    );
  },
});
