import { systemClock } from "../../lib/base/clock.ts";
import type { Config } from "../../lib/config/config.ts";
import type { ControlRecord } from "../../lib/host/control_file.ts";
import { createGatewayClient } from "../../lib/system/net/gateway_client.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import type { ToolInfo } from "../../lib/tools/runtime/tool_door.ts";
import { expectSuccess, requireControl } from "../reach_gateway.ts";

const NODE_TOOL = /^node__((?:(?!__).)+)__(.+)$/;
const TIMEOUT_MS = 5_000;

/**
 * The tool of a node as the running gateway knows it, to be judged and never called; its access is the configuration's word.
 * @returns undefined for a name that is no node's, or that the gateway does not know
 * @throws {CommandError} {GatewayClientError} the gateway cannot be asked
 */
export async function runningNodeTool(
  name: string,
  { config, record }: { readonly config: Config; readonly record: ControlRecord },
): Promise<Tool | undefined> {
  const [, nodeId, tool] = NODE_TOOL.exec(name) ?? [];
  if (nodeId === undefined || tool === undefined) return undefined;
  requireControl(record);
  const client = createGatewayClient({ ...record, clock: systemClock, timeoutMs: TIMEOUT_MS });
  const reply = await client.request({ method: "GET", path: `/v1/tools/${encodeURIComponent(name)}` });
  if (reply.status === 404) return undefined;
  const { description, access, enabled, input_schema } = expectSuccess(reply) as ToolInfo;
  const { createNodeTool } = await import("../../lib/extensions/nodes/node_tool.ts");
  return createNodeTool({
    nodeId,
    // It came as JSON, where nothing is read-only
    offer: {
      name: tool,
      description,
      access,
      ...(input_schema === undefined ? {} : { input_schema: input_schema as never }),
    },
    access: () => config.tools[name]?.access || "network",
    connected: () => enabled,
    call: () => Promise.reject(new Error("A tool that is judged alone was called")),
  });
}
