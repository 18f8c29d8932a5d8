import type { Execution, StepState } from "./execution_record.ts";

/** Why a step or an execution failed. */
export interface Failure {
  readonly code: string;
  readonly message: string;
}

/** The execution with one step changed. */
export function withStep(execution: Execution, index: number, change: Partial<StepState>): Execution {
  return { ...execution, steps: execution.steps.map((step, at) => (at === index ? { ...step, ...change } : step)) };
}

/** The step has ended and the execution goes on, or has ended with it. @param time ISO 8601 */
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

/** Nothing follows. @param index the step it failed at; -1: before the first */
export function executionFailed(
  execution: Execution,
  { index, error, time }: { readonly index: number; readonly error: Failure; readonly time: string },
): Execution {
  const next = withStep(execution, index, { status: "failed", ended_at: time, deadline: null });
  return { ...next, status: "failed", error: { ...error }, ended_at: time };
}

/** Nothing follows; the steps that have not ended never will. */
export function executionCancelled(execution: Execution, time: string, message: string): Execution {
  const steps = execution.steps.map((step): StepState =>
    step.ended_at !== null || step.status === "pending" && step.run_id === null
      ? step
      : { ...step, status: "cancelled", ended_at: time, deadline: null }
  );
  return { ...execution, steps, status: "cancelled", error: { code: "cancelled", message }, ended_at: time };
}

/** The first step that has not ended; -1: there is none. */
export function currentStep(execution: Execution): number {
  return execution.steps.findIndex(({ ended_at }) => ended_at === null);
}
