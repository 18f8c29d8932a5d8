import type { SlidingWindow } from "../lib/access/identity.ts";
import { slidingWindow } from "../lib/access/sliding_window.ts";
import type { Config } from "../lib/config/config.ts";
import { isLoopbackName } from "../lib/system/net/is_loopback_name.ts";

/** What the middleware needs of a configuration, worked out once per snapshot. */
export interface GatewaySettings {
  readonly loopbackBind: boolean;
  readonly allowedHosts: ReadonlySet<string>;
  readonly corsOrigins: ReadonlySet<string>;
  readonly corsAny: boolean;
  /** Bearer routes are open: `require_pairing = false` on a loopback bind */
  readonly open: boolean;
  readonly maxRequestBytes: number;
  /** undefined: off */
  readonly requests: SlidingWindow | undefined;
  readonly probes: SlidingWindow | undefined;
  readonly identities: SlidingWindow | undefined;
}

/** Settings that follow the newest configuration. A reload that leaves the limits alone keeps their windows. */
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
    ...(old !== undefined && sameLimits(gateway, before?.gateway) ? windowsOf(old) : createWindows(gateway)),
  };
}

type Limits = Pick<Config["gateway"], "rate_limit_max" | "rate_limit_window_secs" | "rate_limit_per_identity">;
type Windows = Pick<GatewaySettings, "requests" | "probes" | "identities">;

function sameLimits(a: Limits, b: Limits | undefined): boolean {
  return a.rate_limit_max === b?.rate_limit_max && a.rate_limit_window_secs === b.rate_limit_window_secs &&
    a.rate_limit_per_identity === b.rate_limit_per_identity;
}

function windowsOf({ requests, probes, identities }: GatewaySettings): Windows {
  return { requests, probes, identities };
}

function createWindows(limits: Limits): Windows {
  const windowMs = limits.rate_limit_window_secs * 1000;
  const window = (max: number) => (max === 0 ? undefined : slidingWindow({ max, windowMs }));
  return {
    requests: window(limits.rate_limit_max),
    probes: window(limits.rate_limit_max),
    identities: window(limits.rate_limit_per_identity),
  };
}
