import type { SingleCall } from "../../agent/call_provider.ts";
import { wrapUntrusted } from "../../agent/untrusted_text.ts";
import { HttpError, ProviderError } from "../../base/errors.ts";
import { commonScopes, type Scope } from "../../base/records/caller.ts";
import type { Random } from "../../base/random.ts";
import type { AgentEvent } from "../../base/records/agent_event.ts";
import type { Run } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { joinTaints, type Taint, taintField, UNTAINTED } from "../../base/taint.ts";
import type { RunRequest, RunSupervisor } from "../../runs/run_request.ts";
import type { Write } from "../../storage/store.ts";
import { matchesPatterns } from "../../tools/runtime/registry.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { SopStep } from "./definition.ts";
import {
  currentStep,
  type Execution,
  type ExecutionPlan,
  type StepResult,
  type StepState,
  taintOfResult,
} from "./execution_record.ts";
import type { ApprovedCall, FilledWork, StepApprovals } from "./step_approvals.ts";
import { fillInput, fillText, type TemplateScope } from "./template.ts";

/** The methods of the supervisor that the executor needs. */
export type StepRuns = Pick<RunSupervisor, "start" | "get" | "ended" | "cancel" | "follow">;

/** Outcome of starting a step's run. `claimed`: the execution has changed meanwhile. `busy`: try again later. */
export type StartedStep =
  | { readonly kind: "started" }
  | { readonly kind: "claimed" }
  | { readonly kind: "busy" }
  | { readonly kind: "refused"; readonly message: string };

/** Execution, plan and claim for starting a step's run. */
export interface StepRunOptions {
  readonly tools: Pick<ToolExecutor, "enabled">;
  readonly execution: Execution;
  readonly plan: ExecutionPlan;
  /** Scopes of whoever started the procedure, as of now */
  readonly scopes: readonly Scope[];
  readonly title: string;
  /** Outside content among the values of the work */
  readonly taint: Taint;
  /** Digest of the state that a person approved the step's call for. Undefined: the step needed no approval, or is no call */
  readonly callDigest: string | undefined;
  /** Writes of the transaction that accepts the run */
  readonly claim: (runId: string) => readonly Write[];
}

/** Starts the durable run of a step, at most once for one state of the execution. */
export async function startStepRun(
  runs: StepRuns,
  work: Exclude<FilledWork, { kind: "manual" }>,
  { execution, plan, scopes, title, taint, callDigest, claim, tools }: StepRunOptions,
): Promise<StartedStep> {
  const allowed = plan.tools ?? ["*"];
  const { requested_by, definition } = plan;
  const limits = plan.limits ?? undefined;
  const base = {
    kind: "sop",
    by: {
      // Work that a sub-agent started stays the work of a sub-agent
      caller: { via: requested_by.via === "subagent" ? "subagent" : "sop", tokenId: requested_by.token_id, scopes },
      parentId: execution.id,
      taint: joinTaints(plan.taint, taint),
    },
    durable: true,
    claim,
    agentTools: "configured",
  } as const;
  const request: RunRequest = work.kind === "tool"
    ? { ...base, messages: [], call: toCall(work, callDigest), agent: { tools: allowed, limits } }
    : {
      ...base,
      messages: [{ role: "user", content: work.instructions }],
      agent: {
        tools: tools.enabled(work.tools).map(({ name }) => name).filter((name) => matchesPatterns(name, allowed)),
        limits,
        instructions: [
          `You carry out the step "${title}" of the procedure "${definition.name}". Do this step alone, and say what came of it.`,
          definition.guide,
        ].join("\n\n").trim(),
      },
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

function toCall({ tool, input }: Extract<FilledWork, { kind: "tool" }>, digest: string | undefined): SingleCall {
  return { tool, input: JSON.stringify(input), ...(digest === undefined ? {} : { digest }) };
}

/** Doors by which a client itself asks, in no run that has fewer rights than its token. */
const DIRECT_DOORS: readonly string[] = ["cli", "http", "websocket", "program"];

/**
 * Returns the scopes that the steps of an execution have: those of whoever started the procedure, and no more than the token has now.
 *
 * Older versions recorded no scopes. Their steps get `runs` where the operator or an admin token started the procedure itself, and
 * otherwise no scope: they reach their own token's things alone.
 * @param now scopes that the token has now
 */
export function stepScopes(
  { requested_by: { via, token_id, scopes } }: ExecutionPlan,
  now: readonly Scope[],
): readonly Scope[] {
  if (scopes !== undefined) return commonScopes(scopes, now);
  const isDirect = DIRECT_DOORS.includes(via);
  return isDirect && (token_id === null || now.includes("admin")) ? ["runs"] : [];
}

/** Returns why whoever started the procedure may not use a step's tool; undefined when they may. */
export function whyNotHeld(work: FilledWork, { tools }: ExecutionPlan): string | undefined {
  if (work.kind !== "tool" || tools === null || matchesPatterns(work.tool, tools)) return undefined;
  return `Cannot call "${work.tool}": whoever started the procedure does not have this tool`;
}

/** Cancels the run of the step that is at work, on disk and at once. @param runs undefined: there is no agent */
export async function cancelStepRun(execution: Execution, runs: StepRuns | undefined): Promise<void> {
  const runId = execution.steps[currentStep(execution)]?.run_id ?? null;
  if (runId !== null) await runs?.cancel(runId, "cancelled");
}

/** Runs, approvals and log for following a step's run. */
interface FollowOptions {
  readonly runs: StepRuns;
  readonly approvals: StepApprovals;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

/**
 * Waits for the end of a step's run. Meanwhile the approval of the step answers the policy's approval of the same call.
 * @returns undefined: nothing is known of the run any more
 */
export async function endOfStepRun(state: StepState, { signal, ...options }: FollowOptions): Promise<Run | undefined> {
  const { run_id: runId, approval_id: approvalId, call_digest: callDigest } = state;
  const over = new AbortController();
  const passing = approvalId === null || callDigest === null
    ? Promise.resolve()
    : passApprovalOn(runId ?? "", { approvalId, callDigest }, {
      ...options,
      signal: AbortSignal.any([signal, over.signal]),
    });
  try {
    return await options.runs.ended(runId ?? "", signal);
  } finally {
    over.abort();
    await passing;
  }
}

async function passApprovalOn(
  runId: string,
  approved: ApprovedCall,
  { runs, approvals, log, signal }: FollowOptions,
): Promise<void> {
  try {
    for await (const event of eventsOf(runs, runId, signal)) {
      if (event.type === "approval_needed") await approvals.passOn(event.approval_id, approved);
    }
  } catch (error) {
    if (signal.aborted) return;
    log.warn("A step's run could not be followed: its approval waits for a person", { run_id: runId, error });
  }
}

/** Returns the result of a step whose run is completed. */
export async function resultOfStepRun(
  { work }: SopStep,
  run: Run,
  { runs, signal }: Pick<FollowOptions, "runs" | "signal">,
): Promise<StepResult> {
  const data = work.kind === "tool" ? await dataOf(runs, run, signal) : null;
  return { v: 1, status: "completed", output: run.result ?? "", data, ...taintField(run.taint ?? UNTAINTED) };
}

/** Returns the data that the run's one tool call gave for programs. Null: none. */
async function dataOf(runs: StepRuns, run: Run, signal: AbortSignal): Promise<unknown> {
  let data: unknown = null;
  for await (const event of eventsOf(runs, run.id, signal)) {
    if (event.type === "tool_end") data = event.data ?? null;
  }
  return data;
}

async function* eventsOf(runs: StepRuns, runId: string, signal: AbortSignal): AsyncGenerator<AgentEvent> {
  for await (const batch of await runs.follow(runId, { afterSeq: 0, signal }) ?? []) yield* batch;
}

interface Filling {
  readonly execution: Execution;
  readonly plan: ExecutionPlan;
  readonly results: ReadonlyMap<string, StepResult>;
  /** For the envelopes */
  readonly random: Random;
}

/** Work of a step with its values. */
export interface FilledStep {
  readonly work: FilledWork;
  /** Outside content among the values */
  readonly taint: Taint;
}

/**
 * Fills the values of inputs and earlier steps into a step's work. In instructions, text from the network is in an envelope, so
 * that the agent can tell the text from instructions.
 * @throws {TemplateError} for a value there is not, and over the bounds
 */
export function fillStep(
  { work }: SopStep,
  { execution, plan, results, random }: Filling,
): FilledStep {
  const used = new Set<string>();
  const scope = scopeOf({ execution, plan, results }, (id) => used.add(id));
  const filled = fillWork(work, scope, (id, output) => {
    const origin = taintOfSteps(results, [id]);
    return origin.length === 0 ? output : wrapUntrusted(`steps.${id}`, output, { origin, random });
  });
  return { work: filled, taint: taintOfSteps(results, used) };
}

function fillWork(
  work: SopStep["work"],
  scope: TemplateScope,
  shown: (stepId: string, output: string) => string,
): FilledWork {
  switch (work.kind) {
    case "tool":
      // A record stays a record: only texts in it are filled in
      return { ...work, input: fillInput(work.input, scope) as Record<string, unknown> };
    case "agent":
      return { ...work, instructions: fillText(work.instructions, scope, shown) };
    case "manual":
      return { ...work, text: fillText(work.text, scope, (_, output) => output) };
  }
}

/** Returns the outside content in the results of steps. */
export function taintOfSteps(results: ReadonlyMap<string, StepResult>, ids: Iterable<string>): Taint {
  return joinTaints(...[...ids].map((id) => {
    const result = results.get(id);
    return result === undefined ? UNTAINTED : taintOfResult(result);
  }));
}

/** Fills values into the text of a step by hand. @throws {TemplateError} as `fillStep` */
export function fillHandWork(text: string, filling: Omit<Filling, "random">): string {
  return fillText(text, scopeOf(filling), (_, output) => output);
}

/** @param onStep told of each step whose values are taken. Default: nobody is */
function scopeOf(
  { execution, plan, results }: Omit<Filling, "random">,
  onStep: (id: string) => void = () => {},
): TemplateScope {
  const steps = {};
  for (const [id, result] of results) {
    Object.defineProperty(steps, id, { enumerable: true, get: () => (onStep(id), result) });
  }
  return {
    inputs: plan.inputs,
    steps,
    execution: { id: execution.id, date: execution.created_at.slice(0, 10) },
  };
}
