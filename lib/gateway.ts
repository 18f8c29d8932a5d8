import type { Pairing, Tickets, Tokens } from "./access/identity.ts";
import type { Clock } from "./base/clock.ts";
import type { Random } from "./base/random.ts";
import type { Logger } from "./base/telemetry/log.ts";
import type { Metrics } from "./base/telemetry/metrics.ts";
import type { Config } from "./config/config.ts";
import type { Providers } from "./providers/provider.ts";
import type { RunSupervisor } from "./runs/run_request.ts";
import type { Store } from "./storage/store.ts";
import type { ToolDoor } from "./tools/runtime/tool_door.ts";

/** `draining` once a shutdown began, `degraded` while storage or log cannot be written (DESIGN.md section 2). */
export type GatewayState = "ok" | "degraded" | "draining";

/** What the handlers work with: every service of the gateway, built once and handed in. */
export interface Services {
  readonly version: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** The newest configuration; an immutable snapshot, so keep the reference for the length of one piece of work only */
  readonly config: () => Config;
  readonly store: Store;
  readonly tokens: Tokens;
  readonly pairing: Pairing;
  readonly tickets: Tickets;
  readonly tools: ToolDoor;
  /** undefined without agent configuration (`kind = "none"` or --no-agent): 503 agent_unavailable */
  readonly agent: { readonly providers: Providers; readonly runs: RunSupervisor } | undefined;
  /** Milliseconds since the epoch */
  readonly startedAt: number;
  readonly workspaceRoot: string;
  /** The environment variable a configuration key names, as `secret_env`; undefined when it is not set */
  readonly environment: (name: string) => string | undefined;
  state(): GatewayState;
}
