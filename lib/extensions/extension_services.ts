import type { Clock } from "../base/clock.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import type { Config } from "../config/config.ts";
import type { AuditAppend } from "../guard/audit/audit_chain.ts";
import { createNodes, type Nodes } from "./nodes/nodes.ts";

/** Options of `createExtensionServices`. */
export interface ExtensionServicesOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** The newest configuration. */
  readonly config: () => Pick<Config, "gateway" | "tools">;
  readonly environment: (name: string) => string | undefined;
  readonly audit: AuditAppend;
  readonly opened: OpenedList;
}

/** Creates the access to other machines that offer their tools, by the `[gateway.node_control]` of the start. */
export function createExtensionServices({ config, environment, opened, ...parts }: ExtensionServicesOptions): Nodes {
  const { websocket, node_control: settings } = config().gateway;
  const nodes = createNodes({
    ...parts,
    authToken: settings.auth_token || (environment(settings.auth_token_env) ?? ""),
    allowedIds: settings.allowed_node_ids,
    accessOf: (tool) => config().tools[tool]?.access || undefined,
    settings: {
      heartbeatMs: websocket.heartbeat_secs * 1000,
      silenceMs: websocket.pong_timeout_secs * 1000,
      maxFrameBytes: websocket.max_message_bytes,
    },
  });
  return opened.own(nodes, (open) => open.close());
}
