/**
 * The table of routes: method, path, access, and the thing that the request may go on with (it needs `runs` when another began it).
 * A route enters the table in the commit that implements it.
 * Source: docs/design/access.md "Scopes"
 */
export const ENDPOINTS: readonly (readonly [method: string, path: string, access: string, continues?: string])[] = [
  ["GET", "/", "public"],
  ["GET", "/health", "public"],
  ["GET", "/health/live", "public"],
  ["GET", "/metrics", "public"],
  ["POST", "/pair", "pairing_code"],
  ["POST", "/v1/ping", "chat"],
  ["POST", "/v1/webhook/:channel", "chat"],
  ["POST", "/api/chat", "chat", "conversation"],
  ["POST", "/v1/chat/completions", "chat"],
  ["GET", "/v1/models", "chat"],
  ["GET", "/v1/models/:id+", "chat"],
  ["POST", "/v1/model-servers", "admin"],
  ["GET", "/ws/chat", "chat"],
  ["POST", "/webhook", "chat", "conversation"],
  ["POST", "/v1/runs", "runs"],
  ["GET", "/v1/runs", "runs"],
  ["GET", "/v1/runs/:id", "runs"],
  ["POST", "/v1/runs/:id/cancel", "runs"],
  ["POST", "/v1/runs/:id/resolve", "runs"],
  ["GET", "/v1/runs/:id/events", "runs"],
  ["GET", "/v1/conversations", "runs"],
  ["GET", "/v1/conversations/:id", "runs"],
  ["POST", "/v1/conversations/:id", "runs"],
  ["DELETE", "/v1/conversations", "runs"],
  ["DELETE", "/v1/conversations/:id", "runs"],
  ["GET", "/v1/memory", "runs"],
  ["DELETE", "/v1/memory", "runs"],
  ["GET", "/v1/tools", "tools"],
  ["GET", "/v1/tools/:name", "tools"],
  ["POST", "/v1/tools/:name/call", "tools"],
  ["GET", "/v1/approvals", "approve"],
  ["GET", "/v1/approvals/:id", "approve"],
  ["POST", "/v1/approvals/:id", "approve"],
  ["GET", "/v1/approval-rules", "approve"],
  ["DELETE", "/v1/approval-rules/:id", "approve"],
  ["GET", "/v1/tainted-files", "approve"],
  ["DELETE", "/v1/tainted-files", "approve"],
  ["GET", "/v1/schedules", "runs"],
  ["GET", "/v1/schedules/:id", "runs"],
  ["GET", "/v1/schedules/:id/history", "runs"],
  ["POST", "/v1/schedules/:id/run", "runs"],
  ["GET", "/v1/deliveries", "runs"],
  ["POST", "/v1/deliveries/:id/resolve", "runs"],
  ["GET", "/ws/node", "node_token"],
  ["GET", "/v1/nodes", "tools"],
  ["GET", "/v1/nodes/:id", "tools"],
  ["POST", "/v1/nodes/:id/describe", "tools"],
  ["POST", "/v1/nodes/:id/invoke", "tools"],
  ["POST", "/v1/ws-ticket", "chat"],
  ["POST", "/v1/pairing-code", "admin"],
  ["GET", "/v1/tokens", "admin"],
  ["GET", "/v1/tokens/:id", "admin"],
  ["POST", "/v1/tokens", "admin"],
  ["DELETE", "/v1/tokens", "admin"],
  ["DELETE", "/v1/tokens/:id", "admin"],
  ["GET", "/v1/status", "admin"],
  ["GET", "/v1/audit", "admin"],
  ["GET", "/v1/logs", "admin"],
  ["GET", "/v1/audit/verify", "admin"],
  ["GET", "/openapi.json", "public"],
];

/** POST routes whose replies hold a secret: they refuse Idempotency-Key. */
export const SECRET_ENDPOINTS: readonly string[] = ["/pair", "/v1/ws-ticket", "/v1/pairing-code", "/v1/tokens"];

/**
 * The frames of `/ws/chat`, in the same form: type, access, and what the frame may go on with.
 * Source: docs/design/websocket.md "Frames in"
 */
export const FRAME_TYPES: readonly (readonly [type: string, access: string, continues?: string])[] = [
  ["message", "chat", "conversation"],
  ["resume", "chat", "run"],
  ["cancel", "chat", "run"],
  ["approve", "approve"],
  ["deny", "approve"],
  ["hello", "chat"],
  ["ping", "chat"],
];

/** Routes that refuse unknown fields and query parameters: what is dropped in silence there allows or deletes more than was meant. */
export const STRICT_ENDPOINTS: readonly string[] = [
  "POST /pair",
  "POST /v1/pairing-code",
  "POST /v1/ws-ticket",
  "GET /v1/tokens",
  "GET /v1/tokens/:id",
  "POST /v1/tokens",
  "DELETE /v1/tokens",
  "DELETE /v1/tokens/:id",
  "GET /v1/approvals",
  "GET /v1/approvals/:id",
  "POST /v1/approvals/:id",
  "GET /v1/approval-rules",
  "DELETE /v1/approval-rules/:id",
  "GET /v1/tainted-files",
  "DELETE /v1/tainted-files",
  "POST /v1/model-servers",
  "DELETE /v1/memory",
  "DELETE /v1/conversations",
];
