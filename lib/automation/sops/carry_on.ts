import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import type { Run } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Approvals } from "../../guard/approvals.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { SopStep } from "./definition.ts";
import { type Execution, type ExecutionPlan, hasEnded, type StepResult, type StepState } from "./execution_record.ts";
import type { ExecutionStore, KeptExecution } from "./execution_store.ts";
import { fillStep } from "./fill_step.ts";
import { type FilledWork, gateQuestion, type StepCall, stepQuestion } from "./questions.ts";
import { createStepApprovals } from "./step_approvals.ts";
import { dataOf, startStepRun, type StepRuns, whyNotHeld } from "./step_run.ts";
import { TemplateError } from "./template.ts";
import { currentStep, executionCancelled, executionFailed, type Failure, stepEnded, withStep } from "./transitions.ts";

export interface CarryOnOptions {
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
  /** Whether a token still counts: no step begins for one that was revoked */
  readonly isLive: (tokenId: string | null) => boolean;
  /** Milliseconds a question, or a step by hand, waits; read at each */
  readonly approvalTimeoutMs: () => number;
}

/** An execution as it was found. */
export interface Turn {
  readonly found: KeptExecution;
  readonly plan: ExecutionPlan;
  readonly signal: AbortSignal;
}

interface StepTurn extends Turn {
  readonly index: number;
  readonly step: SopStep;
  readonly state: StepState;
}

const DAY_MS = 24 * 60 * 60 * 1000;
/** How long to wait before the state of a run that waits for a review is looked at again */
const REVIEW_MS = 2_000;
/** And before a run is started again that found no place */
const BUSY_MS = 1_000;

/**
 * Does what comes next of an execution, or waits for it, and writes down what came of it. One that changed meanwhile stays as it
 * is: whoever calls looks again.
 * @throws {CancelError} when the turn's signal aborts
 */
export type CarryOn = (turn: Turn) => Promise<void>;

export function createCarryOn(options: CarryOnOptions): CarryOn {
  const { store, clock, log } = options;
  const approvals = createStepApprovals(options);
  const time = () => new Date(clock.now()).toISOString();
  const questionOptions = () => ({
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
    { found }: Pick<Turn, "found">,
    next: Execution,
    result?: { readonly stepId: string; readonly result: StepResult },
  ): Promise<void> => {
    if (!await store.change(found, next, result) || !hasEnded(next)) return;
    log.info("Procedure ended", { execution_id: next.id, sop: next.sop, status: next.status, error: next.error });
  };

  const fail = (turn: Turn & { readonly index?: number }, error: Failure) =>
    change(turn, executionFailed(turn.found.execution, { index: turn.index ?? -1, error, time: time() }));

  const endStep = async (turn: StepTurn, result: StepResult): Promise<void> => {
    const { found: { execution }, step, index } = turn;
    const { status, output } = result;
    const message = `The step "${step.title}" failed: ${output.slice(0, 1000)}`;
    const next = status === "failed" && step.on_error === "fail"
      ? executionFailed(execution, { index, error: { code: "step_failed", message }, time: time() })
      : stepEnded(execution, { index, status, time: time() });
    await change(turn, next, { stepId: step.id, result });
  };

  const failStep = (turn: StepTurn, output: string) =>
    endStep(turn, { v: 1, status: "failed", output, data: null, outside: false });

  const passGate = async (turn: Turn): Promise<void> => {
    const { found, plan, signal } = turn;
    const { execution } = found;
    const approvalId = execution.gate?.approval_id ?? null;
    if (approvalId === null) {
      const asked = await approvals.ask(found, gateQuestion({ execution, plan }, questionOptions()), (id) => ({
        ...execution,
        status: "waiting_for_approval",
        gate: { ...execution.gate, approval_id: id, granted: false },
      }));
      return asked === "full" ? await fail(turn, TOO_MANY) : undefined;
    }
    const refusal = await approvals.answer(approvalId, signal);
    if (refusal !== undefined) return await fail(turn, refusal);
    await change(turn, {
      ...execution,
      status: "running",
      gate: { ...execution.gate, approval_id: approvalId, granted: true },
    });
  };

  const begin = async (turn: StepTurn): Promise<void> => {
    const { found: { execution }, plan, step, state, signal } = turn;
    if (!options.isLive(plan.requested_by.token_id)) return await fail(turn, REVOKED);
    const results = await store.results(execution);
    const work = fillStep(step, { execution, plan, results, random: options.random });
    const notHeld = whyNotHeld(work, plan);
    if (notHeld !== undefined) return await failStep(turn, notHeld);
    const call = work.kind === "tool" && step.requires_approval
      ? await options.tools().bind(work.tool, JSON.stringify(work.input), signal)
      : undefined;
    // Nobody is asked about a call that cannot run
    if (call?.ok === false) return await failStep(turn, call.reason);
    const isGranted = state.granted && (call === undefined || call.binding.digest === state.call_digest);
    if (step.requires_approval && !isGranted) return await askAbout(turn, work, call);
    await (work.kind === "manual" ? waitForHands(turn) : startRun(turn, work));
  };

  const askAbout = async (turn: StepTurn, work: FilledWork, call: StepCall | undefined): Promise<void> => {
    const { found, plan, step, index } = turn;
    const { execution } = found;
    const question = stepQuestion({ execution, plan, step, work, call }, questionOptions());
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
    if (asked === "full") await fail(turn, TOO_MANY);
  };

  const atWork = ({ found: { execution }, index }: StepTurn, state: Partial<StepState>): Execution => {
    const now = time();
    const next = withStep(execution, index, { started_at: now, ...state });
    return { ...next, started_at: execution.started_at ?? now, status: "running" };
  };

  const waitForHands = async (turn: StepTurn): Promise<void> => {
    const deadline = new Date(clock.now() + options.approvalTimeoutMs()).toISOString();
    await change(turn, atWork(turn, { status: "waiting", deadline }));
  };

  const startRun = async (turn: StepTurn, work: Exclude<FilledWork, { kind: "manual" }>): Promise<void> => {
    const { found, plan, step } = turn;
    const started = await startStepRun(runs(), work, {
      execution: found.execution,
      plan,
      title: step.title,
      tools: options.tools(),
      claim: (run_id) => store.write(found, atWork(turn, { status: "running", run_id })),
    });
    switch (started.kind) {
      case "started":
        return;
      case "claimed":
        if ((await store.find(found.execution.id))?.version !== found.version) return;
        throw new TypeError("A step's run was refused as claimed, and is not");
      case "busy":
        return await clock.sleep(BUSY_MS, turn.signal);
      case "refused":
        return await failStep(turn, started.message);
    }
  };

  const takeAnswer = async (turn: StepTurn): Promise<void> => {
    const { found: { execution }, state, step, index, signal } = turn;
    const refusal = await approvals.answer(state.approval_id ?? "", signal);
    if (refusal !== undefined) return await fail(turn, refusal);
    if (step.work.kind !== "manual") {
      const next = withStep(execution, index, { status: "pending", granted: true });
      return await change(turn, { ...next, status: "running" });
    }
    // What a person grants that is done by hand is done
    await endStep(turn, { v: 1, status: "completed", output: "Approved by a person", data: null, outside: false });
  };

  const waitOn = async (turn: StepTurn): Promise<void> => {
    const remaining = Date.parse(turn.state.deadline ?? "") - clock.now();
    if (remaining > 0) return await clock.sleep(Math.min(remaining, DAY_MS), turn.signal);
    const message = `Nobody said in time that the step "${turn.step.title}" is done`;
    await fail(turn, { code: "timeout", message });
  };

  const followRun = async (turn: StepTurn): Promise<void> => {
    const { found: { execution }, state, step, index, signal } = turn;
    const run = await endOf(turn);
    switch (run?.status) {
      case "completed":
        return await endStep(turn, await resultOf(turn, run));
      case "cancelled": {
        const message = `The run of step "${step.title}" was cancelled`;
        return await change(turn, executionCancelled(execution, time(), message));
      }
      case "needs_review":
        if (state.status === "needs_review") return await clock.sleep(REVIEW_MS, signal);
        return await change(turn, withStep(execution, index, { status: "needs_review" }));
      case undefined:
        return await failStep(turn, `Nothing is known of the run "${state.run_id}" any more`);
      default:
        return await failStep(turn, run?.error?.message ?? "It ended without a result");
    }
  };

  /** Waits for the end of the step's run, and meanwhile tells it what a person has approved already. */
  const endOf = async ({ state, signal }: StepTurn): Promise<Run | undefined> => {
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
      if (!signal.aborted) log.warn("A step's run could not be followed: its question waits", { run_id: runId, error });
    }
  };

  const resultOf = async ({ step, signal }: StepTurn, run: Run): Promise<StepResult> => {
    const result = { v: 1, status: "completed", output: run.result ?? "" } as const;
    if (step.work.kind !== "tool") return { ...result, data: null, outside: false };
    const outside = options.tools().get(step.work.tool)?.access === "network";
    return { ...result, data: await dataOf(runs(), run, signal), outside };
  };

  const cancel = async (turn: Turn): Promise<void> => {
    const { execution } = turn.found;
    const state = execution.steps[currentStep(execution)];
    for (const id of [state?.approval_id, execution.gate?.approval_id]) if (id) await options.approvals.cancel(id);
    const runId = state?.run_id ?? null;
    if (runId !== null) {
      await runs().cancel(runId, "cancelled");
      await runs().ended(runId, turn.signal);
    }
    await change(turn, executionCancelled(execution, time(), "It was cancelled"));
  };

  return async (turn) => {
    const { found: { execution }, plan } = turn;
    if (execution.cancelling) return await cancel(turn);
    if (execution.gate !== null && !execution.gate.granted) return await passGate(turn);
    const index = currentStep(execution);
    const [step, state] = [plan.definition.steps[index], execution.steps[index]];
    if (step === undefined || state === undefined) throw new TypeError(`Execution "${execution.id}" has no step to do`);
    const stepTurn: StepTurn = { ...turn, index, step, state };
    switch (state.status) {
      case "pending":
        return await begin(stepTurn).catch(async (error: unknown) => {
          if (!(error instanceof TemplateError)) throw error;
          await failStep(stepTurn, error.message);
        });
      case "waiting_for_approval":
        return await takeAnswer(stepTurn);
      case "waiting":
        return await waitOn(stepTurn);
      case "running":
      case "needs_review":
        return await followRun(stepTurn);
      default:
        throw new TypeError(`Step "${step.id}" is ${state.status} and has no end`);
    }
  };
}

const REVOKED: Failure = { code: "token_revoked", message: "The token that started the procedure was revoked" };
const TOO_MANY: Failure = { code: "overloaded", message: "As many questions wait for a person as may" };
