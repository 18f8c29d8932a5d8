import type { SlidingWindow } from "../../lib/access/identity.ts";
import type { Counter } from "../../lib/base/telemetry/metrics.ts";
import { httpError } from "../wire/error_codes.ts";

export interface RateLimitOptions {
  /** Milliseconds, monotonic */
  readonly now: number;
  /** Counts refusals */
  readonly refused: Counter;
  /** Receives the x-ratelimit-* headers */
  readonly replyHeaders: Record<string, string>;
}

/**
 * Takes one slot of `key`, and tells the client how it stands.
 * @throws {HttpError} 429 rate_limited with Retry-After, in whole seconds
 * Source: RFC 6585 section 4; header names and forms as OpenAI's
 */
export function takeSlot(window: SlidingWindow, key: string, options: RateLimitOptions): void {
  const { allowed, limit, remaining, resetMs } = window.take(key, options.now);
  const seconds = Math.ceil(resetMs / 1000);
  const headers = options.replyHeaders;
  headers["x-ratelimit-limit-requests"] = String(limit);
  headers["x-ratelimit-remaining-requests"] = String(remaining);
  headers["x-ratelimit-reset-requests"] = `${seconds}s`;
  if (allowed) return;
  options.refused.add();
  throw httpError(
    "rate_limited",
    `Cannot accept more requests now: the limit of ${limit} is used up, try again in ${seconds} s`,
    {
      headers: { "retry-after": String(Math.max(1, seconds)) },
    },
  );
}

/** Probes have a window of their own, so that traffic and probes cannot starve each other. */
export function isProbe(path: string): boolean {
  return path === "/health" || path === "/health/live" || path === "/metrics";
}
