import type { SharedKind, SharedWindows } from "../../lib/access/shared_windows.ts";
import { type SlidingWindow, slidingWindow } from "../../lib/access/sliding_window.ts";
import { CONTROL, type Identity } from "../../lib/access/identity.ts";
import { refuse } from "../../lib/base/errors.ts";
import type { Counter } from "../../lib/base/telemetry/metrics.ts";
import type { DoorAccess } from "../door.ts";
import type { Config } from "../../lib/config/config.ts";

/** Settings of the rate limits. */
export interface LimitSettings {
  /** Bearer routes are open: `require_pairing = false` on a loopback bind */
  readonly open: boolean;
  /** Undefined: requests are not limited */
  readonly windows: Windows | undefined;
  /** Extra windows of `rate_limit_per_identity`. Undefined: off */
  readonly identities: IdentityWindows | undefined;
}

/** Extra windows by token, and by address for requests without one. Each window has its own keys, so that addresses take no token's place. */
export interface IdentityWindows {
  readonly tokens: SlidingWindow;
  readonly addresses: SlidingWindow;
}

/** Windows of requests. Each kind of sender fills a window of its own, so that no sender locks out another. */
export interface Windows {
  /** By token; one window for all but the command line while pairing is off */
  readonly callers: SlidingWindow;
  /** Requests of probes, such as `/health`, by token; one window for all without one */
  readonly probes: SlidingWindow;
  /** Requests of public routes, and requests that no route takes, by address */
  readonly addresses: SlidingWindow;
  /** Pairing, by address */
  readonly pairing: SlidingWindow;
  /** Public routes and probes that a page of another site reads, by address. A small window, like the next two */
  readonly crossSite: SlidingWindow;
  /** Requests with a refused origin or host, by address */
  readonly refusedPages: SlidingWindow;
  /** Requests without a token that counts, by address */
  readonly refusedTokens: SlidingWindow;
}

/** Windows, clock reading and headers that a rate limit works with. */
export interface RateLimitOptions {
  readonly settings: LimitSettings;
  /** Address of the peer; undefined when the mounting server does not say */
  readonly address: string | undefined;
  /** Milliseconds, monotonic */
  readonly now: number;
  /** Counts refusals */
  readonly refused: Counter;
  /** Receives the x-ratelimit-* headers */
  readonly replyHeaders: Record<string, string>;
}

/** Facts about a request that decide which window takes it. */
export interface LimitedRequest {
  readonly path: string;
  /** Access that the request's route demands; undefined when no route takes the request */
  readonly access: DoorAccess | undefined;
  /** Identity that the request's credentials name; undefined without credentials that count */
  readonly identity: Identity | undefined;
  /** Tells whether the request's origin is one of `cors_origins` */
  readonly isAllowedPage: boolean;
}

/** Requests that a small window takes. */
const SMALL_WINDOW_MAX = 60;

type Limits = Pick<
  Config["gateway"],
  "rate_limit_max" | "rate_limit_window_secs" | "rate_limit_per_identity" | "rate_limit_scope"
>;

/** Tells whether two configurations have the same limits. */
export function sameLimits(a: Limits, b: Limits | undefined): boolean {
  return a.rate_limit_max === b?.rate_limit_max && a.rate_limit_window_secs === b.rate_limit_window_secs &&
    a.rate_limit_per_identity === b.rate_limit_per_identity && a.rate_limit_scope === b.rate_limit_scope;
}

/**
 * Creates the windows of the configured limits, all of them empty.
 * @param shared windows of the cluster, for `rate_limit_scope = "cluster"`. Undefined for a gateway alone, which has windows of its own
 */
export function createWindows(
  limits: Limits,
  shared?: Pick<SharedWindows, "window">,
): Pick<LimitSettings, "windows" | "identities"> {
  const { rate_limit_max: max, rate_limit_per_identity: perIdentity } = limits;
  const windowMs = limits.rate_limit_window_secs * 1000;
  const isShared = limits.rate_limit_scope === "cluster";
  const open = (kind: SharedKind | undefined, size: number) =>
    kind !== undefined && isShared && shared !== undefined
      ? shared.window(kind, { max: size, windowMs })
      : slidingWindow({ max: size, windowMs });
  const whole = (kind?: SharedKind) => open(kind, max);
  const small = (kind?: SharedKind) => open(kind, Math.min(max, SMALL_WINDOW_MAX));
  return {
    windows: max === 0 ? undefined : {
      callers: whole("callers"),
      probes: whole(),
      addresses: whole("addresses"),
      pairing: whole("pairing"),
      crossSite: small(),
      refusedPages: small(),
      refusedTokens: small("refusedTokens"),
    },
    identities: perIdentity === 0 ? undefined : {
      tokens: open("identities", perIdentity),
      addresses: open("identityAddresses", perIdentity),
    },
  };
}

/**
 * Takes the slots of a request from the windows of its sender. A request with a valid token never uses a slot of another sender,
 * and never fails because another sender used one. Nodes are limited where their token is checked.
 * Source: docs/design/access.md "Rate limit"
 * @throws {HttpError} 429 rate_limited
 */
export function limitRequest(request: Request, limited: LimitedRequest, options: RateLimitOptions): void {
  const { access, identity } = limited;
  const { windows, identities } = options.settings;
  if (access === "node_token") return;
  // A gateway asks for many clients of its own, which it has limited
  if (access === "cluster" && identity?.scopes.includes("cluster")) return;
  const probe = access === "public" && PROBES.has(limited.path);
  const tokenId = identity?.tokenId ?? null;
  if (windows !== undefined) {
    if (!probe) takeSenderSlot(request, limited, windows, options);
    else if (tokenId === null && isForeignPage(request, limited)) limitAddress(windows.crossSite, options);
    else takeSlot(windows.probes, tokenId ?? OPEN, options);
  }
  if (identities === undefined || probe || (identity === undefined && access !== "public")) return;
  if (tokenId === null) limitAddress(identities.addresses, options);
  else takeSlot(identities.tokens, tokenId, options);
}

/**
 * Refuses a request whose credentials the gateway would look for in the database, when its address has used up the slots for wrong ones. Takes
 * no slot, since the credentials may count.
 * @throws {HttpError} 429 rate_limited
 */
export function limitStranger(options: RateLimitOptions): void {
  const window = options.settings.windows?.refusedTokens;
  if (window?.isUsedUp(options.address ?? UNKNOWN, options.now)) limitAddress(window, options);
}

function takeSenderSlot(
  request: Request,
  limited: LimitedRequest,
  windows: Windows,
  options: RateLimitOptions,
): void {
  const { access, identity } = limited;
  const isOpen = access === "public" || access === undefined;
  const tokenId = identity?.tokenId ?? null;
  // Nobody but the operator has the token of the command line, whatever else is open
  const isShared = options.settings.open && tokenId !== CONTROL;
  if (tokenId !== null) return takeSlot(windows.callers, isShared ? OPEN : tokenId, options);
  // Attack: with pairing off, a page of another site can send requests to bearer routes. They must not use up the callers' window
  if ((isOpen || identity !== undefined) && isForeignPage(request, limited)) {
    return limitAddress(windows.crossSite, options);
  }
  if (isOpen) limitAddress(windows.addresses, options);
  else if (access === "pairing_code") limitAddress(windows.pairing, options);
  else if (identity !== undefined) takeSlot(windows.callers, OPEN, options);
  else limitAddress(windows.refusedTokens, options);
}

/** Takes a slot for a request that a guard refused for its origin or host. @throws {HttpError} 429 rate_limited */
export function limitRefusedPage(options: RateLimitOptions): void {
  const { windows } = options.settings;
  if (windows !== undefined) limitAddress(windows.refusedPages, options);
}

/** Paths of probes. They have a window of their own, so that traffic and probes cannot starve each other. */
export const PROBES: ReadonlySet<string> = new Set(["/health", "/health/live", "/metrics"]);

const UNKNOWN = "unknown";

/** Key of all probes without a token, and of all callers while pairing is off: nothing tells them apart for sure. */
const OPEN = "open";

/** Tells whether a page of another site sends a request; a browser cannot keep a page from sending requests that only read. */
function isForeignPage(request: Request, { isAllowedPage }: LimitedRequest): boolean {
  return !isAllowedPage && request.headers.get("sec-fetch-site") === "cross-site";
}

function limitAddress(window: SlidingWindow, options: RateLimitOptions): void {
  takeSlot(window, options.address ?? UNKNOWN, options);
}

/**
 * Takes one slot of `key`, and sets the x-ratelimit-* headers of the reply.
 * @throws {HttpError} 429 rate_limited with Retry-After, in whole seconds
 * Source: RFC 6585 section 4; header names and forms as OpenAI's
 */
function takeSlot(window: SlidingWindow, key: string, options: RateLimitOptions): void {
  const { allowed, limit, remaining, resetMs } = window.take(key, options.now);
  const seconds = Math.ceil(resetMs / 1000);
  const headers = options.replyHeaders;
  headers["x-ratelimit-limit-requests"] = String(limit);
  headers["x-ratelimit-remaining-requests"] = String(remaining);
  headers["x-ratelimit-reset-requests"] = `${seconds}s`;
  if (allowed) return;
  options.refused.add();
  throw refuse(
    "rate_limited",
    `Cannot accept more requests now: the limit of ${limit} is used up, try again in ${seconds} s`,
    {
      headers: { "retry-after": String(Math.max(1, seconds)) },
    },
  );
}
