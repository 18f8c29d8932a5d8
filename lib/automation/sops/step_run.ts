import { HttpError, ProviderError } from "../../base/errors.ts";
import type { Run } from "../../base/records/run.ts";
import type { RunRequest, RunSupervisor } from "../../runs/run_request.ts";
import type { Write } from "../../storage/store.ts";
import { matchesPatterns } from "../../tools/runtime/registry.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { Execution, ExecutionPlan } from "./execution_record.ts";
import type { FilledWork } from "./questions.ts";
import { currentStep } from "./transitions.ts";

/** What the executor needs of the supervisor. */
export type StepRuns = Pick<RunSupervisor, "start" | "get" | "ended" | "cancel" | "follow">;

/** How starting a step's run went; `busy`: try again later. */
export type StartedStep =
  | { readonly kind: "started" }
  | { readonly kind: "claimed" }
  | { readonly kind: "busy" }
  | { readonly kind: "refused"; readonly message: string };

export interface StepRunOptions {
  readonly tools: Pick<ToolExecutor, "enabled">;
  readonly execution: Execution;
  readonly plan: ExecutionPlan;
  readonly title: string;
  /** Written in the transaction that accepts the run */
  readonly claim: (runId: string) => Write;
}

/** Starts the durable run of a step, at most once for one state of the execution. */
export async function startStepRun(
  runs: StepRuns,
  work: Exclude<FilledWork, { kind: "manual" }>,
  { execution, plan, title, claim, tools }: StepRunOptions,
): Promise<StartedStep> {
  const allowed = plan.tools ?? ["*"];
  const { requested_by, definition } = plan;
  const base = {
    kind: "sop",
    parentId: execution.id,
    // What a sub-agent started passes for nobody else
    caller: { via: requested_by.via === "subagent" ? "subagent" : "sop", tokenId: requested_by.token_id, scopes: [] },
    durable: true,
    claim,
    canApprove: false,
    agentTools: "configured",
    clientTools: [],
    parameters: {},
    limits: plan.limits ?? undefined,
  } as const;
  const request: RunRequest = work.kind === "tool"
    ? { ...base, messages: [], call: { tool: work.tool, input: JSON.stringify(work.input) }, tools: allowed }
    : {
      ...base,
      messages: [{ role: "user", content: work.instructions }],
      tools: tools.enabled(work.tools).map(({ name }) => name).filter((name) => matchesPatterns(name, allowed)),
      instructions: [
        `You carry out the step "${title}" of the procedure "${definition.name}". Do this step alone, and say what came of it.`,
        definition.guide,
      ].join("\n\n").trim(),
    };
  try {
    await runs.start(request);
    return { kind: "started" };
  } catch (error) {
    if (error instanceof ProviderError) return { kind: "refused", message: error.message };
    if (!(error instanceof HttpError)) throw error;
    if (error.status === 409) return { kind: "claimed" };
    if (error.status === 503) return { kind: "busy" };
    return { kind: "refused", message: error.message };
  }
}

/** Why a step's tool is not for whoever started the procedure; undefined when it is. */
export function whyNotHeld(work: FilledWork, { tools }: ExecutionPlan): string | undefined {
  if (work.kind !== "tool" || tools === null || matchesPatterns(work.tool, tools)) return undefined;
  return `Cannot call "${work.tool}": whoever started the procedure does not have this tool`;
}

/** Cancels the run of the step that is at work, on disk and at once. @param runs undefined: there is no agent */
export async function cancelStepRun(execution: Execution, runs: StepRuns | undefined): Promise<void> {
  const runId = execution.steps[currentStep(execution)]?.run_id ?? null;
  if (runId !== null) await runs?.cancel(runId, "cancelled");
}

/** What the run's one tool call gave for programs; null: nothing. */
export async function dataOf(runs: StepRuns, run: Run, signal: AbortSignal): Promise<unknown> {
  let data: unknown = null;
  for await (const batch of await runs.follow(run.id, { afterSeq: 0, signal }) ?? []) {
    for (const event of batch) if (event.type === "tool_end") data = event.data ?? null;
  }
  return data;
}
