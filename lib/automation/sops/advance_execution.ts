import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import type { Scope } from "../../base/records/caller.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Approvals, NewApproval } from "../../guard/approvals.ts";
import type { BoundCall, ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { SopStep } from "./definition.ts";
import {
  currentStep,
  type Execution,
  executionCancelled,
  executionFailed,
  type ExecutionPlan,
  type Failure,
  gateAsked,
  gatePassed,
  hasEnded,
  isBehindGate,
  stepAsked,
  stepEnded,
  type StepResult,
  stepStarted,
  type StepState,
  withStep,
} from "./execution_record.ts";
import type { EndedStep, ExecutionStore, KeptExecution } from "./execution_store.ts";
import {
  createStepApprovals,
  type FilledWork,
  gateApproval,
  stepApproval,
  type StepApprovalOptions,
  type StepApprovals,
  type StepCall,
} from "./step_approvals.ts";
import {
  endOfStepRun,
  fillStep,
  resultOfStepRun,
  startStepRun,
  type StepRuns,
  stepScopes,
  whyNotHeld,
} from "./step_run.ts";
import { TemplateError } from "./template.ts";

/** Stores, runs, tools and settings for advancing executions. */
export interface AdvanceOptions {
  readonly store: ExecutionStore;
  readonly approvals: Approvals;
  /** undefined: no agent is configured, and nothing starts */
  readonly runs: () => StepRuns | undefined;
  readonly tools: () => Pick<ToolExecutor, "get" | "shown" | "bind" | "enabled">;
  readonly clock: Clock;
  /** For the envelopes of what came from outside */
  readonly random: Random;
  readonly log: Logger;
  readonly workspaceRoot: string;
  /** Scopes that a token has now. undefined: the token was revoked or has expired, and no step begins for it */
  readonly scopesOf: (tokenId: string | null) => readonly Scope[] | undefined;
  /** Milliseconds that an approval or a step by hand waits. Read for each of them */
  readonly approvalTimeoutMs: () => number;
}

/** The stored execution that one step works on, with the plan it follows. */
export interface StepInput {
  readonly found: KeptExecution;
  readonly plan: ExecutionPlan;
  readonly signal: AbortSignal;
}

interface CurrentStep extends StepInput {
  readonly index: number;
  readonly step: SopStep;
  readonly state: StepState;
}

const DAY_MS = 24 * 60 * 60 * 1000;
/** Milliseconds between two looks at a run that waits for a review */
const REVIEW_MS = 2_000;
/** Milliseconds before a run that found no free slot is started again */
const BUSY_MS = 1_000;

/**
 * Does what comes next in an execution, or waits for it, and records the outcome. An execution that has changed meanwhile stays as
 * it is: the caller reads it again.
 * @throws {CancelError} when the signal of `input` aborts
 */
export type AdvanceExecution = (input: StepInput) => Promise<void>;

/** Creates the function that advances an execution by one step. */
export function createAdvanceExecution(options: AdvanceOptions): AdvanceExecution {
  const advance = new ExecutionAdvance(options);
  return (input) => advance.next(input);
}

class ExecutionAdvance {
  readonly #options: AdvanceOptions;
  readonly #approvals: StepApprovals;

  constructor(options: AdvanceOptions) {
    this.#options = options;
    this.#approvals = createStepApprovals(options);
  }

  async next(input: StepInput): Promise<void> {
    const { found: { execution }, plan } = input;
    if (execution.cancelling) return await this.#cancel(input);
    if (isBehindGate(execution)) return await this.#passGate(input);
    const index = currentStep(execution);
    const [step, state] = [plan.definition.steps[index], execution.steps[index]];
    if (step === undefined || state === undefined) throw new TypeError(`Execution "${execution.id}" has no step to do`);
    await this.#continue({ ...input, index, step, state });
  }

  async #continue(current: CurrentStep): Promise<void> {
    const { step, state } = current;
    switch (state.status) {
      case "pending":
        return await this.#begin(current);
      case "waiting_for_approval":
        return await this.#takeAnswer(current);
      case "waiting":
        return await this.#waitForHands(current);
      case "running":
      case "needs_review":
        return await this.#followRun(current);
      default:
        throw new TypeError(`Step "${step.id}" is ${state.status} and has no end`);
    }
  }

  async #cancel(input: StepInput): Promise<void> {
    const { found: { execution }, signal } = input;
    const state = execution.steps[currentStep(execution)];
    for (const id of [state?.approval_id, execution.gate?.approval_id]) {
      if (id) await this.#options.approvals.cancel(id);
    }
    const runId = state?.run_id ?? null;
    if (runId !== null) {
      const runs = this.#runs();
      await runs.cancel(runId, "cancelled");
      await runs.ended(runId, signal);
    }
    await this.#change(input, executionCancelled(execution, this.#time(), "It was cancelled"));
  }

  async #passGate(input: StepInput): Promise<void> {
    const { found: { execution }, plan, signal } = input;
    const approvalId = execution.gate?.approval_id ?? null;
    if (approvalId === null) {
      const approval = gateApproval({ execution, plan }, this.#approvalOptions());
      return await this.#ask(input, approval, (id) => gateAsked(execution, id));
    }
    const refusal = await this.#approvals.answer(approvalId, signal);
    if (refusal !== undefined) return await this.#fail(input, refusal);
    await this.#change(input, gatePassed(execution, approvalId));
  }

  /** Begins a step: asks for its approval where one is needed, and else starts its run or lets a person do it. */
  async #begin(input: CurrentStep): Promise<void> {
    const { plan, step, state } = input;
    const scopesNow = this.#options.scopesOf(plan.requested_by.token_id);
    if (scopesNow === undefined) return await this.#fail(input, REVOKED);
    const work = await this.#filledWork(input);
    if (work instanceof TemplateError) return await this.#failStep(input, work.message);
    const notHeld = whyNotHeld(work, plan);
    if (notHeld !== undefined) return await this.#failStep(input, notHeld);
    const call = await this.#boundCall(input, work);
    // A call that cannot run needs no approval
    if (call?.ok === false) return await this.#failStep(input, call.reason);
    const isGranted = state.granted && (call === undefined || call.binding.digest === state.call_digest);
    if (step.requires_approval && !isGranted) return await this.#askForStep(input, work, call);
    if (work.kind === "manual") return await this.#askForHands(input);
    await this.#startRun(input, work, stepScopes(plan, scopesNow));
  }

  async #filledWork({ found: { execution }, plan, step }: CurrentStep): Promise<FilledWork | TemplateError> {
    const results = await this.#options.store.results(execution);
    try {
      return fillStep(step, { execution, plan, results, random: this.#options.random });
    } catch (error) {
      if (error instanceof TemplateError) return error;
      throw error;
    }
  }

  /** Binds the call that a person is to approve. Undefined: the step is no call, or needs no approval */
  async #boundCall({ step, signal }: CurrentStep, work: FilledWork): Promise<BoundCall | undefined> {
    if (work.kind !== "tool" || !step.requires_approval) return undefined;
    return await this.#options.tools().bind(work.tool, JSON.stringify(work.input), signal);
  }

  async #askForStep(input: CurrentStep, work: FilledWork, call: StepCall | undefined): Promise<void> {
    const { found: { execution }, plan, step, index } = input;
    const approval = stepApproval({ execution, plan, step, work, call }, this.#approvalOptions());
    const call_digest = call?.binding.digest ?? null;
    await this.#ask(
      input,
      approval,
      (approval_id) => stepAsked(execution, { index, approval_id, call_digest, time: this.#time() }),
    );
  }

  async #askForHands(input: CurrentStep): Promise<void> {
    const { found: { execution }, index } = input;
    const { clock, approvalTimeoutMs } = this.#options;
    const deadline = new Date(clock.now() + approvalTimeoutMs()).toISOString();
    await this.#change(input, stepStarted(execution, { index, status: "waiting", deadline, time: this.#time() }));
  }

  async #startRun(
    input: CurrentStep,
    work: Exclude<FilledWork, { kind: "manual" }>,
    scopes: readonly Scope[],
  ): Promise<void> {
    const { found, plan, step, index } = input;
    const { execution } = found;
    const { store, clock, tools } = this.#options;
    const started = await startStepRun(this.#runs(), work, {
      execution,
      plan,
      scopes,
      title: step.title,
      tools: tools(),
      claim: (run_id) =>
        store.write(found, stepStarted(execution, { index, status: "running", run_id, time: this.#time() })),
    });
    switch (started.kind) {
      case "started":
        return;
      case "claimed":
        if ((await store.find(execution.id))?.version !== found.version) return;
        throw new TypeError("A step's run was refused as claimed, and is not");
      case "busy":
        return await clock.sleep(BUSY_MS, input.signal);
      case "refused":
        return await this.#failStep(input, started.message);
    }
  }

  async #takeAnswer(input: CurrentStep): Promise<void> {
    const { found: { execution }, state, step, index, signal } = input;
    const refusal = await this.#approvals.answer(state.approval_id ?? "", signal);
    if (refusal !== undefined) return await this.#fail(input, refusal);
    if (step.work.kind !== "manual") {
      const next = withStep(execution, index, { status: "pending", granted: true });
      return await this.#change(input, { ...next, status: "running" });
    }
    // A person who approves a step by hand has done it
    await this.#endStep(input, {
      v: 1,
      status: "completed",
      output: "Approved by a person",
      data: null,
      outside: false,
    });
  }

  async #waitForHands(input: CurrentStep): Promise<void> {
    const { clock } = this.#options;
    const remaining = Date.parse(input.state.deadline ?? "") - clock.now();
    if (remaining > 0) return await clock.sleep(Math.min(remaining, DAY_MS), input.signal);
    const message = `Nobody said in time that the step "${input.step.title}" is done`;
    await this.#fail(input, { code: "timeout", message });
  }

  async #followRun(input: CurrentStep): Promise<void> {
    const { found: { execution }, state, step, index, signal } = input;
    const { clock, log, tools } = this.#options;
    const runs = this.#runs();
    const run = await endOfStepRun(state, { runs, approvals: this.#approvals, log, signal });
    switch (run?.status) {
      case "completed":
        return await this.#endStep(input, await resultOfStepRun(step, run, { runs, tools: tools(), signal }));
      case "cancelled": {
        const message = `The run of step "${step.title}" was cancelled`;
        return await this.#change(input, executionCancelled(execution, this.#time(), message));
      }
      case "needs_review":
        if (state.status === "needs_review") return await clock.sleep(REVIEW_MS, signal);
        return await this.#change(input, withStep(execution, index, { status: "needs_review" }));
      case undefined:
        return await this.#failStep(input, `Nothing is known of the run "${state.run_id}" any more`);
      default:
        return await this.#failStep(input, run?.error?.message ?? "It ended without a result");
    }
  }

  /** Files an approval, with the record that waits for it. */
  async #ask(input: StepInput, approval: NewApproval, next: (approvalId: string) => Execution): Promise<void> {
    if (await this.#approvals.ask(input.found, approval, next) === "full") await this.#fail(input, TOO_MANY);
  }

  #failStep(input: CurrentStep, output: string): Promise<void> {
    return this.#endStep(input, { v: 1, status: "failed", output, data: null, outside: false });
  }

  async #endStep(input: CurrentStep, result: StepResult): Promise<void> {
    const { found: { execution }, step, index } = input;
    const { status, output } = result;
    const message = `The step "${step.title}" failed: ${output.slice(0, 1000)}`;
    const next = status === "failed" && step.on_error === "fail"
      ? executionFailed(execution, { index, error: { code: "step_failed", message }, time: this.#time() })
      : stepEnded(execution, { index, status, time: this.#time() });
    await this.#change(input, next, { stepId: step.id, result });
  }

  #fail(input: StepInput & { readonly index?: number }, error: Failure): Promise<void> {
    const { found: { execution }, index = -1 } = input;
    return this.#change(input, executionFailed(execution, { index, error, time: this.#time() }));
  }

  async #change(
    { found }: Pick<StepInput, "found">,
    next: Execution,
    result?: EndedStep,
  ): Promise<void> {
    const { store, log } = this.#options;
    if (!await store.change(found, next, result) || !hasEnded(next)) return;
    log.info("Procedure ended", { execution_id: next.id, sop: next.sop, status: next.status, error: next.error });
  }

  #approvalOptions(): StepApprovalOptions {
    const { tools, workspaceRoot, approvalTimeoutMs } = this.#options;
    return { shown: tools().shown, workspaceRoot, timeoutMs: approvalTimeoutMs() };
  }

  #runs(): StepRuns {
    const runs = this.#options.runs();
    if (runs === undefined) throw new TypeError("Nothing starts without an agent");
    return runs;
  }

  #time(): string {
    return new Date(this.#options.clock.now()).toISOString();
  }
}

const REVOKED: Failure = { code: "token_revoked", message: "The token that started the procedure was revoked" };
const TOO_MANY: Failure = {
  code: "overloaded",
  message: "Cannot ask for approval: too many approvals are pending already",
};
