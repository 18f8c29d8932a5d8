import type { Nodes } from "../../lib/extensions/nodes/nodes.ts";
import type { Services } from "../../lib/gateway.ts";
import { httpError } from "./error_codes.ts";

/** The nodes of the gateway. @throws {HttpError} 404 not_found while node control is off */
export function requireNodes({ nodes }: Services): Nodes {
  if (nodes !== undefined) return nodes;
  throw httpError(
    "not_found",
    "Cannot find this path: node control is off; set [gateway.node_control] enabled = true and start the gateway anew",
  );
}
