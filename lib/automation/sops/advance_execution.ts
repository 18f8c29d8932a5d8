import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import type { Scope } from "../../base/records/caller.ts";
import type { Run } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Approvals } from "../../guard/approvals.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { SopStep } from "./definition.ts";
import {
  currentStep,
  type Execution,
  executionCancelled,
  executionFailed,
  type ExecutionPlan,
  type Failure,
  hasEnded,
  stepEnded,
  type StepResult,
  type StepState,
  withStep,
} from "./execution_record.ts";
import type { ExecutionStore, KeptExecution } from "./execution_store.ts";
import { dataOf, fillStep, startStepRun, type StepRuns, stepScopes, whyNotHeld } from "./step_run.ts";
import { createStepApprovals, type FilledWork, gateApproval, stepApproval, type StepCall } from "./step_approvals.ts";
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
  const { store, clock, log } = options;
  const approvals = createStepApprovals(options);
  const time = () => new Date(clock.now()).toISOString();
  const approvalOptions = () => ({
    shown: options.tools().shown,
    workspaceRoot: options.workspaceRoot,
    timeoutMs: options.approvalTimeoutMs(),
  });
  const runs = (): StepRuns => {
    const there = options.runs();
    if (there === undefined) throw new TypeError("Nothing starts without an agent");
    return there;
  };

  const change = async (
    { found }: Pick<StepInput, "found">,
    next: Execution,
    result?: { readonly stepId: string; readonly result: StepResult },
  ): Promise<void> => {
    if (!await store.change(found, next, result) || !hasEnded(next)) return;
    log.info("Procedure ended", { execution_id: next.id, sop: next.sop, status: next.status, error: next.error });
  };

  const fail = (input: StepInput & { readonly index?: number }, error: Failure) =>
    change(input, executionFailed(input.found.execution, { index: input.index ?? -1, error, time: time() }));

  const endStep = async (input: CurrentStep, result: StepResult): Promise<void> => {
    const { found: { execution }, step, index } = input;
    const { status, output } = result;
    const message = `The step "${step.title}" failed: ${output.slice(0, 1000)}`;
    const next = status === "failed" && step.on_error === "fail"
      ? executionFailed(execution, { index, error: { code: "step_failed", message }, time: time() })
      : stepEnded(execution, { index, status, time: time() });
    await change(input, next, { stepId: step.id, result });
  };

  const failStep = (input: CurrentStep, output: string) =>
    endStep(input, { v: 1, status: "failed", output, data: null, outside: false });

  const passGate = async (input: StepInput): Promise<void> => {
    const { found, plan, signal } = input;
    const { execution } = found;
    const approvalId = execution.gate?.approval_id ?? null;
    if (approvalId === null) {
      const asked = await approvals.ask(found, gateApproval({ execution, plan }, approvalOptions()), (id) => ({
        ...execution,
        status: "waiting_for_approval",
        gate: { ...execution.gate, approval_id: id, granted: false },
      }));
      return asked === "full" ? await fail(input, TOO_MANY) : undefined;
    }
    const refusal = await approvals.answer(approvalId, signal);
    if (refusal !== undefined) return await fail(input, refusal);
    await change(input, {
      ...execution,
      status: "running",
      gate: { ...execution.gate, approval_id: approvalId, granted: true },
    });
  };

  const begin = async (input: CurrentStep): Promise<void> => {
    const { found: { execution }, plan, step, state, signal } = input;
    const scopesNow = options.scopesOf(plan.requested_by.token_id);
    if (scopesNow === undefined) return await fail(input, REVOKED);
    const results = await store.results(execution);
    const work = fillStep(step, { execution, plan, results, random: options.random });
    const notHeld = whyNotHeld(work, plan);
    if (notHeld !== undefined) return await failStep(input, notHeld);
    const call = work.kind === "tool" && step.requires_approval
      ? await options.tools().bind(work.tool, JSON.stringify(work.input), signal)
      : undefined;
    // A call that cannot run needs no approval
    if (call?.ok === false) return await failStep(input, call.reason);
    const isGranted = state.granted && (call === undefined || call.binding.digest === state.call_digest);
    if (step.requires_approval && !isGranted) return await askAbout(input, work, call);
    await (work.kind === "manual" ? waitForHands(input) : startRun(input, work, stepScopes(plan, scopesNow)));
  };

  const askAbout = async (input: CurrentStep, work: FilledWork, call: StepCall | undefined): Promise<void> => {
    const { found, plan, step, index } = input;
    const { execution } = found;
    const question = stepApproval({ execution, plan, step, work, call }, approvalOptions());
    const asked = await approvals.ask(found, question, (approval_id) => ({
      ...withStep(execution, index, {
        status: "waiting_for_approval",
        approval_id,
        granted: false,
        call_digest: call?.binding.digest ?? null,
      }),
      started_at: execution.started_at ?? time(),
      status: "waiting_for_approval",
    }));
    if (asked === "full") await fail(input, TOO_MANY);
  };

  const atWork = ({ found: { execution }, index }: CurrentStep, state: Partial<StepState>): Execution => {
    const now = time();
    const next = withStep(execution, index, { started_at: now, ...state });
    return { ...next, started_at: execution.started_at ?? now, status: "running" };
  };

  const waitForHands = async (input: CurrentStep): Promise<void> => {
    const deadline = new Date(clock.now() + options.approvalTimeoutMs()).toISOString();
    await change(input, atWork(input, { status: "waiting", deadline }));
  };

  const startRun = async (
    input: CurrentStep,
    work: Exclude<FilledWork, { kind: "manual" }>,
    scopes: readonly Scope[],
  ): Promise<void> => {
    const { found, plan, step } = input;
    const started = await startStepRun(runs(), work, {
      execution: found.execution,
      plan,
      scopes,
      title: step.title,
      tools: options.tools(),
      claim: (run_id) => store.write(found, atWork(input, { status: "running", run_id })),
    });
    switch (started.kind) {
      case "started":
        return;
      case "claimed":
        if ((await store.find(found.execution.id))?.version !== found.version) return;
        throw new TypeError("A step's run was refused as claimed, and is not");
      case "busy":
        return await clock.sleep(BUSY_MS, input.signal);
      case "refused":
        return await failStep(input, started.message);
    }
  };

  const takeAnswer = async (input: CurrentStep): Promise<void> => {
    const { found: { execution }, state, step, index, signal } = input;
    const refusal = await approvals.answer(state.approval_id ?? "", signal);
    if (refusal !== undefined) return await fail(input, refusal);
    if (step.work.kind !== "manual") {
      const next = withStep(execution, index, { status: "pending", granted: true });
      return await change(input, { ...next, status: "running" });
    }
    // A person who approves a step by hand has done it
    await endStep(input, { v: 1, status: "completed", output: "Approved by a person", data: null, outside: false });
  };

  const waitOn = async (input: CurrentStep): Promise<void> => {
    const remaining = Date.parse(input.state.deadline ?? "") - clock.now();
    if (remaining > 0) return await clock.sleep(Math.min(remaining, DAY_MS), input.signal);
    const message = `Nobody said in time that the step "${input.step.title}" is done`;
    await fail(input, { code: "timeout", message });
  };

  const followRun = async (input: CurrentStep): Promise<void> => {
    const { found: { execution }, state, step, index, signal } = input;
    const run = await endOf(input);
    switch (run?.status) {
      case "completed":
        return await endStep(input, await resultOf(input, run));
      case "cancelled": {
        const message = `The run of step "${step.title}" was cancelled`;
        return await change(input, executionCancelled(execution, time(), message));
      }
      case "needs_review":
        if (state.status === "needs_review") return await clock.sleep(REVIEW_MS, signal);
        return await change(input, withStep(execution, index, { status: "needs_review" }));
      case undefined:
        return await failStep(input, `Nothing is known of the run "${state.run_id}" any more`);
      default:
        return await failStep(input, run?.error?.message ?? "It ended without a result");
    }
  };

  /** Waits for the end of the step's run, and meanwhile tells it what a person has approved already. */
  const endOf = async ({ state, signal }: CurrentStep): Promise<Run | undefined> => {
    const { run_id, approval_id: approvalId, call_digest: callDigest } = state;
    const over = new AbortController();
    const watching = approvalId === null || callDigest === null
      ? Promise.resolve()
      : watch(run_id ?? "", { approvalId, callDigest, signal: AbortSignal.any([signal, over.signal]) });
    try {
      return await runs().ended(run_id ?? "", signal);
    } finally {
      over.abort();
      await watching;
    }
  };

  const watch = async (
    runId: string,
    { signal, ...step }: { readonly approvalId: string; readonly callDigest: string; readonly signal: AbortSignal },
  ): Promise<void> => {
    try {
      for await (const batch of await runs().follow(runId, { afterSeq: 0, signal }) ?? []) {
        for (const event of batch) {
          if (event.type === "approval_needed") await approvals.passOn(event.approval_id, step);
        }
      }
    } catch (error) {
      if (!signal.aborted) {
        log.warn("A step's run could not be followed: its approval waits for a person", { run_id: runId, error });
      }
    }
  };

  const resultOf = async ({ step, signal }: CurrentStep, run: Run): Promise<StepResult> => {
    const result = { v: 1, status: "completed", output: run.result ?? "" } as const;
    if (step.work.kind !== "tool") return { ...result, data: null, outside: false };
    const outside = options.tools().get(step.work.tool)?.access === "network";
    return { ...result, data: await dataOf(runs(), run, signal), outside };
  };

  const cancel = async (input: StepInput): Promise<void> => {
    const { execution } = input.found;
    const state = execution.steps[currentStep(execution)];
    for (const id of [state?.approval_id, execution.gate?.approval_id]) if (id) await options.approvals.cancel(id);
    const runId = state?.run_id ?? null;
    if (runId !== null) {
      await runs().cancel(runId, "cancelled");
      await runs().ended(runId, input.signal);
    }
    await change(input, executionCancelled(execution, time(), "It was cancelled"));
  };

  return async (input) => {
    const { found: { execution }, plan } = input;
    if (execution.cancelling) return await cancel(input);
    if (execution.gate !== null && !execution.gate.granted) return await passGate(input);
    const index = currentStep(execution);
    const [step, state] = [plan.definition.steps[index], execution.steps[index]];
    if (step === undefined || state === undefined) throw new TypeError(`Execution "${execution.id}" has no step to do`);
    const current: CurrentStep = { ...input, index, step, state };
    switch (state.status) {
      case "pending":
        return await begin(current).catch(async (error: unknown) => {
          if (!(error instanceof TemplateError)) throw error;
          await failStep(current, error.message);
        });
      case "waiting_for_approval":
        return await takeAnswer(current);
      case "waiting":
        return await waitOn(current);
      case "running":
      case "needs_review":
        return await followRun(current);
      default:
        throw new TypeError(`Step "${step.id}" is ${state.status} and has no end`);
    }
  };
}

const REVOKED: Failure = { code: "token_revoked", message: "The token that started the procedure was revoked" };
const TOO_MANY: Failure = {
  code: "overloaded",
  message: "Cannot ask for approval: too many approvals are pending already",
};
