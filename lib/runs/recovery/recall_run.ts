import type { RecordedResult, RecordedRun, RecordedTurn, SteeringMessage, TurnCall } from "../../agent/agent_run.ts";
import { separatorAfter } from "../../agent/model_turn.ts";
import { UNTAINTED } from "../../base/taint.ts";
import type { AgentEvent } from "../../base/records/agent_event.ts";
import { lastSeqOf, unpackEvents } from "../journal/pack_events.ts";
import type { JournalRecord } from "../journal/run_records.ts";
import type { RunStore } from "../journal/run_store.ts";

/** A call as the journal knows it. */
export interface StartedCall {
  readonly id: string;
  readonly tool: string;
}

/** An approval of a call that has not ended, as the journal has it. */
export interface RecordedApproval {
  readonly approvalId: string;
  /** True when its answer is in the journal. */
  readonly answered: boolean;
}

/** Contents of the journal of an interrupted run. */
export interface RecalledRun extends RecordedRun {
  /** Last seq in the journal, 0 for an empty one. */
  readonly seq: number;
  /** Calls with an effect that were started and did not end: nobody knows whether the effect happened. */
  readonly openEffects: readonly StartedCall[];
  /** Approvals of calls that have not ended, by call id. */
  readonly approvals: ReadonlyMap<string, RecordedApproval>;
  /** False when an older version wrote the journal, and the run cannot go on from it. */
  readonly isWhole: boolean;
}

/** Reads the journal of a run back into what the run's loop knew. */
export async function recallRun(runs: RunStore, runId: string): Promise<RecalledRun> {
  const reader = new JournalReader();
  for await (const record of runs.records(runId)) reader.take(record);
  return reader.result();
}

/** Returns the calls of the agent that have not ended. */
export function openCallsOf({ calls, results }: RecordedTurn): readonly TurnCall[] {
  return calls.filter((call) => call.owner === "agent" && !results.has(call.id));
}

interface TurnInTheMaking extends RecordedTurn {
  readonly results: Map<string, RecordedResult>;
  followed: boolean;
}

/** Takes the records of one journal in order, and keeps what the loop knew after each. */
class JournalReader {
  readonly #turns: TurnInTheMaking[] = [];
  readonly #openEffects = new Map<string, StartedCall>();
  readonly #approvals = new Map<string, RecordedApproval>();
  readonly #taken = new Map<number, SteeringMessage[]>();
  #started = false;
  #isWhole = true;
  #seq = 0;
  /** First seq of the unfinished turn; undefined between turns. */
  #turnSeq: number | undefined = undefined;
  /** Text and refusal of the unfinished turn. */
  #text = "";
  #refusal = "";
  #separator = "";

  take(record: JournalRecord): void {
    for (const event of unpackEvents(record)) {
      const turn = this.#turns.at(-1);
      if (turn !== undefined && event.type !== "tool_end" && openCallsOf(turn).length === 0) turn.followed = true;
      this.#takeText(event);
      this.#takeStep(event, record);
    }
    this.#seq = lastSeqOf(record);
  }

  result(): RecalledRun {
    return {
      started: this.#started,
      turns: this.#turns,
      taken: this.#taken,
      fromSeq: this.#turnSeq ?? this.#seq + 1,
      seq: this.#seq,
      openEffects: [...this.#openEffects.values()],
      approvals: this.#approvals,
      isWhole: this.#isWhole,
    };
  }

  /** Takes the text of a turn, and the events that restart the text. */
  #takeText(event: AgentEvent): void {
    switch (event.type) {
      case "turn_start":
        this.#turnSeq = event.seq;
        break;
      case "turn_restart":
        this.#turnSeq ??= event.from_seq;
        this.#text = this.#refusal = "";
        break;
      case "text_delta":
        this.#text += event.delta;
        break;
      case "refusal_delta":
        this.#refusal += event.delta;
        break;
    }
  }

  /** Takes the steps of the run: its start, ends of turns, calls, approvals and reviews. */
  #takeStep(event: AgentEvent, record: JournalRecord): void {
    switch (event.type) {
      case "run_start":
        this.#started = true;
        break;
      case "turn_end":
        this.#endTurn(event, record);
        break;
      case "approval_needed":
        // A question of an MCP server ended with its call, and is no approval of the call
        if (event.kind === "elicitation") break;
        this.#approvals.set(event.call_id, { approvalId: event.approval_id, answered: false });
        break;
      case "approval_answered":
        for (const [callId, { approvalId }] of this.#approvals) {
          if (approvalId === event.approval_id) this.#approvals.set(callId, { approvalId, answered: true });
        }
        break;
      case "tool_start":
        if (record.effects?.includes(event.call_id)) {
          this.#openEffects.set(event.call_id, { id: event.call_id, tool: event.tool });
        }
        break;
      case "tool_end":
        this.#endCall(event, record);
        break;
      case "message_taken": {
        const { message_id: id, text, by } = event;
        const turn = this.#turns.length;
        this.#taken.set(turn, [...this.#taken.get(turn) ?? [], { id, text, by }]);
        break;
      }
      case "review_answered":
        // A call that did not happen, as a person says, is made again as a new call with an approval of its own
        for (const callId of this.#openEffects.keys()) this.#approvals.delete(callId);
        this.#openEffects.clear();
        break;
    }
  }

  #endTurn(event: Extract<AgentEvent, { type: "turn_end" }>, record: JournalRecord): void {
    const ended = record.turns?.find(({ turn }) => turn === event.turn);
    this.#isWhole &&= ended !== undefined;
    const text = this.#text === "" ? "" : this.#text.slice(this.#separator.length);
    this.#turns.push({
      text,
      refusal: this.#refusal,
      finishReason: ended?.finish_reason ?? "stop",
      calls: ended?.calls ?? [],
      opaque: ended?.opaque,
      provider: ended?.provider,
      usage: event.usage,
      last: ended?.last === true,
      results: new Map(),
      followed: false,
    });
    if (text !== "") this.#separator = separatorAfter(text);
    this.#text = this.#refusal = "";
    this.#turnSeq = undefined;
  }

  #endCall(event: Extract<AgentEvent, { type: "tool_end" }>, record: JournalRecord): void {
    this.#openEffects.delete(event.call_id);
    this.#approvals.delete(event.call_id);
    this.#turns.at(-1)?.results.set(event.call_id, {
      output: event.output,
      isError: event.is_error,
      ...(event.pictures === undefined ? {} : { pictures: event.pictures }),
      ...(event.skill === undefined
        ? {}
        : { skill: { name: event.skill.name, disallowedTools: event.skill.disallowed_tools } }),
      ...(event.skipped === undefined ? {} : { skipped: event.skipped }),
      ...(event.denied_by === undefined ? {} : { deniedBy: event.denied_by }),
      taint: event.taint ?? (record.outside?.includes(event.call_id) === true ? [event.tool] : UNTAINTED),
    });
  }
}
