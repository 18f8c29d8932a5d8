import type { Approval } from "../../base/records/approval.ts";
import { joinTaints, taintField } from "../../base/taint.ts";
import type { SopExecutionView, SopStepView, SopSummary } from "../../tools/sops/sops.ts";
import type { SopDefinition } from "./definition.ts";
import { currentStep, type Execution, type ExecutionPlan, hasEnded, type StepResult } from "./execution_record.ts";
import { fillHandWork, taintOfSteps } from "./step_run.ts";
import type { FoundSop } from "./load_definitions.ts";

/** Characters of a step's output that are shown. The whole output is the result of its run */
const SHOWN_CHARACTERS = 2_000;

/** An execution with the records that are shown with it. */
export interface ExecutionParts {
  readonly execution: Execution;
  readonly plan: ExecutionPlan;
  readonly results: ReadonlyMap<string, StepResult>;
  /** The approval that the execution waits for: of a step, of its begin, or of a call of its run. Undefined: none */
  readonly approval: Approval | undefined;
  /** True: its workspace has no gateway */
  readonly waitsForWorkspace: boolean;
}

/** Returns an execution as people and models see it. */
export function executionView(parts: ExecutionParts): SopExecutionView {
  const { execution, plan, results, approval, waitsForWorkspace } = parts;
  const { definition, inputs } = plan;
  const { id, sop, created_at, started_at, ended_at, error } = execution;
  // A run whose call waits for a person makes its execution wait; an answered approval lets it go on
  const status = hasEnded(execution) || execution.status === "pending"
    ? execution.status
    : approval === undefined
    ? "running"
    : "waiting_for_approval";
  return {
    id,
    object: "sop_execution",
    sop,
    name: definition.name,
    status,
    inputs,
    created_at,
    started_at,
    ended_at,
    error,
    steps: execution.steps.map((_, index) => stepView({ execution, plan, results }, index)),
    approval: approval === undefined
      ? null
      : { id: approval.id, reason: approval.reason, expires_at: approval.expires_at },
    waits_for: waitsFor(parts),
    ...(waitsForWorkspace ? { waiting_for: "workspace" as const } : {}),
    ...taintField(joinTaints(plan.taint, taintOfSteps(results, results.keys()))),
  };
}

/** Returns a procedure as a list shows it. */
export function sopSummary(
  { definition, file, inWorkspace }: FoundSop,
  toolOff: (tool: string) => string | null,
): SopSummary {
  const { id, name, description, inputs, steps } = definition;
  return {
    id,
    name,
    description,
    file,
    in_workspace: inWorkspace,
    inputs: inputs.map(({ pattern: _, ...input }) => input),
    steps: steps.map((step) => ({
      id: step.id,
      title: step.title,
      kind: step.work.kind,
      tool: toolOf(step),
      tool_off: step.work.kind === "tool" ? toolOff(step.work.tool) : null,
      requires_approval: step.requires_approval,
    })),
  };
}

function stepView(
  { execution, plan, results }: Pick<ExecutionParts, "execution" | "plan" | "results">,
  index: number,
): SopStepView {
  // The steps of an execution are those of its definition, in order
  const step = plan.definition.steps[index] as SopDefinition["steps"][number];
  const state = execution.steps[index] as Execution["steps"][number]; // there is a state for each step
  const output = results.get(step.id)?.output ?? null;
  return {
    id: step.id,
    title: step.title,
    kind: step.work.kind,
    tool: toolOf(step),
    requires_approval: step.requires_approval,
    status: state.status,
    run_id: state.run_id,
    started_at: state.started_at,
    ended_at: state.ended_at,
    output: output === null || output.length <= SHOWN_CHARACTERS
      ? output
      : `${output.slice(0, SHOWN_CHARACTERS)}\n[Cut after ${SHOWN_CHARACTERS} of ${output.length} characters]`,
  };
}

function waitsFor({ execution, plan, results, approval, waitsForWorkspace }: ExecutionParts): string {
  if (hasEnded(execution)) return "";
  if (execution.cancelling) return "It is being cancelled";
  if (waitsForWorkspace) {
    return "Its steps need a workspace that has no gateway now: start a gateway of that workspace, or cancel the " +
      "execution; it fails after [cluster] workspace_wait_secs";
  }
  if (approval !== undefined) {
    return `A person must approve it until ${approval.expires_at}: postern approval approve ${approval.id}, or POST ` +
      `/v1/approvals/${approval.id} with {"decision": "approve"}; what is asked is in postern approval show ${approval.id}`;
  }
  const index = currentStep(execution);
  const [step, state] = [plan.definition.steps[index], execution.steps[index]];
  if (step === undefined || state === undefined) return "";
  if (state.status === "waiting") {
    // The step began with the same values, so they can be filled in again
    const text = step.work.kind === "manual" ? fillHandWork(step.work.text, { execution, plan, results }) : "";
    return `Step "${step.title}" is done outside of the gateway: ${text}\nThen sop_advance says that it is done, until ${state.deadline}`;
  }
  if (state.status !== "needs_review") return "";
  return `The gateway stopped while step "${step.title}" was taking effect: look what became of it, then ` +
    `postern run resolve ${state.run_id} resume --outcome done (or not_done, which makes the call again), or close; or POST ` +
    `/v1/runs/${state.run_id}/resolve`;
}

function toolOf({ work }: SopDefinition["steps"][number]): string | null {
  return work.kind === "tool" ? work.tool : null;
}
