import { McpError } from "./mcp_error.ts";

/** Client part of the official SDK. */
export type McpClientSdk = typeof import("@modelcontextprotocol/client");

/** Loads the official SDK at the first call. @throws {McpError} `mcp_unavailable` where the package is missing */
export async function loadSdk(server: string): Promise<McpClientSdk> {
  try {
    return await import("@modelcontextprotocol/client");
  } catch (cause) {
    const reason =
      "the package @modelcontextprotocol/client is not installed; npm install @modelcontextprotocol/client";
    throw new McpError("mcp_unavailable", `Cannot use the MCP server "${server}": ${reason}`, {
      ...{ server, cause },
      written: false,
    });
  }
}
