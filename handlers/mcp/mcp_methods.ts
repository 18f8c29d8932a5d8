import type { Door } from "../door.ts";

/**
 * The methods of MCP that `/mcp` takes, each with the scope it needs beside that of the route. A method that is not here is not served.
 * Source: docs/design/mcp.md "Doors"
 */
export const MCP_METHODS = {
  initialize: { access: "tools" },
  "server/discover": { access: "tools" },
  ping: { access: "tools" },
  "notifications/initialized": { access: "tools" },
  "notifications/cancelled": { access: "tools" },
  "notifications/progress": { access: "tools" },
  "notifications/roots/list_changed": { access: "tools" },
  "logging/setLevel": { access: "tools" },
  "subscriptions/listen": { access: "tools" },
  "tools/list": { access: "tools" },
  "tools/call": { access: "tools" },
  "prompts/list": { access: "tools" },
  "prompts/get": { access: "tools" },
  "completion/complete": { access: "tools" },
  "resources/list": { access: "runs" },
  "resources/templates/list": { access: "runs" },
  "resources/read": { access: "runs" },
  "resources/subscribe": { access: "runs" },
  "resources/unsubscribe": { access: "runs" },
  "tasks/get": { access: "runs" },
  "tasks/cancel": { access: "runs" },
  "tasks/update": { access: "runs" },
  "tasks/result": { access: "runs" },
  "tasks/list": { access: "runs" },
} as const satisfies Readonly<Record<string, Door>>;

/** Name of a method of MCP that `/mcp` takes. */
export type McpMethod = keyof typeof MCP_METHODS;

/** Returns the name of the method that a message of JSON-RPC calls or tells; undefined for a response and for anything else. */
export function methodOf(message: unknown): string | undefined {
  if (typeof message !== "object" || message === null || !("method" in message)) return undefined;
  return typeof message.method === "string" ? message.method : undefined;
}

/** Returns the door of a method; undefined for a method that is not served. */
export function doorOf(method: string): Door | undefined {
  // The key was just found in the table
  return Object.hasOwn(MCP_METHODS, method) ? MCP_METHODS[method as McpMethod] : undefined;
}
