import { hash } from "node:crypto";

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
