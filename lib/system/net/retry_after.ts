import type { Clock } from "../../base/clock.ts";
import type { GuardedFetch } from "./guarded_fetch.ts";

/** Bounds of the retries that a server asks for. */
export interface RetryAfterOptions {
  readonly clock: Clock;
  /** Attempts after the first. Default 2 */
  readonly maxRetries?: number | undefined;
  /** Longest pause that is kept; a reply that asks for a longer one is given back. Milliseconds. Default 30,000 */
  readonly maxWaitMs?: number | undefined;
  /** True when sending a request twice does no more than sending it once, whatever its method, such as a search. Default: GET and HEAD alone */
  readonly repeatable?: boolean | undefined;
}

const MAX_RETRIES = 2;
const MAX_WAIT_MS = 30_000;

/**
 * Returns a guarded fetch that sends GET and HEAD again after 429 or 503, when the reply says with `Retry-After` how long to wait.
 *
 * The pauses count to the time limit of the request: a reply whose pause would not leave time for another attempt is given back, and
 * so is the last one. Other methods are sent once, unless the caller says that they are repeatable. A sink is not opened for a reply that is followed by another attempt.
 * @throws as the guarded fetch; {CancelError} when the signal aborts in a pause
 */
export function withRetryAfter(fetch: GuardedFetch, options: RetryAfterOptions): GuardedFetch {
  const { clock, maxRetries = MAX_RETRIES, maxWaitMs = MAX_WAIT_MS } = options;
  return async (request) => {
    const { sink } = request;
    const isRepeatable = options.repeatable === true || request.method === "GET" || request.method === "HEAD";
    if (!isRepeatable) return await fetch(request);
    const start = clock.monotonic();
    // Whole milliseconds: an error says the limit as it was set
    const remainingMs = () => Math.ceil(request.timeoutMs - (clock.monotonic() - start));
    for (let retries = 0;; retries++) {
      const pauseOf = (reply: { readonly status: number; readonly headers: Readonly<Record<string, string>> }) => {
        if (retries === maxRetries || (reply.status !== 429 && reply.status !== 503)) return undefined;
        const pauseMs = retryAfterMs(reply.headers, clock.now());
        return pauseMs !== undefined && pauseMs <= maxWaitMs && pauseMs < remainingMs() ? pauseMs : undefined;
      };
      const reply = await fetch({
        ...request,
        timeoutMs: remainingMs(),
        sink: sink && (async (head) => pauseOf(head) === undefined ? await sink(head) : undefined),
      });
      const pauseMs = pauseOf(reply);
      if (pauseMs === undefined) return reply;
      await clock.sleep(pauseMs, request.signal);
    }
  };
}

/**
 * Returns the milliseconds that a reply asks to wait: `Retry-After` in seconds or as a date, 0 for a date that is over.
 * @param headers names in lower case
 * @returns undefined for no such header or one that cannot be read
 * Source: RFC 9110 section 10.2.3
 */
export function retryAfterMs(headers: Readonly<Record<string, string>>, now: number): number | undefined {
  const text = headers["retry-after"]?.trim() ?? "";
  if (/^\d{1,10}$/.test(text)) return Number(text) * 1000;
  // A date begins with the name of a day, and Date.parse takes much else for one. The form of asctime names no zone and means GMT
  const isDate = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)/.test(text);
  const date = isDate ? Date.parse(text.endsWith("GMT") ? text : `${text} GMT`) : Number.NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
