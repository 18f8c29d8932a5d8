import type { AgentApprover, AgentRun } from "../agent/agent_run.ts";
import { createIsoTime } from "../agent/event_stamp.ts";
import { runAgent } from "../agent/run_agent.ts";
import { answerAllCalls, createSuspendedTurns } from "../agent/suspended_turns.ts";
import { CancelError, cancelError } from "../base/cancel.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { HttpError } from "../base/errors.ts";
import { isAtWork } from "../base/records/run.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import { createWaiters } from "../base/waiters.ts";
import type { Providers } from "../providers/provider.ts";
import type { Store } from "../storage/store.ts";
import type { ToolDoor } from "../tools/runtime/tool_door.ts";
import { type AgentOf, noAgents } from "./agent_profile.ts";
import { type ActiveRun, AttachedRun, durableHandle } from "./active_run.ts";
import { createActiveRuns } from "./active_runs.ts";
import type { ApprovableRun } from "./ask_person.ts";
import { createRunState } from "./apply_event.ts";
import { assembleMessages } from "./assemble_messages.ts";
import { budgetOf } from "./budget_of.ts";
import { createConversations } from "./conversations.ts";
import { createDayBudget } from "./day_budget.ts";
import { denyUnattended } from "./deny_unattended.ts";
import { followRun } from "./follow_run.ts";
import { pruneRuns } from "./prune_runs.ts";
import { recoverRuns } from "./recover_runs.ts";
import { createRunJournal } from "./run_journal.ts";
import { createRunQueue, type RunLimits } from "./run_queue.ts";
import { createRunRecorder, SEQ_WINDOW } from "./run_recorder.ts";
import type { RunSupervisor } from "./run_request.ts";
import { type AgentSettings, runSettings } from "./run_settings.ts";
import { createRunStore } from "./run_store.ts";
import { toRunInput } from "./to_run_input.ts";

export interface SupervisorOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly providers: Providers;
  readonly tools: ToolDoor;
  readonly agent: () => AgentSettings;
  readonly limits: () => RunLimits;
  /** What `RunRequest.agent` names. Default: nothing */
  readonly agentOf?: AgentOf;
  /** Shared by all runs; 0: no limit. Default 0 */
  readonly tokensPerDay?: () => number;
  /** Days an ended run is kept; 0 for ever. Default 0 */
  readonly retentionDays?: () => number;
  /** Answers the policy's asks for a run with tools. Default: denied at once with what would allow the call */
  readonly approverOf?: (run: ApprovableRun) => AgentApprover;
}

const DAY_MS = 24 * 60 * 60 * 1000;
const RUN_ID = /^run_[0-9a-z]{1,64}$/;

/** Runs that were cancelled at the end of a drain get this long to write their last event. */
const SETTLE_MS = 2000;

/**
 * The run supervisor: everything that executes is a run started here (DESIGN.md section 7).
 *
 * A run without conversation, effect and durability writes nothing. Metrics: postern_runs_total{status}, postern_runs_active.
 */
export function createSupervisor(options: SupervisorOptions): RunSupervisor {
  const { store, clock, random, log, metrics, providers, tools } = options;
  const runs = createRunStore(store);
  const conversations = createConversations({ store, random });
  const suspended = createSuspendedTurns(clock);
  const queue = createRunQueue(options.limits);
  const time = createIsoTime(clock);
  const active = createActiveRuns<ActiveRun>();
  const day = createDayBudget({ store, clock, tokensPerDay: options.tokensPerDay ?? (() => 0) });
  /** Of a run's events, and of its end */
  const news = createWaiters();
  const ends = createWaiters();
  const ended = metrics.counter("postern_runs_total", "Runs that ended, by status", ["status"]);
  metrics.gaugeOf("postern_runs_active", "Runs at work or waiting for their turn", active.size);
  let draining = false;
  let pruning: Timer | undefined;
  let onIdle = () => {};

  const prune = async () => {
    const days = options.retentionDays?.() ?? 0;
    if (days === 0) return;
    try {
      const pruned = await pruneRuns(store, new Date(clock.now() - days * DAY_MS).toISOString());
      if (pruned > 0) log.info("Old runs were forgotten", { runs: pruned });
    } catch (error) {
      log.error("Old runs could not be forgotten", { error });
    }
  };

  const get = async (id: string) => {
    if (!RUN_ID.test(id)) return undefined;
    return (await runs.get(id)) ?? active.find(id)?.view();
  };

  const follow = (id: string, options: { readonly afterSeq: number; readonly signal: AbortSignal }) =>
    followRun(id, { ...options, runs, news, find: active.find });

  return {
    async start(request) {
      if (draining) {
        throw new HttpError("shutting_down", "Cannot start the run: the gateway is shutting down", {
          status: 503,
          type: "api_error",
        });
      }
      const { agent } = request;
      const { provider, providerModel, model, limits, agentTools, passesOn, prompt } = runSettings(request, {
        settings: options.agent(),
        providers,
        tools,
        profile: agent === undefined ? undefined : await (options.agentOf ?? noAgents)(agent, request.model),
      });
      if (day.isSet() && request.call === undefined) await day.check();
      const conversationId = request.conversationId === undefined ? null : conversations.open(request.conversationId);
      const parentId = request.parentId ?? null;
      const parent = parentId === null ? undefined : active.find(parentId);
      const depth = request.depth ?? (parent === undefined ? 0 : parent.depth + 1);

      const id = random.id("run_");
      const controller = (request.durable ? undefined : request.controller) ?? new AbortController();
      const place = queue.enter({
        conversationId,
        isChild: parent !== undefined,
        isPlain: !request.durable && conversationId === null && request.agentTools === "none",
      });
      const createdAt = time();
      const accepted = () =>
        createRunState({
          id,
          kind: request.kind,
          created_at: createdAt,
          model,
          conversation_id: conversationId,
          parent_id: parentId,
        });
      let startedAt: string | null = null;
      const keeps = request.durable || conversationId !== null;
      const recorder = keeps || agentTools.length > 0
        ? createRunRecorder({
          runs,
          state: accepted(),
          input: () => toRunInput(request, { prompt, agentTools, depth }),
          onChange: () => news.wake(id),
        })
        : undefined;
      if (keeps) recorder?.activate();
      const entry: ActiveRun = {
        id,
        model,
        conversationId,
        depth,
        durable: request.durable,
        budget: request.call === undefined
          ? budgetOf({ limits, used: 0, parent: parent?.budget, day })
          : parent?.budget,
        hadEffect: false,
        refused: undefined,
        recorder,
        abort: (error) => controller.abort(error),
        signal: controller.signal,
        isPaused: place.isPaused,
        view: () => {
          const { run } = accepted();
          return startedAt === null ? run : { ...run, status: "running", started_at: startedAt };
        },
      };
      const begin = () => {
        if (controller.signal.aborted) throw cancelError(controller.signal);
        if (place.ready() && conversationId === null) {
          startedAt = time();
          return assembleMessages({ prompt, history: [], messages: suspended.splice(request.messages) });
        }
        return (async () => {
          await place.wait(controller.signal);
          startedAt = time();
          const history = conversationId === null ? [] : await conversations.history(conversationId);
          const messages = assembleMessages({ prompt, history, messages: suspended.splice(request.messages) });
          return conversationId === null ? messages : answerAllCalls(messages);
        })();
      };
      const run: AgentRun = {
        id,
        kind: request.kind,
        model,
        provider,
        providerModel,
        conversationId,
        parentId,
        caller: request.caller,
        depth,
        passesOn,
        requestId: request.requestId,
        whole: request.whole === true && !request.durable,
        begin,
        agentTools,
        isCall: request.call !== undefined,
        clientTools: request.clientTools,
        toolChoice: request.toolChoice,
        parallelToolCalls: request.parallelToolCalls,
        parameters: request.parameters,
        limits,
        budget: request.call === undefined ? entry.budget : undefined,
        signal: controller.signal,
        abort: entry.abort,
        tools,
        approve: agentTools.length === 0 ? denyUnattended : request.approver ??
          options.approverOf?.({ durable: request.durable, canApprove: request.canApprove, place }) ??
          denyUnattended,
        suspended,
        journal: createRunJournal({
          entry,
          request,
          recorder,
          conversations,
          log,
          onEnd(status) {
            active.remove(entry);
            place.leave();
            if (status !== undefined) ended.with(status).add();
            news.wake(id);
            ends.wake(id);
            if (active.size() === 0) onIdle();
          },
        }),
        clock,
        time,
        random,
        log,
      };
      active.add(entry);
      if (!request.durable || recorder === undefined) return new AttachedRun(entry, runAgent(run));
      try {
        await recorder.accept(request.claim?.(id));
      } catch (error) {
        active.remove(entry);
        place.leave();
        throw error;
      }
      return durableHandle(entry, {
        events: runAgent(run),
        // Its reader ends by leaving
        follow: () => follow(id, { afterSeq: 0, signal: new AbortController().signal }),
      });
    },

    get,
    list: runs.list,
    async follow(id, options) {
      if (!RUN_ID.test(id) || await runs.get(id) === undefined) return undefined;
      return follow(id, options);
    },
    async reach(id) {
      const run = RUN_ID.test(id) ? await runs.get(id) : undefined;
      if (run === undefined) return undefined;
      const recorded = await runs.lastSeq(id);
      return { recorded, furthest: recorded + (isAtWork(run.status) ? SEQ_WINDOW : 0) };
    },
    async ended(id, signal) {
      for (;;) {
        // Heard before it is looked at, so that no end falls between
        const listening = ends.listen(id, signal);
        try {
          const run = await get(id);
          if (run === undefined || !isAtWork(run.status)) return run;
          if (draining && active.find(id) === undefined) throw new CancelError("shutdown");
          await listening.heard;
        } finally {
          listening.stop();
        }
      }
    },
    cancel(id, reason) {
      const entry = active.find(id);
      if (entry === undefined || entry.signal.aborted) return Promise.resolve(false);
      entry.abort(new CancelError(reason));
      return Promise.resolve(true);
    },
    active: active.size,
    worksIn: (conversationId) => active.all().some((entry) => entry.conversationId === conversationId),
    async recover() {
      await recoverRuns({ runs, log, time });
      await prune();
      pruning = clock.every(DAY_MS, () => void prune());
    },
    async drain(graceMs) {
      draining = true;
      pruning?.clear();
      const idle = () => new Promise<void>((resolve) => (onIdle = resolve));
      const wait = async (ms: number) => {
        if (active.size() === 0) return;
        const idleFirst = new AbortController();
        await Promise.race([idle(), clock.sleep(ms, idleFirst.signal).catch(() => {})]);
        idleFirst.abort();
      };
      // Durable work that waits for a person may wait for days: it goes on at the next start
      for (const entry of active.all()) if (entry.durable && entry.isPaused()) entry.abort(new CancelError("shutdown"));
      await wait(graceMs);
      for (const entry of active.all()) entry.abort(new CancelError("shutdown"));
      await wait(SETTLE_MS);
    },
  };
}
