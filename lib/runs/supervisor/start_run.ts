import { lastBytes } from "../../agent/estimate_tokens.ts";
import type { AgentRun } from "../../agent/agent_run.ts";
import { ParkedClientCalls } from "../../agent/parked_client_calls.ts";
import { PictureMemory } from "../../agent/picture_memory.ts";
import { runAgent } from "../../agent/run_agent.ts";
import { CancelError } from "../../base/cancel.ts";
import { refuse } from "../../base/errors.ts";
import type { AgentEvent } from "../../base/records/agent_event.ts";
import { type Caller, hasScope, SCOPES } from "../../base/records/caller.ts";
import { isAtWork, type Run } from "../../base/records/run.ts";
import { isPlainModel, plainModelOf } from "../../providers/models/model_names.ts";
import type { Store } from "../../storage/store.ts";
import {
  beginsConversation,
  checkConversation,
  type ConversationPlace,
  ownerFor,
} from "../conversations/conversation_records.ts";
import { type Conversations, createConversations } from "../conversations/conversations.ts";
import { createParkedRecords, type ParkedRecords } from "../conversations/parked_records.ts";
import type { InterruptedRun } from "../recovery/recover_runs.ts";
import { resumedRequest } from "../recovery/run_input.ts";
import type { FollowOptions, RunHandle, RunRequest } from "../run_request.ts";
import { type ActiveRun, AttachedRun, durableHandle } from "./active_run.ts";
import type { AgentOf } from "./agent_profile.ts";
import {
  type LaunchedRun,
  type LaunchOptions,
  type LaunchParts,
  type RunConfiguration,
  RunLauncher,
} from "./launch_run.ts";
import type { RunRecorder } from "../journal/run_recorder.ts";
import type { RunGuidance } from "./run_settings.ts";

/** Parts that a start needs, with those that are handed on to the launcher. */
export interface RunStarterOptions extends Omit<LaunchParts, "memory" | "configured"> {
  readonly store: Store;
  /** Returns the profile of the agent that `AskedAgent.name` names. */
  readonly agentOf: AgentOf;
  /** Returns the texts that a new run with tools of the agent begins with. Undefined: nothing to wait for. Default: there are none. */
  readonly guidance?: (() => Promise<RunGuidance> | undefined) | undefined;
  readonly configured: RunConfiguration;
  /** Returns the events of a run that was accepted, from the first on. */
  readonly events: (id: string, options: Omit<FollowOptions, "afterSeq">) => AsyncIterable<readonly AgentEvent[]>;
  /** Returns the reason for which no run is started any more. Undefined while runs are. */
  readonly draining: () => string | undefined;
}

/** Circumstances that a new run is launched in, beside its request. */
type Asked = Pick<LaunchOptions, "profile" | "guidance" | "id">;

/** Longest time from the first look at a request to the first record of its run, at another gateway. */
const MAX_ACCEPTING_MS = 600_000;

/**
 * Starts runs: checks a request, lets the launcher make the run, puts a durable one on disk, and sets it to work.
 *
 * Attached work goes on as its reader reads. Durable work goes on by itself; in a cluster it may begin at another gateway.
 */
export class RunStarter {
  readonly #options: RunStarterOptions;
  readonly #conversations: Conversations;
  readonly #parkedRecords: ParkedRecords;
  readonly #launcher: RunLauncher;
  /** Time before which nothing was begun here */
  readonly #since: string;

  constructor(options: RunStarterOptions) {
    const { store, kit: { clock, random }, configured: { isChannelConversation } } = options;
    this.#options = options;
    this.#since = options.kit.time();
    this.#conversations = createConversations({ store, random, isChannel: isChannelConversation });
    const parked = new ParkedClientCalls(clock);
    this.#parkedRecords = createParkedRecords({ store, clock, parked, isShared: options.cluster.isShared });
    this.#launcher = new RunLauncher({
      ...options,
      memory: {
        conversations: this.#conversations,
        parked,
        parkedRecords: this.#parkedRecords,
        pictures: new PictureMemory(),
      },
    });
  }

  /** Accepts a run and starts it, see `RunSupervisor.start`. */
  async start(asked: RunRequest): Promise<RunHandle> {
    this.#requireOpen();
    const lasting = toLasting(asPlain(asked), this.#options.configured.whenReaderLeaves);
    const sent = lasting.by.after !== undefined && lasting.wishes?.condenses
      ? await this.#withHistory(lasting, lasting.by.after)
      : lasting;
    const { agent, conversationId, messages, by: { after, caller, steers } } = sent;
    if (after === undefined && conversationId !== undefined && !beginsConversation(sent)) {
      await this.#checkOwner(conversationId, caller);
    }
    const request = steers === undefined ? sent : await this.#steer(sent);
    const { agentOf, supervised: { day } } = this.#options;
    const profile = agent?.name === undefined ? undefined : await agentOf(agent.name, request.model);
    if (request.call === undefined && day.isSet()) await day.check(lastBytes(messages));
    if (messages.at(-1)?.role === "tool") await this.#parkedRecords.recall(messages);
    const needsGuidance = request.agentTools !== "none" && request.call === undefined;
    const guidance = needsGuidance ? await this.#options.guidance?.() : undefined;
    if (after !== undefined) return await this.#goOn(request, { after, profile, guidance });
    const launched = this.#launch(request, { profile, guidance });
    return launched instanceof Promise ? await launched : launched;
  }

  /** Returns a request whose conversation is to be condensed, with the messages of that. */
  async #withHistory(request: RunRequest, after: ConversationPlace): Promise<RunRequest> {
    const { by: { after: _, ...by }, messages } = request;
    const history = await this.#conversations.upTo(after, by.caller);
    return { ...request, by, messages: [...history.messages, ...messages] };
  }

  /** Launches a run behind another one. */
  async #goOn(
    request: RunRequest,
    { after, ...asked }: Asked & { readonly after: ConversationPlace },
  ): Promise<RunHandle> {
    const id = this.#options.kit.random.id("run_");
    const taken = await this.#take(after, request.by.caller, id);
    try {
      return await this.#launch({ ...request, conversationId: taken }, { ...asked, id });
    } catch (error) {
      await this.#conversations.giveBack(taken, { place: after, runId: id });
      throw error;
    }
  }

  /** Returns the conversation that a run goes on in behind another one. It is launched at once, so that none comes between. */
  async #take(after: ConversationPlace, caller: Caller, runId: string): Promise<string> {
    const { kit, supervised: { active }, cluster } = this.#options;
    const conversations = this.#conversations;
    const { conversationId } = after;
    // A run that waits in line elsewhere may have no record. The one before this place is over, though its claim may not be gone
    const isBusy = async () =>
      ![undefined, after.runId].includes(await cluster.runIn(conversationId)) ||
      active.all().some((run) => run.conversationId === conversationId);
    const now = kit.clock.now();
    const lostBefore = cluster.isShared ? new Date(now - MAX_ACCEPTING_MS).toISOString() : this.#since;
    const time = kit.time();
    const goOn = (isBusy: boolean) => conversations.goOnAfter(after, { caller, time, isBusy, runId, lostBefore });
    const id = await goOn(await isBusy());
    if (id !== conversationId || !await isBusy()) return id;
    // Another run began while this one was noted, and speaks first
    await conversations.giveBack(id, { place: after, runId });
    return await goOn(true);
  }

  /** Launches a run whose request has passed every look at the store. */
  #launch(request: RunRequest, asked: Asked): RunHandle | Promise<RunHandle> {
    // The gateway may have been drained meanwhile
    this.#requireOpen();
    const { cluster } = this.#options;
    const isChild = request.durable && this.#hasParentHere(request);
    if (request.durable && !isChild) cluster.checkBounds(request.conversationId ?? null);
    const launched = this.#launcher.launch(request, asked);
    const { entry, run, recorder } = launched;
    if (!request.durable || recorder === undefined) return new AttachedRun(entry, runAgent(run));
    return this.#accept(request, { ...launched, recorder, isChild });
  }

  /** Puts the run of durable work on disk, and sets it to work. */
  async #accept(
    request: RunRequest,
    { entry, run, recorder, isReady, leave, workspace, isChild }: LaunchedRun & {
      readonly recorder: RunRecorder;
      readonly isChild: boolean;
    },
  ): Promise<RunHandle> {
    const { cluster } = this.#options;
    const { id } = entry;
    const parentId = request.by.parentId ?? null;
    const beginning = cluster.beginningOf({ id, conversationId: entry.conversationId, parentId, workspace }, {
      isReady,
      isChild,
    });
    const isHere = beginning !== "elsewhere";
    // A run that begins elsewhere, or later, has no place here
    if (!isHere) leave();
    const begin = () => this.#durableHandle(entry, isHere ? run : undefined, request);
    // Nobody may work beside whoever made the same claim before
    const begun = beginning === "at_once" && request.claim === undefined ? begin() : undefined;
    try {
      await recorder.accept();
    } catch (error) {
      if (begun === undefined) leave();
      else entry.abort(new CancelError("cancelled", "The run could not be accepted"));
      throw error;
    }
    const handle = begun ?? begin();
    if (!isHere) cluster.offer(id);
    if (entry.steers !== undefined) await this.#tellSteered(entry.steers);
    return handle;
  }

  /** Returns the request with the run at work that its message goes to. Without one it is the next turn. */
  async #steer(request: RunRequest): Promise<RunRequest> {
    const { by: { steers, ...by }, conversationId, messages } = request;
    const { supervised: { runs, active }, cluster } = this.#options;
    const isOne = messages.length === 1 && typeof messages[0]?.content === "string";
    const isAsked = steers !== undefined && steers.mode !== "queue" && conversationId !== undefined && isOne;
    const here = () => active.all().find((run) => run.conversationId === conversationId && run.startedAt !== null)?.id;
    const runId = isAsked ? steers.runId ?? here() ?? await cluster.runIn(conversationId) : undefined;
    const run = runId === undefined ? undefined : await runs.get(runId);
    const isThere = run !== undefined && isAtWork(run.status) && run.kind === "chat" &&
      run.conversation_id === conversationId;
    if (steers === undefined || !isThere || !await this.#mayAct(run.id, by.caller)) return { ...request, by };
    return { ...request, by: { ...by, steers: { mode: steers.mode, runId: run.id } } };
  }

  /** Tells whether a caller has all rights that a run works with: else its words would be carried out with more than its own. */
  async #mayAct(runId: string, { scopes }: Caller): Promise<boolean> {
    const { active, runs } = this.#options.supervised;
    const needed = active.find(runId)?.caller.scopes ?? (await runs.input(runId))?.caller.scopes ?? SCOPES;
    return SCOPES.every((scope) => !needed.includes(scope) || hasScope(scopes, scope));
  }

  /** Lets a run know of a message that was accepted for it, or ends it where the message comes in its place. */
  async #tellSteered({ run_id: id, mode }: NonNullable<Run["steers"]>): Promise<void> {
    const { supervised: { active }, cluster, cancel, kit: { log } } = this.#options;
    const entry = active.find(id);
    try {
      if (mode === "interrupt") await cancel(id, "interrupted");
      else if (entry === undefined) await cluster.tellOwner(id);
      else entry.steering?.onMessage();
    } catch (error) {
      // The message is on disk: whoever got a refusal would send it twice
      log.warn("A run could not be told of a message, and ends or takes it in at its next look", { run_id: id, error });
      entry?.steering?.onMessage();
    }
  }

  /**
   * Lets a run go on that a stop or a crash interrupted.
   * @throws {ProviderError} when its model cannot be used; {HttpError} 400 `invalid_request` when its agent is not configured any more
   */
  async resume(interrupted: InterruptedRun): Promise<void> {
    const request = resumedRequest(interrupted);
    const name = request.agent?.name;
    const profile = name === undefined ? undefined : await this.#options.agentOf(name, request.model);
    const { entry, run } = this.#launcher.launch(request, { profile, interrupted });
    this.#durableHandle(entry, run, request);
  }

  /** @throws {HttpError} 503 `shutting_down` once a drain began; 503 `halted` while all work is */
  #requireOpen(): void {
    const draining = this.#options.draining();
    if (draining !== undefined) throw refuse("shutting_down", `Cannot start the run: ${draining}`);
    const halted = this.#options.configured.halted?.();
    if (halted !== undefined) throw refuse("halted", `Cannot start the run: ${halted}`);
  }

  /**
   * Checks before a run has its place that the caller may use the conversation, so that the client gets a status. The run itself checks
   * again when it begins.
   */
  async #checkOwner(conversationId: string, caller: Caller): Promise<void> {
    await this.#conversations.check(conversationId, caller);
    if (hasScope(caller.scopes, "runs")) return;
    // Messages are recorded when a run ends: until then a conversation belongs to the caller whose run is at work in it
    for (const run of this.#options.supervised.active.all()) {
      if (run.conversationId !== conversationId) continue;
      checkConversation(caller, { owner: ownerFor(run.caller), isChannel: false });
    }
  }

  #hasParentHere({ by: { parentId } }: RunRequest): boolean {
    return parentId !== undefined && this.#options.supervised.active.find(parentId) !== undefined;
  }

  /** Starts durable work, which goes on by itself. @param run undefined: it begins elsewhere, or later */
  #durableHandle(entry: ActiveRun, run: AgentRun | undefined, { reader }: RunRequest): RunHandle {
    const { events, cancel } = this.#options;
    return durableHandle(entry, {
      events: run === undefined ? undefined : runAgent(run),
      reader,
      follow: (options) => events(entry.id, options),
      // Where it cannot be noted, the run goes on
      cancel: (reason) => void cancel(entry.id, reason).catch(() => {}),
    });
  }
}

/**
 * Returns the request with what decides whether its run outlives its reader: work that has to does, and so does what is said in a
 * conversation, as long as `when_reader_leaves` says so. The run of a parent ends with that. Every door that starts a run comes through here.
 * Source: docs/design/runs.md "Attached or durable"
 */
function toLasting(request: RunRequest, whenReaderLeaves: RunConfiguration["whenReaderLeaves"]): RunRequest {
  // Nobody reads durable work as it comes, so that it asks whoever may answer
  if (request.durable) return request.reader === undefined ? request : { ...request, reader: undefined };
  const hasRecord = request.conversationId !== undefined && request.by.parentId === undefined;
  // A message to a run at work is on disk before it is answered
  return hasRecord && (whenReaderLeaves?.() === "go_on" || request.by.steers !== undefined)
    ? { ...request, durable: true, reader: request.reader ?? {} }
    : request;
}

/** Returns the request as a plain one when its model is `plain/<id>`; else the same object. */
function asPlain(request: RunRequest): RunRequest {
  const { model } = request;
  if (model === undefined || !isPlainModel(model)) return request;
  return { ...request, model: plainModelOf(model), agentTools: "none" };
}
