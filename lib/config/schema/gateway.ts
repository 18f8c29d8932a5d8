import * as v from "valibot";
import { boolean, environmentName, integer, required, text, texts } from "./value.ts";

const websocketSchema = v.strictObject({
  /** Seconds between pings */
  heartbeat_secs: integer(30, 1, 3600),
  /** Seconds without a pong until the socket is closed */
  pong_timeout_secs: integer(60, 1, 7200),
  /** Seconds without a run or a message until the socket is closed */
  idle_timeout_secs: integer(300, 1, 86_400),
  /** Bytes of one frame */
  max_message_bytes: integer(2_097_152, 1024, 67_108_864),
});

const nodeControlSchema = v.strictObject({
  enabled: boolean(false),
  /** Secret; `auth_token_env` keeps it out of the file */
  auth_token: text(""),
  /** Environment variable that holds the token */
  auth_token_env: environmentName(),
  allowed_node_ids: texts([]),
});

/** `[gateway]`: where it listens, who may come in, and the bounds of a request (docs/design/access.md "Bind rules"). */
export const gatewaySchema = v.strictObject({
  /** `localhost`, an IPv4 or an IPv6 address */
  host: v.optional(required(), "127.0.0.1"),
  /** 0 takes a free port */
  port: integer(42_617, 0, 65_535),
  require_pairing: boolean(true),
  /** Allows a bind that other machines can reach; pairing stays required there */
  allow_public_bind: boolean(false),
  /** Further names accepted in the Host header on a loopback bind */
  allowed_hosts: texts([]),
  /** Exact origins, or `*` */
  cors_origins: texts([]),
  /** Requests per window, 0: no limit */
  rate_limit_max: integer(600, 0, 10_000_000),
  rate_limit_window_secs: integer(60, 1, 86_400),
  /** Requests per window and token (or peer address without one), 0: no limit */
  rate_limit_per_identity: integer(0, 0, 10_000_000),
  max_request_bytes: integer(10_485_760, 1024, 1_073_741_824),
  pairing_code_ttl_secs: integer(3600, 10, 86_400),
  /** Seconds attached work may go on after the first signal */
  shutdown_grace_secs: integer(30, 0, 3600),
  /** Seconds until a request is given up */
  request_timeout_secs: integer(600, 1, 86_400),
  websocket: v.optional(websocketSchema, {}),
  node_control: v.optional(nodeControlSchema, {}),
});
