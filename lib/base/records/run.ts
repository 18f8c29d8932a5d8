import * as v from "valibot";
import type { JsonSchema } from "../json.ts";
import { usageSchema } from "./usage.ts";

/** States of a run. A run with `needs_review` waits for a person; see `isEnded` and `isAtWork` for the others. */
export const runStatusSchema = v.picklist([
  "queued",
  "running",
  "waiting_for_approval",
  "completed",
  "failed",
  "cancelled",
  "needs_review",
]);
/** State of a run. */
export type RunStatus = v.InferOutput<typeof runStatusSchema>;

/** Form of a run's id. */
export const RUN_ID = /^run_[0-9a-z]{1,64}$/;
/** JSON Schema of a run's id, for the input of tools and routes. */
export const RUN_ID_SCHEMA: JsonSchema = { type: "string", pattern: RUN_ID.source };

/** Kinds of runs, by the thing that started them. `tool` is a single tool call without the model. */
export const runKindSchema = v.picklist(["chat", "tool", "cron", "sop", "subagent", "channel"]);
/** Kind of a run. */
export type RunKind = v.InferOutput<typeof runKindSchema>;

/** Ways of a message to a conversation: behind the run at work, into it at its next tool boundary, or in its place. */
export const MESSAGE_MODES = ["queue", "steer", "interrupt"] as const;
/** Way of a message to a conversation. */
export type MessageMode = typeof MESSAGE_MODES[number];

/** A run as `/v1/runs` shows it (docs/design/http.md "Runs over HTTP"). Times are ISO 8601. */
export const runSchema = v.object({
  id: v.string(),
  object: v.literal("run"),
  kind: runKindSchema,
  status: runStatusSchema,
  /** Present for a queued run that no gateway may claim: those of its workspace are gone, and it ends when none comes back in time */
  waiting_for: v.optional(v.literal("workspace")),
  created_at: v.string(),
  started_at: v.nullable(v.string()),
  ended_at: v.nullable(v.string()),
  model: v.string(),
  /** The user's message that began it, cut after 1,000 characters; null where there is none. Absent in records of earlier versions */
  message: v.optional(v.nullable(v.string())),
  conversation_id: v.nullable(v.string()),
  parent_id: v.nullable(v.string()),
  /**
   * Run at work that its message was sent to: `steer` is taken in there at the next tool boundary, and this run ends as `cancelled` with the
   * code `taken_in`; where that run ends before, this one is the next turn. `interrupt` has ended that run. Absent: a turn of its own
   */
  steers: v.optional(v.object({ run_id: v.string(), mode: v.picklist(["steer", "interrupt"]) })),
  /** The answer's text; null until completed */
  result: v.nullable(v.string()),
  error: v.nullable(v.object({ code: v.string(), message: v.string() })),
  usage: usageSchema,
  /** Origins of outside content that it has read, such as `web_fetch example.com`. Absent: none */
  taint: v.optional(v.array(v.string())),
});
/** Run as `/v1/runs` shows it. */
export type Run = v.InferOutput<typeof runSchema>;

/** Tells whether a run in this state will not change any more (needs_review waits for a person). */
export function isEnded(status: RunStatus): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** Tells whether a run in this state is accepted and goes on by itself, now or after a restart. */
export function isAtWork(status: RunStatus): boolean {
  return status === "queued" || status === "running" || status === "waiting_for_approval";
}
