import type { Clock } from "../../lib/base/clock.ts";
import type { Logger } from "../../lib/base/telemetry/log.ts";
import { type Counter, DURATION_BUCKETS_SECONDS, type Metrics } from "../../lib/base/telemetry/metrics.ts";
import type { GatewayRequestContext } from "../request_context.ts";
import { isProbe } from "./rate_limit.ts";

/** Counts, times and logs every request of a gateway. */
export interface Observer {
  /** Refusals of the rate limit */
  readonly rateLimited: Counter;
  /** Counts a request as in flight. @returns its start in monotonic milliseconds, for `end` */
  begin(): number;
  /** @param route template of the route, `unmatched` without one, never the raw path */
  end(
    request: Request,
    context: GatewayRequestContext,
    outcome: { readonly startedAt: number; readonly route: string; readonly status: number },
  ): void;
}

const METHODS = new Set(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"]);
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/**
 * Creates the observer that feeds metrics and the access log. Probes are logged at debug, other requests at info.
 * Source: docs/design/observability.md "Metrics"
 */
export function createObserver(
  options: { readonly metrics: Metrics; readonly clock: Clock; readonly log: Logger },
): Observer {
  const { metrics, clock, log } = options;
  const requests = metrics.counter("postern_http_requests_total", "HTTP requests answered.", [
    "method",
    "route",
    "status",
  ]);
  const durations = metrics.histogram(
    "postern_http_request_duration_seconds",
    "Time until the reply was handed over.",
    {
      labels: ["route"],
      buckets: DURATION_BUCKETS_SECONDS,
    },
  );
  const inFlight = metrics.gauge("postern_http_requests_in_flight", "HTTP requests being answered.").with();
  return {
    rateLimited: metrics.counter("postern_rate_limited_total", "Requests refused by a rate limit.").with(),
    begin() {
      inFlight.add(1);
      return clock.monotonic();
    },
    end(request, context, { startedAt, route, status }) {
      const durationMs = clock.monotonic() - startedAt;
      const method = METHODS.has(request.method) ? request.method : "other";
      inFlight.add(-1);
      requests.with(method, route, String(status)).add();
      durations.with(route).observe(durationMs / 1000);
      // A client that reads the log must not fill it with lines about its own requests
      const level = isProbe(route) || route === "/v1/logs" ? "debug" : "info";
      if (!log.shows(level)) return;
      log[level]("Request", {
        request_id: context.requestId,
        method,
        route,
        status,
        duration_ms: Math.round(durationMs * 1000) / 1000,
        token_id: context.identity?.tokenId ?? null,
        remote_address: context.remoteAddress ?? null,
        ...traceOf(request),
      });
    },
  };
}

function traceOf(request: Request): { traceparent?: string } {
  const traceparent = request.headers.get("traceparent");
  return traceparent !== null && TRACEPARENT.test(traceparent) ? { traceparent } : {};
}
