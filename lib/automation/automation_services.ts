import type { Scope } from "../base/records/caller.ts";
import type { Clock } from "../base/clock.ts";
import { lazyStartedService } from "../base/lazily.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import type { Config } from "../config/config.ts";
import { resolvePath } from "../config/folders.ts";
import type { Approvals } from "../guard/approvals.ts";
import type { TaintedFiles } from "../guard/tainted_files.ts";
import type { RunSupervisor } from "../runs/run_request.ts";
import type { Documents } from "../storage/documents.ts";
import type { Store } from "../storage/store.ts";
import type { Files } from "../system/files/files.ts";
import type { GuardedFetch } from "../system/net/guarded_fetch.ts";
import type { ToolExecutor } from "../tools/runtime/tool_executor.ts";
import type { ScheduleSharing, SharedSchedulesOptions } from "./cron/shared_schedules.ts";
import type { MakeWork } from "./work_part.ts";
import { OPEN_DELIVERIES } from "./channels/delivery_record.ts";
import type { Deliveries } from "./channels/delivery_service.ts";
import type { ReplyTarget } from "./channels/deliver_reply.ts";
import type { Cron } from "./cron/cron_service.ts";
import { SCHEDULES } from "./cron/schedule_record.ts";
import { OPEN_SOPS } from "./sops/execution_record.ts";
import type { SopService } from "./sops/sop_service.ts";

/** Owners of the work that starts by itself, where other gateways have the same schedules, procedures and deliveries. */
export interface AutomationCluster {
  /** Makes the part of this gateway in a kind of work. Undefined: all of it is this gateway's */
  readonly work: MakeWork | undefined;
  /** Opens the sharing of the schedules. Undefined: nobody else has them */
  shareSchedules(
    parts: Omit<SharedSchedulesOptions, "bus" | "read">,
  ): ScheduleSharing | undefined | Promise<ScheduleSharing>;
  /** Tells whether a collection of open work may have some, now or later without a word to this gateway. */
  mayFind(collection: string): boolean | Promise<boolean>;
  /** Returns a part that belongs to a gateway alone. Undefined: others would change it too */
  ownOnly<T>(part: T): T | undefined;
}

/** Options of `createAutomationServices`. */
export interface AutomationServicesOptions {
  readonly store: Store;
  readonly documents: Documents;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** The newest configuration. */
  readonly config: () => Config;
  readonly environment: (name: string) => string | undefined;
  readonly approvals: Approvals;
  readonly files: Files;
  /** Returns the guarded fetch, which is loaded at the first call. */
  readonly guardedFetch: () => Promise<GuardedFetch>;
  /** Scopes that a token has now. undefined: the token does not count any more */
  readonly scopesOf: (tokenId: string | null) => readonly Scope[] | undefined | Promise<readonly Scope[] | undefined>;
  /** Returns the tools of the gateway, which are made later. */
  readonly tools: () => ToolExecutor;
  /** Returns the run supervisor, which is made later. Undefined: there is no agent, or not yet */
  readonly runs: () => RunSupervisor | undefined;
  readonly cluster: AutomationCluster;
  /** Files that outside content reached. */
  readonly taintedFiles: TaintedFiles;
  /** Absolute path */
  readonly workspaceRoot: string;
  /** Absolute path */
  readonly dataDir: string;
  /** The user's home folder, absolute. */
  readonly home: string;
}

/** Everything that starts by itself. Each service is loaded at its first use, or at the start when there is work for it. */
export interface AutomationServices {
  readonly cron: Cron;
  readonly sops: SopService;
  /** Deliveries of replies to the `reply_url` of a channel. */
  readonly deliveries: Deliveries;
  /**
   * Lets the services work by themselves; once, when the supervisor can be reached.
   * @param options.recover recovers the interrupted runs: after the runs that were being cancelled, and before anything starts
   */
  start(options: { readonly recover: () => Promise<void>; readonly opened: OpenedList }): Promise<void>;
  /** Follows a change of `[cron]`. */
  followCron(before: Config["cron"], next: Config["cron"]): void;
}

/** Creates schedules, procedures and deliveries. Loads none of them. */
export function createAutomationServices(options: AutomationServicesOptions): AutomationServices {
  const { store, log } = options;
  const cron = createLazyCron(options);
  const sops = createLazySops(options);
  const deliveries = createLazyDeliveries(options);
  return {
    cron,
    sops,
    deliveries,
    async start({ recover, opened }) {
      for (const service of [deliveries, cron, sops]) opened.own(service, (started) => started.stop());
      if (await store.count(OPEN_SOPS) > 0) await sops.stopCancelled();
      await recover();
      cron.start().catch((error) => log.error("Schedules could not be started", { error }));
      deliveries.start().catch((error) => log.error("Open replies to channels could not be continued", { error }));
      sops.start().catch((error) => log.error("Open procedures could not be continued", { error }));
    },
    followCron(before, { enabled, timezone }) {
      if (timezone !== before.timezone) {
        void tellZone(options, { timezone, before: before.timezone });
      }
      if (enabled === before.enabled) return;
      const changed = enabled ? cron.start() : cron.stop();
      changed.catch((error) => log.error("Schedules could not be started or stopped", { error }));
    },
  };
}

/** Tells which schedules keep another time zone than new ones get. Never throws. @param before see `followZone` of `kept_zones.ts` */
async function tellZone(
  { store, log, documents, cluster }: AutomationServicesOptions,
  zones: { readonly timezone: string; readonly before?: string },
): Promise<void> {
  try {
    const { followZone } = await import("./cron/kept_zones.ts");
    await followZone({ store, log, documents: cluster.ownOnly(documents), ...zones });
  } catch (error) {
    log.error("Cannot tell which schedules keep their time zone", { error });
  }
}

function createLazyCron(options: AutomationServicesOptions): Cron {
  const { config } = options;
  return lazyStartedService(async () => {
    const [{ createCron }, sharing] = await Promise.all([
      import("./cron/cron_service.ts"),
      options.cluster.shareSchedules(options),
    ]);
    return createCron({
      ...options,
      sharing,
      onStart: () => tellZone(options, { timezone: config().cron.timezone }),
      settings: () => ({ ...config().cron, maxTasks: config().cron.max_tasks }),
    });
  }, {
    methods: ["add", "update", "remove", "pause", "resume", "list", "get", "page", "history", "run"],
    isNeeded: async () => config().cron.enabled && await options.cluster.mayFind(SCHEDULES.name),
  });
}

function createLazySops(options: AutomationServicesOptions): SopService {
  const { config, workspaceRoot, home } = options;
  const settings = () => ({
    dirs: config().sops.dirs.map((path) => resolvePath(path, workspaceRoot, home)),
    approvalTimeoutMs: config().sops.approval_timeout_secs * 1000,
    forbiddenPaths: config().autonomy.forbidden_paths,
    retentionDays: config().runs.retention_days,
  });
  return lazyStartedService(async () => {
    const { createSops } = await import("./sops/sop_service.ts");
    return createSops({ ...options, work: options.cluster.work, settings });
  }, {
    methods: ["list", "execute", "status", "advance", "cancel", "approve", "stopCancelled"],
    isNeeded: async () => await options.cluster.mayFind(OPEN_SOPS),
  });
}

function createLazyDeliveries(options: AutomationServicesOptions): Deliveries {
  const { config } = options;
  const targetOf = (name: string) => replyTarget(config().channels, name);
  const service = lazyStartedService(async () => {
    const { createDeliveries } = await import("./channels/delivery_service.ts");
    return createDeliveries({
      ...options,
      work: options.cluster.work,
      fetch: options.guardedFetch,
      targetOf,
      rules: () => config().url_access,
      retentionDays: () => config().runs.retention_days,
    });
  }, {
    methods: ["promise", "watch", "page", "resolve"],
    isNeeded: async () => await options.cluster.mayFind(OPEN_DELIVERIES),
  });
  return {
    ...service,
    // A channel without a reply_url loads nothing
    promise: async (reply) => targetOf(reply.channel) === undefined ? undefined : await service.promise(reply),
  };
}

function replyTarget(channels: Config["channels"], name: string): ReplyTarget | undefined {
  const channel = Object.hasOwn(channels, name) ? channels[name] : undefined;
  if (channel === undefined || channel.reply_url === "") return undefined;
  return { url: channel.reply_url, secretEnv: channel.secret_env };
}
