import type { AgentJournal, AgentOutcome, RunScope } from "../../agent/agent_run.ts";
import { hasOwnWork } from "../../agent/parked_client_calls.ts";
import type { TokenBudget } from "../../agent/token_budget.ts";
import { CancelError, cancelError, type CancelReason, cancelReason } from "../../base/cancel.ts";
import type { EffectRight } from "../../base/effect_right.ts";
import type { ProviderError } from "../../base/errors.ts";
import { type AgentEvent, isTerminal } from "../../base/records/agent_event.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { Run, RunStatus } from "../../base/records/run.ts";
import { type RunTaint, taintField } from "../../base/taint.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { type AcceptedRun, createRunState, endStatus } from "../journal/apply_event.ts";
import type { RunRecorder } from "../journal/run_recorder.ts";
import type { RunSteering } from "./run_steering.ts";
import type { OnRecorded } from "../journal/run_store.ts";
import type { FollowOptions, RunHandle, RunReader, RunRequest } from "../run_request.ts";
import { beginsConversation } from "../conversations/conversation_records.ts";
import type { RunConversations } from "../conversations/conversations.ts";
import type { ParkedRecords } from "../conversations/parked_records.ts";
import { withoutInstructions } from "../conversations/run_opening.ts";

/** Facts about a run that has its place. */
export interface ActiveRunOptions {
  readonly accepted: AcceptedRun;
  readonly scope: RunScope;
  readonly durable: boolean;
  /** Recorder; undefined for a run that can have nothing to record. */
  readonly recorder: RunRecorder | undefined;
  /** Budget that the model calls count in; undefined when none is set. */
  readonly budget: TokenBudget | undefined;
  readonly controller: AbortController;
}

/** A run at work, or one that waits for its slot. */
export class ActiveRun {
  readonly id: string;
  readonly model: string;
  readonly conversationId: string | null;
  readonly depth: number;
  readonly caller: Caller;
  readonly durable: boolean;
  /** Outside content that the run has read, or began with */
  readonly taint: RunTaint;
  readonly recorder: RunRecorder | undefined;
  readonly budget: TokenBudget | undefined;
  /** Run at work that its message was sent to. */
  readonly steers: Run["steers"];
  /** Start of the work in ISO 8601; null while the run waits. */
  startedAt: string | null = null;
  hadEffect = false;
  /** True while a provider that refused is asked again. The next answer may still be a refusal. */
  isAskedAgain = false;
  /** True while the reader that the run was started for follows it. A shutdown gives such a run its time of grace. */
  isRead = false;
  /** Messages to the run while it is at work; undefined: it is in no conversation. */
  steering: RunSteering | undefined = undefined;
  /** Number of calls with an effect that run now. */
  effectsAtWork = 0;
  /** True by a shutdown: the run stops as soon as no tool call with an effect is running. */
  stopsForShutdown = false;
  /** Outcome of the work here, once it has ended and before it is on record. Another gateway may have gone on with the run, and ended it otherwise. */
  end: AgentOutcome["terminal"] | undefined = undefined;
  /** Refusal of the provider before the first delta, once the work has ended. The reader gets it thrown in place of the terminal event. */
  refused: ProviderError | undefined = undefined;
  readonly #accepted: AcceptedRun;
  readonly #controller: AbortController;

  constructor({ accepted, scope, durable, recorder, budget, controller }: ActiveRunOptions) {
    this.id = accepted.id;
    this.model = accepted.model;
    this.conversationId = accepted.conversation_id;
    this.depth = scope.depth;
    this.caller = scope.caller;
    this.durable = durable;
    this.taint = scope.taint;
    this.recorder = recorder;
    this.budget = budget;
    this.steers = accepted.steers;
    this.#accepted = accepted;
    this.#controller = controller;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(error: CancelError): void {
    this.#controller.abort(error);
  }

  /** Stops the run, and all that works for it here, where a person has halted it. @param reason the end of a sentence */
  haltFor(reason: string): void {
    this.abort(new CancelError("halted", `The run was stopped: ${reason}`));
  }

  /** Returns the present state, for a run that is not recorded. */
  view(): Run {
    const run = { ...createRunState(this.#accepted).run, ...taintField(this.taint.origins) };
    return this.startedAt === null ? run : { ...run, status: "running", started_at: this.startedAt };
  }
}

/** Work of a journal: the run, and the parts that its end is written with. */
export interface RunJournalOptions {
  readonly entry: ActiveRun;
  readonly request: RunRequest;
  /** Undefined for a run that can have nothing to record. */
  readonly recorder: RunRecorder | undefined;
  /** Right to effects, which a gateway of a cluster has while it owns the run. Default: effects need none */
  readonly right?: EffectRight | undefined;
  readonly conversations: Pick<RunConversations, "writes" | "giveBack">;
  readonly parkedRecords: Pick<ParkedRecords, "writes" | "note">;
  readonly log: Logger;
  /** Receives the events of a run that ended without a record. Default: nobody does */
  readonly onUnrecorded?: OnRecorded | undefined;
  /** Runs once, when the run is over and written. Undefined: stopped for a shutdown, with its journal open for the next start. */
  readonly onEnd: (status: RunStatus | undefined) => void;
}

/** The journal as the agent sees it. Records from the first effect on, and ends in one transaction with the conversation. */
export class RunJournal implements AgentJournal {
  readonly record: AgentJournal["record"];
  readonly turn: AgentJournal["turn"];
  readonly #right: EffectRight | undefined;
  readonly #options: RunJournalOptions;
  /** Ids of calls that run now and must not be made twice. Made with the first one. */
  #effects: Set<string> | undefined = undefined;

  constructor(options: RunJournalOptions) {
    this.record = options.recorder?.record;
    this.turn = options.recorder?.turn;
    this.#right = options.right;
    this.#options = options;
  }

  async beforeEffect(callId: string, { repeatable }: { readonly repeatable: boolean }): Promise<void> {
    const { entry, recorder } = this.#options;
    // No wait before the note: the record of the call's start, which is due already, takes the note with it
    entry.hadEffect = true;
    if (!repeatable) entry.effectsAtWork = (this.#effects ??= new Set()).add(callId).size;
    if (recorder === undefined) return;
    recorder.activate();
    if (!repeatable) recorder.effect(callId);
    await recorder.commit();
    await this.#right?.mayAct();
  }

  afterCall(callId: string): void {
    const { entry } = this.#options;
    const effects = this.#effects;
    if (effects?.delete(callId) !== true) return;
    entry.effectsAtWork = effects.size;
    if (entry.stopsForShutdown && effects.size === 0) entry.abort(new CancelError("shutdown"));
  }

  end(outcome: AgentOutcome): void | Promise<void> {
    const { terminal, added, refused } = outcome;
    const { entry, request, recorder, onEnd } = this.#options;
    entry.refused = refused;
    entry.end = terminal;
    const stopsForShutdown = request.durable && terminal.type === "error" && terminal.code === "shutdown";
    // Finished work must be on disk before the run counts as stopped for the shutdown. Unfinished work is left out.
    if (stopsForShutdown) return recorder?.commit().finally(() => onEnd(undefined));
    if (recorder?.isActive !== true) {
      const { onUnrecorded } = this.#options;
      if (recorder !== undefined) onUnrecorded?.(entry.id, recorder.unrecorded());
      const isNoted = recorder !== undefined && mayAwaitClient(request, outcome) && hasOwnWork(outcome.added);
      if (!isNoted) return this.#over(terminal, endStatus(terminal));
      return this.#noteOwnWork(outcome).then(() => this.#over(terminal, endStatus(terminal)));
    }
    // The client repeats a request that failed before anything was said, so the conversation stays as it was.
    // A run that waits for a review goes on later, and says then what it did
    const isOver = terminal.type === "done" || terminal.code !== "needs_review";
    const isSaid = terminal.type === "done" || added.length > 0 || this.#isInterrupted(terminal);
    const said = refused === undefined && isOver && isSaid;
    return this.#write(recorder, { said: said ? outcome : undefined, isOver }).then(
      () => this.#over(terminal, endStatus(terminal)),
      (error) => {
        this.#over(terminal, "failed");
        throw error;
      },
    );
  }

  /** Tells whether a message came before the first word of a reply that had begun. Nobody repeats what it was to answer: the message builds on it */
  #isInterrupted(terminal: AgentOutcome["terminal"]): boolean {
    const { entry, recorder } = this.#options;
    const hasBegun = entry.startedAt !== null && recorder !== undefined && recorder.reached() > 0;
    return hasBegun && terminal.type === "error" && terminal.interrupted === true;
  }

  /** Notes on disk that a run without records did work of the agent, when its client must come back. */
  #noteOwnWork(outcome: AgentOutcome): Promise<void> {
    const { entry, request, parkedRecords, log } = this.#options;
    return parkedRecords.note(outcome.added, { before: request.messages.at(-1), taint: entry.taint.origins }).catch(
      (error) => {
        log.warn("Cannot note what a restart would lose of this run", { run_id: entry.id, error });
      },
    );
  }

  /**
   * @param end.said what the conversation gets; undefined: nothing
   * @param end.isOver false: the run goes on later, in the conversation that it has
   */
  async #write(
    recorder: RunRecorder,
    { said, isOver }: { readonly said: AgentOutcome | undefined; readonly isOver: boolean },
  ): Promise<void> {
    const { entry: { id, conversationId, taint }, request, conversations, parkedRecords } = this.#options;
    if (said === undefined) {
      const { after } = request.by;
      await recorder.finish([]);
      // Last, since a run that goes on after a crash goes on in it
      if (isOver && conversationId !== null && after !== undefined) {
        await conversations.giveBack(conversationId, { place: after, runId: id });
      }
      return;
    }
    const { added, terminal } = said;
    const { durable } = request;
    const kept = mayAwaitClient(request, said)
      ? await parkedRecords.writes(added, { durable, before: request.messages.at(-1), taint: taint.origins })
      : [];
    if (conversationId === null) return await recorder.finish(kept);
    const messages = [...withoutInstructions(request.messages), ...added];
    const { time } = terminal;
    await recorder.finish([
      ...await conversations.writes(conversationId, {
        runId: id,
        isNew: beginsConversation(request),
        caller: request.by.caller,
        messages,
        // A message that came before the first word cuts nothing
        cut: added.length === 0 && terminal.type === "error" ? undefined : cutOf(terminal),
        taint: taint.origins,
        time,
      }),
      ...kept,
    ]);
  }

  #over(terminal: AgentOutcome["terminal"], status: RunStatus): void {
    const { entry, request, log, onEnd } = this.#options;
    if (terminal.type === "error" && status === "failed") {
      const { code, message } = terminal;
      log.warn("Run failed", { run_id: entry.id, request_id: request.by.requestId, code, message });
    }
    onEnd(status);
  }
}

/** Returns why a run has not said all. Undefined: it has */
function cutOf(terminal: AgentOutcome["terminal"]): string | undefined {
  if (terminal.type === "error") return terminal.code;
  return terminal.finish_reason === "length" ? "length" : undefined;
}

/** Tells whether the run may have ended with calls to tools of the client. */
function mayAwaitClient(request: RunRequest, { terminal }: AgentOutcome): boolean {
  return terminal.type === "done" && terminal.finish_reason !== "stop" && request.wishes !== undefined &&
    request.wishes.clientTools.length > 0;
}

type Step = Promise<IteratorResult<readonly AgentEvent[], void>>;

/**
 * Handle of attached work. The reader drives the agent directly, and leaving ends the run.
 *
 * The abort comes before the generator's own return, which would wait for a read of the provider that is under way.
 */
export class AttachedRun implements RunHandle, AsyncIterableIterator<readonly AgentEvent[], void, undefined> {
  readonly durable = false;
  readonly id: string;
  readonly model: string;
  readonly conversationId: string | null;
  readonly #entry: ActiveRun;
  readonly #events: AsyncGenerator<readonly AgentEvent[], void, undefined>;
  #started = false;
  #first: Step | undefined;

  constructor(entry: ActiveRun, events: AsyncGenerator<readonly AgentEvent[], void, undefined>) {
    this.id = entry.id;
    this.model = entry.model;
    this.conversationId = entry.conversationId;
    this.#entry = entry;
    this.#events = events;
  }

  events(): this {
    return this;
  }

  hadEffect(): boolean {
    return this.#entry.hadEffect;
  }

  isAskedAgain(): boolean {
    return this.#entry.isAskedAgain;
  }

  cancel(reason: CancelReason): void {
    this.#stop(new CancelError(reason));
  }

  leave(reason: CancelReason): void {
    this.cancel(reason);
  }

  next(): Step {
    this.#started = true;
    const step = this.#first;
    if (step === undefined) return this.#events.next();
    this.#first = undefined;
    return step;
  }

  return(): Step {
    this.#stop(new CancelError("client_gone"));
    return this.#events.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #stop(error: CancelError): void {
    this.#entry.abort(error);
    if (this.#started) return;
    // A generator that never ran has no end of its own. Its first step writes the end, and is kept for a late reader
    this.#started = true;
    this.#first = this.#events.next();
    this.#first.catch(() => {});
  }
}

/** Events of durable work, as the agent makes them and as a reader follows them. */
export interface DurableOptions {
  /** Undefined for a run that begins elsewhere, or later. */
  readonly events: AsyncGenerator<readonly AgentEvent[], void, undefined> | undefined;
  /** Reader that the run was started for. */
  readonly reader: RunReader | undefined;
  /** Returns the run's events from the first on. */
  readonly follow: (options: Omit<FollowOptions, "afterSeq">) => AsyncIterable<readonly AgentEvent[]>;
  /** Cancels the run, at whichever gateway it works. */
  readonly cancel: (reason: CancelReason) => void;
}

/** Starts durable work, which goes on by itself to its end. @returns the handle that its reader follows it by */
export function durableHandle(entry: ActiveRun, { events, reader, follow, cancel }: DurableOptions): RunHandle {
  const work = async (made: NonNullable<typeof events>) => {
    let last: readonly AgentEvent[] = [];
    try {
      for await (const batch of made) last = batch;
    } catch {
      // The refusal, which the entry keeps for its readers
    }
    return last.at(-1);
  };
  entry.isRead = reader !== undefined;
  const working = events === undefined ? undefined : work(events);
  const reading = new AbortController();
  const leave = (reason: CancelReason) => {
    entry.isRead = false;
    reading.abort(new CancelError(reason));
  };
  const asked = reader?.controller?.signal;
  if (asked?.aborted) leave(cancelReason(asked));
  else asked?.addEventListener("abort", () => leave(cancelReason(asked)), { once: true });
  const { id, model, conversationId, steers } = entry;
  let endedHere = false;
  return {
    id,
    model,
    conversationId,
    steers,
    durable: true,
    hadEffect: () => entry.hadEffect || (endedHere ? false : undefined),
    isAskedAgain: () => entry.isAskedAgain,
    async *events(onPace) {
      for await (const batch of follow({ signal: reading.signal, onPace })) {
        const isOver = isTerminal(batch.at(-1) ?? { type: "notice" });
        endedHere = isOver && isSameEnd(entry.end, batch.at(-1));
        if (isOver && entry.refused !== undefined) {
          if (batch.length > 1) yield batch.slice(0, -1);
          break;
        }
        yield batch;
        if (isOver) return;
      }
      if (reading.signal.aborted) throw cancelError(reading.signal);
      // An end that is not in the journal: a refusal, a shutdown, or a journal that cannot be written
      const terminal = await working;
      if (entry.refused !== undefined) throw entry.refused;
      if (terminal !== undefined) yield [terminal];
    },
    cancel,
    leave,
  };
}

/** Tells whether two events are one end of a run, which gives its end a time of its own. */
function isSameEnd(own: AgentOutcome["terminal"] | undefined, seen: AgentEvent | undefined): boolean {
  const codeOf = (event: AgentEvent | undefined) => event?.type === "error" ? event.code : undefined;
  return own !== undefined && own.type === seen?.type && own.time === seen.time && codeOf(own) === codeOf(seen);
}
