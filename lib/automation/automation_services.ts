import { unconfirmed } from "../access/identity.ts";
import type { Tokens } from "../access/tokens.ts";
import type { Kit } from "../base/kit.ts";
import { type LateService, lazily, lazilyStarted } from "../base/lazily.ts";
import { defineWing, type OpenedList } from "../base/opened_list.ts";
import type { Scope } from "../base/records/caller.ts";
import type { Run } from "../base/records/run.ts";
import type { Redactor } from "../base/redact.ts";
import type { Config } from "../config/config.ts";
import { resolvePath } from "../config/folders.ts";
import type { Approvals, Told } from "../guard/approvals.ts";
import type { GuardServices } from "../guard/guard_services.ts";
import type { Halts } from "../guard/halts.ts";
import type { TaintedFiles } from "../guard/tainted_files.ts";
import type { RunSupervisor } from "../runs/run_request.ts";
import type { Documents } from "../storage/documents.ts";
import type { Store } from "../storage/store.ts";
import type { SystemServices } from "../system/system_services.ts";
import type { ToolExecutor } from "../tools/runtime/tool_executor.ts";
import type { SharedSchedulesOptions } from "./cron/shared_schedules.ts";
import type { MakeWork } from "./work_part.ts";
import { OPEN_DELIVERIES } from "./channels/delivery_record.ts";
import type { Deliveries } from "./channels/delivery_service.ts";
import type { Webhooks } from "./channels/webhooks.ts";
import type { ReplyTarget } from "./channels/send_delivery.ts";
import type { NewAlert } from "./notify/alert_work.ts";
import type { Cron, ScheduleSharing } from "./cron/cron_service.ts";
import { sendsAnswerLinks, tellsOfApprovals } from "../config/schema/notify.ts";
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
  /** Tells whether a collection of open work may have some, now or later without a note to this gateway. */
  mayHaveWork(collection: string): boolean | Promise<boolean>;
  /** Returns the documents that this gateway alone reads and writes. Where others would change them too, nothing is kept */
  ownDocuments(documents: Documents): Documents;
}

/** Needs of `automationWing`. */
export interface AutomationNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly storage: { readonly store: Store; readonly documents: Documents };
  /** Absolute paths. */
  readonly folders: { readonly workspaceRoot: string; readonly dataDir: string; readonly home: string };
  readonly guard:
    & { readonly approvals: Approvals; readonly halts: Halts; readonly taintedFiles: TaintedFiles }
    & Pick<GuardServices, "answerLinks" | "tellOfApprovals">;
  readonly program: { readonly environment: Readonly<Record<string, string | undefined>> };
  /** Masks secrets in messages. */
  readonly telemetry: { readonly redactor: Pick<Redactor, "redact"> };
  readonly access: { readonly tokens: Pick<Tokens, "confirm" | "scopesOf" | "standing"> };
  readonly system: Pick<SystemServices, "files" | "guardedFetch" | "commands">;
  /** Tools and runs of the gateway, which are made later. */
  readonly work: { readonly tools: () => ToolExecutor; readonly runs: () => RunSupervisor | undefined };
  readonly cluster: AutomationCluster;
}

/** Everything that starts by itself. Each service is loaded at its first use, or at the start when there is work for it. */
export interface AutomationServices {
  readonly cron: Cron;
  readonly sops: SopService;
  /** Deliveries of replies to the `reply_url` of a channel, and of messages of `[[notify]]`. */
  readonly deliveries: Deliveries;
  /** Returns what tells people of the end of a run. Never rejects. */
  readonly tellOfRun: (run: Run) => Promise<Told | undefined>;
  /** Messages of channels. Loaded at the first. */
  readonly webhooks: () => Promise<Webhooks>;
  /** Follows a change of `[cron]`. */
  followCron(before: Config["cron"], next: Config["cron"]): void;
}

/** Schedules, procedures and replies to channels: all that starts by itself. */
export const automationWing = defineWing({ name: "automation", start: createAutomation });

/** Creates schedules, procedures and deliveries. Loads none of them. */
function createAutomation(needs: AutomationNeeds): AutomationServices {
  const { log } = needs.kit;
  const cron = createLazyCron(needs);
  const sops = createLazySops(needs);
  const deliveries = createLazyDeliveries(needs);
  const tell = async (about: (texts: typeof import("./notify/alert_texts.ts")) => NewAlert | undefined) => {
    if (needs.config().notify.length === 0) return undefined;
    try {
      const alert = about(await import("./notify/alert_texts.ts"));
      if (alert === undefined) return undefined;
      const { redact } = needs.telemetry.redactor;
      return await deliveries.alert({ ...alert, title: redact(alert.title), text: redact(alert.text) });
    } catch (error) {
      // The approval waits, or the run has ended, also where nobody can be told
      log.error("Nobody could be told of an approval or of the end of a run", { error });
      return undefined;
    }
  };
  needs.guard.tellOfApprovals((...given) => tell((texts) => texts.approvalAlert(...given)));
  const { askers } = needs.guard.approvals;
  const { environment } = needs.kit;
  askers.add({
    name: "a rule of [[notify]] for approvals",
    isOpen: () => tellsOfApprovals(needs.config(), environment),
  });
  askers.add({ name: "an answer link", isOpen: () => sendsAnswerLinks(needs.config(), environment) });
  return {
    cron,
    sops,
    deliveries,
    tellOfRun: (run) => tell((texts) => texts.runAlert(run)),
    webhooks: lazily(async () => {
      const { Webhooks } = await import("./channels/webhooks.ts");
      return new Webhooks({ ...needs.kit, store: needs.storage.store, config: needs.config, deliveries });
    }),
    followCron(before, { enabled, timezone }) {
      if (timezone !== before.timezone) {
        void tellZone(needs, { timezone, before: before.timezone });
      }
      if (enabled === before.enabled) return;
      const changed = enabled ? cron.start() : cron.stop();
      changed.catch((error) => log.error("Schedules could not be started or stopped", { error }));
    },
  };
}

/** Needs of `recoveryWing`. */
export interface RecoveryNeeds {
  readonly kit: Pick<Kit, "log">;
  readonly storage: { readonly store: Store };
  readonly automation: Pick<AutomationServices, "cron" | "sops" | "deliveries">;
  /** Undefined: no agent runs here, and nothing starts by itself */
  readonly runs: Pick<RunSupervisor, "recover"> | undefined;
}

/** Recovery of interrupted runs, from which on everything works by itself. */
export const recoveryWing = defineWing({ name: "recovery", start: recover });

/** Recovers the interrupted runs: after those of procedures that were being cancelled, and before anything starts. */
async function recover(needs: RecoveryNeeds, opened: OpenedList): Promise<void> {
  const { kit: { log }, storage: { store }, automation: { cron, sops, deliveries }, runs } = needs;
  if (runs === undefined) return;
  for (const service of [deliveries, cron, sops]) opened.own(service, (started) => started.stop());
  if (await store.count(OPEN_SOPS.name) > 0) await sops.stopCancelled();
  await runs.recover();
  cron.start().catch((error) => log.error("Schedules could not be started", { error }));
  deliveries.start().catch((error) => log.error("Open replies to channels could not be continued", { error }));
  sops.start().catch((error) => log.error("Open procedures could not be continued", { error }));
}

/** Returns the function that tells the scopes which a token has now. Undefined: the token does not count any more */
function scopesOf({ access: { tokens } }: AutomationNeeds) {
  return async (tokenId: string | null): Promise<readonly Scope[] | undefined> => {
    await tokens.confirm({ tokenId });
    const scopes = tokens.scopesOf(tokenId);
    // Another gateway may have made the token just now
    if (scopes === undefined && !tokens.standing().isConfirmed) throw unconfirmed();
    return scopes;
  };
}

/** Tells which schedules keep another time zone than new ones get. Never throws. @param before see `followZone` of `kept_zones.ts` */
async function tellZone(
  { kit: { log }, storage: { store, documents }, cluster }: AutomationNeeds,
  zones: { readonly timezone: string; readonly before?: string },
): Promise<void> {
  try {
    const { followZone } = await import("./cron/kept_zones.ts");
    await followZone({ store, log, documents: cluster.ownDocuments(documents), ...zones });
  } catch (error) {
    log.error("Cannot tell which schedules keep their time zone", { error });
  }
}

function createLazyCron(needs: AutomationNeeds): Cron {
  const { kit: { clock, random, log }, config, storage: { store }, work: { tools, runs }, cluster } = needs;
  const load = async () => {
    const [{ CronService }, sharing] = await Promise.all([
      import("./cron/cron_service.ts"),
      cluster.shareSchedules({ store, clock, log }),
    ]);
    return new CronService({
      ...{ store, clock, random, log, tools, runs, sharing },
      scopesOf: scopesOf(needs),
      onStart: () => tellZone(needs, { timezone: config().cron.timezone }),
      settings: () => ({ ...config().cron, maxTasks: config().cron.max_tasks }),
    });
  };
  const isNeeded = async () => config().cron.enabled && await cluster.mayHaveWork(SCHEDULES.name);
  return lateCron(lazilyStarted(load, isNeeded));
}

/** Returns the schedules, which are loaded at their first use. */
export function lateCron({ load, start, stop }: LateService<Cron>): Cron {
  return {
    start,
    stop,
    add: async (...given) => await (await load()).add(...given),
    update: async (...given) => await (await load()).update(...given),
    remove: async (...given) => await (await load()).remove(...given),
    pause: async (...given) => await (await load()).pause(...given),
    resume: async (...given) => await (await load()).resume(...given),
    list: async (...given) => await (await load()).list(...given),
    get: async (...given) => await (await load()).get(...given),
    page: async (...given) => await (await load()).page(...given),
    history: async (...given) => await (await load()).history(...given),
    run: async (...given) => await (await load()).run(...given),
  };
}

function createLazySops(needs: AutomationNeeds): SopService {
  const { kit, config, storage: { store }, folders, guard, system, work, cluster } = needs;
  const { workspaceRoot, dataDir, home } = folders;
  const settings = () => ({
    dirs: config().sops.dirs.map((path) => resolvePath(path, workspaceRoot, home)),
    approvalTimeoutMs: config().sops.approval_timeout_secs * 1000,
    forbiddenPaths: config().autonomy.forbidden_paths,
    retentionDays: config().runs.retention_days,
  });
  const isNeeded = async () => await cluster.mayHaveWork(OPEN_SOPS.name);
  const { load, start, stop } = lazilyStarted(async () => {
    const { ProcedureService } = await import("./sops/sop_service.ts");
    const { approvals, taintedFiles } = guard;
    return new ProcedureService({
      ...{ kit, store, approvals, taintedFiles, workspaceRoot, dataDir, settings },
      work: cluster.work,
      files: system.files,
      scopesOf: scopesOf(needs),
      tools: work.tools,
      runs: work.runs,
    });
  }, isNeeded);
  return {
    start,
    stop,
    list: async (...given) => await (await load()).list(...given),
    execute: async (...given) => await (await load()).execute(...given),
    status: async (...given) => await (await load()).status(...given),
    advance: async (...given) => await (await load()).advance(...given),
    cancel: async (...given) => await (await load()).cancel(...given),
    approve: async (...given) => await (await load()).approve(...given),
    stopCancelled: async (...given) => await (await load()).stopCancelled(...given),
  };
}

function createLazyDeliveries(needs: AutomationNeeds): Deliveries {
  const {
    kit: { clock, random, log, metrics, environment },
    config,
    program,
    folders: { home },
    storage: { store },
    guard,
    system,
    work,
    cluster,
  } = needs;
  const targetOf = (name: string) => replyTarget(config().channels, name);
  const { load, start, stop } = lazilyStarted(async () => {
    const [{ DeliveryService }, { createAlertWork }] = await Promise.all([
      import("./channels/delivery_service.ts"),
      import("./notify/alert_work.ts"),
    ]);
    const alerts = createAlertWork({
      ...{ store, clock, config },
      isPending: async (id) => (await guard.approvals.get(id))?.status === "pending",
      makeLink: async (id) => config().gateway.answer_links ? await (await guard.answerLinks()).make(id) : undefined,
      async run(words, input, signal) {
        const { runOwnCommand } = await import("../system/process/own_command.ts");
        const { commands } = system;
        return await runOwnCommand({ words, home, environment: program.environment, commands, clock, signal, input });
      },
    });
    return new DeliveryService({
      alerts,
      notify: () => config().notify,
      ...{ store, clock, random, log, metrics, environment, targetOf },
      work: cluster.work,
      runs: work.runs,
      fetch: system.guardedFetch,
      halts: guard.halts,
      rules: () => config().url_access,
      retentionDays: () => config().runs.retention_days,
    });
  }, async () => await cluster.mayHaveWork(OPEN_DELIVERIES.name));
  return {
    start,
    stop,
    // A channel without a reply_url loads nothing
    promise: async (reply) => targetOf(reply.channel) === undefined ? undefined : await (await load()).promise(reply),
    watch: async (...given) => await (await load()).watch(...given),
    alert: async (alert) =>
      config().notify.some(({ events }) => events.includes(alert.event))
        ? await (await load()).alert(alert)
        : undefined,
    test: async (...given) => await (await load()).test(...given),
    page: async (...given) => await (await load()).page(...given),
    resolve: async (...given) => await (await load()).resolve(...given),
  };
}

function replyTarget(channels: Config["channels"], name: string): ReplyTarget | undefined {
  const channel = Object.hasOwn(channels, name) ? channels[name] : undefined;
  if (channel === undefined || channel.reply_url === "") return undefined;
  return { url: channel.reply_url, secretEnv: channel.secret_env };
}
