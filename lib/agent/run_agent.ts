import { CancelError, cancelError } from "../base/cancel.ts";
import { ProviderError } from "../base/errors.ts";
import type { AgentEvent, AgentEventBody, FinishReason } from "../base/records/agent_event.ts";
import type { Message } from "../base/records/message.ts";
import { addUsage, NO_USAGE, type Usage } from "../base/records/usage.ts";
import { mayHaveBeenServed } from "../providers/retry.ts";
import { afterTools, createLoopGuard, type LoopGuard } from "./loop_guard.ts";
import type { AgentRun } from "./agent_run.ts";
import { trimNotice } from "./context_window.ts";
import { ModelRequests } from "./model_request.ts";
import {
  type CallNaming,
  LiveTurn,
  type ModelTurn,
  restoreTurn,
  separatorAfter,
  type TurnFinish,
} from "./model_turn.ts";
import { hasMoreThanClient, hasOwnWork } from "./parked_client_calls.ts";
import { EventRecorder, toTerminal } from "./event_recorder.ts";
import { toolWork } from "./tool_calls.ts";

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
  const { journal, limits, signal } = run;
  const told = new EventRecorder(run);
  const { stamp } = told;
  /** Messages that the run adds to the history */
  const added: Message[] = [];
  /** Events that wait for the turn's first array, to be yielded together with it */
  let head: AgentEvent[] = [];
  let spoken = false;
  let turn: ModelTurn | undefined;
  /** True once the provider has answered the running turn with anything */
  let answered = false;
  let requests: ModelRequests | undefined;

  try {
    const begun = run.begin();
    let messages = begun instanceof Promise ? await begun : begun;
    const recorded = run.resume === undefined ? undefined : await run.resume.load();
    /** seq of the first event that may have been shown of the turn that is asked again */
    let restartSeq = recorded?.started === true ? recorded.fromSeq : undefined;
    requests = new ModelRequests(run);
    const { offersTools } = requests;
    let guard: LoopGuard | undefined;
    const { requestId, whole, isPlain: givesFields, onAgain } = run;
    const call = { signal, requestId, whole, givesFields, onAgain, beforeAgain: requests.account?.again };
    let usage: Usage = NO_USAGE;
    let callsLeft = limits.maxToolCalls;
    let separator = "";
    if (recorded?.started !== true) {
      head.push(told.keep({
        seq: stamp.next(),
        time: stamp.time(),
        type: "run_start",
        kind: run.kind,
        model: run.model,
        conversation_id: run.conversationId,
        parent_id: run.parentId,
      }));
    }
    if (run.opening !== undefined) {
      usage = addUsage(usage, run.opening.usage);
      head.push(...told.note(run.opening.notices));
    }

    for (let number = 1;; number++) {
      const known = recorded?.turns[number - 1];
      const last = known?.last ?? (offersTools && (number > limits.maxIterations || callsLeft < 1));
      let turnUsage: Usage;
      if (known !== undefined) {
        turn = restoreTurn(known);
        turnUsage = known.usage;
      } else {
        const next = requests.next({ messages, first: number === 1, last });
        const fitted = next instanceof Promise ? await next : next;
        answered = false;
        head.push(told.keep(
          restartSeq === undefined
            ? { seq: stamp.next(), time: stamp.time(), type: "turn_start", turn: number }
            : { seq: stamp.next(), time: stamp.time(), type: "turn_restart", turn: number, from_seq: restartSeq },
        ));
        restartSeq = undefined;
        if (fitted.shortened > 0 || fitted.dropped > 0) head.push(...told.note([trimNotice(fitted)]));
        turn = new LiveTurn({
          stamp,
          separator,
          naming: last ? allOwn(requests) : requests,
          shared: hasOwnWork(added),
        });

        for await (const batch of run.provider.stream(fitted.request, call)) {
          answered = true;
          if (batch.length === 0) {
            // The provider has begun to answer: what fails from here on fails in the middle of a reply
            spoken = true;
            yield batch as readonly AgentEvent[];
            continue;
          }
          const events: AgentEvent[] = [];
          spoken = turn.take(batch, events) || spoken;
          if (events.length > 0) journal.record?.(events);
          if (head.length > 0) head.push(...events);
          else head = events;
          // The last array goes out together with the turn's end, which comes at once
          if (turn.finish !== undefined) break;
          if (events.length === 0) continue;
          yield head;
          head = [];
        }
        if (turn.finish === undefined) throw brokenReply(run.provider.name);
        const used = requests.usageOf(fitted.request, turn);
        turnUsage = used instanceof Promise ? await used : used;
      }
      const finish = turn.finish as TurnFinish; // looked at above, and a recorded turn has one
      usage = addUsage(usage, turnUsage);
      const { text, calls } = turn;
      if (text !== "") separator = separatorAfter(text);
      const agentCalls = calls.length === 0 ? calls : calls.filter((call) => call.owner === "agent");
      const clientCallIds = calls.length === 0
        ? NO_IDS
        : calls.flatMap((call) => (call.owner === "client" ? [call.id] : []));
      const mayCall = !last && finish.reason !== "content_filter";
      if (known === undefined) {
        const { reason: finishReason, opaque, provider } = finish;
        journal.turn?.({ turn: number, finishReason, calls, opaque, provider, last });
        head.push(told.keep({
          seq: stamp.next(),
          time: stamp.time(),
          type: "turn_end",
          turn: number,
          usage: turnUsage,
        }));
        if (!mayCall && calls.length > 0) head.push(...told.note([IGNORED_CALLS]));
      }
      const reply = turn.message({ provider: run.provider.name, calls: mayCall });
      if (reply !== undefined) added.push(reply);

      if (!mayCall || agentCalls.length === 0) {
        const waitsForClient = mayCall && clientCallIds.length > 0;
        if (waitsForClient) park(run, clientCallIds, added);
        const reason = finishReason(finish.reason, waitsForClient);
        const ended = told.end({ type: "done", finish_reason: reason, usage }, { added });
        head.push(...(ended instanceof Promise ? await ended : ended));
        yield head;
        return;
      }
      messages = [...messages, ...added.slice(-1)];
      if (head.length > 0) yield head;
      head = [];
      // Calls that are made now show the reader that the run goes on, and the turn after them is a new one
      const isLive = known === undefined || agentCalls.some((call) => !known.results.has(call.id));
      if (isLive) restartSeq = undefined;

      const { agentTools: allowed } = requests;
      const results = yield* toolWork(run, {
        calls: agentCalls,
        left: callsLeft,
        allowed,
        known: known?.results,
        note: (bodies) => told.note(bodies),
      });

      callsLeft -= agentCalls.length;
      guard ??= createLoopGuard();
      const verdict = guard.observe(
        results.map(({ call, output, isError }) => ({ name: call.name, input: call.arguments, output, isError })),
      );
      const hasNextTurn = clientCallIds.length === 0 && verdict.kind !== "stop";
      const { answers, notices } = afterTools({ results, verdict, hasNextTurn, turn: number, callsLeft, limits });
      messages = [...messages, ...answers];
      added.push(...answers);
      head = !isLive && known?.followed === true ? [] : told.note(notices);
      if (verdict.kind === "stop") {
        const message = loopMessage(verdict.what);
        yield [...head, ...(await told.end({ type: "error", code: "loop_detected", message }, { added }))];
        return;
      }
      if (!hasNextTurn) {
        park(run, clientCallIds, added);
        yield [...head, ...(await told.end({ type: "done", finish_reason: "tool_calls", usage }, { added }))];
        return;
      }
      if (signal.aborted) throw cancelError(signal);
    }
  } catch (error) {
    if (told.ended) throw error;
    requests?.account?.broken(error instanceof ProviderError && !answered && !mayHaveBeenServed(error));
    keepPartial(run, turn, added);
    if (error instanceof ProviderError && !spoken) {
      await told.end(toTerminal(error, run), { added, refused: error });
      throw error;
    }
    yield [...head, ...(await told.end(toTerminal(error, run), { added }))];
  } finally {
    if (!told.ended) {
      // The reader left at a yield
      run.abort(new CancelError("client_gone"));
      requests?.account?.broken(false);
      keepPartial(run, turn, added);
      await told.end(toTerminal(cancelError(signal), run), { added });
    }
  }
}

const NO_IDS: readonly string[] = [];

const IGNORED_CALLS: AgentEventBody = {
  type: "notice",
  code: "tool_calls_ignored",
  message: "The model called tools where none could be called any more: the calls were not run",
};

function loopMessage(what: string): string {
  return `The run was ended: the model was warned and still repeats itself (${what}); say more about what it should do, or ` +
    "ask another model";
}

/** In a turn without tools a call is the agent's whatever its name: it is not run, and no client is told of it. */
function allOwn(requests: CallNaming): CallNaming {
  return { ownerOf: () => "agent", newCallId: (prefix) => requests.newCallId(prefix) };
}

/** A cut call stays `length`; some servers say `stop` though they call a tool, or `tool_calls` though they call none. */
function finishReason(reason: FinishReason, calls: boolean): FinishReason {
  if (calls) return reason === "length" ? "length" : "tool_calls";
  return reason === "tool_calls" ? "stop" : reason;
}

/** Keeps what the client will not send back: tool work of the agent, and parts of the vendor's reply. */
function park(run: AgentRun, callIds: readonly string[], added: readonly Message[]): void {
  if (hasMoreThanClient(added)) run.parked.keep(callIds, [...added]);
}

/** The text of a turn that broke off belongs to the history, its calls do not. */
function keepPartial(run: AgentRun, turn: ModelTurn | undefined, added: Message[]): void {
  if (turn === undefined || turn.finish !== undefined) return;
  const said = turn.message({ provider: run.provider.name, calls: false });
  if (said !== undefined) added.push(said);
}

function brokenReply(provider: string): ProviderError {
  return new ProviderError("provider_error", `Cannot use the reply of "${provider}": it ended without a finish`, {
    provider,
  });
}
