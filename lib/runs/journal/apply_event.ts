import type { AgentEvent } from "../../base/records/agent_event.ts";
import { isEnded, type Run, type RunKind, runKindSchema, type RunStatus } from "../../base/records/run.ts";
import { unknownFieldsOf } from "../../base/records/stored_object.ts";
import { joinTaints } from "../../base/taint.ts";
import { addUsage, NO_USAGE } from "../../base/records/usage.ts";
import { is } from "valibot";

/** State of a run between two events: the record and the text so far, which becomes the result. */
export interface RunState {
  readonly run: Run;
  readonly text: string;
  /** Length of the text of finished turns in `text`. */
  readonly kept: number;
  /** Model that the run asks at each turn. `run.model` is the one that answers, which may be a fallback. */
  readonly asked: string;
}

/** Facts about a run that are known when it is accepted. */
export type AcceptedRun = Pick<
  Run,
  "id" | "kind" | "created_at" | "model" | "message" | "conversation_id" | "parent_id" | "steers"
>;

/** Returns the state of a run that was accepted and has no events yet. */
export function createRunState(run: AcceptedRun): RunState {
  return {
    run: {
      ...unknownFieldsOf(run),
      id: run.id,
      object: "run",
      kind: run.kind,
      status: "queued",
      created_at: run.created_at,
      started_at: null,
      ended_at: null,
      model: run.model,
      ...(run.message === undefined ? {} : { message: run.message }),
      conversation_id: run.conversation_id,
      parent_id: run.parent_id,
      ...(run.steers === undefined ? {} : { steers: run.steers }),
      result: null,
      error: null,
      usage: NO_USAGE,
    },
    text: "",
    kept: 0,
    asked: run.model,
  };
}

/**
 * Applies one event, as a pure function. A run is its accepted state with every event of its journal applied in order
 * (docs/design/runs.md "Journal").
 *
 * Deltas may be applied joined, since only their text counts. Events after the terminal one change nothing.
 */
export function applyEvent(state: RunState, event: AgentEvent): RunState {
  const { run, text, kept, asked } = state;
  if (isEnded(run.status)) return state;
  switch (event.type) {
    case "run_start":
      return {
        text,
        kept,
        asked: event.model,
        run: {
          ...run,
          kind: toKind(event.kind, run.kind),
          model: event.model,
          conversation_id: event.conversation_id,
          parent_id: event.parent_id,
          status: "running",
          started_at: event.time,
          ...(event.taint === undefined ? {} : { taint: event.taint }),
        },
      };
    case "text_delta":
      return { run, kept, asked, text: text + event.delta };
    case "turn_restart":
      return { kept, asked, text: text.slice(0, kept), run: answeredBy(run, asked) };
    case "approval_needed":
      return { text, kept, asked, run: { ...run, status: "waiting_for_approval" } };
    case "approval_answered":
      return { text, kept, asked, run: { ...run, status: "running" } };
    case "review_answered":
      return { text, kept, asked, run: { ...run, status: "running", ended_at: null, error: null } };
    case "turn_end":
      return { text, kept: text.length, asked, run: { ...run, usage: addUsage(run.usage, event.usage) } };
    case "done":
      return {
        text,
        kept,
        asked,
        run: { ...run, status: "completed", ended_at: event.time, result: text, usage: event.usage },
      };
    case "error": {
      const { code, message } = event;
      return {
        text,
        kept,
        asked,
        run: { ...run, status: endStatus(event), ended_at: event.time, error: { code, message } },
      };
    }
    case "turn_start":
      // Each turn that a fallback serves says so again
      return run.model === asked ? state : { text, kept, asked, run: answeredBy(run, asked) };
    case "reasoning_delta":
    case "refusal_delta":
    case "client_tool_call_delta":
    case "reply_fields":
    case "tool_start":
    case "tool_progress":
    case "message_taken":
      return state;
    case "tool_end":
      if (event.taint === undefined) return state;
      return { text, kept, asked, run: { ...run, taint: [...joinTaints(run.taint, event.taint)] } };
    case "notice":
      return event.model === undefined ? state : { text, kept, asked, run: answeredBy(run, event.model) };
  }
}

function answeredBy(run: Run, model: string): Run {
  return { ...run, model };
}

/** Codes of the last event of runs that were cancelled. */
const CANCELLED: ReadonlySet<string> = new Set(["cancelled", "client_gone", "shutdown", "halted", "taken_in"]);

/** Returns the status of a run that ended with this terminal event. */
export function endStatus(
  event: { readonly type: "done" } | { readonly type: "error"; readonly code: string },
): RunStatus {
  if (event.type === "done") return "completed";
  if (CANCELLED.has(event.code)) return "cancelled";
  return event.code === "needs_review" ? "needs_review" : "failed";
}

function toKind(kind: string, fallback: RunKind): RunKind {
  return is(runKindSchema, kind) ? kind : fallback;
}
