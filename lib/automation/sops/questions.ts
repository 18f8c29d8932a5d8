import { createHash } from "node:crypto";
import { canonicalDigest } from "../../base/canonical_json.ts";
import { cutText, exactLine } from "../../base/exact_text.ts";
import type { ApprovalQuestion } from "../../guard/approvals.ts";
import type { BoundCall, ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { SopDefinition, SopStep } from "./definition.ts";
import type { Execution, ExecutionPlan } from "./execution_record.ts";
import { currentStep } from "./transitions.ts";

/** Characters of a procedure's inputs in the reason of a question */
const MAX_INPUTS_SHOWN = 2000;

export interface QuestionOptions {
  /** Masks known secrets */
  readonly shown: ToolExecutor["shown"];
  readonly workspaceRoot: string;
  readonly timeoutMs: number;
}

/** What a step is about to do, its templates filled in. */
export type FilledWork = SopStep["work"];

/** A step's call that can be made. */
export type StepCall = Extract<BoundCall, { ok: true }>;

/**
 * Asked before a step that requires approval: about this step of this execution alone, never remembered. The answer about a call is
 * bound to what the policy's own question would be.
 */
export function stepQuestion(
  { execution, plan, step, work, call }: {
    readonly execution: Execution;
    readonly plan: ExecutionPlan;
    readonly step: SopStep;
    readonly work: FilledWork;
    /** undefined: the step is none */
    readonly call: StepCall | undefined;
  },
  options: QuestionOptions,
): ApprovalQuestion {
  const { definition } = plan;
  const input = {
    execution_id: execution.id,
    sop: definition.id,
    step: step.id,
    title: step.title,
    ...shownWork(work),
  };
  return {
    tool: "sop_advance",
    // What an agent may do in its step is decided call by call
    access: call?.access ?? "state",
    workspace: options.workspaceRoot,
    input: options.shown(input),
    inputDigest: canonicalDigest(input),
    reason: `The procedure "${definition.name}" requires approval for its step "${step.title}"`,
    rule: `sop:${definition.id}/${step.id}`,
    files: call?.binding.files ?? [],
    bound: call?.binding.bound ?? [],
    containment: call?.binding.containment ?? null,
    digest: canonicalDigest({ definition: plan.digest, call: call?.binding.digest ?? null, ...input }),
    runId: execution.id,
    callId: step.id,
    requestedBy: { via: "sop", tokenId: plan.requested_by.token_id },
    timeoutMs: options.timeoutMs,
  };
}

function shownWork(work: FilledWork): Readonly<Record<string, unknown>> {
  if (work.kind === "manual") return { manual: work.text };
  return work.kind === "tool"
    ? { tool: work.tool, input: work.input }
    : { instructions: work.instructions, tools: work.tools };
}

/** Asked before the first step of a definition that was found in the workspace: an answer that is remembered stands for its very text. */
export function gateQuestion(
  { execution, plan }: { readonly execution: Execution; readonly plan: ExecutionPlan },
  options: QuestionOptions,
): ApprovalQuestion {
  const { definition, file, inputs } = plan;
  return {
    ...gateSubject({ definition, file }, options.workspaceRoot),
    access: "state",
    input: options.shown(gateInput({ definition, file })),
    reason: execution.gate?.restored === true
      ? restoredReason(execution, definition)
      : `The procedure "${definition.name}" was found in the workspace, in ${file}; its inputs are ${
        shownInputs(options.shown(inputs))
      }. Each of its calls is still decided by the policy. Files in {data_dir}/sops and [sops] dirs need no such approval`,
    rule: execution.gate?.restored === true ? "sop:restored" : "sop_workspace",
    files: [],
    digest: canonicalDigest({ execution: execution.id, definition: plan.digest, inputs }),
    runId: execution.id,
    callId: "start",
    requestedBy: { via: "sop", tokenId: plan.requested_by.token_id },
    timeoutMs: options.timeoutMs,
  };
}

/** Returns what a person must know before a restored procedure goes on: steps may have been done after the backup. */
function restoredReason(execution: Execution, definition: SopDefinition): string {
  const next = definition.steps[currentStep(execution)]?.title ?? "";
  return `The procedure "${definition.name}" was open in a backup that was restored. Its next step is "${next}": approve only when ` +
    "nobody did that step, or a later one, after the backup was made";
}

function shownInputs(inputs: unknown): string {
  const text = exactLine(JSON.stringify(inputs));
  return cutText(text, { limit: MAX_INPUTS_SHOWN, digest: createHash("sha256").update(text).digest("hex") });
}

/** What a remembered answer about a definition of the workspace stands for. */
export function gateSubject(
  found: { readonly definition: SopDefinition; readonly file: string },
  workspace: string,
): Pick<ApprovalQuestion, "tool" | "workspace" | "inputDigest"> {
  return { tool: "sop_execute", workspace, inputDigest: canonicalDigest(gateInput(found)) };
}

function gateInput({ definition, file }: { readonly definition: SopDefinition; readonly file: string }) {
  return { sop: definition.id, file, definition };
}
