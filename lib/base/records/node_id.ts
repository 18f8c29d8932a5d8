/** Longest id of a node, in characters. */
const MAX_NODE_ID = 24;

const NODE_ID = /^[a-z0-9]+(?:[_-][a-z0-9]+)*$/;

/**
 * Tells whether a text can be the id of a node (`[gateway.node_control] allowed_node_ids`): lower-case letters and digits, single `_` or
 * `-` between them, 1-24 characters. Two `_` end the id in the name of a tool, `node__<id>__<tool>`.
 */
export function isNodeId(text: string): boolean {
  return text.length <= MAX_NODE_ID && NODE_ID.test(text);
}
