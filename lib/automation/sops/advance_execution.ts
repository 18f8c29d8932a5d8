import { type Taint, taintField, UNTAINTED } from "../../base/taint.ts";
import type { Kit } from "../../base/kit.ts";
import type { Scope } from "../../base/records/caller.ts";
import { type Approvals, hiddenByOthers, type NewApproval } from "../../guard/approvals.ts";
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
  type FilledStep,
  fillStep,
  resultOfStepRun,
  startStepRun,
  type StepRunOptions,
  type StepRuns,
  stepScopes,
  whyNotHeld,
} from "./step_run.ts";
import { TemplateError } from "./template.ts";

/**
 * The moves of an execution. The executor (executor.ts) has a loop for each open execution: read the record, call
 * `AdvanceExecution`, read again, until the execution has ended. Each call makes one move:
 *
 * - Somebody cancelled the execution: its run is cancelled, and the execution ends.
 * - A person must let the execution begin, since its definition lies in the workspace or a backup was restored (the gate):
 *   the approval is filed, then its answer awaited.
 * - Otherwise the current step, the first that has not ended, moves on by its status:
 *
 *       pending -> waiting_for_approval -> pending (granted) -> running -> needs_review -> completed | failed
 *       pending -> waiting -> completed        a step by hand: `sop_advance` ends it (sop_service.ts)
 *
 *   `waiting_for_approval` only where the definition asks for it, `needs_review` only where the run does.
 *
 * A move ends with one write, which names the version of the record that was read. When the record has changed meanwhile, the
 * write does nothing, and the loop reads the record again. Nothing is kept between two moves, so a stop loses nothing.
 */

/** Stores, runs, tools and settings for advancing executions. */
export interface AdvanceOptions {
  /** The randomness names the envelopes around text from outside */
  readonly kit: Pick<Kit, "clock" | "random" | "log">;
  readonly store: ExecutionStore;
  readonly approvals: Approvals;
  /** Returns undefined without an agent. The executor then calls nothing here */
  readonly runs: () => StepRuns | undefined;
  readonly tools: () => Pick<ToolExecutor, "get" | "shown" | "masked" | "bind" | "enabled">;
  readonly workspaceRoot: string;
  /** Returns the scopes that a token has now. undefined: the token was revoked or has expired, and no step begins for it */
  readonly scopesOf: (tokenId: string | null) => readonly Scope[] | undefined | Promise<readonly Scope[] | undefined>;
  /** Returns how long an approval or a step by hand waits, in milliseconds. Read for each, since a reload may change it */
  readonly approvalTimeoutMs: () => number;
}

/** The stored execution that one step works on, with the plan it follows. */
export interface StepInput {
  readonly found: KeptExecution;
  readonly plan: ExecutionPlan;
  /** Aborts when the record was changed, so that a wait ends, and when the gateway stops */
  readonly signal: AbortSignal;
  /** Milliseconds for which its workspace had no gateway: the execution ends. Undefined: it goes on */
  readonly waitedMs?: number | undefined;
}

/** The input with the step that is next: its definition, and its state in the execution. */
interface CurrentStep extends StepInput {
  readonly index: number;
  readonly step: SopStep;
  readonly state: StepState;
}

/** A timer holds less than 25 days. A step by hand may wait longer, so its deadline is looked at once a day */
const MAX_TIMER_MS = 24 * 60 * 60 * 1000;
/** Milliseconds between two looks at a run that waits for a review, since a review tells no procedure of its end */
const REVIEW_MS = 2_000;
/** Milliseconds before a run that found no free slot is started again */
const BUSY_MS = 1_000;

/**
 * Makes the next move of an execution, which may be a wait of days, and records the outcome.
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
    const { found: { execution }, plan, waitedMs } = input;
    if (execution.cancelling) return await this.#cancel(input);
    if (waitedMs !== undefined) return await this.#giveUp(input, waitedMs);
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
        return await this.#waitForHandWork(current);
      case "running":
      case "needs_review":
        return await this.#followRun(current);
      default:
        throw new TypeError(`Step "${step.id}" is ${state.status} and has no end`);
    }
  }

  /** Ends a cancelled execution once the run of its step has ended: nothing of it may be at work when it reads as cancelled. */
  async #cancel(input: StepInput): Promise<void> {
    await this.#stopStep(input);
    await this.#change(input, executionCancelled(input.found.execution, this.#time(), "It was cancelled"));
  }

  /** Fails an execution whose workspace had no gateway for too long, once nothing of it is at work. */
  async #giveUp(input: StepInput, waitedMs: number): Promise<void> {
    await this.#stopStep(input);
    const index = currentStep(input.found.execution);
    const message = `It needs a workspace that had no gateway for ${waitedMs / 1_000} s; start a gateway of that ` +
      "workspace in time, or raise [cluster] workspace_wait_secs";
    await this.#fail({ ...input, index }, { code: "workspace_unavailable", message });
  }

  /** Withdraws what the current step asks, and cancels its run. Resolves when the run has ended. */
  async #stopStep({ found: { execution }, signal }: StepInput): Promise<void> {
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
  }

  /** Files the approval of the begin, or takes its answer. A denial, or no answer in time, fails the execution. */
  async #passGate(input: StepInput): Promise<void> {
    const { found: { execution }, plan, signal } = input;
    const approvalId = execution.gate?.approval_id ?? null;
    if (approvalId === null) {
      const approval = gateApproval({ execution, plan }, this.#approvalOptions());
      return await this.#ask(input, approval, (id) => gateAsked(execution, id));
    }
    const answer = await this.#approvals.answer(approvalId, signal);
    if ("code" in answer) return await this.#fail(input, answer);
    await this.#change(input, gatePassed(execution, approvalId));
  }

  /**
   * Begins a step: asks for its approval where one is needed, and else starts its run or lets a person do it. A granted step comes
   * here again, so that its values, scopes and call are those of the moment it starts.
   */
  async #begin(current: CurrentStep): Promise<void> {
    const { plan, step, state } = current;
    const scopesNow = await this.#options.scopesOf(plan.requested_by.token_id);
    if (scopesNow === undefined) return await this.#fail(current, REVOKED);
    const filled = await this.#filledStep(current);
    if (filled instanceof TemplateError) return await this.#failStep(current, filled.message);
    const { work, taint } = filled;
    const notHeld = whyNotHeld(work, plan);
    if (notHeld !== undefined) return await this.#failStep(current, notHeld);
    const call = await this.#boundCall(current, work);
    // A call that cannot run needs no approval
    if (call?.ok === false) return await this.#failStep(current, call.reason);
    // Approved was one call on files as they were then. A call that differs by now is asked about again
    const isGranted = state.granted && (call === undefined || call.binding.digest === state.call_digest);
    if (step.requires_approval && !isGranted) return await this.#askForStep(current, work, call);
    if (work.kind === "manual") return await this.#startHandWork(current);
    const callDigest = call?.binding.digest;
    await this.#startRun(current, work, { scopes: stepScopes(plan, scopesNow), taint, callDigest });
  }

  async #filledStep({ found: { execution }, plan, step }: CurrentStep): Promise<FilledStep | TemplateError> {
    const results = await this.#options.store.results(execution);
    try {
      return fillStep(step, { execution, plan, results, random: this.#options.kit.random });
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

  async #askForStep(current: CurrentStep, work: FilledWork, call: StepCall | undefined): Promise<void> {
    const { found: { execution }, plan, step, index } = current;
    const approval = stepApproval({ execution, plan, step, work, call }, this.#approvalOptions());
    const call_digest = call?.binding.digest ?? null;
    await this.#ask(
      current,
      approval,
      (approval_id) => stepAsked(execution, { index, approval_id, call_digest, time: this.#time() }),
    );
  }

  /** Lets a person do the step. `sop_advance` says that it is done. */
  async #startHandWork(current: CurrentStep): Promise<void> {
    const { found: { execution }, index } = current;
    const { kit: { clock }, approvalTimeoutMs } = this.#options;
    const deadline = new Date(clock.now() + approvalTimeoutMs()).toISOString();
    await this.#change(current, stepStarted(execution, { index, status: "waiting", deadline, time: this.#time() }));
  }

  /** Starts the run of a step. The same transaction accepts the run and names it in the record, so no step runs twice. */
  async #startRun(
    current: CurrentStep,
    work: Exclude<FilledWork, { kind: "manual" }>,
    rights: Pick<StepRunOptions, "scopes" | "taint" | "callDigest">,
  ): Promise<void> {
    const { found, plan, step, index } = current;
    const { execution } = found;
    const { store, kit: { clock }, tools } = this.#options;
    const started = await startStepRun(this.#runs(), work, {
      execution,
      plan,
      ...rights,
      title: step.title,
      tools: tools(),
      claim: (run_id) =>
        store.writes(found, stepStarted(execution, { index, status: "running", run_id, time: this.#time() })),
    });
    switch (started.kind) {
      case "started":
        return;
      case "claimed":
        return await this.#waitRefused(current);
      case "busy":
        return await clock.sleep(BUSY_MS, current.signal);
      case "refused":
        return await this.#failStep(current, started.message);
    }
  }

  /** Takes the answer to a step's approval. A denial, or no answer in time, ends the execution whatever `on_error` says. */
  async #takeAnswer(current: CurrentStep): Promise<void> {
    const { found: { execution }, state, step, index, signal } = current;
    const answer = await this.#approvals.answer(state.approval_id ?? "", signal);
    if ("code" in answer) return await this.#fail(current, answer);
    if (step.work.kind !== "manual") {
      const next = withStep(execution, index, { status: "pending", granted: true });
      return await this.#change(current, { ...next, status: "running" });
    }
    // Whoever approves a step by hand has done it
    await this.#endStep(current, {
      v: 1,
      status: "completed",
      output: `Approved by ${answer.by}`,
      data: null,
    });
  }

  /** Waits until the record says that the step is done, which aborts the signal, or fails the execution at the deadline. */
  async #waitForHandWork(current: CurrentStep): Promise<void> {
    const { clock } = this.#options.kit;
    const remaining = Date.parse(current.state.deadline ?? "") - clock.now();
    if (remaining > 0) return await clock.sleep(Math.min(remaining, MAX_TIMER_MS), current.signal);
    const message = `Nobody said in time that the step "${current.step.title}" is done`;
    await this.#fail(current, { code: "timeout", message });
  }

  /** Waits for the run of a step, and records its end. A run that needs a review is followed until a person has decided. */
  async #followRun(current: CurrentStep): Promise<void> {
    const { found: { execution }, state, step, index, signal } = current;
    const { clock, log } = this.#options.kit;
    const runs = this.#runs();
    const run = await endOfStepRun(state, { runs, approvals: this.#approvals, log, signal });
    switch (run?.status) {
      case "completed":
        return await this.#endStep(current, await resultOfStepRun(step, run, { runs, signal }));
      case "cancelled": {
        const message = `The run of step "${step.title}" was cancelled`;
        return await this.#change(current, executionCancelled(execution, this.#time(), message));
      }
      case "needs_review":
        if (state.status === "needs_review") return await clock.sleep(REVIEW_MS, signal);
        return await this.#change(current, withStep(execution, index, { status: "needs_review" }));
      case undefined:
        return await this.#failStep(current, `Nothing is known of the run "${state.run_id}" any more`);
      default:
        return await this.#failStep(current, run?.error?.message ?? "It ended without a result", run?.taint);
    }
  }

  /** Files an approval in one transaction with the record that waits for it. */
  async #ask(input: StepInput, approval: NewApproval, next: (approvalId: string) => Execution): Promise<void> {
    const hidden = hiddenByOthers(approval.masked ?? []);
    if (hidden !== undefined) {
      return await this.#fail(input, { code: "input_hidden", message: `Cannot ask for approval: ${hidden}` });
    }
    switch (await this.#approvals.ask(input.found, approval, next)) {
      case "asked":
        return;
      case "changed":
        return await this.#waitRefused(input);
      case "full":
        return await this.#fail(input, TOO_MANY);
    }
  }

  /** Ends a step as failed. The definition says whether the execution goes on: `on_error`. */
  #failStep(current: CurrentStep, output: string, taint: Taint = UNTAINTED): Promise<void> {
    return this.#endStep(current, { v: 1, status: "failed", output, data: null, ...taintField(taint) });
  }

  async #endStep(current: CurrentStep, result: StepResult): Promise<void> {
    const { found: { execution }, step, index } = current;
    const { status, output } = result;
    const message = `The step "${step.title}" failed: ${output.slice(0, 1000)}`;
    const next = status === "failed" && step.on_error === "fail"
      ? executionFailed(execution, { index, error: { code: "step_failed", message }, time: this.#time() })
      : stepEnded(execution, { index, status, time: this.#time() });
    await this.#change(current, next, { stepId: step.id, result });
  }

  /** Fails the execution as a whole, in its current step or before the first. */
  #fail(input: StepInput & { readonly index?: number }, error: Failure): Promise<void> {
    const { found: { execution }, index = -1 } = input;
    return this.#change(input, executionFailed(execution, { index, error, time: this.#time() }));
  }

  /** Writes the outcome of a move, unless the record has changed since it was read. */
  async #change(input: StepInput, next: Execution, result?: EndedStep): Promise<void> {
    const { store, kit: { log } } = this.#options;
    if (!await store.change(input.found, next, result)) return await this.#waitRefused(input);
    if (!hasEnded(next)) return;
    log.info("Procedure ended", { execution_id: next.id, sop: next.sop, status: next.status, error: next.error });
  }

  /**
   * Looks why a write was refused. The loop reads a record again that has changed. One that has not would make the loop spin: in a cluster
   * the owner's precondition did not hold, and its lease is about to say so.
   */
  async #waitRefused({ found, signal }: StepInput): Promise<void> {
    const { store, kit: { clock } } = this.#options;
    if ((await store.find(found.execution.id))?.version !== found.version) return;
    if (found.alongside !== undefined) return await clock.sleep(BUSY_MS, signal);
    throw new TypeError("A write of a procedure was refused, and its record has not changed");
  }

  #approvalOptions(): StepApprovalOptions {
    const { tools, workspaceRoot, approvalTimeoutMs } = this.#options;
    const { shown, masked } = tools();
    return { shown, masked, workspaceRoot, timeoutMs: approvalTimeoutMs() };
  }

  #runs(): StepRuns {
    const runs = this.#options.runs();
    if (runs === undefined) throw new TypeError("Nothing starts without an agent");
    return runs;
  }

  #time(): string {
    return new Date(this.#options.kit.clock.now()).toISOString();
  }
}

const REVOKED: Failure = { code: "token_revoked", message: "The token that started the procedure was revoked" };
const TOO_MANY: Failure = {
  code: "overloaded",
  message: "Cannot ask for approval: too many approvals are pending already",
};
