import {
  type RecordedResult,
  type RecordedRun,
  type RecordedTurn,
  separatorAfter,
  type TurnCall,
} from "../../agent/model_turn.ts";
import type { AgentEvent } from "../../base/records/agent_event.ts";
import { lastSeqOf, unpackEvents } from "../journal/pack_events.ts";
import type { JournalRecord } from "../journal/run_records.ts";
import type { RunStore } from "../journal/run_store.ts";

/** A call as the journal knows it. */
export interface StartedCall {
  readonly id: string;
  readonly tool: string;
}

/** A question that was asked for a call which has not ended. */
export interface RecordedApproval {
  readonly approvalId: string;
  /** Its answer is in the journal */
  readonly answered: boolean;
}

/** What the journal of an interrupted run says. */
export interface RecalledRun extends RecordedRun {
  /** Last seq in the journal, 0 for an empty one */
  readonly seq: number;
  /** Calls with an effect that were started and did not end: nobody knows whether it happened */
  readonly openEffects: readonly StartedCall[];
  /** By call id */
  readonly approvals: ReadonlyMap<string, RecordedApproval>;
  /** Whether the journal says enough to go on: one that an older version wrote does not */
  readonly isWhole: boolean;
}

/** Reads a run's journal back into what its loop knew. */
export async function recallRun(runs: RunStore, runId: string): Promise<RecalledRun> {
  const recall = createRecall();
  for await (const record of runs.records(runId)) recall.take(record);
  return recall.result();
}

interface TurnInTheMaking extends RecordedTurn {
  readonly results: Map<string, RecordedResult>;
  followed: boolean;
}

function createRecall() {
  const turns: TurnInTheMaking[] = [];
  const openEffects = new Map<string, StartedCall>();
  const approvals = new Map<string, RecordedApproval>();
  let started = false;
  let isWhole = true;
  let seq = 0;
  /** Where the unfinished turn began; undefined between turns */
  let turnSeq: number | undefined;
  let said = { text: "", refusal: "" };
  let separator = "";

  const endTurn = (event: Extract<AgentEvent, { type: "turn_end" }>, record: JournalRecord) => {
    const ended = record.turns?.find(({ turn }) => turn === event.turn);
    isWhole &&= ended !== undefined;
    const text = said.text === "" ? "" : said.text.slice(separator.length);
    turns.push({
      text,
      refusal: said.refusal,
      finishReason: ended?.finish_reason ?? "stop",
      calls: ended?.calls ?? [],
      opaque: ended?.opaque,
      provider: ended?.provider,
      usage: event.usage,
      last: ended?.last === true,
      results: new Map(),
      followed: false,
    });
    if (text !== "") separator = separatorAfter(text);
    said = { text: "", refusal: "" };
    turnSeq = undefined;
  };
  const takeEvent = (event: AgentEvent, record: JournalRecord) => {
    const turn = turns.at(-1);
    if (turn !== undefined && event.type !== "tool_end" && openCallsOf(turn).length === 0) turn.followed = true;
    switch (event.type) {
      case "run_start":
        started = true;
        break;
      case "turn_start":
        turnSeq = event.seq;
        break;
      case "turn_restart":
        turnSeq ??= event.from_seq;
        said = { text: "", refusal: "" };
        break;
      case "text_delta":
        said.text += event.delta;
        break;
      case "refusal_delta":
        said.refusal += event.delta;
        break;
      case "turn_end":
        endTurn(event, record);
        break;
      case "approval_needed":
        approvals.set(event.call_id, { approvalId: event.approval_id, answered: false });
        break;
      case "approval_answered":
        for (const [callId, { approvalId }] of approvals) {
          if (approvalId === event.approval_id) approvals.set(callId, { approvalId, answered: true });
        }
        break;
      case "tool_start":
        if (record.effects?.includes(event.call_id)) {
          openEffects.set(event.call_id, { id: event.call_id, tool: event.tool });
        }
        break;
      case "tool_end":
        openEffects.delete(event.call_id);
        approvals.delete(event.call_id);
        turn?.results.set(event.call_id, {
          output: event.output,
          isError: event.is_error,
          outside: record.outside?.includes(event.call_id) === true,
        });
        break;
      case "review_answered":
        // What a person says did not happen is a new call, with a question of its own
        for (const callId of openEffects.keys()) approvals.delete(callId);
        openEffects.clear();
        break;
    }
  };
  return {
    take(record: JournalRecord) {
      for (const event of unpackEvents(record)) takeEvent(event, record);
      seq = lastSeqOf(record);
    },
    result: (): RecalledRun => ({
      started,
      turns,
      fromSeq: turnSeq ?? seq + 1,
      seq,
      openEffects: [...openEffects.values()],
      approvals,
      isWhole,
    }),
  };
}

/** Calls of the agent that have not ended. */
export function openCallsOf({ calls, results }: RecordedTurn): readonly TurnCall[] {
  return calls.filter((call) => call.owner === "agent" && !results.has(call.id));
}
