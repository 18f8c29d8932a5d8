import * as v from "valibot";
import type { ConfigProblem } from "../../base/errors.ts";
import { type Caller, hasScope } from "../../base/records/caller.ts";
import { type Inherited, type ToolContext, type ToolResult, toolsPassedOn } from "../runtime/tool.ts";

/** States of an execution (docs/design/automation.md "Procedures"). */
export const SOP_STATUSES = [
  "pending",
  "running",
  "waiting_for_approval",
  "completed",
  "failed",
  "cancelled",
] as const;
export type SopStatus = (typeof SOP_STATUSES)[number];

/**
 * States of a step: `waiting`: for somebody to do it and call `sop_advance`; `needs_review`: a crash came while its effect was in
 * flight, and a person says what became of it.
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
export type SopStepStatus = (typeof SOP_STEP_STATUSES)[number];

/** A definition that can be executed. */
export interface SopSummary {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly file: string;
  /** Found in the workspace: its execution waits for a person before the first step */
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
    /** Why its tool cannot be called now; null: it can */
    readonly tool_off: string | null;
    readonly requires_approval: boolean;
  }[];
}

export interface SopCatalogue {
  readonly sops: readonly SopSummary[];
  /** Files that are no definitions, with the reasons */
  readonly invalid: readonly { readonly file: string; readonly problems: readonly ConfigProblem[] }[];
  /** Executions that have not ended, the newest first */
  readonly open: readonly { readonly id: string; readonly sop: string; readonly status: SopStatus }[];
}

/** One step of an execution. Times are ISO 8601. */
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
  /** The result's text, or the error's, cut; null before it has ended */
  readonly output: string | null;
}

/** An execution as `sop_status` shows it. */
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
  /** The question it waits for; null: for none */
  readonly approval: { readonly id: string; readonly reason: string; readonly expires_at: string } | null;
  /** What it waits for and how to go on, as a sentence; empty where nothing is to be done */
  readonly waits_for: string;
}

/** Who calls, and what for. */
export interface SopCaller {
  readonly caller: Caller;
  readonly runId: string;
  /** The call was made by its client itself, which may approve: what it grants is granted by a person */
  readonly mayGrant: boolean;
  /** Patterns of the caller's own tools, which the steps do not go beyond; undefined: all that [agent] gives */
  readonly tools?: readonly string[] | undefined;
  /** Bounds of the caller's own run, which those of the steps do not go beyond; undefined: the configured ones */
  readonly limits?: Inherited["limits"] | undefined;
}

/**
 * Standard operating procedures and their executions (docs/design/automation.md "Procedures").
 *
 * Every method throws ToolError: `not_found` naming what there is, `invalid_input`, `agent_unavailable` where no run can be started.
 */
export interface Sops {
  list(): Promise<SopCatalogue>;
  /**
   * Starts an execution, which is on disk when this resolves and goes on by itself.
   * @throws {ToolError} `sop_invalid` with the definition's problems; `sop_nested` from within a procedure; `overloaded`
   */
  execute(
    request: SopCaller & { readonly sop: string; readonly inputs: Readonly<Record<string, unknown>> },
  ): Promise<SopExecutionView>;
  status(executionId: string): Promise<SopExecutionView>;
  /**
   * A step that is done by hand counts as done, and the execution goes on.
   * @throws {ToolError} `approval_required` before a step that was not granted; `conflict` where there is nothing to go on with
   */
  advance(executionId: string, by: SopCaller): Promise<SopExecutionView>;
  /** Nothing further runs; the step at work is cancelled. @throws {ToolError} `conflict` for one that has ended */
  cancel(executionId: string, by: SopCaller): Promise<SopExecutionView>;
  /**
   * The question the execution waits for: granted where a person calls, only shown otherwise.
   * @throws {ToolError} `conflict` where it waits for no approval
   */
  approve(
    executionId: string,
    by: SopCaller,
  ): Promise<{ readonly granted: boolean; readonly execution: SopExecutionView }>;
}

export const executionIdField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(80),
  v.description("Id of the execution, as sop_execute gives it"),
);

/** Who calls: its client itself with the scope `approve` is a person whose word counts, a model is not, whoever started its run. */
export function sopCaller(
  context: Pick<ToolContext, "caller" | "runId" | "direct" | "allowed" | "inherited">,
): SopCaller {
  const { caller, runId, direct, inherited } = context;
  const mayGrant = direct && hasScope(caller.scopes, "approve");
  return { caller, runId, mayGrant, tools: toolsPassedOn(context), limits: inherited?.limits };
}

/** Of a step's output in the text; `data` has more */
const SHOWN_CHARACTERS = 600;

/** An execution as text for the model, and whole for programs. @param said what stands before it */
export function showExecution(execution: SopExecutionView, said = ""): ToolResult {
  const { id, sop, status, error, steps, waits_for } = execution;
  const lines = [
    said,
    `Execution ${id} of "${sop}" is ${status}${error === null ? "" : `: ${error.message}`}`,
    ...steps.map(stepLine),
    waits_for,
  ];
  return { output: lines.filter((line) => line !== "").join("\n"), isError: false, data: execution };
}

function stepLine(step: SopStepView, index: number): string {
  const { title, status, tool, kind, run_id, output } = step;
  const run = run_id === null ? "" : `, ${run_id}`;
  const line = `${index + 1}. [${status}] ${title} (${tool ?? kind}${run})`;
  if (output === null || output === "") return line;
  const shown = output.length > SHOWN_CHARACTERS ? `${output.slice(0, SHOWN_CHARACTERS)} ...` : output;
  return `${line}\n${shown.split("\n").map((text) => `   ${text}`).join("\n")}`;
}
