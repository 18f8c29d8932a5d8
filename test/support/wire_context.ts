import { createConnections } from "../../handlers/connections.ts";
import type { RequestContext, RunClaim } from "../../handlers/route.ts";
import { lazily } from "../../lib/base/lazily.ts";
import type { Config } from "../../lib/config/config.ts";
import type { Scope } from "../../lib/base/records/caller.ts";
import type { GatewayState } from "../../lib/base/records/gateway_status.ts";
import { Webhooks } from "../../lib/automation/channels/webhooks.ts";
import type { Services } from "../../lib/services.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { createLogger } from "../../lib/base/telemetry/log.ts";
import { createApprovals } from "../../lib/guard/create_approvals.ts";
import type { RunSupervisor } from "../../lib/runs/run_request.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import type { ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import { createFakeAudit } from "./fake_audit.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";
import { createSeededRandom } from "./seeded_random.ts";

export interface WireContextOptions {
  /** undefined: no agent is configured */
  readonly runs: RunSupervisor | undefined;
  readonly clock?: FakeClock;
  readonly config?: unknown;
  readonly store?: Store;
  readonly environment?: Readonly<Record<string, string>>;
  readonly params?: Readonly<Record<string, string>>;
  /** Aborted, it stands for a client that has gone */
  readonly controller?: AbortController;
  readonly scopes?: readonly Scope[];
  readonly state?: GatewayState;
  /** Names of enabled tools of the agent */
  readonly tools?: readonly string[];
  /** Default: no channel has a `reply_url` */
  readonly deliveries?: Pick<Services["deliveries"], "promise" | "watch">;
}

/** A handler's context without a router: what the wire handlers read is real, the rest throws when touched. */
export function createWireContext(request: Request, options: WireContextOptions): RequestContext {
  const clock = options.clock ?? createFakeClock();
  const log = createLogger({ level: "error", now: clock.now, sink: () => {}, redact: (text) => text });
  const random = createSeededRandom();
  const store = createMemoryStore();
  const metrics = createMetrics();
  const services: Partial<Services> = {
    onDrain: () => {},
    clock,
    random,
    log,
    metrics,
    approvals: createApprovals({ store, clock, random, log, metrics, audit: createFakeAudit(store).append }),
    config: () => (options.config ?? {}) as Config, // only the sections the test gives are read
    agent: options.runs === undefined ? undefined : { runs: options.runs, providers: undefined as never },
    webhooks: lazily(() => {
      const { deliveries = { promise: () => Promise.resolve(undefined), watch: () => Promise.resolve() } } = options;
      const config = () => (options.config ?? {}) as Config; // its channels alone are read
      const environment = (name: string) => options.environment?.[name];
      return Promise.resolve(
        new Webhooks({ clock, log, deliveries, config, environment, store: options.store ?? store }),
      );
    }),
    tokens: {
      isLive: () => true,
      confirm: () => undefined,
      standing: () => ({ isConfirmed: true }),
      use: () => true,
      onRevoke: () => {},
    } as unknown as Services["tokens"],
    // Only `get` is asked
    tools: {
      get: (name: string) => (options.tools?.includes(name) ? { name, enabled: true } : undefined),
    } as unknown as ToolExecutor,
    isDraining: () => options.state === "draining",
    stateReason: () => undefined,
  };
  const controller = options.controller ?? new AbortController();
  let body: Promise<Uint8Array> | undefined;
  const whole = services as Services; // the services that are missing are not used by these handlers
  const { mcp, sockets, followers } = createConnections(whole, () => Promise.reject(new TypeError("There is no MCP")));
  return {
    services: Object.assign(whole, { mcp, sockets, followers }),
    Response,
    identity: { tokenId: "tok_1", scopes: options.scopes ?? ["chat"] },
    params: options.params ?? {},
    requestId: "req_test",
    path: new URL(request.url).pathname,
    remoteAddress: "127.0.0.1",
    controller,
    signal: controller.signal,
    claim: request.headers.has("idempotency-key") ? createFakeClaim() : undefined,
    query: new URL(request.url).searchParams,
    ignored: [],
    replyHeaders: {},
    wantsMessagesForm: false,
    built: undefined,
    body: () => (body ??= request.arrayBuffer().then((bytes) => new Uint8Array(bytes))),
  };
}

/** A hold on a run that nobody looks for. */
function createFakeClaim(): RunClaim {
  return {
    shows: () => {},
    reopen: () => {},
    write: (runId) => ({ op: "insert", collection: "claims", key: runId, body: { v: 1 } }),
    wasTold: () => false,
    tell: () => Promise.resolve(),
  };
}
