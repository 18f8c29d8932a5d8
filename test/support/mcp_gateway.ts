import { Client, type ClientOptions, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { join } from "node:path";
import { createGateway, defineTool, type Gateway, type GatewayOptions } from "../../handlers/mod.ts";
import type { Scope } from "../../lib/base/records/caller.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";

/** The two eras of MCP: with sessions, and without. */
export const MCP_ERAS = ["2025-11-25", "2026-07-28"] as const;
export type McpEra = typeof MCP_ERAS[number];

export interface McpClientOptions extends ClientOptions {
  readonly token: string;
  readonly era: McpEra;
}

/** A gateway in this process with clients of MCP that reach it without a socket. */
export interface McpGateway {
  readonly gateway: Gateway;
  readonly folder: string;
  /** Makes a token. */
  token(...scopes: readonly Scope[]): Promise<string>;
  /** Connects an official client. It is closed with the gateway. */
  connect(options: McpClientOptions, prepare?: (client: Client) => void): Promise<Client>;
  /** Sends a request to the gateway, by default a POST to `/mcp` as a client of the new era sends it. */
  send(init: SentMessage): Promise<Response>;
  /** Sends any request as the token `admin`, and returns the JSON of the reply. */
  ask(method: string, path: string, body?: unknown): Promise<unknown>;
}

export interface SentMessage {
  readonly token?: string | undefined;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

const ORIGIN = "http://127.0.0.1";

/** Starts a gateway with the offline provider and some program tools, and stops it with its clients after `use`. */
export function withMcpGateway(
  options: Partial<GatewayOptions>,
  use: (started: McpGateway) => Promise<void>,
): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const clients: Client[] = [];
    const gateway = await createGateway({
      dataDir: join(folder, "data"),
      workspace: folder,
      tools: [echoTool, fetchedTool],
      environment: { POSTERN_TOKEN: ADMIN },
      ...options,
      config: { provider: { kind: "offline" }, ...options.config },
    });
    const request = (path: string, init: RequestInit) => gateway.request(path, init);
    const ask = async (method: string, path: string, body?: unknown) => {
      const reply = await request(path, {
        method,
        headers: { authorization: `Bearer ${ADMIN}`, "content-type": "application/json" },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return await reply.json();
    };
    try {
      await use({
        gateway,
        folder,
        ask,
        async token(...scopes) {
          const { token } = await ask("POST", "/v1/tokens", { scopes, label: "test" }) as { token: string };
          return token;
        },
        async connect({ token, era, ...given }, prepare) {
          const client = new Client({ name: "test", version: "1" }, {
            ...given,
            versionNegotiation: { mode: era === "2025-11-25" ? "legacy" : { pin: era } },
          });
          clients.push(client);
          prepare?.(client);
          const transport = new StreamableHTTPClientTransport(new URL(`${ORIGIN}/mcp`), {
            requestInit: { headers: { authorization: `Bearer ${token}` } },
            fetch: async (url, init) => await request(new URL(url).pathname, init ?? {}),
          });
          await client.connect(transport as Parameters<Client["connect"]>[0]);
          return client;
        },
        send: ({ token = ADMIN, method = "POST", headers = {}, body, signal }) =>
          request("/mcp", {
            method,
            headers: {
              authorization: `Bearer ${token}`,
              accept: "application/json, text/event-stream",
              ...(body === undefined ? {} : { "content-type": "application/json" }),
              ...headers,
            },
            ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
            ...(signal === undefined ? {} : { signal }),
          }),
      });
    } finally {
      await Promise.allSettled(clients.map((client) => client.close()));
      await gateway.close();
    }
  });
}

/** Token of the environment, with every scope. */
const ADMIN = "the-token-of-the-environment";

const TEXT_INPUT = {
  type: "object",
  properties: { text: { type: "string", description: "The text" } },
  required: ["text"],
  additionalProperties: false,
} as const;

const echoTool = defineTool<{ text: string }>({
  name: "echo",
  description: "Returns the text",
  access: "read",
  outside: false,
  inputSchema: TEXT_INPUT,
  execute: ({ text }) => text,
});

const fetchedTool = defineTool<{ text: string }>({
  name: "fetched",
  description: "Returns the text, as if others had written it",
  access: "read",
  inputSchema: TEXT_INPUT,
  execute: ({ text }) => text,
});
