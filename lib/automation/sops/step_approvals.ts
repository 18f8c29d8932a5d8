import { hash } from "node:crypto";
import { canonicalDigest } from "../../base/json.ts";
import { HttpError } from "../../base/errors.ts";
import { cutText, exactLine } from "../../base/text.ts";
import type { Approval } from "../../base/records/approval.ts";
import { ANSWERED_BY_PROGRAM, type Approvals, type NewApproval, sayAnswerer } from "../../guard/approvals.ts";
import { isStorageAway } from "../../storage/read_records.ts";
import type { BoundCall, ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { SopDefinition, SopStep } from "./definition.ts";
import {
  currentStep,
  type Execution,
  type ExecutionPlan,
  type Failure,
  hasEnded,
  isBehindGate,
} from "./execution_record.ts";
import type { ExecutionStore, KeptExecution } from "./execution_store.ts";
import { WORKSPACE_SOPS } from "./load_definitions.ts";

/** Approvals of executions. Each is filed once, also when the process stops in between. */
export interface StepApprovals {
  /**
   * Files an approval in one transaction with the record that names it.
   * @returns `changed`: the execution has changed meanwhile; `full`: too many approvals are pending already
   */
  ask(
    found: KeptExecution,
    approval: NewApproval,
    next: (approvalId: string) => Execution,
  ): Promise<"asked" | "changed" | "full">;
  /** Waits for the answer. @returns who gave it when it is yes. @throws {CancelError} when the signal aborts */
  answer(approvalId: string, signal: AbortSignal): Promise<Failure | Approved>;
  /**
   * Answers the policy's approval of the very call that a person approved as a step, so that nobody is asked twice. Any other
   * call, or one that would change other files by now, is left to a person.
   */
  passOn(callApprovalId: string, approved: ApprovedCall): Promise<void>;
}

/** Yes to an approval. */
export interface Approved {
  readonly by: ReturnType<typeof sayAnswerer>;
}

/** Approval of a step, and the digest of the one call that it is bound to. */
export interface ApprovedCall {
  readonly approvalId: string;
  readonly callDigest: string;
}

/** Creates the approvals of executions. */
export function createStepApprovals(
  { approvals, store }: { readonly approvals: Approvals; readonly store: ExecutionStore },
): StepApprovals {
  return {
    async ask(found, approval, next) {
      try {
        const asked = await approvals.ask(approval, (id) => store.writes(found, next(id)));
        return asked === undefined ? "full" : "asked";
      } catch (error) {
        if (error instanceof HttpError && error.status === 409) return "changed";
        throw error;
      }
    },

    async answer(approvalId, signal) {
      const settled = await approvals.settled(approvalId, signal).catch((error: unknown) => {
        if (error instanceof HttpError && !isStorageAway(error)) return undefined;
        throw error;
      });
      switch (settled?.status) {
        case undefined:
          return { code: "approval_lost", message: `Nothing is known of the approval "${approvalId}" any more` };
        case "approved": {
          // The approval is bound to this execution: only this step can have used it, before a stop
          const used = settled.used_at === null ? await approvals.use(approvalId, settled.digest) : undefined;
          if (used?.ok === false) return { code: "approval_expired", message: used.reason };
          return { by: sayAnswerer(settled) };
        }
        case "denied":
          return {
            code: "approval_denied",
            message: `${sayAnswerer(settled) === "a person" ? "A person" : "The program"} denied it${
              settled.note ? `: ${settled.note}` : ""
            }`,
          };
        case "expired":
          return { code: "approval_expired", message: "Nobody answered the approval in time" };
        default:
          return { code: "approval_lost", message: "The approval was cancelled before anybody answered" };
      }
    },

    async passOn(callApprovalId, { approvalId, callDigest }) {
      const [asked, given] = await Promise.all([approvals.get(callApprovalId), approvals.get(approvalId)]);
      if (asked?.status !== "pending" || asked.digest !== callDigest || given?.status !== "approved") return;
      const { answered_by: tokenId } = given;
      const by = tokenId === ANSWERED_BY_PROGRAM
        ? { via: "program", tokenId: null } as const
        : { via: "sop", tokenId } as const;
      try {
        const note = `Approved as a step, by ${approvalId}`;
        await approvals.answer(callApprovalId, { decision: "approve", note, by });
      } catch (error) {
        // Somebody answered at the same moment
        if (!(error instanceof HttpError)) throw error;
      }
    },
  };
}

/** Returns the approval that an execution waits for now: of its begin, of a step, or of a call of the step's run. Undefined: none */
export async function pendingApproval(
  execution: Execution,
  approvals: Pick<Approvals, "get" | "ofRuns">,
): Promise<Approval | undefined> {
  if (hasEnded(execution) || execution.cancelling) return undefined;
  const state = execution.steps[currentStep(execution)];
  if (state?.status === "running") {
    if (state.run_id === null) return undefined;
    return (await approvals.ofRuns(new Set([state.run_id]), "pending"))[0];
  }
  const stepApprovalId = state?.status === "waiting_for_approval" ? state.approval_id : null;
  const id = isBehindGate(execution) ? execution.gate?.approval_id : stepApprovalId;
  const approval = id ? await approvals.get(id) : undefined;
  return approval?.status === "pending" ? approval : undefined;
}

/** Characters of a procedure's inputs in the reason of an approval */
const MAX_INPUTS_SHOWN = 2000;

/** Workspace, masking and timeout of the approvals of steps. */
export interface StepApprovalOptions {
  /** Masks known secrets */
  readonly shown: ToolExecutor["shown"];
  readonly masked: ToolExecutor["masked"];
  readonly workspaceRoot: string;
  readonly timeoutMs: number;
}

/** The work of a step, with its templates filled in. */
export type FilledWork = SopStep["work"];

/** A step's call that can be made. */
export type StepCall = Extract<BoundCall, { ok: true }>;

/**
 * Returns the approval for a step that requires one. It counts for this step of this execution alone and is never remembered. The
 * answer about a call is bound to the same state as the policy's own approval of that call.
 */
export function stepApproval(
  { execution, plan, step, work, call }: {
    readonly execution: Execution;
    readonly plan: ExecutionPlan;
    readonly step: SopStep;
    readonly work: FilledWork;
    /** The call of the step. Undefined: the step is no call */
    readonly call: StepCall | undefined;
  },
  options: StepApprovalOptions,
): NewApproval {
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
    // The policy decides each call of an agent's step by itself
    access: call?.access ?? "state",
    workspace: options.workspaceRoot,
    input: options.shown(input),
    masked: options.masked(input),
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

/** Returns the approval before the first step of a definition from the workspace. A remembered answer counts for exactly its text. */
export function gateApproval(
  { execution, plan }: { readonly execution: Execution; readonly plan: ExecutionPlan },
  options: StepApprovalOptions,
): NewApproval {
  const { definition, file, inputs } = plan;
  return {
    ...gateSubject({ definition, file }, options.workspaceRoot),
    access: "state",
    input: options.shown(gateInput({ definition, file })),
    masked: options.masked([gateInput({ definition, file }), inputs]),
    reason: execution.gate?.restored === true
      ? restoredReason(execution, definition)
      : `The procedure "${definition.name}" ${whyGated(plan)}; its inputs are ${
        shownInputs(options.shown(inputs))
      }. Each of its calls is still decided by the policy. Other files in {data_dir}/sops and [sops] dirs need no such approval`,
    rule: execution.gate?.restored === true ? "sop:restored" : "sop_workspace",
    files: [],
    digest: canonicalDigest({ execution: execution.id, definition: plan.digest, inputs }),
    runId: execution.id,
    callId: "start",
    requestedBy: { via: "sop", tokenId: plan.requested_by.token_id },
    timeoutMs: options.timeoutMs,
  };
}

function whyGated({ file, taint = [] }: ExecutionPlan): string {
  if (file.startsWith(WORKSPACE_SOPS)) return `was found in the workspace, in ${file}`;
  return `is in ${file}, which outside content reached (${taint.join(", ")})`;
}

/** Returns what a person must know before a restored procedure goes on: steps may have been done after the backup. */
function restoredReason(execution: Execution, definition: SopDefinition): string {
  const next = definition.steps[currentStep(execution)]?.title ?? "";
  return `The procedure "${definition.name}" was open in a backup that was restored. Its next step is "${next}": approve only when ` +
    "nobody did that step, or a later one, after the backup was made";
}

function shownInputs(inputs: unknown): string {
  const text = exactLine(JSON.stringify(inputs));
  return cutText(text, { limit: MAX_INPUTS_SHOWN, digest: hash("sha256", text) });
}

/** Returns the tool, workspace and digest that a remembered answer about a definition of the workspace counts for. */
export function gateSubject(
  found: { readonly definition: SopDefinition; readonly file: string },
  workspace: string,
): Pick<NewApproval, "tool" | "workspace" | "inputDigest"> {
  return { tool: "sop_execute", workspace, inputDigest: canonicalDigest(gateInput(found)) };
}

function gateInput({ definition, file }: { readonly definition: SopDefinition; readonly file: string }) {
  return { sop: definition.id, file, definition };
}
