import { DURATION_BUCKETS_SECONDS, type Metrics } from "../base/telemetry/metrics.ts";
import type { StreamObserver } from "./retry.ts";

/**
 * Counts provider requests, tokens and the time to the first event. Registers its metrics: once a registry.
 * Source: docs/design/observability.md "Metrics"
 */
export function createProviderMetrics(metrics: Metrics): StreamObserver {
  const requests = metrics.counter(
    "postern_provider_requests_total",
    "Requests to model providers; status is the upstream's, an error code without one, or cancelled",
    ["provider", "status"],
  );
  const tokens = metrics.counter("postern_provider_tokens_total", "Tokens as the providers report them", [
    "provider",
    "kind",
  ]);
  const firstToken = metrics.histogram(
    "postern_provider_time_to_first_token_seconds",
    "Time from sending a request to its first event",
    { labels: ["provider"], buckets: DURATION_BUCKETS_SECONDS },
  );
  return {
    onFirstEvents: (provider, ms) => firstToken.with(provider).observe(ms / 1000),
    onEnd(provider, { finish, error }) {
      const status = finish !== undefined
        ? "200"
        : error === undefined
        ? "cancelled"
        : String(error.status ?? error.code);
      requests.with(provider, status).add();
      if (finish?.usage === undefined) return;
      tokens.with(provider, "prompt").add(finish.usage.prompt_tokens);
      tokens.with(provider, "completion").add(finish.usage.completion_tokens);
    },
  };
}
