import * as v from "valibot";
import { SOP_STATUSES, SOP_STEP_STATUSES } from "../../tools/sops/sops.ts";
import { definitionSchema } from "./definition.ts";

/**
 * What executions persist. Every body carries its version `v`; this is the one place where they are parsed, and where an older
 * version is brought up to the newest.
 */

const text = v.nullable(v.string());
const failure = v.object({ code: v.string(), message: v.string() });

const stepStateSchema = v.object({
  id: v.string(),
  status: v.picklist(SOP_STEP_STATUSES),
  /** The question about it; null: none was asked */
  approval_id: text,
  /** A person has said yes */
  granted: v.boolean(),
  /** What the question about its call was bound to; null: it asks none, or is no call */
  call_digest: text,
  run_id: text,
  /** Of the question, or of a step by hand: when it has waited too long */
  deadline: text,
  started_at: text,
  ended_at: text,
});
export type StepState = v.InferOutput<typeof stepStateSchema>;

const executionSchema = v.object({
  v: v.literal(1),
  id: v.string(),
  sop: v.string(),
  status: v.picklist(SOP_STATUSES),
  created_at: v.string(),
  started_at: text,
  ended_at: text,
  error: v.nullable(failure),
  /** Somebody wants its end: no step starts any more */
  cancelling: v.boolean(),
  /** Of a definition found in the workspace: whether a person has let it begin. null: nobody need */
  gate: v.nullable(v.object({
    approval_id: text,
    granted: v.boolean(),
    /** Set when the execution was open in a backup that was restored: it goes on once a person lets it */
    restored: v.optional(v.literal(true)),
  })),
  steps: v.array(stepStateSchema),
});
/** How far an execution is. Times are ISO 8601. */
export type Execution = v.InferOutput<typeof executionSchema>;

const planSchema = v.object({
  v: v.literal(1),
  definition: definitionSchema,
  /** As the definition is named to people */
  file: v.string(),
  /** SHA-256 of the definition */
  digest: v.string(),
  inputs: v.record(v.string(), v.unknown()),
  /** Patterns of the tools that its steps may use; null: all that [agent] gives */
  tools: v.nullable(v.array(v.string())),
  /** Bounds of its steps' runs below the configured ones; null: none of its own */
  limits: v.nullable(v.object({ maxIterations: v.number(), maxToolCalls: v.number(), tokensPerRun: v.number() })),
  requested_by: v.object({ via: v.string(), token_id: text, run_id: v.string() }),
});
export type ExecutionPlan = v.InferOutput<typeof planSchema>;

const resultSchema = v.object({
  v: v.literal(1),
  status: v.picklist(["completed", "failed"]),
  output: v.string(),
  data: v.unknown(),
  /** It came over the network: an agent is told so */
  outside: v.boolean(),
});
export type StepResult = v.InferOutput<typeof resultSchema>;

/** @throws {v.ValiError} for a body that no version wrote */
export function parseExecution(body: unknown): Execution {
  return v.parse(executionSchema, body);
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseExecutionPlan(body: unknown): ExecutionPlan {
  return v.parse(planSchema, body);
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseResult(body: unknown): StepResult {
  return v.parse(resultSchema, body);
}

/** Whether nothing of it will change any more. */
export function hasEnded({ status }: Execution): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}
