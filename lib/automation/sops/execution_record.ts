import * as v from "valibot";
import { storedObject } from "../../base/records/stored_object.ts";
import { SCOPES } from "../../base/records/caller.ts";
import { type Taint, UNTAINTED } from "../../base/taint.ts";
import { Collection, parseMark } from "../../storage/read_records.ts";
import { SOP_STATUSES, SOP_STEP_STATUSES } from "../../tools/sops/sops.ts";
import { definitionSchema, type SopDefinition } from "./definition.ts";

/** Collection of the ids of executions that have not ended, so that nobody reads all executions to find them. */
export const OPEN_SOPS = new Collection("open_sops", parseMark, { onDamage: { becomes: { v: 1 } } });

/**
 * Records of executions in the store. Every body carries its version `v`. This file alone parses them, and brings an older version
 * up to the newest.
 */

const text = v.nullable(v.string());
const failure = storedObject({ code: v.string(), message: v.string() });

const stepStateSchema = storedObject({
  id: v.string(),
  status: v.picklist(SOP_STEP_STATUSES),
  /** Approval of the step. Null: none was asked for */
  approval_id: text,
  /** True once a person approved the step */
  granted: v.boolean(),
  /** Digest that the approval of the step's call is bound to. Null: the step needs no approval, or is no call */
  call_digest: text,
  run_id: text,
  /** Time after which the approval, or the step by hand, has waited too long */
  deadline: text,
  started_at: text,
  ended_at: text,
});
/** State of a step in an execution. */
export type StepState = v.InferOutput<typeof stepStateSchema>;

const executionSchema = storedObject({
  v: v.literal(1),
  id: v.string(),
  sop: v.string(),
  status: v.picklist(SOP_STATUSES),
  created_at: v.string(),
  started_at: text,
  ended_at: text,
  error: v.nullable(failure),
  /** True once somebody cancelled the execution: no step starts any more */
  cancelling: v.boolean(),
  /** Approval of a definition that was found in the workspace. Null: the execution begins without one */
  gate: v.nullable(storedObject({
    approval_id: text,
    granted: v.boolean(),
    /** True when the execution was open in a backup that was restored: it goes on once a person lets it */
    restored: v.optional(v.literal(true)),
  })),
  steps: v.array(stepStateSchema),
});
/** State of an execution. Times are ISO 8601. */
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
  /** The caller who started the execution. Older versions recorded no scopes */
  requested_by: v.object({
    via: v.string(),
    token_id: text,
    run_id: v.string(),
    scopes: v.optional(v.array(v.picklist(SCOPES))),
  }),
  /** Origins of outside content that the requesting run had read. Absent: none */
  taint: v.optional(v.array(v.string())),
});
/** The definition, inputs and requester that an execution follows. Never changed. */
export type ExecutionPlan = v.InferOutput<typeof planSchema>;

const resultSchema = v.object({
  v: v.literal(1),
  status: v.picklist(["completed", "failed"]),
  output: v.string(),
  data: v.unknown(),
  /** Origins of outside content in the output, which an agent gets in an envelope. Absent: none */
  taint: v.optional(v.array(v.string())),
  /** True for a result that came over the network, in records of earlier versions */
  outside: v.optional(v.boolean()),
});
/** Result of an ended step. */
export type StepResult = v.InferOutput<typeof resultSchema>;

/** Removes an execution as a whole: its state is of no use without its plan, nor its plan without its state. */
const onDamage = { removes: ["sop_executions", "sop_plans", OPEN_SOPS.name], removesBelow: "sop_results" };
/** Collection of the executions, by id. Each change names the version that it replaces, so that of two writers one reads again. */
export const SOP_EXECUTIONS = new Collection("sop_executions", executionSchema, { onDamage });
/** Collection of the plans that executions follow, by execution id. */
export const SOP_PLANS = new Collection("sop_plans", planSchema, { replaced: "never changed", onDamage });
/** Collection of the results of steps, by `<execution id>/<step id>`. */
export const SOP_RESULTS = new Collection("sop_results", resultSchema, { replaced: "never changed" });

/** Returns the origins of outside content in the result of a step. */
export function taintOfResult({ taint, outside }: StepResult): Taint {
  return taint ?? (outside === true ? ["an earlier step"] : UNTAINTED);
}

/** Tells whether an execution has ended and will not change any more. */
export function hasEnded({ status }: Execution): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** Tells whether a person must still let an execution begin, or go on after a restore. */
export function isBehindGate({ gate }: Execution): boolean {
  return gate !== null && !gate.granted;
}

/** Why a step or an execution failed. */
export interface Failure {
  readonly code: string;
  readonly message: string;
}

/** Returns the record of an execution that has not begun. @param options.time ISO 8601 */
export function newExecution(
  { id: sop, steps }: SopDefinition,
  { id, time, isGated }: { readonly id: string; readonly time: string; readonly isGated: boolean },
): Execution {
  return {
    v: 1,
    id,
    sop,
    status: "pending",
    created_at: time,
    started_at: null,
    ended_at: null,
    error: null,
    cancelling: false,
    gate: isGated ? { approval_id: null, granted: false } : null,
    steps: steps.map((step) => ({
      id: step.id,
      status: "pending",
      approval_id: null,
      granted: false,
      call_digest: null,
      run_id: null,
      deadline: null,
      started_at: null,
      ended_at: null,
    })),
  };
}

/** Returns the execution with one step changed. */
export function withStep(execution: Execution, index: number, change: Partial<StepState>): Execution {
  return { ...execution, steps: execution.steps.map((step, at) => (at === index ? { ...step, ...change } : step)) };
}

/** Returns the execution as it waits for the approval of its begin. */
export function gateAsked(execution: Execution, approvalId: string): Execution {
  const gate = { ...execution.gate, approval_id: approvalId, granted: false };
  return { ...execution, status: "waiting_for_approval", gate };
}

/** Returns the execution after a person let it begin. */
export function gatePassed(execution: Execution, approvalId: string): Execution {
  return { ...execution, status: "running", gate: { ...execution.gate, approval_id: approvalId, granted: true } };
}

/** Returns the execution as it waits for the approval of a step. @param options.time ISO 8601 */
export function stepAsked(
  execution: Execution,
  { index, time, ...asked }: Pick<StepState, "approval_id" | "call_digest"> & {
    readonly index: number;
    readonly time: string;
  },
): Execution {
  return {
    ...withStep(execution, index, { status: "waiting_for_approval", granted: false, ...asked }),
    started_at: execution.started_at ?? time,
    status: "waiting_for_approval",
  };
}

/** Returns the execution with a step at work, by its run or by a person's hands. @param options.time ISO 8601 */
export function stepStarted(
  execution: Execution,
  { index, time, ...started }: Pick<StepState, "status"> & Partial<StepState> & {
    readonly index: number;
    readonly time: string;
  },
): Execution {
  const next = withStep(execution, index, { started_at: time, ...started });
  return { ...next, started_at: execution.started_at ?? time, status: "running" };
}

/** Returns the execution after a step that ended: it goes on, or ends with its last step. @param options.time ISO 8601 */
export function stepEnded(
  execution: Execution,
  { index, status, time }: { readonly index: number; readonly status: "completed" | "failed"; readonly time: string },
): Execution {
  const next = {
    ...withStep(execution, index, { status, ended_at: time, deadline: null }),
    status: "running" as const,
  };
  return index === execution.steps.length - 1 ? { ...next, status: "completed", ended_at: time } : next;
}

/** Returns the execution as failed. @param options.index the step that failed; -1: before the first */
export function executionFailed(
  execution: Execution,
  { index, error, time }: { readonly index: number; readonly error: Failure; readonly time: string },
): Execution {
  const next = withStep(execution, index, { status: "failed", ended_at: time, deadline: null });
  return { ...next, status: "failed", error: { ...error }, ended_at: time };
}

/** Returns the execution as cancelled, with every step that has begun and not ended. */
export function executionCancelled(execution: Execution, time: string, message: string): Execution {
  const steps = execution.steps.map((step): StepState =>
    step.ended_at !== null || step.status === "pending" && step.run_id === null
      ? step
      : { ...step, status: "cancelled", ended_at: time, deadline: null }
  );
  return { ...execution, steps, status: "cancelled", error: { code: "cancelled", message }, ended_at: time };
}

/** Returns the index of the first step that has not ended; -1: there is none. */
export function currentStep(execution: Execution): number {
  return execution.steps.findIndex(({ ended_at }) => ended_at === null);
}
