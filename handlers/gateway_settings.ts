import { type SlidingWindow, slidingWindow } from "../lib/access/sliding_window.ts";
import type { Config } from "../lib/config/config.ts";
import { isLoopbackName } from "../lib/system/net/address.ts";

/** Settings that the middleware reads with each request. They are derived once from each configuration. */
export interface GatewaySettings {
  readonly loopbackBind: boolean;
  readonly allowedHosts: ReadonlySet<string>;
  readonly corsOrigins: ReadonlySet<string>;
  readonly corsAny: boolean;
  /** Bearer routes are open: `require_pairing = false` on a loopback bind */
  readonly open: boolean;
  readonly maxRequestBytes: number;
  /** Undefined: requests are not limited */
  readonly windows: Windows | undefined;
  /** An extra window of `rate_limit_per_identity` by token, else by address. Undefined: off */
  readonly identities: SlidingWindow | undefined;
}

/** Windows of requests. Each kind of sender fills a window of its own, so that no sender locks out another. */
export interface Windows {
  /** By token; one window for all while pairing is off */
  readonly callers: SlidingWindow;
  /** Requests of probes, such as `/health`: one window for all of them */
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

/** Requests that a small window takes. */
const SMALL_WINDOW_MAX = 60;

/** Returns a function that gives the settings of the newest configuration. A reload that leaves the limits alone keeps their windows. */
export function createGatewaySettings(config: () => Config): () => GatewaySettings {
  let snapshot: Config | undefined;
  let current: GatewaySettings;
  return () => {
    const newest = config();
    if (newest === snapshot) return current;
    current = derive(newest, snapshot, snapshot === undefined ? undefined : current);
    snapshot = newest;
    return current;
  };
}

function derive({ gateway }: Config, before: Config | undefined, old: GatewaySettings | undefined): GatewaySettings {
  const loopbackBind = isLoopbackName(gateway.host.toLowerCase());
  return {
    loopbackBind,
    allowedHosts: new Set(gateway.allowed_hosts.map((host) => host.toLowerCase())),
    corsOrigins: new Set(gateway.cors_origins.map((origin) => origin.toLowerCase())),
    corsAny: gateway.cors_origins.includes("*"),
    open: !gateway.require_pairing && loopbackBind,
    maxRequestBytes: gateway.max_request_bytes,
    ...(old !== undefined && sameLimits(gateway, before?.gateway)
      ? { windows: old.windows, identities: old.identities }
      : createWindows(gateway)),
  };
}

type Limits = Pick<Config["gateway"], "rate_limit_max" | "rate_limit_window_secs" | "rate_limit_per_identity">;

function sameLimits(a: Limits, b: Limits | undefined): boolean {
  return a.rate_limit_max === b?.rate_limit_max && a.rate_limit_window_secs === b.rate_limit_window_secs &&
    a.rate_limit_per_identity === b.rate_limit_per_identity;
}

function createWindows(limits: Limits): Pick<GatewaySettings, "windows" | "identities"> {
  const { rate_limit_max: max, rate_limit_per_identity: perIdentity } = limits;
  const windowMs = limits.rate_limit_window_secs * 1000;
  const whole = () => slidingWindow({ max, windowMs });
  const small = () => slidingWindow({ max: Math.min(max, SMALL_WINDOW_MAX), windowMs });
  return {
    windows: max === 0 ? undefined : {
      callers: whole(),
      probes: whole(),
      addresses: whole(),
      pairing: whole(),
      crossSite: small(),
      refusedPages: small(),
      refusedTokens: small(),
    },
    identities: perIdentity === 0 ? undefined : slidingWindow({ max: perIdentity, windowMs }),
  };
}
