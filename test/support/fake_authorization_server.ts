import { createHash, randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** Reply that a fake server gives in place of its own. */
export interface FakeReply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Server of MCP and its authorization server, on one port of 127.0.0.1. */
export interface FakeAuthorizationServer extends AsyncDisposable {
  readonly url: string;
  /** Address of the MCP server */
  readonly mcp: string;
  /** Changes of the metadata, merged over the usual ones; undefined takes a key away */
  resource: Record<string, unknown>;
  metadata: Record<string, unknown>;
  /** Answers before the usual ones do */
  onRequest: (path: string, form: URLSearchParams, response: ServerResponse) => boolean | Promise<boolean>;
  /** Forms that came to the token endpoint */
  readonly tokenForms: Record<string, string>[];
  readonly registrations: Record<string, unknown>[];
  readonly revoked: string[];
  readonly paths: string[];
  /** Tokens that the MCP server takes */
  readonly valid: Set<string>;
  /** Seconds that a token lives. Default 3600 */
  lifetime: number;
  /** Name of the tool of the MCP server. Default "whoami" */
  tool: string;
  /** Does what a person does in the browser. @returns the address that the browser is led to */
  approve(authorizationUrl: string): URL;
}

/** Starts both. */
export async function startAuthorizationServer(): Promise<FakeAuthorizationServer> {
  const codes = new Map<string, URLSearchParams>();
  const refresh = new Set<string>();
  let count = 0;
  const bytes = () => randomBytes(16).toString("base64url");
  const issue = (): FakeReply => {
    const [access, next] = [`access-token-${++count}-${bytes()}`, `refresh-token-${count}-${bytes()}`];
    fake.valid.add(access);
    refresh.add(next);
    const reply = { access_token: access, refresh_token: next, token_type: "Bearer", expires_in: fake.lifetime };
    return json({ ...reply, scope: "read" });
  };
  const token = (form: URLSearchParams): FakeReply => {
    fake.tokenForms.push(Object.fromEntries(form));
    const grant = form.get("grant_type");
    if (grant === "client_credentials") return issue();
    if (grant === "refresh_token") {
      // Each refresh token counts once, as OAuth 2.1 asks for
      return refresh.delete(form.get("refresh_token") ?? "") ? issue() : json({ error: "invalid_grant" }, 400);
    }
    const asked = codes.get(form.get("code") ?? "");
    codes.delete(form.get("code") ?? "");
    const challenge = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url");
    const isRight = asked?.get("code_challenge") === challenge &&
      asked.get("redirect_uri") === form.get("redirect_uri");
    return isRight ? issue() : json({ error: "invalid_grant" }, 400);
  };
  const answer = (path: string, form: URLSearchParams, request: IncomingMessage, body: string): FakeReply => {
    const { url } = fake;
    switch (path) {
      case "/mcp": {
        const sent = request.headers.authorization?.replace("Bearer ", "") ?? "";
        if (fake.valid.has(sent)) {
          return request.method === "POST" ? speakMcp(JSON.parse(body), fake.tool) : { status: 405 };
        }
        const place = `Bearer resource_metadata="${url}/.well-known/oauth-protected-resource/mcp"`;
        return { status: 401, headers: { "www-authenticate": place } };
      }
      case "/.well-known/oauth-protected-resource/mcp":
        return json({ resource: fake.mcp, authorization_servers: [url], scopes_supported: ["read"], ...fake.resource });
      case "/.well-known/oauth-authorization-server":
        return json({
          issuer: url,
          authorization_endpoint: `${url}/authorize`,
          token_endpoint: `${url}/token`,
          registration_endpoint: `${url}/register`,
          revocation_endpoint: `${url}/revoke`,
          response_types_supported: ["code"],
          code_challenge_methods_supported: ["S256"],
          token_endpoint_auth_methods_supported: ["none", "client_secret_basic", "client_secret_post"],
          authorization_response_iss_parameter_supported: true,
          ...fake.metadata,
        });
      case "/register": {
        const sent = JSON.parse(body) as Record<string, unknown>;
        fake.registrations.push(sent);
        return json({ ...sent, client_id: `client-${fake.registrations.length}` }, 201);
      }
      case "/token":
        return token(form);
      case "/revoke":
        fake.revoked.push(form.get("token") ?? "");
        return {};
      default:
        return { status: 404 };
    }
  };
  const server = createServer(async (request, response) => {
    let body = "";
    try {
      for await (const part of request) body += String(part);
    } catch {
      return; // The client has gone, as at Ctrl-C
    }
    const path = new URL(request.url ?? "/", "http://fake.test").pathname;
    const form = new URLSearchParams(body);
    fake.paths.push(path);
    if (await fake.onRequest(path, form, response)) return;
    const { status = 200, headers = {}, body: text = "" } = answer(path, form, request, body);
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // A server that listens on a port has such an address
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const fake: FakeAuthorizationServer = {
    ...{ url, mcp: `${url}/mcp`, resource: {}, metadata: {}, onRequest: () => false, lifetime: 3600, tool: "whoami" },
    ...{ tokenForms: [], registrations: [], revoked: [], paths: [], valid: new Set() },
    approve(authorizationUrl) {
      const { searchParams } = new URL(authorizationUrl);
      const code = `code-${++count}`;
      codes.set(code, searchParams);
      const back = new URL(searchParams.get("redirect_uri") ?? "");
      const iss = String((fake.metadata as { readonly issuer?: string }).issuer ?? url);
      back.search = String(new URLSearchParams({ code, state: searchParams.get("state") ?? "", iss }));
      return back;
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return fake;
}

const TOOL = {
  description: "Says who is signed in",
  inputSchema: { type: "object", properties: { admin: { type: "boolean" } } },
};

/** Answers as a server of the old era with one tool, for which the call with `admin` wants more rights. */
function speakMcp(
  { id, method, params }: { id?: number; method: string; params?: { arguments?: { admin?: boolean } } },
  tool: string,
): FakeReply {
  const result = (value: unknown) => json({ jsonrpc: "2.0", id, result: value });
  switch (method) {
    case "initialize": {
      const about = { protocolVersion: "2025-11-25", capabilities: { tools: {} } };
      return result({ ...about, serverInfo: { name: "fake", version: "1" } });
    }
    case "tools/list":
      return result({ tools: [{ name: tool, ...TOOL }] });
    case "tools/call": {
      const challenge = 'Bearer error="insufficient_scope", scope="admin"';
      if (params?.arguments?.admin) return { status: 403, headers: { "www-authenticate": challenge } };
      return result({ content: [{ type: "text", text: "you are signed in" }] });
    }
    default:
      if (id === undefined) return { status: 202 };
      return json({ jsonrpc: "2.0", id, error: { code: -32601, message: "Method not found" } });
  }
}

function json(body: unknown, status = 200): FakeReply {
  return { status, body: JSON.stringify(body) };
}
