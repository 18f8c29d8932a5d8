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
  "resources/list": { access: "tools" },
  "resources/templates/list": { access: "tools" },
  "resources/read": { access: "tools" },
  "resources/subscribe": { access: "tools" },
  "resources/unsubscribe": { access: "tools" },
  "tasks/get": { access: "runs" },
  "tasks/cancel": { access: "runs" },
  "tasks/update": { access: "runs" },
  "tasks/result": { access: "runs" },
  "tasks/list": { access: "runs" },
} as const satisfies Readonly<Record<string, Door>>;

/** Kinds of resources, each with the scope that its addresses need beside that of the method. A list shows the kinds that a token may read. */
export const RESOURCE_DOORS = {
  /** Resources of the program that mounts the gateway */
  program: { access: "tools" },
  conversation: { access: "runs" },
} as const satisfies Readonly<Record<string, Door>>;

/** Beginning of a conversation's address, before its id. */
export const CONVERSATION_PREFIX = "postern://conversations/";
/** Scheme of the gateway's own resources. A program offers none under it. */
const OWN_SCHEME = /^postern:/i;

/** Tells whether an address is that of a conversation: every address of the gateway's own is. */
export function isConversation(uri: string): boolean {
  return OWN_SCHEME.test(uri);
}

/** Returns the door of the resource at an address. */
export function doorOfResource(uri: string): Door {
  return RESOURCE_DOORS[isConversation(uri) ? "conversation" : "program"];
}

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
