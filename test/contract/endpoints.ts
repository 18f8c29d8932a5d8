/** The endpoint table of DESIGN.md section 2: method, path, access. A route enters it in the commit that implements it. */
export const ENDPOINTS: readonly (readonly [method: string, path: string, access: string])[] = [
  ["GET", "/", "public"],
  ["GET", "/health", "public"],
  ["GET", "/health/live", "public"],
  ["GET", "/metrics", "public"],
  ["POST", "/pair", "pairing_code"],
  ["POST", "/v1/ping", "chat"],
  ["POST", "/v1/webhook/:channel", "chat"],
  ["POST", "/api/chat", "chat"],
  ["POST", "/v1/chat/completions", "chat"],
  ["GET", "/v1/models", "chat"],
  ["GET", "/v1/models/:id+", "chat"],
  ["GET", "/ws/chat", "chat"],
  ["POST", "/webhook", "chat"],
  ["GET", "/v1/tools", "tools"],
  ["GET", "/v1/tools/:name", "tools"],
  ["POST", "/v1/tools/:name/call", "tools"],
  ["POST", "/v1/ws-ticket", "chat"],
  ["POST", "/v1/pairing-code", "admin"],
  ["GET", "/v1/tokens", "admin"],
  ["GET", "/v1/tokens/:id", "admin"],
  ["POST", "/v1/tokens", "admin"],
  ["DELETE", "/v1/tokens", "admin"],
  ["DELETE", "/v1/tokens/:id", "admin"],
  ["GET", "/v1/audit", "admin"],
  ["GET", "/v1/audit/verify", "admin"],
  ["GET", "/openapi.json", "public"],
];

/** POST routes whose replies hold a secret: they refuse Idempotency-Key. */
export const SECRET_ENDPOINTS: readonly string[] = ["/pair", "/v1/ws-ticket", "/v1/pairing-code", "/v1/tokens"];
