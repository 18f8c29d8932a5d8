import type { NodeInfo, NodeToolInfo } from "../../lib/extensions/nodes/nodes.ts";
import { defineCliCommand } from "../command.ts";
import { toTable } from "../terminal/to_table.ts";
import { withGateway } from "../with_gateway.ts";

/** `postern nodes list` */
export const nodesListCommand = defineCliCommand({
  args: {},
  example: "postern nodes list",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const { data } = await gateway.request({ method: "GET", path: "/v1/nodes" }) as { data: readonly NodeInfo[] };
      const rows = data.map((node) => [node.id, stateOf(node), String(node.tool_count), node.version ?? ""]);
      const none = "No node may connect: [gateway.node_control] allowed_node_ids is empty";
      context.print(data, data.length === 0 ? none : toTable(["ID", "STATE", "TOOLS", "VERSION"], rows));
    }),
});

/** `postern nodes show`: with the tools, as the node has them now where it is connected. */
export const nodesShowCommand = defineCliCommand({
  args: { id: { type: "positional", required: true, description: "Id of the node, from postern nodes list" } },
  example: "postern nodes show pi",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const path = `/v1/nodes/${encodeURIComponent(id)}`;
      const last = await gateway.request({ method: "GET", path }) as NodeInfo & { tools: readonly NodeToolInfo[] };
      const node = last.connected
        ? await gateway.request({ method: "POST", path: `${path}/describe` }) as typeof last
        : last;
      const rows = node.tools.map((tool) => [tool.registered_as, tool.node_access, tool.description]);
      context.print(node, `${node.id}: ${stateOf(node)}\n${toTable(["TOOL", "ON THE NODE", "DESCRIPTION"], rows)}`);
    }),
});

function stateOf({ connected, connected_at, disconnected_at, address }: NodeInfo): string {
  if (connected) return `connected since ${connected_at}${address === null ? "" : ` from ${address}`}`;
  return disconnected_at === null ? "not connected" : `gone since ${disconnected_at}`;
}
