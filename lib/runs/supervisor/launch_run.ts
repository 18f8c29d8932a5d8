import type { AgentApprover, AgentRun, RunResume } from "../../agent/agent_run.ts";
import { createFittingProvider } from "../../agent/context_window.ts";
import type { PictureMemory } from "../../agent/picture_memory.ts";
import type { ParkedClientCalls } from "../../agent/parked_client_calls.ts";
import type { TokenBudget } from "../../agent/token_budget.ts";
import { taintOfMessages } from "../../agent/untrusted_text.ts";
import { CancelError, cancelReason } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import { type Message, textOf } from "../../base/records/message.ts";
import { joinTaints, RunTaint, type Taint, UNTAINTED } from "../../base/taint.ts";
import type { RunStatus } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import { type ContextWindows, createContextWindows } from "../../providers/models/context_windows.ts";
import type { Provider, Providers } from "../../providers/provider.ts";
import { atOnce, type OnceBack } from "../../storage/read_records.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { ActiveRun, RunJournal } from "./active_run.ts";
import type { AgentProfile } from "./agent_profile.ts";
import { type AcceptedRun, createRunState } from "../journal/apply_event.ts";
import { type ApprovableRun, denyUnattended } from "./create_approver.ts";
import { RunOpening, windowFinder } from "../conversations/run_opening.ts";
import { budgetOf, type DayBudget } from "./day_budget.ts";
import type { Conversations } from "../conversations/conversations.ts";
import { recallRun } from "../recovery/recall_run.ts";
import type { InterruptedRun } from "../recovery/recover_runs.ts";
import { resumedTools, toRunInput } from "../recovery/run_input.ts";
import { RunRecorder } from "../journal/run_recorder.ts";
import { shownUpTo } from "../journal/run_records.ts";
import type { RunCoordination } from "./run_coordination.ts";
import type { ActiveRuns, QueuePlace, RunQueue } from "./run_queue.ts";
import type { RunRequest } from "../run_request.ts";
import { type AgentSettings, type RunGuidance, type RunSettings, runSettings } from "./run_settings.ts";
import type { OnRecorded, RunStore } from "../journal/run_store.ts";
import type { ParkedRecords } from "../conversations/parked_records.ts";

/** Services that all runs of one supervisor share. */
export interface LaunchParts {
  readonly runs: RunStore;
  readonly conversations: Conversations;
  readonly parked: ParkedClientCalls;
  readonly parkedRecords: ParkedRecords;
  readonly queue: RunQueue;
  readonly cluster: RunCoordination;
  readonly active: ActiveRuns<ActiveRun>;
  readonly day: DayBudget;
  /** Woken with a run's id when the run has new events. */
  readonly news: KeyedNotifier;
  readonly providers: Providers;
  readonly tools: ToolExecutor;
  readonly agent: () => AgentSettings;
  readonly pictures: PictureMemory;
  readonly approverOf?: ((run: ApprovableRun) => AgentApprover) | undefined;
  readonly clock: Clock;
  readonly time: () => string;
  readonly random: Random;
  readonly log: Logger;
  /** Told of the events of each run: those on record, and at its end those of a run without a record. Default: nobody is */
  readonly onEvents?: OnRecorded | undefined;
  /** Called once, when a run is over and written. Undefined: the run was stopped for a shutdown. */
  readonly onEnd: (entry: ActiveRun, status: RunStatus | undefined) => void;
}

/** Facts about a run that its request does not hold. */
export interface LaunchOptions {
  /** Profile of the configured agent that the request names. */
  readonly profile: AgentProfile | undefined;
  /** Texts that it begins with. Default: none */
  readonly guidance?: RunGuidance | undefined;
  /** The interrupted run that goes on; undefined for a new run. */
  readonly interrupted?: InterruptedRun | undefined;
}

/** A run that has its place, and nothing on disk yet. */
export interface LaunchedRun {
  readonly entry: ActiveRun;
  readonly run: AgentRun;
  readonly recorder: RunRecorder | undefined;
  /** Gives the place back, for a run that could not be accepted. */
  readonly leave: () => void;
  /** Tells whether the run has a slot. */
  readonly isReady: () => boolean;
  /** Workspace of the cluster that its tools need; null: none. */
  readonly workspace: string | null;
}

/** Characters of the message that began a run, as lists show it. */
const MAX_OPENING = 1_000;

/** A request with everything that was decided about it before the run gets its parts. */
interface Plan {
  readonly id: string;
  readonly request: RunRequest;
  readonly interrupted: InterruptedRun | undefined;
  readonly settings: RunSettings;
  /** Why tools of an interrupted run cannot be called any more, by name; undefined for a new run. */
  readonly gone: ReadonlyMap<string, string> | undefined;
  readonly conversationId: string | null;
  readonly parent: ActiveRun | undefined;
  readonly depth: number;
  readonly place: QueuePlace;
  readonly controller: AbortController;
  /** True for a run that is recorded from its first event on. */
  readonly keeps: boolean;
  /** True for a run that only hands a request on to the model, without tools and without a record. */
  readonly isPlain: boolean;
  /** Workspace of the cluster that its tools need; null: none. */
  readonly workspace: string | null;
  /** False for a run that can have nothing to record, and of which nobody is told. */
  readonly isRecorded: boolean;
  /** Makes calls of the database that gateways share. Undefined for a gateway alone, and for a run that needs no database. */
  readonly onceBack: OnceBack | undefined;
}

/** Gives runs their place in the queue and everything they work with. */
export class RunLauncher {
  readonly #parts: LaunchParts;
  readonly #windows: ContextWindows;

  constructor(parts: LaunchParts) {
    this.#parts = parts;
    this.#windows = createContextWindows(parts.clock);
  }

  /** @throws {HttpError} 503 `overloaded`; {ProviderError} when the model cannot be used */
  launch(request: RunRequest, options: LaunchOptions): LaunchedRun {
    const plan = this.#plan(request, options);
    const { accepted, recorder } = this.#record(plan);
    const entry = this.#enter(plan, accepted, recorder);
    const { active } = this.#parts;
    const letGo = plan.parent === undefined ? undefined : stopWith(plan.parent, entry, active);
    let hasLeft = false;
    const leave = () => {
      // Once: a run that left before its acceptance was written may be claimed here meanwhile, and work under the same id
      if (hasLeft) return;
      hasLeft = true;
      letGo?.();
      active.remove(entry);
      plan.place.leave();
      // A plain completion has nothing in the database to give back
      if (!plan.isPlain) this.#parts.cluster.leave(entry);
    };
    const run = this.#toAgentRun(plan, { entry, recorder, leave });
    active.add(entry);
    return { entry, run, recorder, leave, isReady: () => plan.place.ready(), workspace: plan.workspace };
  }

  #plan(request: RunRequest, { profile, guidance, interrupted }: LaunchOptions): Plan {
    const { providers, tools, conversations, active, queue, random, agent } = this.#parts;
    const settings = runSettings(request, {
      settings: agent(),
      providers,
      tools,
      profile,
      guidance,
      isResumed: interrupted !== undefined,
    });
    const resumed = interrupted === undefined ? undefined : resumedTools(settings.agentTools, interrupted.input, tools);
    const conversationId = request.conversationId === undefined ? null : conversations.open(request.conversationId);
    const parent = request.parentId === undefined ? undefined : active.find(request.parentId);
    const keeps = request.durable || conversationId !== null;
    const agentTools = resumed?.agentTools ?? settings.agentTools;
    const id = interrupted?.run.id ?? random.id("run_");
    const { cluster } = this.#parts;
    const workspace = interrupted === undefined
      ? cluster.workspaceFor({ tools: agentTools, durable: request.durable, wanted: request.workspace })
      : interrupted.input.workspace ?? null;
    const isPlain = !keeps && request.agentTools === "none";
    const controller = (request.durable ? undefined : request.controller) ?? new AbortController();
    const place = queue.enter({
      conversationId: cluster.ownLine(conversationId),
      tokenId: request.caller.tokenId,
      isChild: parent !== undefined,
      isPlain,
      isAccepted: interrupted !== undefined,
    });
    return {
      id,
      request,
      interrupted,
      settings: resumed === undefined || interrupted === undefined
        ? settings
        : { ...settings, agentTools, deferred: resumed.deferred, prompt: interrupted.input.system_prompt },
      gone: resumed?.gone,
      conversationId,
      parent,
      depth: request.depth ?? (parent === undefined ? 0 : parent.depth + 1),
      place: conversationId === null ? place : cluster.placeOf(place, {
        run: { id, conversationId, parentId: request.parentId ?? null, workspace },
        isAccepted: interrupted !== undefined,
      }),
      controller,
      keeps,
      isPlain,
      workspace,
      isRecorded: keeps || agentTools.length > 0 || this.#parts.onEvents !== undefined,
      onceBack: isPlain ? undefined : cluster.onceBackOf(id, controller.signal),
    };
  }

  /** Returns the accepted state of a run, with a recorder when the run can have something to record. */
  #record(plan: Plan): { readonly accepted: AcceptedRun; readonly recorder: RunRecorder | undefined } {
    const { id, request, interrupted, settings, depth, conversationId } = plan;
    const { runs, news, parked, time } = this.#parts;
    const accepted: AcceptedRun = {
      id,
      kind: request.kind,
      created_at: interrupted?.run.created_at ?? time(),
      model: settings.model,
      message: plan.isRecorded ? openingMessage(request.messages) : null,
      conversation_id: conversationId,
      parent_id: request.parentId ?? null,
    };
    if (!plan.isRecorded) return { accepted, recorder: undefined };
    const recorder = new RunRecorder({
      runs,
      state: createRunState(accepted),
      input: () => {
        const spliced = request.durable ? parked.splice(request.messages) : request.messages;
        return toRunInput({ ...request, taint: this.#taintOf(plan) }, {
          prompt: settings.prompt,
          agentTools: settings.agentTools,
          deferred: settings.deferred,
          depth,
          spliced,
          workspace: plan.workspace,
        });
      },
      onChange: () => news.wake(id),
      resumedAt: interrupted?.seq,
    });
    if (plan.keeps) recorder.activate();
    return { accepted, recorder };
  }

  #enter(plan: Plan, accepted: AcceptedRun, recorder: RunRecorder | undefined): ActiveRun {
    const { request, parent, depth, settings: { limits }, controller } = plan;
    const used = plan.interrupted?.run.usage.total_tokens ?? 0;
    return new ActiveRun({
      accepted,
      depth,
      caller: request.caller,
      durable: request.durable,
      taint: this.#readingOf(plan),
      recorder,
      budget: request.call === undefined
        ? budgetOf({ limits, used, parent: parent?.budget, day: this.#parts.day })
        : parent?.budget,
      controller,
    });
  }

  /** Returns what a run has read when it begins. A sub-agent and a firing know the addresses in their task that its writer had read. */
  #readingOf(plan: Plan): RunTaint {
    const { request: { messages, links = [] }, parent } = plan;
    const taint = new RunTaint(this.#taintOf(plan));
    if (links.length > 0) taint.links.addShared(links);
    if (parent === undefined || !parent.taint.isTainted) return taint;
    for (const { content } of messages) taint.links.addShared(parent.taint.links.sharedIn(textOf(content)));
    return taint;
  }

  /**
   * Returns the outside content that a run begins with: its request's, what an interrupted run had read, that of parked calls, and what
   * the tools of a client gave. Without tools of the agent nobody asks for it.
   */
  #taintOf({ request: { taint, messages }, interrupted, settings: { agentTools } }: Plan): Taint {
    const sent = agentTools.length === 0 ? UNTAINTED : taintOfMessages(messages);
    return joinTaints(taint, interrupted?.run.taint, this.#parts.parked.taintOf(messages), sent);
  }

  #toAgentRun(plan: Plan, { entry, recorder, leave }: Pick<LaunchedRun, "entry" | "recorder" | "leave">): AgentRun {
    const { id, request, settings, controller, conversationId } = plan;
    const { provider, providerModel, limits, agentTools } = settings;
    const { tools, parked, clock, time, random, log } = this.#parts;
    const windows = this.#windows;
    const findWindow = conversationId !== null || agentTools.length > 0
      ? windowFinder({ limits, windows, provider, model: providerModel })
      : undefined;
    const opening = new RunOpening({
      request,
      spliced: plan.interrupted?.input.spliced,
      provider,
      prompt: settings.prompt,
      place: plan.place,
      entry,
      conversations: this.#parts.conversations,
      onceBack: request.durable ? plan.onceBack : undefined,
    });
    const fitting = findWindow === undefined ? provider : this.#fittingProvider(settings, opening);
    const ownProvider = plan.keeps ? this.#parts.cluster.providerOf(fitting, id) : fitting;
    const run: AgentRun = {
      id,
      kind: request.kind,
      model: settings.model,
      provider: ownProvider,
      providerModel,
      conversationId,
      parentId: request.parentId ?? null,
      caller: request.caller,
      depth: plan.depth,
      taint: entry.taint,
      passesOn: settings.passesOn,
      requestId: request.requestId,
      whole: request.whole === true && !request.durable,
      isPlain: request.agentTools === "none",
      survivesShutdown: request.durable,
      resume: this.#resumeOf(plan),
      begin: () => opening.begin(run),
      fixedMessages: () => opening.fixedMessages,
      findWindow,
      learntWindow: (window) => windows.within(provider, providerModel, window),
      findListedWindow: () => windows.listed(provider, providerModel),
      agentTools,
      deferred: settings.deferred,
      isCall: request.call !== undefined,
      approvedDigest: request.call?.digest,
      clientTools: request.clientTools,
      toolChoice: request.toolChoice,
      parallelToolCalls: request.parallelToolCalls,
      parameters: request.parameters,
      limits,
      budget: request.call === undefined ? onceBackBudget(entry.budget, plan.onceBack) : undefined,
      signal: controller.signal,
      abort: (error) => entry.abort(error),
      onAgain: (isAsking) => (entry.isAskedAgain = isAsking),
      tools,
      approve: this.#approverOf(plan, recorder),
      onceBack: plan.onceBack,
      pictures: this.#parts.pictures,
      parked,
      journal: this.#journalOf(plan, { entry, recorder, leave }),
      clock,
      time,
      random,
      log,
    };
    return run;
  }

  /** Returns the provider of a run, which learns the model's window from refusals. */
  #fittingProvider({ provider, providerModel, limits }: RunSettings, opening: RunOpening): Provider {
    const windows = this.#windows;
    const configured = limits.contextWindowTokens;
    return createFittingProvider(provider, {
      async learn(error, tokens) {
        const window = windows.learn(provider, providerModel, { error, tokens });
        if (window > 0) return { window };
        return await windows.guess(provider, providerModel, { error, tokens, configured });
      },
      fixed: () => opening.fixedMessages,
    });
  }

  #resumeOf({ id, interrupted, gone, onceBack = atOnce }: Plan): RunResume | undefined {
    if (interrupted === undefined || gone === undefined) return undefined;
    return { afterSeq: shownUpTo(interrupted.seq), load: () => onceBack(() => recallRun(this.#parts.runs, id)), gone };
  }

  #approverOf(
    { request, settings, interrupted, place, onceBack }: Plan,
    recorder: RunRecorder | undefined,
  ): AgentApprover {
    if (settings.agentTools.length === 0) return denyUnattended;
    return request.approver ?? this.#parts.approverOf?.({
      durable: request.durable,
      canApprove: request.canApprove,
      place,
      earlier: interrupted?.approvals,
      recorded: request.durable && recorder !== undefined ? () => recorder.commit() : undefined,
      onceBack,
    }) ?? denyUnattended;
  }

  #journalOf({ request }: Plan, { entry, recorder, leave }: Pick<LaunchedRun, "entry" | "recorder" | "leave">) {
    const { conversations, parkedRecords, log, onEnd, onEvents, cluster } = this.#parts;
    return new RunJournal({
      entry,
      request,
      recorder,
      right: cluster.rightOf(entry.id, entry.signal),
      // The end of a run that was cancelled is written too
      onceBack: cluster.onceBackOf(entry.id, NEVER),
      conversations,
      parkedRecords,
      log,
      onUnrecorded: onEvents,
      onEnd(status) {
        leave();
        onEnd(entry, status);
      },
    });
  }
}

const NEVER = new AbortController().signal;

/** Returns a budget whose reservations wait for the database that has it. */
function onceBackBudget(budget: TokenBudget | undefined, onceBack: OnceBack | undefined): TokenBudget | undefined {
  if (budget === undefined || onceBack === undefined) return budget;
  return { reserve: (need) => onceBack(() => budget.reserve(need)) };
}

/** Returns the last message of the user, cut; null when there is none. */
function openingMessage(messages: readonly Message[]): string | null {
  const message = messages.findLast(({ role }) => role === "user");
  if (message === undefined) return null;
  const text = textOf(message.content);
  return text.length <= MAX_OPENING ? text : `${text.slice(0, MAX_OPENING)}... (${text.length} characters)`;
}

/** Stops a child together with its parent. A shutdown stops each of them by itself. @returns a function that ends this */
function stopWith(parent: ActiveRun, child: ActiveRun, active: ActiveRuns<ActiveRun>): () => void {
  const { signal } = parent;
  const stop = () => {
    // The reader of an ended run leaves it too, which stops nothing
    if (cancelReason(signal) === "shutdown" || active.find(parent.id) === undefined) return;
    child.abort(new CancelError("cancelled", "The run it belongs to was stopped"));
  };
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop, { once: true });
  return () => signal.removeEventListener("abort", stop);
}
