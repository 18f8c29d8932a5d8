import type { AgentApprover, AgentRun } from "../../agent/agent_run.ts";
import { createFittingProvider } from "../../agent/context_window.ts";
import type { RunResume } from "../../agent/model_turn.ts";
import { answerAllCalls, type ParkedClientCalls } from "../../agent/parked_client_calls.ts";
import { CancelError, cancelError, cancelReason } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import { type Message, textOf } from "../../base/records/message.ts";
import type { RunStatus } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import { createContextWindows } from "../../providers/models/context_windows.ts";
import type { Providers } from "../../providers/provider.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { ActiveRun, type ActiveRuns } from "./active_run.ts";
import type { AgentProfile } from "./agent_profile.ts";
import { type AcceptedRun, createRunState } from "../journal/apply_event.ts";
import { type ApprovableRun, denyUnattended } from "./create_approver.ts";
import { assembleMessages, recallHistory, windowFinder } from "../conversations/recall_history.ts";
import { budgetOf, type DayBudget } from "./day_budget.ts";
import type { Conversations } from "../conversations/conversations.ts";
import { recallRun } from "../recovery/recall_run.ts";
import type { InterruptedRun } from "../recovery/recover_runs.ts";
import { resumedTools, toRunInput } from "../recovery/run_input.ts";
import { RunJournal, RunRecorder, shownUpTo } from "../journal/run_recorder.ts";
import type { RunQueue } from "./run_queue.ts";
import type { RunRequest } from "../run_request.ts";
import { type AgentSettings, runSettings } from "./run_settings.ts";
import type { RunStore } from "../journal/run_store.ts";
import type { ParkedRecords } from "../conversations/parked_records.ts";

/** What all runs of one supervisor share. */
export interface LaunchParts {
  readonly runs: RunStore;
  readonly conversations: Conversations;
  readonly parked: ParkedClientCalls;
  readonly parkedRecords: ParkedRecords;
  readonly queue: RunQueue;
  readonly active: ActiveRuns<ActiveRun>;
  readonly day: DayBudget;
  /** Woken with a run's id when it has new events */
  readonly news: KeyedNotifier;
  readonly providers: Providers;
  readonly tools: ToolExecutor;
  readonly agent: () => AgentSettings;
  readonly approverOf: ((run: ApprovableRun) => AgentApprover) | undefined;
  readonly clock: Clock;
  readonly time: () => string;
  readonly random: Random;
  readonly log: Logger;
  /** Told once, when a run is over and written; undefined: parked */
  readonly onEnd: (entry: ActiveRun, status: RunStatus | undefined) => void;
}

export interface LaunchOptions {
  /** Of the configured agent it is of */
  readonly profile: AgentProfile | undefined;
  /** The run that goes on; undefined for a new one */
  readonly interrupted?: InterruptedRun | undefined;
}

/** Characters of the message that began a run, as lists show it */
const MAX_OPENING = 1_000;

/** A run that has its place, and nothing on disk yet. */
export interface Launched {
  readonly entry: ActiveRun;
  readonly run: AgentRun;
  readonly recorder: RunRecorder | undefined;
  /** Gives its place back, for a run that could not be accepted */
  readonly leave: () => void;
}

/**
 * Gives a run its place in the queue and everything it works with.
 * @throws {HttpError} 503 `overloaded`; what the providers throw for the model
 */
export function createLaunch(
  parts: LaunchParts,
): (request: RunRequest, options: LaunchOptions) => Launched {
  const { runs, conversations, parked, queue, active, day, news, tools, clock, time, random, log } = parts;
  const windows = createContextWindows(clock);
  return (request, { profile, interrupted }) => {
    const settings = runSettings(request, {
      settings: parts.agent(),
      providers: parts.providers,
      tools,
      profile,
    });
    const { provider, providerModel, model, limits, passesOn } = settings;
    const resumed = interrupted === undefined ? undefined : resumedTools(settings.agentTools, interrupted.input, tools);
    const agentTools = resumed?.agentTools ?? settings.agentTools;
    const prompt = interrupted === undefined ? settings.prompt : interrupted.input.system_prompt;
    const conversationId = request.conversationId === undefined ? null : conversations.open(request.conversationId);
    const parentId = request.parentId ?? null;
    const parent = parentId === null ? undefined : active.find(parentId);
    const depth = request.depth ?? (parent === undefined ? 0 : parent.depth + 1);

    const id = interrupted?.run.id ?? random.id("run_");
    const controller = (request.durable ? undefined : request.controller) ?? new AbortController();
    const place = queue.enter({
      conversationId,
      isChild: parent !== undefined,
      isPlain: !request.durable && conversationId === null && request.agentTools === "none",
      isAccepted: interrupted !== undefined,
    });
    const keeps = request.durable || conversationId !== null;
    const isRecorded = keeps || agentTools.length > 0;
    const accepted: AcceptedRun = {
      id,
      kind: request.kind,
      created_at: interrupted?.run.created_at ?? time(),
      model,
      message: isRecorded ? openingMessage(request.messages) : null,
      conversation_id: conversationId,
      parent_id: parentId,
    };
    const recorder = isRecorded
      ? new RunRecorder({
        runs,
        state: createRunState(accepted),
        input: () => {
          const spliced = request.durable ? parked.splice(request.messages) : request.messages;
          return toRunInput(request, { prompt, agentTools, depth, spliced });
        },
        onChange: () => news.wake(id),
        resumedAt: interrupted?.seq,
      })
      : undefined;
    if (keeps) recorder?.activate();
    const entry = new ActiveRun({
      accepted,
      depth,
      caller: request.caller,
      durable: request.durable,
      recorder,
      budget: request.call === undefined
        ? budgetOf({ limits, used: interrupted?.run.usage.total_tokens ?? 0, parent: parent?.budget, day })
        : parent?.budget,
      controller,
    });
    const leave = () => {
      letGo?.();
      active.remove(entry);
      place.leave();
    };
    const letGo = parent === undefined ? undefined : stopWith(parent, entry, active);
    const given = () => interrupted?.input.spliced ?? parked.splice(request.messages);
    const findWindow = conversationId !== null || agentTools.length > 0
      ? windowFinder({ limits, windows, provider, model: providerModel })
      : undefined;
    let fixedMessages = 0;
    /** Without a conversation the client keeps its own history: the gateway cuts nothing of it */
    const ofClient = () => {
      const messages = assembleMessages({ prompt, history: [], messages: given() });
      fixedMessages = messages.length;
      return messages;
    };
    const begin = () => {
      if (controller.signal.aborted) throw cancelError(controller.signal);
      if (place.ready() && conversationId === null) {
        entry.startedAt = time();
        return ofClient();
      }
      return (async () => {
        await place.wait(controller.signal);
        entry.startedAt = time();
        if (conversationId === null) return ofClient();
        const messages = given();
        const recalled = await recallHistory(conversationId, {
          conversations,
          caller: request.caller,
          provider,
          model: providerModel,
          findWindow,
          prompt,
          messages,
          tools: [...agentTools, ...request.clientTools],
          parameters: request.parameters,
          budget: run.budget,
          requestId: request.requestId,
          signal: controller.signal,
          time,
        });
        run.opening = recalled;
        return answerAllCalls(assembleMessages({ prompt, history: recalled.messages, messages }));
      })();
    };
    const resume: RunResume | undefined = interrupted === undefined || resumed === undefined ? undefined : {
      afterSeq: shownUpTo(interrupted.seq),
      load: () => recallRun(runs, id),
      gone: resumed.gone,
    };
    const run: AgentRun = {
      id,
      kind: request.kind,
      model,
      provider: findWindow === undefined || limits.contextWindowTokens > 0
        ? provider
        : createFittingProvider(provider, {
          learn: (error, tokens) => windows.learn(provider, providerModel, { error, tokens }),
          fixed: () => fixedMessages,
        }),
      providerModel,
      conversationId,
      parentId,
      caller: request.caller,
      depth,
      passesOn,
      requestId: request.requestId,
      whole: request.whole === true && !request.durable,
      isPlain: request.agentTools === "none",
      survivesShutdown: request.durable,
      resume,
      begin,
      fixedMessages: () => fixedMessages,
      findWindow,
      findListedWindow: () => windows.listed(provider, providerModel),
      agentTools,
      isCall: request.call !== undefined,
      clientTools: request.clientTools,
      toolChoice: request.toolChoice,
      parallelToolCalls: request.parallelToolCalls,
      parameters: request.parameters,
      limits,
      budget: request.call === undefined ? entry.budget : undefined,
      signal: controller.signal,
      abort: (error) => entry.abort(error),
      onAgain: (isAsking) => (entry.isAskedAgain = isAsking),
      tools,
      approve: agentTools.length === 0 ? denyUnattended : request.approver ??
        parts.approverOf?.({
          durable: request.durable,
          canApprove: request.canApprove,
          place,
          earlier: interrupted?.approvals,
          recorded: request.durable && recorder !== undefined ? () => recorder.commit() : undefined,
        }) ??
        denyUnattended,
      parked,
      journal: new RunJournal({
        entry,
        request,
        recorder,
        conversations,
        parkedRecords: parts.parkedRecords,
        log,
        onEnd(status) {
          leave();
          parts.onEnd(entry, status);
        },
      }),
      clock,
      time,
      random,
      log,
    };
    active.add(entry);
    return { entry, run, recorder, leave };
  };
}

/** The last message of the user, cut; null where there is none. */
function openingMessage(messages: readonly Message[]): string | null {
  const message = messages.findLast(({ role }) => role === "user");
  if (message === undefined) return null;
  const text = textOf(message.content);
  return text.length <= MAX_OPENING ? text : `${text.slice(0, MAX_OPENING)}... (${text.length} characters)`;
}

/** A child stops with its parent; a shutdown stops each by itself. @returns what ends that */
function stopWith(parent: ActiveRun, child: ActiveRun, active: ActiveRuns<ActiveRun>): () => void {
  const { signal } = parent;
  const stop = () => {
    // The reader of a run that has ended leaves it too, which stops nothing
    if (cancelReason(signal) === "shutdown" || active.find(parent.id) === undefined) return;
    child.abort(new CancelError("cancelled", "The run it belongs to was stopped"));
  };
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop, { once: true });
  return () => signal.removeEventListener("abort", stop);
}
