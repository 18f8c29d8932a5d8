import { CancelError, cancelError } from "../base/cancel.ts";
import { ProviderError } from "../base/errors.ts";
import type { AgentEvent, AgentEventBody, FinishReason } from "../base/records/agent_event.ts";
import type { Message } from "../base/records/message.ts";
import type { ProviderEvent } from "../base/records/provider_event.ts";
import { addUsage, NO_USAGE, type Usage } from "../base/records/usage.ts";
import { taintField } from "../base/taint.ts";
import { mayHaveBeenServed } from "../providers/retry.ts";
import type { ReadSkill } from "../tools/runtime/tool_call.ts";
import type { AgentRun, AgentSteering, RecordedRun, SteeringMessage, TurnCall } from "./agent_run.ts";
import { type FittedRequest, trimNotice } from "./context_window.ts";
import { EventRecorder, type TerminalBody, toTerminal } from "./event_recorder.ts";
import { afterTools, createLoopGuard, type LoopGuard, toMessages } from "./loop_guard.ts";
import { askTurn, type LoopState, ModelRequests, type OpenTurn, replayTurn } from "./model_request.ts";
import { type ModelTurn, separatorAfter, type TurnFinish } from "./model_turn.ts";
import { hasMoreThanClient, turnKeys } from "./parked_client_calls.ts";
import type { CallResult } from "./tool_calls.ts";
import { toolWork, type ToolWorkOptions } from "./tool_work.ts";
import { noteOpening, noteResults, noteTurn } from "./untrusted_text.ts";

/**
 * The loop: model turn, tool calls, results, next turn, until a turn calls no tool of the agent, a limit or cancellation.
 *
 * Yields one array of events per provider read, the terminal event last; nothing stands between provider and reader but this
 * one generator. The first array comes with the first delta, so that a provider's refusal before it can still be answered with a
 * status. Leaving the iteration aborts the run.
 * @throws {ProviderError} before the first delta only; every other failure is an `error` event
 *
 * A run that goes on after a restart takes its recorded turns and results in place of the model and the tools, and then goes on
 * live: all that the loop counts is as it was. The first live turn is one that may have been shown before, and says so.
 * Source: docs/design/runs.md "The loop"
 */
export async function* runAgent(run: AgentRun): AsyncGenerator<readonly AgentEvent[], void, undefined> {
  const loop = new AgentLoop(run);
  const mayBeSteered = run.steering !== undefined || run.resume !== undefined;
  try {
    const beginning = loop.begin();
    if (beginning !== undefined) await beginning;
    for (;;) {
      const steered = mayBeSteered ? loop.steer() : undefined;
      if (steered !== undefined) await steered;
      const opening = loop.openTurn();
      const open = opening instanceof Promise ? await opening : opening;
      for await (const batch of open.stream) {
        const shown = loop.take(batch, open);
        // The last array goes out together with the turn's end, which comes at once
        if (open.turn.finish !== undefined) break;
        if (shown !== undefined) yield shown;
      }
      const used = open.usage();
      const calls = loop.endTurn(open, used instanceof Promise ? await used : used);
      if (calls.own.length === 0) {
        const ended = loop.finish(open, calls);
        yield ended instanceof Promise ? await ended : ended;
        return;
      }
      if (loop.head.length > 0) yield loop.takeHead();
      const results = yield* toolWork(run, loop.toolWorkOf(open, calls));
      const ended = loop.takeResults(open, calls, results);
      if (ended !== undefined) {
        yield ended instanceof Promise ? await ended : ended;
        return;
      }
    }
  } catch (error) {
    yield await loop.fail(error);
  } finally {
    if (!loop.events.ended) await loop.leave();
  }
}

/** Events that go out at once, or once the end of the run is written. */
type Shown = readonly AgentEvent[] | Promise<readonly AgentEvent[]>;

/** Calls of a finished turn. */
interface EndedCalls {
  /** Calls of the agent's own tools that are to be made; none where none may be called */
  readonly own: readonly TurnCall[];
  /** Ids of the calls to tools of the client */
  readonly client: readonly string[];
  /** False for calls whose results are all recorded */
  readonly isLive: boolean;
}

/** State of one run's loop between its turns. */
class AgentLoop implements LoopState {
  readonly run: AgentRun;
  readonly events: EventRecorder;
  readonly requests: ModelRequests;
  /** Messages that the run adds to the history */
  readonly added: Message[] = [];
  /** Events that wait for the turn's first array, to be yielded together with it */
  head: AgentEvent[] = [];
  /** Messages of the next request; set by `begin` */
  messages: readonly Message[] = [];
  usage: Usage = NO_USAGE;
  callsLeft: number;
  /** Text that goes before the next turn's first text */
  separator = "";
  /** The running turn as soon as anything of it came, else the turn before it */
  #open: OpenTurn | undefined = undefined;
  /** True once the provider has answered the running turn with anything */
  #answered = false;
  #spoken = false;
  /** seq of the first event that may have been shown of the turn that is asked again */
  #restartSeq: number | undefined = undefined;
  /** Number of the running turn, from 1 */
  #number = 0;
  #recorded: RecordedRun | undefined = undefined;
  #guard: LoopGuard | undefined = undefined;
  /** Skills that the run has read, which may take tools from it */
  readonly #skills: ReadSkill[] = [];
  /** Results of the running turn's calls, for the history of a run that is stopped among them */
  #results: CallResult[] = [];

  constructor(run: AgentRun) {
    this.run = run;
    this.events = new EventRecorder(run);
    this.requests = new ModelRequests(run);
    this.callsLeft = run.limits.maxToolCalls;
  }

  /** Waits for the run's slot and takes what is recorded of it. Returns undefined when there is nothing to wait for. */
  begin(): Promise<void> | undefined {
    const { run } = this;
    const messages = run.opening.begin(run);
    if (messages instanceof Promise || run.resume !== undefined) return this.#beginLater(messages);
    this.#start(messages, undefined);
    return undefined;
  }

  async #beginLater(messages: readonly Message[] | Promise<readonly Message[]>): Promise<void> {
    this.#start(await messages, await this.run.resume?.load());
  }

  #start(messages: readonly Message[], recorded: RecordedRun | undefined): void {
    const { run, events } = this;
    this.messages = messages;
    this.#recorded = recorded;
    for (const { results } of recorded?.turns ?? []) {
      for (const { taint, skill } of results.values()) {
        run.scope.taint.add(taint);
        if (skill !== undefined) this.#skills.push(skill);
      }
    }
    if (run.tools.agentTools.length > 0) noteOpening(run, messages);
    if (recorded?.started === true) this.#restartSeq = recorded.fromSeq;
    else {
      const start = {
        seq: events.next(),
        time: events.time(),
        type: "run_start",
        kind: run.facts.kind,
        model: run.model.name,
        conversation_id: run.scope.conversationId,
        parent_id: run.facts.parentId,
      } as const;
      this.head.push(
        events.keep(run.scope.taint.isTainted ? { ...start, ...taintField(run.scope.taint.origins) } : start),
      );
    }
    const { recalled } = run.opening;
    if (recalled === undefined) return;
    this.usage = addUsage(this.usage, recalled.usage);
    this.head.push(...events.note(recalled.notices));
  }

  /** Takes in what was said to the run while it was at work. Undefined: there is nothing to wait for. */
  steer(): Promise<void> | undefined {
    const known = this.#recorded?.taken.get(this.#number);
    if (known !== undefined) this.#takeIn(known);
    if (this.run.steering?.isDue !== true || this.#recorded?.turns[this.#number] !== undefined) return undefined;
    return this.#steerLater(this.run.steering, known ?? []);
  }

  /** @param known messages that a crash left waiting after they were recorded */
  async #steerLater(steering: AgentSteering, known: readonly SteeringMessage[]): Promise<void> {
    const waiting = await steering.waiting();
    if (waiting.length === 0) return;
    const fresh = waiting.filter(({ id }) => !known.some((one) => one.id === id));
    this.head.push(...this.events.note(
      fresh.map(({ id, text, by }) => ({ type: "message_taken", message_id: id, text, by })),
    ));
    this.#takeIn(fresh);
    await steering.taken(waiting.map(({ id }) => id));
  }

  #takeIn(messages: readonly SteeringMessage[]): void {
    const said = messages.map(({ text }): Message => ({ role: "user", content: text }));
    this.messages = [...this.messages, ...said];
    this.added.push(...said);
    if (said.length === 0) return;
    // A person has changed the course: what came before is no pattern any more
    this.#guard = undefined;
    // Whoever sent it does not repeat it: a refusal of the first turn must leave it in the conversation
    this.#spoken = true;
  }

  /** Opens the next turn: the recorded one, else one at the provider. */
  openTurn(): OpenTurn | Promise<OpenTurn> {
    const number = ++this.#number;
    const known = this.#recorded?.turns[number - 1];
    return known === undefined ? askTurn(this, number) : replayTurn(known);
  }

  startTurn(number: number, fitted: FittedRequest): void {
    const { events, head } = this;
    const restartSeq = this.#restartSeq;
    this.#restartSeq = undefined;
    this.#answered = false;
    head.push(events.keep(
      restartSeq === undefined
        ? { seq: events.next(), time: events.time(), type: "turn_start", turn: number }
        : { seq: events.next(), time: events.time(), type: "turn_restart", turn: number, from_seq: restartSeq },
    ));
    if (fitted.shortened > 0 || fitted.dropped > 0) head.push(...events.note([trimNotice(fitted)]));
  }

  /** Takes one array of the provider. Returns the events that go out with it; undefined when they wait for the next one. */
  take(batch: readonly ProviderEvent[], open: OpenTurn): readonly AgentEvent[] | undefined {
    const { turn } = open;
    this.#open = open;
    this.#answered = true;
    if (batch.length === 0) {
      // The provider has begun to answer: what fails from here on fails in the middle of a reply
      this.#spoken = true;
      return NO_EVENTS;
    }
    const events: AgentEvent[] = [];
    this.#spoken = turn.take(batch, events) || this.#spoken;
    if (events.length > 0) this.run.journal.record?.(events);
    if (this.head.length > 0) this.head.push(...events);
    else this.head = events;
    return turn.finish !== undefined || events.length === 0 ? undefined : this.takeHead();
  }

  takeHead(): readonly AgentEvent[] {
    const { head } = this;
    this.head = [];
    return head;
  }

  /** Counts and records a turn that has said everything, and adds its message to the history. */
  endTurn({ turn, last, known }: OpenTurn, usage: Usage): EndedCalls {
    const { run, added } = this;
    const { text, calls } = turn;
    this.usage = addUsage(this.usage, usage);
    if (text !== "") this.separator = separatorAfter(text);
    const mayCall = !last && turn.finish?.reason !== "content_filter";
    if (known === undefined) this.#recordEnd(turn, { usage, last, mayCall });
    const reply = turn.message({ provider: run.model.provider.name, calls: mayCall });
    if (reply !== undefined) added.push(reply);
    if (reply !== undefined && calls.length > 0) noteTurn(run, reply);
    if (!mayCall || calls.length === 0) return NO_CALLS;
    this.messages = [...this.messages, ...added.slice(-1)];
    const own = calls.filter((call) => call.owner === "agent");
    const client = calls.flatMap((call) => (call.owner === "client" ? [call.id] : []));
    // Calls that are made now show the reader that the run goes on, and the turn after them is a new one
    const isLive = known === undefined || own.some((call) => !known.results.has(call.id));
    if (isLive) this.#restartSeq = undefined;
    return { own, client, isLive };
  }

  #recordEnd(
    { calls, finish }: ModelTurn,
    { usage, last, mayCall }: { readonly usage: Usage; readonly last: boolean; readonly mayCall: boolean },
  ): void {
    const { events, run } = this;
    const { reason: finishReason, opaque, provider } = finish as TurnFinish; // a turn that has said everything has one
    run.journal.turn?.({ turn: this.#number, finishReason, calls, opaque, provider, last });
    this.head.push(events.keep({
      seq: events.next(),
      time: events.time(),
      type: "turn_end",
      turn: this.#number,
      usage,
    }));
    if (!mayCall && calls.length > 0) this.head.push(...events.note([IGNORED_CALLS]));
  }

  /** Ends the run after a turn without calls of the agent's own tools. */
  finish({ turn }: OpenTurn, { client }: EndedCalls): Shown {
    const reason = finishReason((turn.finish as TurnFinish).reason, client.length > 0); // it has said everything
    return this.#done(reason, client);
  }

  /** Work of the turn's calls, for `toolWork`. */
  toolWorkOf({ known }: OpenTurn, { own }: EndedCalls): ToolWorkOptions {
    return {
      calls: own,
      left: this.callsLeft,
      allowed: this.requests.agentTools,
      skills: this.#skills,
      known: known?.results,
      ended: this.#results = [],
      events: this.events,
    };
  }

  /** Takes the results of the turn's calls. Returns the last events when the run ends with them. @throws {CancelError} */
  takeResults(
    { known }: OpenTurn,
    { own, client, isLive }: EndedCalls,
    results: readonly CallResult[],
  ): Shown | undefined {
    const { limits, scope: { signal } } = this.run;
    this.callsLeft -= own.length;
    this.requests.tools?.takeResults(results);
    noteResults(this.run, results);
    const verdict = (this.#guard ??= createLoopGuard()).observe(
      // A call that was not made is no failure of the model
      results.filter(({ skipped }) => skipped !== true).map(({ call, output, isError, pictures }) => ({
        name: call.name,
        input: call.arguments,
        output,
        isError,
        pictures,
      })),
    );
    const hasNextTurn = client.length === 0 && verdict.kind !== "stop";
    const { callsLeft } = this;
    const { answers, notices } = afterTools({ results, verdict, hasNextTurn, turn: this.#number, callsLeft, limits });
    this.messages = [...this.messages, ...answers];
    this.added.push(...answers);
    this.#results = [];
    this.head = !isLive && known?.followed === true ? [] : this.events.note(notices);
    if (verdict.kind === "stop") {
      return this.#end({ type: "error", code: "loop_detected", message: loopMessage(verdict.what) });
    }
    if (!hasNextTurn) return this.#done("tool_calls", client);
    if (signal.aborted) throw cancelError(signal);
    return undefined;
  }

  #done(reason: FinishReason, client: readonly string[]): Shown {
    // Kept is what the client will not send back: tool work of the agent, and parts of the vendor's reply
    if (client.length > 0 && hasMoreThanClient(this.added)) {
      const { run, messages } = this;
      const keys = run.facts.isPlain ? turnKeys(messages, messages.length - 1) : client;
      run.parked.keep(keys, [...this.added], run.scope.taint.origins);
    }
    return this.#end({ type: "done", finish_reason: reason, usage: this.usage });
  }

  /** Ends the run. Returns the events that wait, with the terminal one. */
  #end(body: TerminalBody): Shown {
    const { events, added } = this;
    const head = this.takeHead();
    const ended = events.end(body, { added });
    return ended instanceof Promise ? ended.then((last) => [...head, ...last]) : [...head, ...ended];
  }

  /** Ends the run with an error. @throws the error itself, when the run has ended or its provider refused before anything was said */
  async fail(error: unknown): Promise<readonly AgentEvent[]> {
    const { run, events, added } = this;
    if (events.ended) throw error;
    const isUnused = error instanceof ProviderError && !this.#answered && !mayHaveBeenServed(error);
    await this.#breakOff({ isUnused, isLeft: error instanceof CancelError });
    if (error instanceof ProviderError && !this.#spoken) {
      await events.end(toTerminal(error, run), { added, refused: error });
      throw error;
    }
    return await this.#end(toTerminal(error, run));
  }

  /** Ends the run of a reader that left at a yield. */
  async leave(): Promise<void> {
    const { run, events, added } = this;
    run.abort(new CancelError("client_gone"));
    await this.#breakOff({ isUnused: false, isLeft: true });
    await events.end(toTerminal(cancelError(run.scope.signal), run), { added });
  }

  /**
   * Settles the budget of the running turn and keeps its text: the text belongs to the history, its calls do not. Of a turn that was stopped
   * among its calls, the results so far do.
   * @param isLeft the reader goes, not the provider: what came is what it costs
   */
  async #breakOff({ isUnused, isLeft }: { readonly isUnused: boolean; readonly isLeft: boolean }): Promise<void> {
    const { run, added } = this;
    const { turn, leave } = this.#open ?? NO_TURN;
    if (isLeft && this.#answered && turn !== undefined && turn.finish === undefined) await leave?.();
    this.requests.account?.broken(isUnused);
    added.push(...toMessages(this.#results));
    if (turn === undefined || turn.finish !== undefined) return;
    const said = turn.message({ provider: run.model.provider.name, calls: false });
    if (said !== undefined) added.push(said);
  }
}

const NO_EVENTS: readonly AgentEvent[] = [];
const NO_TURN = { turn: undefined, leave: undefined };
const NO_CALLS: EndedCalls = { own: [], client: [], isLive: true };

const IGNORED_CALLS: AgentEventBody = {
  type: "notice",
  code: "tool_calls_ignored",
  message: "The model called tools where none could be called any more: the calls were not run",
};

function loopMessage(what: string): string {
  return `The run was ended: the model was warned and still repeats itself (${what}); say more about what it should do, or ` +
    "ask another model";
}

/** A cut call stays `length`; some servers say `stop` though they call a tool, or `tool_calls` though they call none. */
function finishReason(reason: FinishReason, calls: boolean): FinishReason {
  if (calls) return reason === "length" ? "length" : "tool_calls";
  return reason === "tool_calls" ? "stop" : reason;
}
