import type { AgentApprover } from "../../agent/agent_run.ts";
import { createIsoTime } from "../../agent/event_recorder.ts";
import { lastBytes } from "../../agent/estimate_tokens.ts";
import { runAgent } from "../../agent/run_agent.ts";
import { createParkedClientCalls } from "../../agent/parked_client_calls.ts";
import { CancelError } from "../../base/cancel.ts";
import { type Clock, type Timer, withTimeout } from "../../base/clock.ts";
import { HttpError } from "../../base/errors.ts";
import { type Caller, hasScope } from "../../base/records/caller.ts";
import { isAtWork, RUN_ID, type RunStatus } from "../../base/records/run.ts";
import type { Random } from "../../base/random.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Metrics } from "../../base/telemetry/metrics.ts";
import { createKeyedNotifier } from "../../base/keyed_queues.ts";
import type { AuditAppend } from "../../guard/audit/audit.ts";
import { isPlainModel, plainModelOf } from "../../providers/models/model_names.ts";
import type { Providers } from "../../providers/provider.ts";
import type { Store } from "../../storage/store.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { type AgentOf, noAgents } from "./agent_profile.ts";
import { type ActiveRun, AttachedRun, createActiveRuns, durableHandle } from "./active_run.ts";
import type { ApprovableRun } from "./create_approver.ts";
import { checkConversation, ownerFor } from "../conversations/conversation_records.ts";
import { createConversations } from "../conversations/conversations.ts";
import { createDayBudget } from "./day_budget.ts";
import { followRun } from "../journal/follow_run.ts";
import { createLaunch, type Launched } from "./launch_run.ts";
import { pruneRuns } from "../journal/stored_runs.ts";
import { continueRun, type InterruptedRun, type PendingApproval, recoverRuns } from "../recovery/recover_runs.ts";
import { resumedRequest } from "../recovery/run_input.ts";
import { createRunQueue, type RunLimits } from "./run_queue.ts";
import { shownUpTo } from "../journal/run_recorder.ts";
import type { RunRequest, RunSupervisor } from "../run_request.ts";
import type { AgentSettings } from "./run_settings.ts";
import { createRunStore } from "../journal/run_store.ts";
import { createParkedRecords } from "../conversations/parked_records.ts";

export interface SupervisorOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly providers: Providers;
  readonly tools: ToolExecutor;
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
  /** Questions that wait for a person. Default: none */
  readonly pendingApprovals?: () => Promise<readonly PendingApproval[]>;
  /** Withdraws a question to a person that nobody needs any more. Default: nothing to withdraw */
  readonly withdraw?: (approvalId: string) => Promise<void>;
  /** Tells whether messages of a configured channel are recorded under a conversation's id. Default: under no id */
  readonly isChannelConversation?: (id: string) => boolean;
  /** Told what a person decides about an interrupted run. Default: nobody */
  readonly audit?: AuditAppend;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** Runs that were cancelled at the end of a drain get this long to write their last event. */
const SETTLE_MS = 2000;

/**
 * The run supervisor: everything that executes is a run started here (docs/design/runs.md "The loop").
 *
 * A run without conversation, effect and durability writes nothing. Metrics: postern_runs_total{status}, postern_runs_active.
 */
export function createSupervisor(options: SupervisorOptions): RunSupervisor {
  const { store, clock, random, log, metrics } = options;
  const runs = createRunStore(store);
  const conversations = createConversations({ store, random, isChannel: options.isChannelConversation });
  const time = createIsoTime(clock);
  const active = createActiveRuns<ActiveRun>();
  const day = createDayBudget({ store, clock, tokensPerDay: options.tokensPerDay ?? (() => 0) });
  /** Of a run's events, and of its end */
  const news = createKeyedNotifier();
  const ends = createKeyedNotifier();
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

  /** Looked at before a run has its place, so that the client is told by a status: the run itself looks once more at its turn. */
  const checkOwner = async (conversationId: string, caller: Caller) => {
    if (hasScope(caller.scopes, "runs")) return;
    await conversations.check(conversationId, caller);
    // Messages are recorded when a run ends: until then a conversation belongs to whoever has a run at work in it
    for (const run of active.all()) {
      if (run.conversationId !== conversationId) continue;
      checkConversation(caller, { owner: ownerFor(run.caller), isChannel: false });
    }
  };

  const get = async (id: string) => {
    if (!RUN_ID.test(id)) return undefined;
    return (await runs.get(id)) ?? active.find(id)?.view();
  };

  const follow = (id: string, options: { readonly afterSeq: number; readonly signal: AbortSignal }) =>
    followRun(id, { ...options, runs, news, find: active.find });

  /** @param status undefined: parked */
  const onEnd = (id: string, status: RunStatus | undefined) => {
    if (status !== undefined) ended.with(status).add();
    news.wake(id);
    ends.wake(id);
  };
  const parked = createParkedClientCalls(clock);
  const parkedRecords = createParkedRecords({ store, clock, parked });
  const agentOf = options.agentOf ?? noAgents;
  const launch = createLaunch({
    runs,
    conversations,
    parked,
    parkedRecords,
    queue: createRunQueue(options.limits),
    active,
    day,
    news,
    providers: options.providers,
    tools: options.tools,
    agent: options.agent,
    approverOf: options.approverOf,
    clock,
    time,
    random,
    log,
    onEnd({ id }, status) {
      onEnd(id, status);
      if (active.size() === 0) onIdle();
    },
  });
  /** Durable work, which goes on by itself. Its reader ends by leaving */
  const begin = ({ entry, run }: Launched) =>
    durableHandle(entry, {
      events: runAgent(run),
      follow: () => follow(entry.id, { afterSeq: 0, signal: new AbortController().signal }),
    });
  const resume = async (interrupted: InterruptedRun) => {
    const request = resumedRequest(interrupted);
    const profile = request.agent === undefined ? undefined : await agentOf(request.agent, request.model);
    begin(launch(request, { profile, interrupted }));
  };
  const recovery = {
    runs,
    log,
    time,
    pendingApprovals: options.pendingApprovals ?? (() => Promise.resolve([])),
    withdraw: options.withdraw ?? (() => Promise.resolve()),
    onEnd,
    resume,
  };

  return {
    async start(asked) {
      if (draining) {
        throw new HttpError("shutting_down", "Cannot start the run: the gateway is shutting down", {
          status: 503,
          type: "api_error",
        });
      }
      const request = asPlain(asked);
      const { agent } = request;
      if (request.conversationId !== undefined && request.conversationId !== "new") {
        await checkOwner(request.conversationId, request.caller);
      }
      const profile = agent === undefined ? undefined : await agentOf(agent, request.model);
      if (day.isSet() && request.call === undefined) await day.check(lastBytes(request.messages));
      if (request.messages.at(-1)?.role === "tool") await parkedRecords.recall(request.messages);
      const launched = launch(request, { profile });
      const { entry, run, recorder } = launched;
      if (!request.durable || recorder === undefined) return new AttachedRun(entry, runAgent(run));
      try {
        await recorder.accept(request.claim?.(entry.id));
      } catch (error) {
        launched.leave();
        throw error;
      }
      return begin(launched);
    },

    get,
    startedBy: runs.startedBy,
    list: runs.list,
    async follow(id, options) {
      if (!RUN_ID.test(id) || await runs.get(id) === undefined) return undefined;
      return follow(id, options);
    },
    async reach(id) {
      const run = RUN_ID.test(id) ? await runs.get(id) : undefined;
      if (run === undefined) return undefined;
      const recorded = await runs.lastSeq(id);
      const eventsFollow = isAtWork(run.status);
      const reached = active.find(id)?.recorder?.reached() ?? (eventsFollow ? shownUpTo(recorded) : 0);
      return { recorded, furthest: Math.max(recorded, reached), eventsFollow };
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
    async cancel(id, reason) {
      const entry = active.find(id);
      if (entry?.signal.aborted || !RUN_ID.test(id)) return false;
      // On disk before it is answered: a cancelled run stays cancelled whatever happens next
      const isNoted = entry?.durable === false || await runs.cancel(id);
      if (isNoted) entry?.abort(new CancelError(reason));
      return isNoted;
    },
    active: active.size,
    worksIn: (conversationId) => active.all().some((entry) => entry.conversationId === conversationId),
    async resolve(id, review) {
      const { resolveRun } = await import("../recovery/review_run.ts");
      return await resolveRun(id, review, {
        runs,
        time,
        audit: options.audit,
        resume: (interrupted) => continueRun(interrupted, recovery),
      });
    },
    async recover() {
      await recoverRuns(recovery);
      await prune();
      pruning = clock.every(DAY_MS, () => void prune());
    },
    async drain(graceMs) {
      draining = true;
      pruning?.clear();
      const wait = async (ms: number) => {
        if (active.size() === 0) return;
        await withTimeout(new Promise<void>((resolve) => (onIdle = resolve)), { ms, clock });
      };
      // Durable work goes on at the next start: it stops after its last finished step, and in the middle of no effect before the grace
      for (const entry of active.all().filter((entry) => entry.durable)) {
        entry.stopsForShutdown = true;
        if (entry.effectsAtWork === 0) entry.abort(new CancelError("shutdown"));
      }
      await wait(graceMs);
      for (const entry of active.all()) entry.abort(new CancelError("shutdown"));
      await wait(SETTLE_MS);
    },
  };
}

/** The request as a plain one when its model is `plain/<id>`; else the same object. */
function asPlain(request: RunRequest): RunRequest {
  const { model } = request;
  if (model === undefined || !isPlainModel(model)) return request;
  return { ...request, model: plainModelOf(model), agentTools: "none" };
}
