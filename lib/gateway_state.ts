import type { AutomationServices } from "./automation/automation_services.ts";
import { SHUTTING_DOWN } from "./base/cancel.ts";
import type { Kit } from "./base/kit.ts";
import { defineWing, type OpenedList } from "./base/opened_list.ts";
import type { GatewayState, HealthReply } from "./base/records/gateway_status.ts";
import { lazily } from "./base/lazily.ts";
import type { Redactor } from "./base/redact.ts";
import type { Config } from "./config/config.ts";
import { createReloads, type Reloads } from "./config/create_reloads.ts";
import { whyUndeliverable } from "./config/schema/notify.ts";
import { namedSecrets } from "./config/secrets.ts";
import type { Coordination } from "./coordination.ts";
import type { Extensions } from "./extensions/open_extensions.ts";
import type { GuardServices } from "./guard/guard_services.ts";
import type { OpenProviders } from "./providers/provider_services.ts";
import type { RunEventFeed } from "./runs/journal/run_event_feed.ts";
import type { RunSupervisor } from "./runs/run_request.ts";
import type { CurrentState, OwnFacts, ServicesOptions } from "./services.ts";
import type { Store } from "./storage/store.ts";
import type { SystemServices } from "./system/system_services.ts";
import type { DrainableExecutor } from "./tools/runtime/drainable_executor.ts";

/** Parts of a gateway that tell how it is. */
export interface GatewayHealth {
  readonly state: CurrentState;
  readonly storage: { readonly store: Store };
  readonly guard: Pick<GuardServices, "audit" | "halts">;
  readonly program: Pick<ServicesOptions, "log">;
  readonly cluster: Pick<Coordination, "lease" | "membership">;
}

/** Parts of a gateway that have work, which ends before the gateway does. */
export interface GatewayWork {
  readonly state: CurrentState;
  readonly automation: AutomationServices;
  readonly tools: DrainableExecutor;
  readonly extensions: Pick<Extensions, "nodes">;
  /** Undefined: no agent runs here */
  readonly runs: RunSupervisor | undefined;
  /** Undefined: the program wants no events */
  readonly feed: RunEventFeed | undefined;
}

/** Time for the program to take the last events of runs. Milliseconds */
const FEED_MS = 2_000;

/** Parts of a gateway that health and status tell of. */
export interface FactsParts extends GatewayHealth {
  readonly program: Pick<ServicesOptions, "log" | "about">;
  readonly folders: { readonly workspaceRoot: string };
  readonly kit: Pick<Kit, "clock" | "environment">;
  readonly config: () => Config;
  readonly cluster: Pick<Coordination, "lease" | "membership" | "shown">;
  readonly system: Pick<SystemServices, "containment">;
  readonly reloads: Pick<Reloads, "status">;
  /** Undefined: no agent runs here */
  readonly models: { readonly live: Pick<OpenProviders, "providers"> | undefined };
}

/** Creates what a gateway tells of itself. @param startedAt in ms since the epoch */
export function createFacts(parts: FactsParts, startedAt: number): OwnFacts {
  const { program: { about: { version } }, folders: { workspaceRoot } } = parts;
  const { kit: { clock, environment }, config, cluster: { shown, membership } } = parts;
  const { storage, system, reloads, models, guard: { halts } } = parts;
  const health = (): HealthReply => ({
    status: stateOf(parts),
    version,
    uptime_seconds: Math.max(0, Math.floor((clock.now() - startedAt) / 1000)),
    reason: shown && stateReasonOf(parts),
    halted: halts.list().length === 0 ? undefined : halts.refusalOfRun() === undefined ? "partly" : "all",
  });
  return {
    health,
    async status() {
      const { status, uptime_seconds, reason = null } = health();
      const shared = membership();
      return {
        ...{ status, version, started_at: new Date(startedAt).toISOString(), uptime_seconds, workspace: workspaceRoot },
        ...(shown === undefined
          ? {}
          : { cluster: { gateway: shown.id, gateways: shown.gatewaysFound() ?? null, reason } }),
        ...(shared === undefined ? {} : { shared_workspace: toShared(shared) }),
        halts: [...halts.list()],
        provider: models.live?.providers.inUse ?? null,
        containment: await system.containment(),
        notify_problems: notifyProblems(config().notify, environment),
        unreadable_records: [...storage.store.unreadable.list()],
        config: reloads.status(),
      };
    },
  };
}

/** Returns the rules of `[[notify]]` that cannot deliver anything now. */
function notifyProblems(rules: Config["notify"], environment: Kit["environment"]) {
  return rules.flatMap((rule) => {
    const reason = whyUndeliverable(rule, environment);
    return reason === undefined ? [] : [{ name: rule.name, reason }];
  });
}

/** Returns the workspace that the gateway shares with others of its cluster, as status shows it. */
function toShared(workspace: NonNullable<ReturnType<Coordination["membership"]>>) {
  return { id: workspace.id, is_proven: workspace.proven() !== null, problem: workspace.whyUnproven() ?? null };
}

/** Returns whether the gateway works, works in part, or ends. */
function stateOf({ state, storage: { store }, cluster, guard, program }: GatewayHealth): GatewayState {
  if (state.draining !== undefined) return "draining";
  if (!cluster.lease.mayAct()) return "degraded";
  if (cluster.membership()?.refusal() !== undefined) return "degraded";
  const isWhole = store.unreadable.count() === 0;
  const isLogged = program.log.isHealthy?.() ?? true;
  return store.healthy() && guard.audit.healthy() && isLogged && isWhole ? "ok" : "degraded";
}

/** Returns why the gateway is not "ok", as the end of a sentence. Undefined: it is, or its storage, audit or log is the reason */
export function stateReasonOf({ state, cluster }: Pick<GatewayHealth, "state" | "cluster">): string | undefined {
  if (state.draining !== undefined) return state.draining;
  if (!cluster.lease.mayAct()) {
    return "the lease in the cluster could not be renewed in time, so no effect begins until the database renews it";
  }
  const problem = cluster.membership()?.whyUnproven();
  return problem === undefined ? undefined : `it claims no run that needs its workspace: ${problem}`;
}

/** Takes no work any more, and ends what is at work. @param graceMs milliseconds that runs and calls may go on */
export async function drain(work: GatewayWork, graceMs: number): Promise<void> {
  work.state.draining = SHUTTING_DOWN;
  await endWork(work, graceMs);
  await work.feed?.close(FEED_MS);
}

async function endWork({ state, automation, runs, tools, extensions }: GatewayWork, graceMs: number): Promise<void> {
  const reason = state.draining;
  await automation.cron.stop();
  await automation.sops.stop();
  await Promise.all([runs?.drain(graceMs, reason), tools.drain(graceMs, reason)]);
  await automation.deliveries.stop();
  extensions.nodes?.close();
}

/** Needs of `drainWing`. */
export interface DrainNeeds extends GatewayWork {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly guard: Pick<GuardServices, "audit">;
  readonly cluster: Pick<Coordination, "watchDrain">;
}

/** Waits for somebody to drain this gateway. The gateway then ends its work and goes on answering what needs none. */
export const drainWing = defineWing({ name: "drain", start: watchDrain });

async function watchDrain(needs: DrainNeeds, opened: OpenedList): Promise<void> {
  const { cluster, state, config, kit: { log }, guard } = needs;
  await cluster.watchDrain({
    ...{ log, opened },
    async record(gateway, asked) {
      await guard.audit.append({ type: "cluster", action: "drain_begun", gateway, ...asked });
    },
    async letGo(reason) {
      state.draining ??= reason;
      for (const listener of state.drainListeners) listener();
      await endWork(needs, config().gateway.shutdown_grace_secs * 1_000);
    },
  });
}

/** Needs of `watchWing`. */
export interface WatchNeeds extends GatewayHealth {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly automation: Pick<AutomationServices, "deliveries">;
  readonly extensions: Pick<Extensions, "mcpOperator">;
}

/** Pause between two looks at what no record tells of. Milliseconds */
const WATCH_MS = 30_000;

/** Tells people by `[[notify]]` when the gateway is degraded, the budget nearly used, or a sign-in wanted. Loads nothing without rules. */
export const watchWing = defineWing({
  name: "watch",
  start(needs: WatchNeeds, opened) {
    const { kit: { clock, log }, config, storage: { store }, automation: { deliveries }, extensions, state } = needs;
    const today = () => new Date(clock.now()).toISOString().slice(0, 10);
    const load = lazily(async () => {
      const [{ createAlertWatch }, { BUDGET_DAYS }] = await Promise.all([
        import("./automation/notify/alert_watch.ts"),
        import("./runs/supervisor/day_budget.ts"),
      ]);
      return createAlertWatch({
        ...{ config, today },
        states: {
          degraded: () =>
            stateOf(needs) === "degraded" ? stateReasonOf(needs) ?? "See postern status and postern doctor" : undefined,
          async spent() {
            const { tokens = 0, leased = 0 } = (await BUDGET_DAYS.read(store, today()))?.value ?? {};
            return { day: today(), tokens: tokens - leased };
          },
          signIns: async () =>
            (await (await extensions.mcpOperator()).list()).flatMap(({ name, sign_in: { state } }) =>
              state === "needed" ? [name] : []
            ),
        },
        async tell(alert) {
          const told = await deliveries.alert(alert);
          // A key that is there was told of before, here or at another gateway
          if (told !== undefined && await store.batch(told.writes)) told.written();
        },
      });
    });
    const look = async () => {
      if (config().notify.length === 0 || state.draining !== undefined) return;
      try {
        await (await load())();
      } catch (error) {
        log.warn("Cannot look for what people are told of: the next look tries again", { error });
      }
    };
    const timer = clock.every(WATCH_MS, () => void look());
    opened.own(timer, (open) => open.clear());
  },
});

/** Needs of `haltWing`. */
export interface HaltNeeds {
  readonly kit: Pick<Kit, "log">;
  readonly guard: Pick<GuardServices, "halts">;
  readonly system: Pick<SystemServices, "processes" | "browsers">;
  /** Undefined: no agent runs here */
  readonly runs: Pick<RunSupervisor, "stopHalted"> | undefined;
}

/** Stops what goes on beside the calls once a person has halted it: runs, programs in the background, browsers. */
export const haltWing = defineWing({
  name: "halt",
  start({ kit: { log }, guard: { halts }, system: { processes, browsers }, runs }: HaltNeeds) {
    halts.onChange((halted) => {
      if (halted.length === 0) return;
      runs?.stopHalted();
      const isWide = halted.some(({ kind }) => kind === "all" || kind === "network" || kind === "writes");
      const ending = isWide
        ? [processes.endAll(), browsers.closeAll()]
        : [processes.endOf((tool, runId) => halts.refusalOf({ tool, access: "write", runId }) !== undefined)];
      Promise.all(ending).catch((error: unknown) => log.error("Some programs that are halted did not end", { error }));
    });
  },
});

/** Needs of `reloadsWing`. */
export interface ReloadsNeeds extends Pick<GatewayWork, "state" | "automation" | "tools" | "runs"> {
  readonly kit: Kit;
  readonly program: Pick<ServicesOptions, "environment">;
  readonly config: () => Config;
  readonly telemetry: { readonly redactor: Pick<Redactor, "add"> };
  readonly guard: Pick<GuardServices, "audit" | "recordTrust">;
  readonly models: { readonly live: Pick<OpenProviders, "prepare"> | undefined };
  readonly extensions: { readonly mcp: Pick<Extensions["mcp"], "follow"> };
}

/** Reloads of the configuration, which all wings follow. */
export const reloadsWing = defineWing({ name: "reloads", start: followConfig });

function followConfig(needs: ReloadsNeeds): Reloads {
  const { state, kit: { clock, log }, program, config, telemetry, guard, models, extensions, automation, tools } =
    needs;
  return createReloads({
    clock,
    log,
    running: config,
    record: ({ keys, needsRestart }) =>
      guard.audit.append({ type: "config", action: "taken_over", keys, needs_restart: needsRestart }),
    async prepare(next, { always }) {
      await guard.recordTrust();
      for (const [secret, name] of await namedSecrets(next, program.environment)) telemetry.redactor.add(secret, name);
      const useProviders = await models.live?.prepare(next, { always });
      const { warnOfIdleSettings } = await import("./tools/idle_settings.ts");
      return () => {
        const before = state.config;
        state.config = next;
        warnOfIdleSettings(next, { log, tools: tools.executor });
        useProviders?.();
        const isDraining = state.draining !== undefined;
        if (!isDraining) void extensions.mcp.follow();
        if (needs.runs !== undefined && !isDraining) automation.followCron(before.cron, next.cron);
      };
    },
  });
}
