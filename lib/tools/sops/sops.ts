import * as v from "valibot";
import type { ConfigProblem } from "../../base/errors.ts";
import { type Caller, hasScope } from "../../base/records/caller.ts";
import { type Taint, UNTAINTED } from "../../base/taint.ts";
import { type CallContext, type Inherited, type ToolResult, toolsPassedOn } from "../runtime/tool_call.ts";

/** States of an execution (docs/design/automation.md "Procedures"). */
export const SOP_STATUSES = [
  "pending",
  "running",
  "waiting_for_approval",
  "completed",
  "failed",
  "cancelled",
] as const;
/** State of an execution. */
export type SopStatus = (typeof SOP_STATUSES)[number];

/**
 * States of a step. `waiting`: somebody must do the step by hand and call `sop_advance`. `needs_review`: a crash left the outcome of the
 * step unknown, and a person must decide.
 */
export const SOP_STEP_STATUSES = [
  "pending",
  "waiting_for_approval",
  "waiting",
  "running",
  "needs_review",
  "completed",
  "failed",
  "cancelled",
] as const;
/** State of a step. */
export type SopStepStatus = (typeof SOP_STEP_STATUSES)[number];

/** Procedure that can be executed. */
export interface SopSummary {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly file: string;
  /** True for a procedure in the workspace: its execution waits for an approval before the first step */
  readonly in_workspace: boolean;
  readonly inputs: readonly {
    readonly name: string;
    readonly type: string;
    readonly description: string;
    readonly required: boolean;
    readonly default: unknown;
    readonly choices: readonly unknown[] | null;
  }[];
  readonly steps: readonly {
    readonly id: string;
    readonly title: string;
    readonly kind: "tool" | "agent" | "manual";
    readonly tool: string | null;
    /** Reason why the step's tool cannot be called now. null when it can */
    readonly tool_off: string | null;
    readonly requires_approval: boolean;
  }[];
}

/** Procedures and open executions, as `sop_list` shows them. */
export interface SopCatalogue {
  readonly sops: readonly SopSummary[];
  /** Files that are not valid procedures, with the reasons */
  readonly invalid: readonly { readonly file: string; readonly problems: readonly ConfigProblem[] }[];
  /** Executions that have not ended and that the caller may reach, the newest first */
  readonly open: readonly { readonly id: string; readonly sop: string; readonly status: SopStatus }[];
  /** Number of open executions that other tokens began */
  readonly hidden: number;
}

/** Step of an execution. Times are ISO 8601. */
export interface SopStepView {
  readonly id: string;
  readonly title: string;
  readonly kind: "tool" | "agent" | "manual";
  readonly tool: string | null;
  readonly requires_approval: boolean;
  readonly status: SopStepStatus;
  readonly run_id: string | null;
  readonly started_at: string | null;
  readonly ended_at: string | null;
  /** Text of the result or the error, cut. null before the step has ended */
  readonly output: string | null;
}

/** Execution as `sop_status` shows it. */
export interface SopExecutionView {
  readonly id: string;
  readonly object: "sop_execution";
  readonly sop: string;
  readonly name: string;
  readonly status: SopStatus;
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly steps: readonly SopStepView[];
  /** Approval that the execution waits for. null when it waits for none */
  readonly approval: { readonly id: string; readonly reason: string; readonly expires_at: string } | null;
  /** Sentence that says why the execution waits and how to go on. Empty when nobody has to do anything */
  readonly waits_for: string;
  /** The thing that nobody can go on without. `workspace`: all gateways of its workspace are gone. Absent: nothing */
  readonly waiting_for?: "workspace";
  /** Origins of outside content in its inputs and in the outputs of its steps. Absent: none */
  readonly taint?: string[];
}

/** The caller of a procedure tool, with the rights and limits that the steps inherit. */
export interface SopCaller {
  readonly caller: Caller;
  readonly runId: string;
  /** True when a client with the scope `approve` makes the call itself: its approval counts as a person's */
  readonly mayGrant: boolean;
  /** Patterns of the caller's tools; the steps have no others. undefined: all tools of [agent] */
  readonly tools?: readonly string[] | undefined;
  /** Limits of the caller's own run; those of the steps are no wider. undefined: the configured limits */
  readonly limits?: Inherited["limits"] | undefined;
  /** Outside content that the caller's run has read. Default: none */
  readonly taint?: Taint | undefined;
}

/**
 * Standard operating procedures and their executions (docs/design/automation.md "Procedures").
 *
 * Every method throws ToolError: `not_found` naming what there is, `insufficient_scope` for an execution of another token where the
 * caller lacks `runs`, `invalid_input`, `agent_unavailable` where no run can be started.
 */
export interface Sops {
  list(by: Pick<SopCaller, "caller">): Promise<SopCatalogue>;
  /**
   * Starts an execution, which goes on by itself. Resolves when the execution is on disk.
   * @throws {ToolError} `sop_invalid` with the definition's problems; `sop_nested` from within a procedure; `overloaded`
   */
  execute(
    request: SopCaller & { readonly sop: string; readonly inputs: Readonly<Record<string, unknown>> },
  ): Promise<SopExecutionView>;
  status(executionId: string, by: Pick<SopCaller, "caller">): Promise<SopExecutionView>;
  /**
   * Marks the step that waits as done by hand, and lets the execution go on.
   * @throws {ToolError} `approval_required` before a step that was not granted; `conflict` where there is nothing to go on with
   */
  advance(executionId: string, by: SopCaller): Promise<SopExecutionView>;
  /** Cancels the execution and the step at work. @throws {ToolError} `conflict` for an execution that has ended */
  cancel(executionId: string, by: SopCaller): Promise<SopExecutionView>;
  /**
   * Grants the approval that the execution waits for when a person calls; for other callers only shows it.
   * @throws {ToolError} `conflict` when the execution waits for no approval
   */
  approve(
    executionId: string,
    by: SopCaller,
  ): Promise<{ readonly granted: boolean; readonly execution: SopExecutionView }>;
}

/** Field for the id of an execution. */
export const executionIdField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(80),
  v.description("Id of the execution, as sop_execute gives it"),
);

/**
 * Returns the caller of a procedure tool. A client that calls directly with the scope `approve` may grant approvals as a person. A model
 * never may, whoever started its run.
 */
export function sopCaller(
  context: Pick<CallContext, "caller" | "runId" | "direct" | "allowed" | "inherited" | "taint">,
): SopCaller {
  const { caller, runId, direct, inherited, taint } = context;
  const mayGrant = direct && hasScope(caller.scopes, "approve");
  return { caller, runId, mayGrant, tools: toolsPassedOn(context), limits: inherited?.limits, taint };
}

/** Characters of a step's output that the text shows; `data` has more */
const SHOWN_CHARACTERS = 600;

/** Makes the result that shows an execution: as text for the model, and whole for programs. @param said text before the execution */
export function showExecution(execution: SopExecutionView, said = ""): ToolResult {
  const { id, sop, status, error, steps, waits_for, taint = UNTAINTED } = execution;
  const lines = [
    said,
    `Execution ${id} of "${sop}" is ${status}${error === null ? "" : `: ${error.message}`}`,
    ...steps.map(stepLine),
    waits_for,
  ];
  return { output: lines.filter((line) => line !== "").join("\n"), isError: false, data: execution, taint };
}

function stepLine(step: SopStepView, index: number): string {
  const { title, status, tool, kind, run_id, output } = step;
  const run = run_id === null ? "" : `, ${run_id}`;
  const line = `${index + 1}. [${status}] ${title} (${tool ?? kind}${run})`;
  if (output === null || output === "") return line;
  const shown = output.length > SHOWN_CHARACTERS ? `${output.slice(0, SHOWN_CHARACTERS)} ...` : output;
  return `${line}\n${shown.split("\n").map((text) => `   ${text}`).join("\n")}`;
}
