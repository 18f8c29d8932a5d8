import { CancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { HttpError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Run } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { createWaiters } from "../../base/waiters.ts";
import type { ApprovalQuestion, Approvals } from "../../guard/approvals.ts";
import type { ToolDoor } from "../../tools/runtime/tool_door.ts";
import type { SopStep } from "./definition.ts";
import { type Execution, hasEnded, type Plan, type StepResult, type StepState } from "./execution_record.ts";
import type { ExecutionStore, KeptExecution } from "./execution_store.ts";
import { fillStep } from "./fill_step.ts";
import { type FilledWork, gateQuestion, stepQuestion } from "./questions.ts";
import { dataOf, startStepRun, type StepRuns } from "./step_run.ts";
import { TemplateError } from "./template.ts";
import { currentStep, executionCancelled, executionFailed, type Failure, stepEnded, withStep } from "./transitions.ts";

export interface ExecutorOptions {
  readonly store: ExecutionStore;
  readonly approvals: Approvals;
  /** undefined: no agent is configured, and nothing starts */
  readonly runs: () => StepRuns | undefined;
  readonly tools: () => Pick<ToolDoor, "get" | "shown" | "accessOf" | "enabled">;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly workspaceRoot: string;
  /** Milliseconds a question, or a step by hand, waits; read at each */
  readonly approvalTimeoutMs: () => number;
  /** Days an ended execution is kept; 0 for ever */
  readonly retentionDays: () => number;
}

/** Carries executions on, in the background. */
export interface Executor {
  /** Goes on with all that a stop left open */
  start(): Promise<void>;
  /** Goes on with this one; one that is at work looks again */
  goOn(id: string): void;
  /** Resolves once the execution holds its question, or needs none any more. @throws {CancelError} when the signal aborts */
  asked(id: string, signal: AbortSignal): Promise<KeptExecution | undefined>;
  /** Makes room for one more */
  prune(): Promise<void>;
  /** Stops at once; what is open goes on at the next start */
  close(): Promise<void>;
}

/** Executions that are kept, the open ones excepted */
const KEEP = 1_000;
const DAY_MS = 24 * 60 * 60 * 1000;
/** How long to wait before the state of a run that waits for a review is looked at again */
const REVIEW_MS = 2_000;
/** And before work is offered again that was refused, or failed inside */
const RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

interface Turn {
  readonly found: KeptExecution;
  readonly plan: Plan;
  readonly signal: AbortSignal;
}
interface StepTurn extends Turn {
  readonly index: number;
  readonly step: SopStep;
  readonly state: StepState;
}

/**
 * One loop for each open execution: it looks at the record, does what comes next, and looks again. Nothing is kept in memory, so
 * a stop at any moment is a pause; a step's run is accepted in one transaction with the record that names it, so none runs twice.
 */
export function createExecutor(options: ExecutorOptions): Executor {
  const { store, approvals, clock, log } = options;
  const closing = new AbortController();
  const turns = new Map<string, AbortController>();
  const drives = new Map<string, Promise<void>>();
  const waiters = createWaiters();
  let pruning: Timer | undefined;
  const time = () => new Date(clock.now()).toISOString();

  const change = async (
    { found }: Pick<Turn, "found">,
    next: Execution,
    result?: { readonly stepId: string; readonly result: StepResult },
  ): Promise<void> => {
    // One that changed meanwhile is looked at again
    if (!await store.change(found, next, result)) return;
    waiters.wake(next.id);
    if (!hasEnded(next)) return;
    log.info("Procedure ended", { execution_id: next.id, sop: next.sop, status: next.status, error: next.error });
  };
  const fail = (turn: Turn & { readonly index?: number }, error: Failure) =>
    change(turn, executionFailed(turn.found.execution, { index: turn.index ?? -1, error, time: time() }));
  const endStep = async (turn: StepTurn, result: StepResult): Promise<void> => {
    const { found: { execution }, step, index } = turn;
    const { status, output } = result;
    const kept = { stepId: step.id, result };
    const next = status === "failed" && step.on_error === "fail"
      ? executionFailed(execution, {
        index,
        error: { code: "step_failed", message: `The step "${step.title}" failed: ${output.slice(0, 1000)}` },
        time: time(),
      })
      : stepEnded(execution, { index, status, time: time() });
    await change(turn, next, kept);
  };
  const failStep = (turn: StepTurn, output: string) =>
    endStep(turn, { v: 1, status: "failed", output, data: null, outside: false });

  const questionOptions = () => ({
    tools: options.tools(),
    workspaceRoot: options.workspaceRoot,
    timeoutMs: options.approvalTimeoutMs(),
  });
  const deadline = () => new Date(clock.now() + options.approvalTimeoutMs()).toISOString();

  /** Files a question in one transaction with the record that names it. */
  const ask = async (
    turn: Turn & { readonly index?: number },
    question: ApprovalQuestion,
    next: (approvalId: string) => Execution,
  ) => {
    const { found } = turn;
    let asked;
    try {
      asked = await approvals.ask(question, (id) => store.write(found, next(id)));
    } catch (error) {
      if (error instanceof HttpError && error.status === 409) return;
      throw error;
    }
    if (asked === undefined) {
      return await fail(turn, { code: "overloaded", message: "As many questions wait for a person as may" });
    }
    waiters.wake(found.execution.id);
  };

  /** Waits for the answer. @returns undefined when it is yes */
  const answer = async (approvalId: string, signal: AbortSignal): Promise<Failure | undefined> => {
    let settled;
    try {
      settled = await approvals.settled(approvalId, signal);
    } catch (error) {
      if (!(error instanceof HttpError)) throw error;
      return { code: "approval_lost", message: `Nothing is known of the approval "${approvalId}" any more` };
    }
    switch (settled.status) {
      case "approved": {
        // It is bound to this execution: if it was used, then by this very step, before a stop
        const used = settled.used_at === null ? await approvals.use(approvalId, settled.digest) : undefined;
        return used === undefined || used.ok ? undefined : { code: "approval_expired", message: used.reason };
      }
      case "denied":
        return { code: "approval_denied", message: `A person denied it${settled.note ? `: ${settled.note}` : ""}` };
      case "expired":
        return { code: "approval_expired", message: "Nobody answered in time" };
      default:
        return { code: "approval_denied", message: "The question was taken back" };
    }
  };

  const passGate = async (turn: Turn): Promise<void> => {
    const { found: { execution }, plan, signal } = turn;
    const approvalId = execution.gate?.approval_id ?? null;
    if (approvalId === null) {
      const question = gateQuestion({ execution, plan }, questionOptions());
      return await ask(turn, question, (id) => ({
        ...execution,
        status: "waiting_for_approval",
        gate: { approval_id: id, granted: false },
      }));
    }
    const refusal = await answer(approvalId, signal);
    if (refusal !== undefined) return await fail(turn, refusal);
    await change(turn, { ...execution, status: "running", gate: { approval_id: approvalId, granted: true } });
  };

  const filled = async ({ found: { execution }, plan, step }: StepTurn): Promise<FilledWork> =>
    fillStep(step, { execution, plan, results: await store.results(execution), random: options.random });

  const begin = async (turn: StepTurn): Promise<void> => {
    const { found, plan, step, state, index } = turn;
    const { execution } = found;
    const work = await filled(turn);
    if (step.requires_approval && !state.granted) {
      const question = stepQuestion({ execution, plan, step, work }, questionOptions());
      return await ask(turn, question, (approval_id) => ({
        ...withStep(execution, index, { status: "waiting_for_approval", approval_id }),
        started_at: execution.started_at ?? time(),
        status: "waiting_for_approval",
      }));
    }
    const now = time();
    const at = (change: Partial<StepState>): Execution => ({
      ...withStep(execution, index, { started_at: now, ...change }),
      started_at: execution.started_at ?? now,
      status: "running",
    });
    if (work.kind === "manual") return await change(turn, at({ status: "waiting", deadline: deadline() }));
    const started = await startStepRun(runs(), work, {
      execution,
      plan,
      title: step.title,
      tools: options.tools(),
      claim: (run_id) => store.write(found, at({ status: "running", run_id })),
    });
    switch (started.kind) {
      case "started":
        return waiters.wake(execution.id);
      case "claimed": {
        const now = await store.find(execution.id);
        if (now?.version === found.version) throw new TypeError("A step's run was refused as claimed, and is not");
        return;
      }
      case "busy":
        return await clock.sleep(RETRY_MS, turn.signal);
      case "refused":
        return await failStep(turn, started.message);
    }
  };

  const granted = async (turn: StepTurn): Promise<void> => {
    const { found: { execution }, state, step, index, signal } = turn;
    const refusal = await answer(state.approval_id ?? "", signal);
    if (refusal !== undefined) return await fail(turn, refusal);
    const next: Execution = { ...withStep(execution, index, { status: "pending", granted: true }), status: "running" };
    if (step.work.kind !== "manual") return await change(turn, next);
    // What a person grants that is done by hand is done
    const result: StepResult = {
      v: 1,
      status: "completed",
      output: "Approved by a person",
      data: null,
      outside: false,
    };
    await endStep(turn, result);
  };

  const handWork = async (turn: StepTurn): Promise<void> => {
    const remaining = Date.parse(turn.state.deadline ?? "") - clock.now();
    if (remaining > 0) return await clock.sleep(Math.min(remaining, DAY_MS), turn.signal);
    const message = `Nobody said in time that the step "${turn.step.title}" is done`;
    await fail(turn, { code: "timeout", message });
  };

  const followRun = async (turn: StepTurn): Promise<void> => {
    const { found: { execution }, state, step, index, signal } = turn;
    const run = await runs().ended(state.run_id ?? "", signal);
    switch (run?.status) {
      case "completed":
        return await endStep(turn, await resultOf(turn, run));
      case "cancelled":
        return await change(
          turn,
          executionCancelled(execution, time(), `The run of step "${step.title}" was cancelled`),
        );
      case "needs_review":
        if (state.status === "needs_review") return await clock.sleep(REVIEW_MS, signal);
        return await change(turn, withStep(execution, index, { status: "needs_review" }));
      default:
        return await failStep(turn, run?.error?.message ?? `Nothing is known of the run "${state.run_id}" any more`);
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
    for (const id of [state?.approval_id, execution.gate?.approval_id]) if (id) await approvals.cancel(id);
    const runId = state?.run_id ?? null;
    if (runId !== null) {
      await runs().cancel(runId, "cancelled");
      const run = await runs().ended(runId, turn.signal);
      log.info("A step's run ended with its procedure", {
        execution_id: execution.id,
        run_id: runId,
        status: run?.status,
      });
    }
    await change(turn, executionCancelled(execution, time(), "It was cancelled"));
  };

  const act = async (turn: Turn): Promise<void> => {
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
        return await granted(stepTurn);
      case "waiting":
        return await handWork(stepTurn);
      case "running":
      case "needs_review":
        return await followRun(stepTurn);
      default:
        throw new TypeError(`Step "${step.id}" is ${state.status} and has no end`);
    }
  };

  const runs = (): StepRuns => {
    const there = options.runs();
    if (there === undefined) throw new TypeError("Nothing starts without an agent");
    return there;
  };

  const drive = async (id: string): Promise<void> => {
    let plan: Plan | undefined;
    for (let retryMs = RETRY_MS; !closing.signal.aborted;) {
      const turn = new AbortController();
      turns.set(id, turn);
      const signal = AbortSignal.any([closing.signal, turn.signal]);
      try {
        const found = await store.find(id);
        if (found === undefined || hasEnded(found.execution)) return;
        plan ??= await store.plan(id);
        await act({ found, plan, signal });
        retryMs = RETRY_MS;
      } catch (error) {
        // Somebody changed it, or all ends: look again
        if (error instanceof CancelError && signal.aborted) continue;
        log.error("Procedure cannot go on, and is tried again", { execution_id: id, error });
        await clock.sleep(retryMs, signal).catch(() => {});
        retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
      }
    }
  };

  const prune = async (): Promise<void> => {
    const days = options.retentionDays();
    const before = days === 0 ? "" : new Date(clock.now() - days * DAY_MS).toISOString();
    const pruned = await store.prune({ before, keep: KEEP });
    if (pruned > 0) log.info("Old executions of procedures were forgotten", { executions: pruned });
  };
  const pruneQuietly = () => void prune().catch((error: unknown) => log.error("Old executions stay", { error }));

  const executor: Executor = {
    async start() {
      for (const id of await store.open()) executor.goOn(id);
      pruneQuietly();
      pruning = clock.every(DAY_MS, pruneQuietly);
    },
    goOn(id) {
      if (closing.signal.aborted) return;
      if (drives.has(id)) return turns.get(id)?.abort(new CancelError("cancelled"));
      const work = drive(id).finally(() => {
        drives.delete(id);
        turns.delete(id);
      });
      drives.set(id, work);
    },
    async asked(id, signal) {
      for (;;) {
        const news = waiters.listen(id, signal);
        try {
          const found = await store.find(id);
          if (found === undefined || !isAboutToAsk(found.execution)) return found;
          await news.heard;
        } finally {
          news.stop();
        }
      }
    },
    prune,
    async close() {
      pruning?.clear();
      closing.abort(new CancelError("shutdown"));
      await Promise.allSettled(drives.values());
    },
  };
  return executor;
}

function isAboutToAsk(execution: Execution): boolean {
  if (hasEnded(execution) || execution.cancelling) return false;
  if (execution.gate !== null && !execution.gate.granted) return execution.gate.approval_id === null;
  return execution.steps[currentStep(execution)]?.status === "pending";
}
