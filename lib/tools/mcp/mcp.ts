import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { hash } from "node:crypto";

/**
 * `mcp`: calls a tool of an MCP server by the names that the server gives (docs/design/tools.md "MCP servers").
 *
 * The call is decided, approved and recorded as if the model had called that tool by its own name, `mcp__<server>__<tool>`.
 */
export const mcp = defineTool({
  name: "mcp",
  description: "Calls a tool of an MCP server by its own name; the same as calling mcp__<server>__<tool>",
  // The widest that a server's tool may have. The call of a server's tool has that tool's own access
  access: "network",
  accessOf: () => "read",
  outside: true,
  enabled: ({ security }) => security.mcp.enabled,
  enabledBy: "[security.mcp] enabled = true",
  local: true,
  needs: [],
  input: v.strictObject({
    server: v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("Name of the server")),
    tool: v.pipe(v.string(), v.minLength(1), v.maxLength(128), v.description("Name of its tool")),
    arguments: v.optional(v.pipe(v.looseObject({}), v.description("Input of the tool; default {}"))),
  }),
  standsFor: ({ server, tool, arguments: given = {} }) => ({
    tool: mcpToolName(server, tool),
    input: JSON.stringify(given),
    source: "mcp",
    owner: `mcp ${server}`,
  }),
  run: ({ server, tool }) => Promise.reject(new TypeError(`The call stands for ${mcpToolName(server, tool)}`)),
});

const MAX_TOOL_NAME = 64;
/** Hexadecimal digits of the digest that ends a name which is not the tool's own. */
const DIGEST_LENGTH = 10;

/**
 * Returns the name of a server's tool in the registry. What models may not write becomes `_`. A name that is then another one, too long,
 * not plainly of this server, or like one with a digest, ends with a digest: so no tool can be given the name of another one.
 */
export function mcpToolName(server: string, tool: string): string {
  const plain = `mcp__${server}__${tool}`;
  const name = plain.replace(/[^a-zA-Z0-9_-]/g, "_");
  const isOfServer = plain.indexOf("__", "mcp__".length) === "mcp__".length + server.length;
  const isLikeDigest = new RegExp(`_[0-9a-f]{${DIGEST_LENGTH}}$`).test(name);
  if (name === plain && name.length <= MAX_TOOL_NAME && isOfServer && !isLikeDigest) return name;
  const digest = hash("sha256", JSON.stringify([server, tool])).slice(0, DIGEST_LENGTH);
  return `${name.slice(0, MAX_TOOL_NAME - DIGEST_LENGTH - 1)}_${digest}`;
}
