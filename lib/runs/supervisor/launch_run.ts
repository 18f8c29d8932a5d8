import type { AgentApprover, AgentRun, RunKit, RunResume, RunScope } from "../../agent/agent_run.ts";
import { createFittingProvider } from "../../agent/context_window.ts";
import type { PictureMemory } from "../../agent/picture_memory.ts";
import type { ParkedClientCalls } from "../../agent/parked_client_calls.ts";
import { createSummaryProvider } from "../../agent/summarize.ts";
import { createRunBudget, type TokenBudget } from "../../agent/token_budget.ts";
import { taintOfMessages } from "../../agent/untrusted_text.ts";
import { CancelError, cancelReason } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { type Message, saidWithDocuments, textOf } from "../../base/records/message.ts";
import { hasScope } from "../../base/records/caller.ts";
import { joinTaints, RunTaint, type Taint, UNTAINTED } from "../../base/taint.ts";
import type { RunStatus } from "../../base/records/run.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import { type ContextWindows, createContextWindows } from "../../providers/models/context_windows.ts";
import type { Provider, Providers } from "../../providers/provider.ts";
import { type Patience, patiently } from "../../storage/read_records.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { ActiveRun, RunJournal } from "./active_run.ts";
import type { AgentProfile } from "./agent_profile.ts";
import { type AcceptedRun, createRunState } from "../journal/apply_event.ts";
import { type ApprovableRun, denyUnattended } from "./create_approver.ts";
import { beginsConversation } from "../conversations/conversation_records.ts";
import { RunOpening, windowFinder } from "../conversations/run_opening.ts";
import type { DayBudget } from "./day_budget.ts";
import type { Conversations, RunConversations } from "../conversations/conversations.ts";
import { recallRun } from "../recovery/recall_run.ts";
import type { InterruptedRun, RecoverOptions } from "../recovery/recover_runs.ts";
import { resumedTools, toRunInput } from "../recovery/run_input.ts";
import { RunRecorder } from "../journal/run_recorder.ts";
import { shownUpTo } from "../journal/run_records.ts";
import type { RunCoordination } from "./run_coordination.ts";
import type { ActiveRuns, QueuePlace, RunLimits, RunQueue } from "./run_queue.ts";
import type { RunAuthor, RunRequest, RunSupervisor } from "../run_request.ts";
import { RunSteering } from "./run_steering.ts";
import { type AgentSettings, NO_WISHES, type RunGuidance, type RunSettings, runSettings } from "./run_settings.ts";
import type { OnRecorded, RunStore, RunStoreOptions } from "../journal/run_store.ts";
import type { ParkedRecords } from "../conversations/parked_records.ts";

/** Runs of one supervisor: their records, those at work, their line, the budget of the day. */
export interface SupervisedRuns {
  readonly runs: RunStore;
  readonly active: ActiveRuns<ActiveRun>;
  readonly queue: RunQueue;
  readonly day: DayBudget;
  /** Wakes whoever waits for new events of a run, by its id. */
  readonly news: KeyedNotifier;
}

/** Memory of runs beyond their end, for later ones: conversations, what waits for a client, pictures. */
export interface RunMemory {
  readonly conversations: Conversations;
  readonly parked: ParkedClientCalls;
  readonly parkedRecords: ParkedRecords;
  readonly pictures: PictureMemory;
}

/** Services that all runs of one supervisor share. */
export interface LaunchParts {
  readonly kit: SupervisorKit;
  readonly supervised: SupervisedRuns;
  readonly memory: RunMemory;
  readonly cluster: RunCoordination;
  readonly providers: Providers;
  readonly tools: ToolExecutor;
  readonly configured: Pick<RunConfiguration, "agent" | "halted">;
  readonly approvals?: Pick<RunApprovals, "approverOf"> | undefined;
  /** Receives the events of each run: those on record, and at its end those of a run without a record. Default: nobody does */
  readonly onEvents?: OnRecorded | undefined;
  /** Cancels a run, at whichever gateway it works. */
  readonly cancel: RunSupervisor["cancel"];
  /** Runs once, when a run is over and written. Undefined: the run was stopped for a shutdown. */
  readonly onEnd: (entry: ActiveRun, status: RunStatus | undefined) => void;
}

/** Kit of the runs of a supervisor. */
export interface SupervisorKit extends RunKit {
  readonly clock: Clock;
}

/** Setting `[runs] when_reader_leaves`: what becomes of a run in a conversation whose reader leaves. */
export type WhenReaderLeaves = "go_on" | "cancel";

/** Settings that runs read at their start. A reload changes them. */
export interface RunConfiguration {
  readonly agent: () => AgentSettings;
  readonly limits: () => RunLimits;
  /** Returns what becomes of a conversation's run whose reader leaves. Default: `cancel` */
  readonly whenReaderLeaves?: (() => WhenReaderLeaves) | undefined;
  /** Tokens of a day for all runs together; 0: no limit. Default 0. */
  readonly tokensPerDay?: (() => number) | undefined;
  /** Days that an ended run is kept; 0: for ever. Default 0. */
  readonly retentionDays?: (() => number) | undefined;
  /** Returns why work is halted, as the end of a sentence: a run, or without one all new work. Undefined: it is not. Default: it never is. */
  readonly halted?: ((runId?: string) => string | undefined) | undefined;
  /** See `RunStoreOptions`. Default: nobody is told */
  readonly tellEnd?: RunStoreOptions["tellEnd"];
  /** Tells whether messages of a configured channel are recorded under a conversation's id. Default: under no id. */
  readonly isChannelConversation?: ((id: string) => boolean) | undefined;
}

/** Ways of runs to the persons who approve their calls. */
export interface RunApprovals {
  /** Returns the approver of a run with tools. Default: each call that needs an approval is denied at once, with the way to allow it. */
  readonly approverOf?: ((run: ApprovableRun) => AgentApprover) | undefined;
  /** Returns the approvals that wait for a person. Default: none. */
  readonly pendingApprovals?: RecoverOptions["pendingApprovals"] | undefined;
  /** Withdraws an approval that no run needs any more. Default: nothing to withdraw. */
  readonly withdraw?: ((approvalId: string) => Promise<void>) | undefined;
}

/** Facts about a run that its request does not hold. */
export interface LaunchOptions {
  /** Profile of the configured agent that the request names. */
  readonly profile: AgentProfile | undefined;
  /** Texts that it begins with. Default: none */
  readonly guidance?: RunGuidance | undefined;
  /** The interrupted run that goes on; undefined for a new run. */
  readonly interrupted?: InterruptedRun | undefined;
  /** Id of a new run. Default: one is made */
  readonly id?: string | undefined;
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
  readonly scope: RunScope;
  readonly request: RunRequest;
  readonly interrupted: InterruptedRun | undefined;
  readonly settings: RunSettings;
  /** Why tools of an interrupted run cannot be called any more, by name; undefined for a new run. */
  readonly gone: ReadonlyMap<string, string> | undefined;
  readonly parent: ActiveRun | undefined;
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
}

/** Parts that say what a run has read when it begins. */
interface BegunRun extends Pick<Plan, "request" | "interrupted"> {
  readonly agentTools: RunSettings["agentTools"];
}

/** Gives runs their place in the queue and everything they work with. */
export class RunLauncher {
  readonly #parts: LaunchParts;
  readonly #windows: ContextWindows;

  constructor(parts: LaunchParts) {
    this.#parts = parts;
    this.#windows = createContextWindows(parts.kit.clock);
  }

  /** @throws {HttpError} 503 `overloaded`; {ProviderError} when the model cannot be used */
  launch(request: RunRequest, options: LaunchOptions): LaunchedRun {
    const plan = this.#plan(request, options);
    const { accepted, recorder } = this.#record(plan);
    const entry = this.#enter(plan, accepted, recorder);
    const { active } = this.#parts.supervised;
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
    // A run may go on from before the halt, or have been accepted while that came
    const halted = this.#parts.configured.halted?.(entry.id);
    if (halted !== undefined) entry.haltFor(halted);
    return { entry, run, recorder, leave, isReady: () => plan.place.ready(), workspace: plan.workspace };
  }

  #plan(request: RunRequest, { profile, guidance, interrupted, id: given }: LaunchOptions): Plan {
    const { providers, tools, cluster, kit, configured, memory: { conversations } } = this.#parts;
    const { active, queue } = this.#parts.supervised;
    const { by } = request;
    const settings = runSettings(request, {
      settings: configured.agent(),
      providers,
      tools,
      profile,
      guidance,
      resumed: interrupted?.run,
    });
    if (request.wishes?.condenses && settings.provider.name === "offline") throw offlineCondenses();
    const resumed = interrupted === undefined ? undefined : resumedTools(settings.agentTools, interrupted.input, tools);
    const conversationId = request.conversationId === undefined ? null : conversations.open(request.conversationId);
    const parent = by.parentId === undefined ? undefined : active.find(by.parentId);
    const keeps = request.durable || conversationId !== null;
    const agentTools = resumed?.agentTools ?? settings.agentTools;
    const id = interrupted?.run.id ?? given ?? kit.random.id("run_");
    const workspace = interrupted !== undefined
      ? interrupted.input.workspace ?? null
      : agentTools.length === 0
      ? null
      : cluster.workspaceFor({ tools: agentTools, durable: request.durable, wanted: by.workspace });
    const isPlain = !keeps && request.agentTools === "none";
    const controller = (request.durable ? undefined : request.reader?.controller) ?? new AbortController();
    const place = queue.enter({
      conversationId: conversationId === null ? null : cluster.ownLine(conversationId),
      tokenId: by.caller.tokenId,
      isChild: parent !== undefined,
      isPlain,
      isAccepted: interrupted !== undefined,
    });
    const { signal } = controller;
    const isRecorded = keeps || agentTools.length > 0 || this.#parts.onEvents !== undefined;
    return {
      scope: {
        runId: id,
        requestId: by.requestId,
        conversationId,
        caller: by.caller,
        depth: by.depth ?? (parent === undefined ? 0 : parent.depth + 1),
        taint: this.#readingOf({ request, interrupted, agentTools, parent }),
        signal,
        right: isRecorded ? cluster.rightOf(id, signal) : undefined,
        // A plain completion needs no database
        patience: isPlain ? undefined : cluster.patienceOf(id, signal),
      },
      request,
      interrupted,
      settings: resumed === undefined || interrupted === undefined
        ? settings
        : { ...settings, agentTools, deferred: resumed.deferred, prompt: interrupted.input.system_prompt },
      gone: resumed?.gone,
      parent,
      place: conversationId === null ? place : cluster.placeOf(place, {
        run: { id, conversationId, parentId: by.parentId ?? null, workspace },
        isAccepted: interrupted !== undefined,
      }),
      controller,
      keeps,
      isPlain,
      workspace,
      isRecorded,
    };
  }

  /** Returns the accepted state of a run, with a recorder when the run can have something to record. */
  #record(plan: Plan): { readonly accepted: AcceptedRun; readonly recorder: RunRecorder | undefined } {
    const { request, interrupted, settings, scope: { runId: id, depth, conversationId } } = plan;
    const { supervised: { runs, news }, memory: { parked }, kit } = this.#parts;
    const accepted: AcceptedRun = {
      id,
      kind: request.kind,
      created_at: interrupted?.run.created_at ?? kit.time(),
      model: settings.model,
      message: plan.isRecorded ? openingMessage(request.messages) : null,
      conversation_id: conversationId,
      parent_id: request.by.parentId ?? null,
      steers: request.by.steers && steersOf(request.by.steers),
    };
    if (!plan.isRecorded) return { accepted, recorder: undefined };
    const recorder = new RunRecorder({
      runs,
      state: createRunState(accepted),
      input: () => {
        const goesOn = conversationId !== null && !beginsConversation(request);
        const spliced = request.durable && !goesOn ? parked.splice(request.messages) : request.messages;
        return toRunInput(request, {
          taint: this.#taintOf({ request, interrupted, agentTools: settings.agentTools }),
          prompt: settings.prompt,
          agentTools: settings.agentTools,
          deferred: settings.deferred,
          depth,
          spliced,
          workspace: plan.workspace,
        });
      },
      beside: request.claim?.(id),
      onChange: () => news.wake(id),
      resumedAt: interrupted?.seq,
    });
    if (plan.keeps) recorder.activate();
    return { accepted, recorder };
  }

  #enter(plan: Plan, accepted: AcceptedRun, recorder: RunRecorder | undefined): ActiveRun {
    const { scope, request, parent, settings: { limits: { tokensPerRun } }, controller } = plan;
    const { day } = this.#parts.supervised;
    // A run's own limit is within its parent's, and that within the day's, so that no work escapes a limit by being handed down
    const isDayLimited = request.call === undefined && day.isSet();
    const within = parent?.budget ?? (isDayLimited ? day : undefined);
    return new ActiveRun({
      accepted,
      scope,
      durable: request.durable,
      recorder,
      budget: request.call !== undefined || tokensPerRun === 0
        ? within
        : createRunBudget({ tokensPerRun, used: plan.interrupted?.run.usage.total_tokens ?? 0, within }),
      controller,
    });
  }

  /** Returns what a run has read when it begins. A sub-agent and a firing know the addresses in their task that its writer had read. */
  #readingOf({ parent, ...begun }: BegunRun & Pick<Plan, "parent">): RunTaint {
    const { request: { messages, by: { links = [] } } } = begun;
    const taint = new RunTaint(this.#taintOf(begun));
    if (links.length > 0) taint.links.addShared(links);
    if (parent === undefined || !parent.taint.isTainted) return taint;
    for (const { content } of messages) taint.links.addShared(parent.taint.links.sharedIn(textOf(content)));
    return taint;
  }

  /**
   * Returns the outside content that a run begins with: its request's, what an interrupted run had read, that of parked calls, and what
   * the tools of a client gave. Without tools of the agent nobody asks for it.
   */
  #taintOf({ request: { by: { taint }, messages }, interrupted, agentTools }: BegunRun): Taint {
    const sent = agentTools.length === 0 ? UNTAINTED : taintOfMessages(messages);
    return joinTaints(taint, interrupted?.run.taint, this.#parts.memory.parked.taintOf(messages), sent);
  }

  #toAgentRun(plan: Plan, { entry, recorder, leave }: Pick<LaunchedRun, "entry" | "recorder" | "leave">): AgentRun {
    const { scope, request, settings } = plan;
    const { runId: id, conversationId, patience } = scope;
    const { provider, providerModel, limits, agentTools } = settings;
    const { tools, memory: { parked, pictures } } = this.#parts;
    const windows = this.#windows;
    const { steers } = entry;
    const { runs } = this.#parts.supervised;
    const steered = steers &&
      (async () => await runs.hasTaken(steers.run_id, id) ? "taken_in" : (await runs.get(steers.run_id))?.status);
    if (conversationId !== null && recorder !== undefined && request.call === undefined) {
      const { cancel } = this.#parts;
      entry.steering = new RunSteering({
        runId: id,
        runs,
        recorder,
        cancel,
        patience: patience ?? ((work) => work()),
        // A run of a cluster that begins was claimed, and hears of its messages by its signal
        isResumed: plan.interrupted !== undefined && (plan.interrupted.seq > 0 || !this.#parts.cluster.isShared),
      });
    }
    const findWindow = conversationId !== null || agentTools.length > 0 || request.wishes?.condenses
      ? windowFinder({ limits, windows, provider, model: providerModel })
      : undefined;
    const opening = new RunOpening({
      request,
      spliced: plan.interrupted?.input.spliced,
      provider,
      prompt: settings.prompt,
      place: plan.place,
      entry,
      conversations: this.#conversationsFor(request.durable ? patience : undefined),
      steered: steered === undefined || patience === undefined ? steered : patiently(patience, steered),
    });
    const fitting = request.wishes?.condenses
      ? createSummaryProvider(provider.name)
      : findWindow === undefined
      ? provider
      : this.#fittingProvider(settings, opening);
    return {
      scope,
      facts: {
        kind: request.kind,
        parentId: request.by.parentId ?? null,
        whole: request.reader?.whole === true && !request.durable,
        isPlain: request.agentTools === "none",
        survivesShutdown: request.durable,
        call: request.call,
      },
      model: {
        name: settings.model,
        provider: plan.keeps ? this.#parts.cluster.providerOf(fitting, id) : fitting,
        id: providerModel,
        wishes: request.wishes ?? NO_WISHES,
        findWindow,
        findListedWindow: () => windows.listed(provider, providerModel),
        learntWindow: (window) => windows.within(provider, providerModel, window),
        onAgain: (isAsking) => (entry.isAskedAgain = isAsking),
      },
      tools: {
        executor: tools,
        agentTools,
        deferred: settings.deferred,
        passesOn: settings.passesOn,
        approve: agentTools.length === 0 ? denyUnattended : this.#approverOf(plan, recorder),
        pictures,
      },
      opening,
      resume: plan.interrupted && this.#resumeOf(plan),
      steering: entry.steering,
      limits,
      budget: request.call === undefined && entry.budget !== undefined
        ? patientBudget(entry.budget, patience)
        : undefined,
      parked,
      journal: this.#journalOf(plan, { entry, recorder, leave }),
      abort: (error) => entry.abort(error),
      kit: this.#parts.kit,
    };
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

  #resumeOf({ scope: { runId: id, patience }, interrupted, gone }: Plan): RunResume | undefined {
    if (interrupted === undefined || gone === undefined) return undefined;
    const load = () => recallRun(this.#parts.supervised.runs, id);
    const patient = patience === undefined ? load : patiently(patience, load);
    return { afterSeq: shownUpTo(interrupted.seq), load: patient, gone };
  }

  #conversationsFor(patience: Patience | undefined): RunConversations {
    const { conversations } = this.#parts.memory;
    return patience === undefined ? conversations : conversations.patient(patience);
  }

  #approverOf(
    { request, interrupted, place, scope: { patience } }: Plan,
    recorder: RunRecorder | undefined,
  ): AgentApprover {
    return request.reader?.approver ?? this.#parts.approvals?.approverOf?.({
      durable: request.durable,
      reader: request.reader?.canApprove
        ? "approves"
        : request.reader === undefined && request.durable
        ? (isBegunByApprover(request.by) ? "none" : "nobody")
        : "reads",
      origin: () => ({ parentId: request.by.parentId ?? null, message: this.#shownMessage(request.messages) }),
      place,
      earlier: interrupted?.approvals,
      recorded: request.durable && recorder !== undefined ? () => recorder.commit() : undefined,
      patience,
    }) ?? denyUnattended;
  }

  #shownMessage(messages: readonly Message[]): string | null {
    // A masked text is a text
    return this.#parts.tools.shown(openingMessage(messages)) as string | null;
  }

  #journalOf(
    { request, scope, isPlain }: Plan,
    { entry, recorder, leave }: Pick<LaunchedRun, "entry" | "recorder" | "leave">,
  ) {
    const { memory: { parkedRecords }, kit: { log }, onEnd, onEvents, cluster } = this.#parts;
    // The end of a run that was cancelled is written too, and nothing of a plain completion
    const patience = isPlain ? undefined : cluster.patienceOf(entry.id);
    return new RunJournal({
      entry,
      request,
      recorder,
      right: scope.right,
      conversations: this.#conversationsFor(patience),
      parkedRecords: patience === undefined
        ? parkedRecords
        : { ...parkedRecords, writes: patiently(patience, parkedRecords.writes) },
      log,
      onUnrecorded: onEvents,
      onEnd(status) {
        leave();
        onEnd(entry, status);
      },
    });
  }
}

/** Returns a budget whose reservations wait for the database that has it. */
function patientBudget(budget: TokenBudget, patience: Patience | undefined): TokenBudget {
  if (patience === undefined) return budget;
  return { reserve: patiently(patience, (need) => budget.reserve(need)) };
}

function offlineCondenses(): HttpError {
  return refuse(
    "not_implemented",
    "Cannot condense a conversation with the offline assistant: it has no model; set one up with postern init",
  );
}

/** Returns the run that a message was sent to, once it is found. Undefined: none */
function steersOf({ runId, mode }: NonNullable<RunAuthor["steers"]>): AcceptedRun["steers"] {
  return runId === undefined || mode === "queue" ? undefined : { run_id: runId, mode };
}

/**
 * Tells whether somebody began the work who may approve and comes back to it, or whose client leads there. Schedules and channels begin theirs
 * by themselves.
 */
function isBegunByApprover({ caller: { via, scopes }, showsQuestions = false }: RunAuthor): boolean {
  if (showsQuestions) return true;
  return via !== "cron" && via !== "channel" && hasScope(scopes, "approve");
}

/** Returns the last message of the user, cut; null when there is none. */
function openingMessage(messages: readonly Message[]): string | null {
  const message = messages.findLast(({ role }) => role === "user");
  if (message === undefined) return null;
  const text = saidWithDocuments(message.content);
  return text.length <= MAX_OPENING ? text : `${text.slice(0, MAX_OPENING)}... (${text.length} characters)`;
}

/** Stops a child together with its parent. A shutdown stops each of them by itself. @returns a function that ends this */
function stopWith(parent: ActiveRun, child: ActiveRun, active: ActiveRuns<ActiveRun>): () => void {
  const { signal } = parent;
  const stop = () => {
    // The reader of an ended run leaves it too, which stops nothing
    const reason = cancelReason(signal);
    if (reason === "shutdown" || active.find(parent.id) === undefined) return;
    const why = reason === "halted" ? reason : "cancelled";
    child.abort(new CancelError(why, "The run it belongs to was stopped"));
  };
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop, { once: true });
  return () => signal.removeEventListener("abort", stop);
}
