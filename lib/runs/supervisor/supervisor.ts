import { CancelError, type CancelReason, SHUTTING_DOWN } from "../../base/cancel.ts";
import { createIsoTime, type Timer, withTimeout } from "../../base/clock.ts";
import { createSharedWait, KeyedNotifier } from "../../base/keyed_queues.ts";
import type { Kit } from "../../base/kit.ts";
import { lazily, type Lazy } from "../../base/lazily.ts";
import { ProviderError, refuse } from "../../base/errors.ts";
import type { AgentEvent } from "../../base/records/agent_event.ts";
import { isAtWork, type Run, RUN_ID, type RunStatus, runStatusSchema } from "../../base/records/run.ts";
import type { Counter, Family } from "../../base/telemetry/metrics.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import { mayHaveBeenServed } from "../../providers/retry.ts";
import type { Providers } from "../../providers/provider.ts";
import { createPatience } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { followRun } from "../journal/follow_run.ts";
import { shownUpTo } from "../journal/run_records.ts";
import { type OnRecorded, type PatientRuns, RunStore } from "../journal/run_store.ts";
import { pruneRuns } from "../journal/stored_runs.ts";
import type { RecoverOptions } from "../recovery/recover_runs.ts";
import type {
  FollowOptions,
  ListRunsOptions,
  RunHandle,
  RunList,
  RunReach,
  RunRequest,
  RunReview,
  RunSupervisor,
} from "../run_request.ts";
import type { ActiveRun } from "./active_run.ts";
import { type AgentOf, noAgents } from "./agent_profile.ts";
import type { DayBudget } from "./day_budget.ts";
import { type ClusterMember, MEMBER_ALONE, type RunCoordination } from "./run_coordination.ts";
import { createActiveRuns, RunQueue } from "./run_queue.ts";
import type { RunApprovals, RunConfiguration } from "./launch_run.ts";
import type { RunGuidance } from "./run_settings.ts";
import type { RunStarter } from "./start_run.ts";

/** Services that runs need, and settings that a reload changes. */
export interface SupervisorOptions {
  readonly kit: Omit<Kit, "environment">;
  readonly store: Store;
  readonly providers: Providers;
  readonly tools: ToolExecutor;
  readonly configured: RunConfiguration;
  /** Returns the profile of the agent that `AskedAgent.name` names. Default: no agent is known. */
  readonly agentOf?: AgentOf;
  /** Returns the texts that a new run with tools of the agent begins with. Undefined: nothing to wait for. Default: there are none. */
  readonly guidance?: (() => Promise<RunGuidance> | undefined) | undefined;
  /** Default: nobody approves, and nothing waits for anybody */
  readonly approvals?: RunApprovals | undefined;
  /** Receives the end of each run that has tools or a record, one that stopped for a shutdown included. Must not throw. Default: nobody does. */
  readonly onRunEnd?: (runId: string) => void;
  /** Receives the events of each run, once: those on record, and at its end those of a run without a record. Must not throw. Default: nobody does. */
  readonly onEvents?: OnRecorded | undefined;
  /** Membership among the gateways of the database. Default: the gateway is alone */
  readonly cluster?: ClusterMember | undefined;
  /** Records the decision of a person about an interrupted run. Default: not recorded. */
  readonly audit?: AuditAppend;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** Time for runs that a drain has cancelled to write their last event. */
const SETTLE_MS = 2000;

/**
 * The run supervisor: everything that executes is a run started here (docs/design/runs.md "The loop").
 *
 * A run without conversation, effect and durability writes nothing. Metrics: postern_runs_total{status}, postern_runs_active.
 */
export class Supervisor implements RunSupervisor {
  readonly #options: SupervisorOptions;
  readonly #runs: RunStore;
  readonly #active = createActiveRuns<ActiveRun>();
  readonly #day: DayBudget;
  readonly #time: () => string;
  readonly #loadStarter: Lazy<Promise<RunStarter>>;
  /** Undefined before the first run. */
  #starter: RunStarter | undefined = undefined;
  readonly #recovery: RecoverOptions;
  readonly #ownership: ClusterMember["ownership"];
  readonly #cluster: RunCoordination;
  /** Wakes whoever waits for new events of a run, by its id. */
  readonly #news = new KeyedNotifier();
  /** Wakes whoever waits for the end of a run, by its id. */
  readonly #ends = new KeyedNotifier();
  readonly #waitForEnd = createSharedWait((id, signal) => this.#untilEnded(id, signal));
  readonly #ended: Family<Counter>;
  /** Reason for which no run is started any more. Undefined while runs are. */
  #draining: string | undefined = undefined;
  #pruning: Timer | undefined = undefined;
  /** Resolves when the last run at work has ended: a shutdown may begin while a drain of the cluster waits. */
  #idle: PromiseWithResolvers<void> | undefined = undefined;

  constructor(options: SupervisorOptions) {
    const { store, configured, approvals = {}, cluster = MEMBER_ALONE, kit: { clock, random, log, metrics } } = options;
    this.#options = options;
    this.#ownership = cluster.ownership;
    this.#runs = new RunStore(store, {
      onRecorded: options.onEvents,
      ownership: cluster.ownership,
      tellEnd: configured.tellEnd,
    });
    this.#day = cluster.toDayBudget({ store, clock, tokensPerDay: configured.tokensPerDay ?? (() => 0) });
    const time = createIsoTime(clock);
    this.#time = time;
    const statuses = runStatusSchema.options.filter((status) => !isAtWork(status));
    this.#ended = metrics.counter(
      "postern_runs_total",
      "Runs that ended, by status",
      ["status"],
      statuses.map((status) => [status]),
    );
    metrics.gaugeOf("postern_runs_active", "Runs at work or waiting for their slot", this.#active.size);
    const queue = new RunQueue(configured.limits, () => this.#cluster.lookForWaiting());
    // The whole agent comes with it
    this.#loadStarter = lazily(async () => {
      const { RunStarter } = await import("./start_run.ts");
      return this.#starter = new RunStarter({
        ...options,
        agentOf: options.agentOf ?? noAgents,
        kit: { clock, random, log, time },
        cluster: this.#cluster,
        supervised: { runs: this.#runs, active: this.#active, queue, day: this.#day, news: this.#news },
        events: (id, options) => this.#follow(id, { ...options, afterSeq: 0 }),
        cancel: (id, reason) => this.cancel(id, reason),
        draining: () => this.#draining,
        onEnd: (entry, status) => this.#onEnd(entry.id, status, entry.recorder !== undefined),
      });
    });
    this.#recovery = {
      runs: this.#runs,
      log,
      time,
      pendingApprovals: approvals.pendingApprovals ?? (() => Promise.resolve([])),
      withdraw: approvals.withdraw ?? (() => Promise.resolve()),
      onEnd: (id, status) => this.#onEnd(id, status),
      async giveBack(...given) {
        const { createConversations } = await import("../conversations/conversations.ts");
        await createConversations({ store, random }).giveBack(...given);
      },
      resume: async (interrupted) => await (await this.#loadStarter()).resume(interrupted),
    };
    this.#cluster = cluster.toRuns({
      runs: this.#runs,
      active: this.#active,
      queue,
      limits: configured.limits,
      hasRunBudget: () => configured.agent().tokensPerRun > 0,
      recovery: this.#recovery,
      news: this.#news,
      ends: this.#ends,
      cancel: (id) => this.cancel(id, "cancelled"),
      clock,
      random,
      log,
    });
  }

  start(request: RunRequest): Promise<RunHandle> {
    return this.#starter?.start(request) ?? this.#loadStarter().then((starter) => starter.start(request));
  }

  async spend<T extends { readonly tokens?: number | undefined }>(
    input: number,
    signal: AbortSignal,
    work: () => Promise<T>,
  ): Promise<T> {
    if (this.#draining !== undefined) throw refuse("shutting_down", `Cannot ask the model: ${this.#draining}`);
    const halted = this.#options.configured.halted?.();
    if (halted !== undefined) throw refuse("halted", `Cannot ask the model: ${halted}`);
    const reservation = await this.#day.reserve({ input, output: 1, signal });
    try {
      const result = await work();
      reservation.settle(result.tokens ?? input);
      return result;
    } catch (error) {
      // A reply with an error status says that nothing was made
      if (error instanceof ProviderError && !mayHaveBeenServed(error)) reservation.settle(0);
      else reservation.forfeit();
      throw error;
    }
  }

  get(id: string): Promise<Run | undefined> {
    return this.#find(id, this.#runs);
  }

  async #find(id: string, runs: Pick<PatientRuns, "get">): Promise<Run | undefined> {
    if (!RUN_ID.test(id)) return undefined;
    return (await runs.get(id)) ?? this.#active.find(id)?.view();
  }

  startedBy(id: string): ReturnType<RunSupervisor["startedBy"]> {
    return this.#runs.startedBy(id);
  }

  list(options: ListRunsOptions): Promise<RunList> {
    return this.#runs.list(options);
  }

  async follow(id: string, options: FollowOptions): ReturnType<RunSupervisor["follow"]> {
    if (!RUN_ID.test(id) || await this.#runs.get(id) === undefined) return undefined;
    return this.#follow(id, options);
  }

  followHere(id: string, options: FollowOptions): ReturnType<RunSupervisor["followHere"]> {
    if (this.#active.find(id)?.recorder === undefined) return undefined;
    const { clock } = this.#options.kit;
    return followRun(id, {
      ...options,
      clock,
      runs: this.#runs,
      news: this.#news,
      find: this.#active.find,
    });
  }

  async reach(id: string): Promise<RunReach | undefined> {
    const run = RUN_ID.test(id) ? await this.#runs.get(id) : undefined;
    if (run === undefined) return undefined;
    const recorded = await this.#runs.lastSeq(id);
    const eventsFollow = isAtWork(run.status);
    const reached = this.#active.find(id)?.recorder?.reached() ?? (eventsFollow ? shownUpTo(recorded) : 0);
    return { recorded, furthest: Math.max(recorded, reached), eventsFollow };
  }

  ended(id: string, signal: AbortSignal): Promise<Run | undefined> {
    return this.#waitForEnd(id, signal);
  }

  /** Waits for the end of a run, for all who wait for it: a run elsewhere costs one look a second. */
  async #untilEnded(id: string, signal: AbortSignal): Promise<Run | undefined> {
    const { clock } = this.#options.kit;
    let runs: Pick<PatientRuns, "get"> = this.#runs;
    for (;;) {
      // Listen before the look, so that no end falls between
      const listening = this.#ends.listen(id, signal);
      try {
        const run = await this.#find(id, runs);
        if (run === undefined || !isAtWork(run.status)) return run;
        // Whoever waits already goes on waiting while the store is down
        if (runs === this.#runs) runs = this.#runs.patient(createPatience({ clock, signal }));
        if (this.#draining !== undefined && this.#active.find(id) === undefined) throw new CancelError("shutdown");
        await this.#cluster.news(listening.heard);
      } finally {
        listening.stop();
      }
    }
  }

  async cancel(id: string, reason: CancelReason): Promise<boolean> {
    const entry = this.#active.find(id);
    if (entry?.signal.aborted || !RUN_ID.test(id)) return false;
    // On disk before the answer: a cancelled run stays cancelled whatever happens next
    const isNoted = entry?.durable === false || await this.#runs.cancel(id);
    if (isNoted) entry?.abort(new CancelError(reason));
    if (isNoted && entry === undefined) await this.#cluster.cancelElsewhere(id);
    // Before the answer too: the owner of the run may die before it cancels its sub-agents
    if (isNoted && entry?.durable !== false) await this.#cluster.cancelChildren(id);
    return isNoted;
  }

  stopHalted(): void {
    const { configured } = this.#options;
    for (const entry of [...this.#active.all()]) {
      const halted = configured.halted?.(entry.id);
      if (halted !== undefined) entry.haltFor(halted);
    }
  }

  active(): number {
    return this.#active.size();
  }

  runIn(conversationId: string): string | undefined {
    const runs = this.#active.all().filter((entry) => entry.conversationId === conversationId);
    return (runs.find(({ startedAt }) => startedAt !== null) ?? runs[0])?.id;
  }

  async resolve(id: string, review: RunReview): Promise<Run> {
    const halted = this.#options.configured.halted?.(id);
    if (review.action === "resume" && halted !== undefined) throw refuse("halted", `Cannot resume the run: ${halted}`);
    const { resolveRun } = await import("../recovery/review_run.ts");
    if (review.action === "resume" && review.outcome === "not_done") await this.#cluster.checkAgain(id);
    return await resolveRun(id, review, {
      runs: this.#runs,
      time: this.#time,
      audit: this.#options.audit,
      ownership: this.#ownership,
      giveBack: this.#recovery.giveBack,
      resume: (interrupted) => this.#cluster.goOn(interrupted),
    });
  }

  async recover(): Promise<void> {
    await this.#cluster.start();
    await this.#prune();
    this.#pruning = this.#options.kit.clock.every(DAY_MS, () => void this.#prune());
  }

  async drain(graceMs: number, reason: string = SHUTTING_DOWN): Promise<void> {
    this.#draining = reason;
    this.#pruning?.clear();
    await this.#cluster.stop();
    // Durable work goes on at the next start. It stops after its last finished step, and before the grace in the middle of no effect.
    // An answer that somebody reads may be said to its end, as attached work may
    for (const entry of this.#active.all().filter(({ durable, isRead }) => durable && !isRead)) {
      entry.stopsForShutdown = true;
      if (entry.effectsAtWork === 0) entry.abort(new CancelError("shutdown"));
    }
    await this.#waitForIdle(graceMs);
    for (const entry of this.#active.all()) entry.abort(new CancelError("shutdown"));
    await this.#waitForIdle(SETTLE_MS);
    await this.#day.close();
    await this.#cluster.settle();
  }

  async #waitForIdle(ms: number): Promise<void> {
    if (this.#active.size() === 0) return;
    this.#idle ??= Promise.withResolvers();
    await withTimeout(this.#idle.promise, { ms, clock: this.#options.kit.clock });
  }

  #follow(id: string, options: FollowOptions): AsyncIterable<readonly AgentEvent[]> {
    return followRun(id, {
      ...options,
      clock: this.#options.kit.clock,
      runs: this.#runs,
      news: this.#news,
      find: this.#active.find,
      watches: this.#cluster.watches,
    });
  }

  /**
   * @param status undefined: stopped for a shutdown
   * @param hasTraces false for a run without tools and without a record: there is nothing to end but itself, and no journal to follow
   */
  #onEnd(id: string, status: RunStatus | undefined, hasTraces = true): void {
    if (status !== undefined) this.#ended.with(status).add();
    if (hasTraces) {
      this.#options.onRunEnd?.(id);
      if (status === "cancelled") void this.#cluster.cancelChildren(id);
      this.#news.wake(id);
    }
    this.#ends.wake(id);
    if (this.#active.size() > 0) return;
    this.#idle?.resolve();
    this.#idle = undefined;
  }

  async #prune(): Promise<void> {
    const { store, kit: { clock, log } } = this.#options;
    const days = this.#options.configured.retentionDays?.() ?? 0;
    if (days === 0) return;
    try {
      const pruned = await pruneRuns(store, new Date(clock.now() - days * DAY_MS).toISOString());
      if (pruned > 0) log.info("Old runs were forgotten", { runs: pruned });
    } catch (error) {
      log.error("Old runs could not be forgotten", { error });
    }
  }
}
