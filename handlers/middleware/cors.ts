/** Headers that let the page of an allowed origin read the reply; everything else of the reply stays as it is. */
export function addCorsHeaders(headers: Record<string, string>, allowOrigin: string): void {
  headers["access-control-allow-origin"] = allowOrigin;
  headers["access-control-expose-headers"] = EXPOSED;
}

/** Adds what a preflight asks for. Own implementation: the router's own turns 401, 404, 429 and 500 into 200 and sends no `Vary`. */
export function addPreflightHeaders(headers: Record<string, string>, request: Request): void {
  headers["access-control-allow-methods"] = "GET, HEAD, POST, DELETE, OPTIONS";
  headers["access-control-allow-headers"] = allowedHeaders(request.headers.get("access-control-request-headers") ?? "");
  headers["access-control-max-age"] = "600";
  if (request.headers.get("access-control-request-private-network") === "true") {
    headers["access-control-allow-private-network"] = "true";
  }
}

const ALLOWED =
  "Authorization, Content-Type, X-Pairing-Code, Idempotency-Key, Last-Event-ID, X-Request-Id, X-Postern-Tools, Traceparent, OpenAI-Organization, OpenAI-Project, OpenAI-Beta";
const EXPOSED =
  "x-request-id, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, retry-after, idempotency-replayed, x-postern-ignored, x-postern-fallback, x-postern-trimmed, x-should-retry";
const MAX_EXTRA = 20;

/** The official OpenAI client describes its platform in x-stainless-* headers, a set that grows with its versions. */
function allowedHeaders(requested: string): string {
  const extra = requested.toLowerCase().split(",").map((name) => name.trim()).filter((name) =>
    /^x-stainless-[a-z-]{1,40}$/.test(name)
  );
  return [ALLOWED, ...extra.slice(0, MAX_EXTRA)].join(", ");
}
