import * as v from "valibot";
import {
  APPROVAL_KINDS,
  approvalDescriptionSchema,
  approvalSchema,
  containmentSchema,
  DENIED_BY,
  elicitationEntries,
} from "./approval.ts";
import { pictureSchema } from "./message.ts";
import { usageSchema } from "./usage.ts";

/** Fields of every event: `seq` counts from 1 within a run without a gap, `time` is ISO 8601. */
const stamp = { seq: v.pipe(v.number(), v.integer(), v.minValue(1)), time: v.string() };

/**
 * Reasons why a reply of the model ended: `stop` by itself, `length` at the limit of tokens, `tool_calls` for calls that wait for results,
 * `content_filter` by the vendor.
 */
export const finishReasonSchema = v.picklist(["stop", "length", "tool_calls", "content_filter"]);
/** Reason why a reply of the model ended. */
export type FinishReason = v.InferOutput<typeof finishReasonSchema>;

/** Outcome of a call whose end nobody saw, as a person states it. */
export const reviewOutcomeSchema = v.picklist(["done", "not_done", "unknown"]);
/** Outcome of a call whose end nobody saw. */
export type ReviewOutcome = v.InferOutput<typeof reviewOutcomeSchema>;

/** File as a call left it. `path` is relative to the workspace, with slashes. `bytes` and `sha256` (hexadecimal) are null where it was removed. */
export const writtenFileSchema = v.object({
  path: v.string(),
  bytes: v.nullable(v.number()),
  sha256: v.nullable(v.string()),
});
/** File as a call left it. */
export type WrittenFile = v.InferOutput<typeof writtenFileSchema>;

const fields = v.record(v.string(), v.unknown());

const event = <const T extends string, E extends v.ObjectEntries>(type: T, entries: E) =>
  v.object({ ...stamp, type: v.literal(type), ...entries });

/**
 * Event of a run, tagged by `type`. Journal, run events and WebSocket share its JSON form in snake_case. `done` and `error` end a run.
 * Source: docs/design/architecture.md "The main types"
 */
export const agentEventSchema = v.variant("type", [
  event("run_start", {
    kind: v.string(),
    model: v.string(),
    conversation_id: v.nullable(v.string()),
    parent_id: v.nullable(v.string()),
    /** Origins of outside content that it begins with: from its conversation, its parent or its schedule. Absent: none */
    taint: v.optional(v.array(v.string())),
  }),
  event("turn_start", { turn: v.number() }),
  /** An unfinished turn is asked again after a crash: forget the deltas with a seq of `from_seq` and above */
  event("turn_restart", { turn: v.number(), from_seq: v.number() }),
  event("text_delta", { delta: v.string() }),
  event("reasoning_delta", { delta: v.string() }),
  event("refusal_delta", { delta: v.string() }),
  /**
   * A call to a tool of the client: `index` counts the client's calls of the turn from 0; `call_id` and `name` come first, once.
   * `extra` has the vendor's own fields of the call
   */
  event("client_tool_call_delta", {
    index: v.number(),
    call_id: v.string(),
    name: v.optional(v.string()),
    arguments_delta: v.string(),
    extra: v.optional(fields),
  }),
  /** Fields of the model's reply that the gateway does not know, in a run without tools of the agent; the vendor's own parts of thinking in any */
  event("reply_fields", {
    reply: v.optional(fields),
    choice: v.optional(fields),
    message: v.optional(fields),
    /** Name of the provider, where the message has parts that no other one may get */
    provider: v.optional(v.string()),
  }),
  event("tool_start", { call_id: v.string(), tool: v.string(), input: v.unknown() }),
  event("tool_progress", { call_id: v.string(), message: v.string() }),
  event("tool_end", {
    call_id: v.string(),
    tool: v.string(),
    output: v.string(),
    is_error: v.boolean(),
    duration_ms: v.number(),
    /** Source of the denial of a call that was not made; absent: it was made, or failed before */
    denied_by: v.optional(v.picklist(DENIED_BY)),
    /** Data of the tool result for programs. Only in a run that is one tool call. */
    data: v.optional(v.unknown()),
    /** The tool is off: key of the configuration that a person may turn it on with. Absent: it is on, or that is not offered */
    turn_on: v.optional(v.object({ key: v.string(), value: v.union([v.boolean(), v.string()]) })),
    /** Origins of outside content in the output, such as `web_fetch example.com`. Absent: none */
    taint: v.optional(v.array(v.string())),
    /** Pictures of the output, without their bytes. Absent: none */
    pictures: v.optional(v.array(pictureSchema)),
    /** Files that the call wrote or removed, the first 1,000; not those of commands and other programs. Absent: none */
    files: v.optional(v.array(writtenFileSchema)),
    /** Files beyond those. Absent: none */
    files_dropped: v.optional(v.number()),
    /** The call was not made: a message that a person sent to the run came before it. Absent: it was made, or refused for another reason */
    skipped: v.optional(v.literal(true)),
    /** Skill that the output is from, with patterns of tools that the run may not call any more. Absent: it is from none */
    skill: v.optional(v.object({ name: v.string(), disallowed_tools: v.array(v.string()) })),
  }),
  event("approval_needed", {
    approval_id: v.string(),
    /** Absent in events of earlier versions: `call` */
    kind: v.optional(v.picklist(APPROVAL_KINDS)),
    ...elicitationEntries,
    call_id: v.string(),
    tool: v.string(),
    input: v.unknown(),
    reason: v.string(),
    rule: v.string(),
    /** How the programs it would start are contained; null: it starts none. Absent in events of earlier versions */
    containment: v.optional(v.nullable(containmentSchema)),
    expires_at: v.string(),
    /** As the approval has them; absent in events of earlier versions */
    input_digest: v.optional(v.string()),
    files: v.optional(approvalSchema.entries.files),
    bound: approvalSchema.entries.bound,
    offers: approvalSchema.entries.offers,
    asker: approvalSchema.entries.asker,
    editable: approvalSchema.entries.editable,
    /** The words for the person who answers; absent in events of earlier versions */
    description: v.optional(approvalDescriptionSchema),
  }),
  event("approval_answered", {
    approval_id: v.string(),
    /** `cancelled`: nobody needs the answer any more, or the question was taken back */
    decision: v.picklist(["approve", "deny", "expired", "cancelled"]),
    by: v.nullable(v.string()),
    /** Input that the person put in place of the call's; absent: it is as it was */
    input: v.optional(v.unknown()),
  }),
  /** A person said of a run with status needs_review what became of the calls whose end nobody saw: it goes on */
  event("review_answered", {
    outcome: reviewOutcomeSchema,
    by: v.nullable(v.string()),
    note: v.nullable(v.string()),
  }),
  /** The run took in what a person said to it while it was at work: the next turn of the model answers it */
  event("message_taken", {
    /** Id of the run that the message was accepted as */
    message_id: v.string(),
    text: v.string(),
    /** Id of the token that sent it; null for none */
    by: v.nullable(v.string()),
  }),
  /** Something the reader should know that changes nothing: a loop warning, a retry, a fallback, a trimmed window */
  event("notice", {
    code: v.string(),
    message: v.string(),
    /** With codes `parameter_ignored` and `parameter_changed`: the request's parameter that is not honoured, or sent in another form */
    param: v.optional(v.string()),
    /** With code `provider_fallback`: the `provider/model` that answers in place of the one that was asked for */
    model: v.optional(v.string()),
    /** With codes `history_trimmed` and `context_summarized`: messages that do not reach the model as they were */
    count: v.optional(v.number()),
  }),
  event("turn_end", { turn: v.number(), usage: usageSchema }),
  event("done", { finish_reason: finishReasonSchema, usage: usageSchema }),
  event("error", {
    code: v.string(),
    message: v.string(),
    /** With code `cancelled`: a person's message came in the place of the reply. Absent: none did, or an earlier version recorded it */
    interrupted: v.optional(v.literal(true)),
    /** Answer of the provider when it refused or failed, so that any door can answer with the same status */
    upstream: v.optional(
      v.object({
        status: v.optional(v.number()),
        code: v.optional(v.string()),
        param: v.optional(v.string()),
        retry_after_secs: v.optional(v.number()),
      }),
    ),
  }),
]);
/** Event of a run with its `seq` and `time`. */
export type AgentEvent = v.InferOutput<typeof agentEventSchema>;
/** Name of a kind of event, for example `text_delta`. */
export type AgentEventType = AgentEvent["type"];

// A mapped type over the union, since Omit alone would merge its members
type Unstamped<E> = E extends AgentEvent ? Omit<E, "seq" | "time"> : never;
/** An event before the journal gave it its `seq` and `time`. */
export type AgentEventBody = Unstamped<AgentEvent>;

/** Tells whether a run's stream ends with this event. */
export function isTerminal(event: { readonly type: AgentEventType }): boolean {
  return event.type === "done" || event.type === "error";
}
