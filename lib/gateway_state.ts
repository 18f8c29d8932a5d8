import type { AutomationServices } from "./automation/automation_services.ts";
import { SHUTTING_DOWN } from "./base/cancel.ts";
import type { OpenedList } from "./base/opened_list.ts";
import type { Logger } from "./base/telemetry/log.ts";
import type { Config } from "./config/config.ts";
import type { Coordination } from "./coordination.ts";
import type { Extensions } from "./extensions/open_extensions.ts";
import type { GuardServices } from "./guard/guard_services.ts";
import type { RunEventFeed } from "./runs/journal/run_event_feed.ts";
import type { RunSupervisor } from "./runs/run_request.ts";
import type { GatewayState, ServicesOptions, SharedWorkspace } from "./services.ts";
import type { Store } from "./storage/store.ts";
import type { DrainableExecutor } from "./tools/runtime/drainable_executor.ts";

/** State of the gateway itself, which changes while it runs. */
export interface CurrentState {
  /** The newest configuration. */
  config: Config;
  /** Reason why the gateway takes no work any more, as the end of a sentence. Undefined: it does */
  draining: string | undefined;
}

/** Parts of a gateway that tell how it is. */
export interface GatewayHealth {
  readonly current: CurrentState;
  readonly store: Store;
  readonly guard: Pick<GuardServices, "audit">;
  readonly options: Pick<ServicesOptions, "logHealthy">;
  readonly cluster: Pick<Coordination, "lease" | "membership">;
}

/** Parts of a gateway that have work, which ends before the gateway does. */
export interface GatewayWork {
  readonly current: CurrentState;
  readonly automation: AutomationServices;
  readonly calls: DrainableExecutor;
  readonly extensions: Pick<Extensions, "nodes">;
  /** Undefined: no agent runs here */
  readonly runs: RunSupervisor | undefined;
  /** Undefined: the program wants no events */
  readonly feed: RunEventFeed | undefined;
}

/** Time for the program to take the last events of runs. Milliseconds */
const FEED_MS = 2_000;

/** Returns whether the gateway works, works in part, or ends. */
export function stateOf({ current, store, cluster, guard, options }: GatewayHealth): GatewayState {
  if (current.draining !== undefined) return "draining";
  if (!cluster.lease.mayAct()) return "degraded";
  if (cluster.membership()?.refusal() !== undefined) return "degraded";
  const isWhole = store.unreadable.count() === 0;
  const isLogged = options.logHealthy?.() ?? true;
  return store.healthy() && guard.audit.healthy() && isLogged && isWhole ? "ok" : "degraded";
}

/** Returns why the gateway is not "ok", as the end of a sentence. Undefined: it is, or its storage, audit or log is the reason */
export function stateReasonOf({ current, cluster }: Pick<GatewayHealth, "current" | "cluster">): string | undefined {
  if (current.draining !== undefined) return current.draining;
  if (!cluster.lease.mayAct()) {
    return "the lease in the cluster could not be renewed in time, so no effect begins until the database renews it";
  }
  const problem = cluster.membership()?.whyUnproven();
  return problem === undefined ? undefined : `it claims no run that needs its workspace: ${problem}`;
}

/** Returns the workspace that the gateway shares with others of its cluster. Undefined: it shares none */
export function sharedWorkspaceOf({ membership }: Pick<Coordination, "membership">): SharedWorkspace | undefined {
  const workspace = membership();
  if (workspace === undefined) return undefined;
  return { id: workspace.id, is_proven: workspace.proven() !== null, problem: workspace.whyUnproven() ?? null };
}

/** Takes no work any more, and ends what is at work. @param graceMs milliseconds that runs and calls may go on */
export async function drain(work: GatewayWork, graceMs: number): Promise<void> {
  work.current.draining = SHUTTING_DOWN;
  await endWork(work, graceMs);
  await work.feed?.close(FEED_MS);
}

async function endWork({ current, automation, runs, calls, extensions }: GatewayWork, graceMs: number): Promise<void> {
  const reason = current.draining;
  await automation.cron.stop();
  await automation.sops.stop();
  await Promise.all([runs?.drain(graceMs, reason), calls.drain(graceMs, reason)]);
  await automation.deliveries.stop();
  extensions.nodes?.close();
}

/** Waits for somebody to drain this gateway. The gateway then ends its work and goes on answering what needs none. */
export async function watchDrain(
  work: GatewayWork & {
    readonly cluster: Pick<Coordination, "id" | "watchDrain">;
    readonly guard: Pick<GuardServices, "audit">;
    readonly config: () => Config;
    readonly log: Logger;
    readonly opened: OpenedList;
    /** Told once that the gateway takes no work any more. */
    readonly drainListeners: readonly (() => void)[];
  },
): Promise<void> {
  const { cluster, current, drainListeners, config, log, opened, guard } = work;
  await cluster.watchDrain({
    ...{ log, opened },
    record: async (gateway, asked) =>
      void await guard.audit.append({ type: "cluster", action: "drain_begun", gateway, ...asked }),
    async letGo(reason) {
      current.draining ??= reason;
      for (const listener of drainListeners) listener();
      await endWork(work, config().gateway.shutdown_grace_secs * 1_000);
    },
  });
}
