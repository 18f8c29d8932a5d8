import type { Scope } from "../../lib/base/records/caller.ts";

/** Facts about this gateway that a client's block is made of. */
export interface GatewayFacts {
  /** With a slash at the end */
  readonly address: string;
  readonly token: string;
  /** Models, with the tokens of input and output together where the provider says them */
  readonly models: readonly { readonly id: string; readonly context_length?: number | undefined }[];
}

/** Program that can be pointed at the gateway. */
export interface Client {
  /** Name for people */
  readonly title: string;
  /** File of the user that the block belongs into, below the home folder. Undefined: it is set in the environment */
  readonly file: string | undefined;
  readonly format: "json" | "toml" | "yaml" | "env";
  /** Scopes of its token. `chat`: it uses the model, `tools`: it uses the tools over MCP */
  readonly scopes: readonly Scope[];
  /** True where it has tools of its own: its requests go to the model, past Postern's agent (docs/http.md "Plain mode") */
  readonly plain: boolean;
  /** Returns what the client is told, as its file nests it. Items of lists are known by their `name` */
  readonly block: (gateway: GatewayFacts) => Readonly<Record<string, unknown>>;
  /** Sentences on what the client needs beside the block, or what Postern does not serve it yet */
  readonly notes: readonly string[];
}

const MAX_MODELS = 20;
/** Tokens of a model whose provider does not say its context window */
const UNKNOWN_CONTEXT = 32_768;

const bearer = (token: string) => ({ Authorization: `Bearer ${token}` });
const mcpOf = (address: string) => `${address}mcp`;
const apiOf = (address: string) => `${address}v1`;

/**
 * Clients by the name that the command takes. A client with tools of its own gets a plain model, and the agent's tools over MCP.
 *
 * Sources: developers.openai.com/codex/mcp, code.claude.com/docs/en/mcp, opencode.ai/docs/providers and /mcp-servers,
 * docs.continue.dev/reference, cursor.com/docs/mcp, zed.dev/docs/ai, docs.openwebui.com
 */
export const CLIENTS: Readonly<Record<string, Client>> = {
  codex: {
    title: "Codex",
    file: ".codex/config.toml",
    format: "toml",
    scopes: ["chat", "tools"],
    plain: true,
    block: ({ address, token }) => ({
      model_providers: {
        postern: { name: "Postern", base_url: apiOf(address), wire_api: "responses", http_headers: bearer(token) },
      },
      mcp_servers: { postern: { url: mcpOf(address), http_headers: bearer(token) } },
    }),
    notes: [
      "Its own model stays, with Postern's tools over MCP. For a model of Postern: codex -c model_provider=postern -m <model>.",
    ],
  },
  claude: {
    title: "Claude Code",
    file: ".claude.json",
    format: "json",
    scopes: ["chat", "tools"],
    plain: true,
    block: ({ address, token }) => ({
      mcpServers: { postern: { type: "http", url: mcpOf(address), headers: bearer(token) } },
    }),
    notes: [
      "Its own model stays, with Postern's tools over MCP. For a model of Postern, start it with --model <model>, with the address without " +
      "/mcp as ANTHROPIC_BASE_URL, and with the token as ANTHROPIC_AUTH_TOKEN.",
    ],
  },
  opencode: {
    title: "opencode",
    file: ".config/opencode/opencode.json",
    format: "json",
    scopes: ["chat", "tools"],
    plain: true,
    block: ({ address, token, models }) => ({
      provider: {
        postern: {
          npm: "@ai-sdk/openai-compatible",
          name: "Postern",
          options: { baseURL: apiOf(address), apiKey: token },
          models: Object.fromEntries(models.slice(0, MAX_MODELS).map(({ id }) => [id, { name: id }])),
        },
      },
      mcp: { postern: { type: "remote", url: mcpOf(address), enabled: true, headers: bearer(token) } },
    }),
    notes: [],
  },
  continue: {
    title: "Continue",
    file: ".continue/config.yaml",
    format: "yaml",
    scopes: ["chat", "tools"],
    plain: true,
    block: ({ address, token, models }) => ({
      name: "Local",
      version: "1.0.0",
      schema: "v1",
      models: [{
        name: "Postern",
        provider: "openai",
        model: models[0]?.id ?? "",
        apiBase: apiOf(address),
        apiKey: token,
        roles: ["chat", "edit", "apply"],
      }],
      mcpServers: [{
        name: "Postern",
        type: "streamable-http",
        url: mcpOf(address),
        requestOptions: { headers: bearer(token) },
      }],
    }),
    notes: ["Continue uses MCP in its agent mode alone."],
  },
  cursor: {
    title: "Cursor",
    file: ".cursor/mcp.json",
    format: "json",
    scopes: ["tools"],
    plain: false,
    block: ({ address, token }) => ({ mcpServers: { postern: { url: mcpOf(address), headers: bearer(token) } } }),
    notes: [
      "The tools work over MCP. The model does not: Cursor calls models from its own servers, which cannot reach this machine.",
    ],
  },
  zed: {
    title: "Zed",
    file: ".config/zed/settings.json",
    format: "json",
    scopes: ["chat", "tools"],
    plain: true,
    block: ({ address, token, models }) => ({
      language_models: {
        openai_compatible: {
          Postern: {
            api_url: apiOf(address),
            available_models: models.slice(0, MAX_MODELS).map(({ id, context_length }) => ({
              name: id,
              max_tokens: context_length ?? UNKNOWN_CONTEXT,
            })),
          },
        },
      },
      context_servers: { postern: { url: mcpOf(address), headers: bearer(token) } },
    }),
    notes: [
      "Zed reads no model's key from a file: enter the token of the block in Agent Settings > LLM Providers > Postern.",
    ],
  },
  "open-webui": {
    title: "Open WebUI",
    file: undefined,
    format: "env",
    scopes: ["chat"],
    plain: false,
    block: ({ address, token }) => ({ OPENAI_API_BASE_URLS: apiOf(address), OPENAI_API_KEYS: token }),
    notes: [
      "Open WebUI reads these variables at its first start. Later, add the address and the token in Admin Settings > Connections.",
      "In a container, 127.0.0.1 is the container itself: run it with --network host.",
    ],
  },
  aider: {
    title: "aider",
    file: undefined,
    format: "env",
    scopes: ["chat"],
    plain: true,
    block: ({ address, token }) => ({ OPENAI_API_BASE: apiOf(address), OPENAI_API_KEY: token }),
    notes: ["aider edits files by itself. Name a model of postern models: aider --model openai/<model>."],
  },
  openai: {
    title: "OpenAI's libraries",
    file: undefined,
    format: "env",
    scopes: ["chat"],
    plain: false,
    block: ({ address, token }) => ({ OPENAI_BASE_URL: apiOf(address), OPENAI_API_KEY: token }),
    notes: ["openai and openai-agents of Python and JavaScript read these variables, and so does @ai-sdk/openai."],
  },
  anthropic: {
    title: "Anthropic's libraries",
    file: undefined,
    format: "env",
    scopes: ["chat"],
    plain: false,
    block: ({ address, token }) => ({ ANTHROPIC_BASE_URL: address.replace(/\/$/, ""), ANTHROPIC_API_KEY: token }),
    notes: [
      "anthropic of Python and @anthropic-ai/sdk read these variables. @ai-sdk/anthropic wants the address with /v1 behind it.",
    ],
  },
};
