import { resolve } from "node:path";
import { CancelError } from "../../base/cancel.ts";
import { HttpError, ToolError } from "../../base/errors.ts";
import { hasRoom, shareOf } from "../../base/fair_share.ts";
import type { Kit } from "../../base/kit.ts";
import type { Approval } from "../../base/records/approval.ts";
import { type Caller, isTokenScope, type Scope } from "../../base/records/caller.ts";
import { joinTaints, type Taint, taintField, UNTAINTED } from "../../base/taint.ts";
import type { Approvals } from "../../guard/approvals.ts";
import type { TaintedFiles } from "../../guard/tainted_files.ts";
import { isStorageAway, unlessUnreadable } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { Files } from "../../system/files/files.ts";
import { checkOwner, onlyReached } from "../../tools/runtime/owned_things.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { SopCaller, SopCatalogue, SopExecutionView, Sops } from "../../tools/sops/sops.ts";
import { Executor, type ExecutorOptions } from "./executor.ts";
import { checkInputs, type SopDefinition } from "./definition.ts";
import { currentStep, type Execution, hasEnded, newExecution, stepEnded } from "./execution_record.ts";
import { type EndedStep, ExecutionStore, type KeptExecution } from "./execution_store.ts";
import { executionView, sopSummary } from "./execution_view.ts";
import { findSop, type FoundSop, loadDefinitions, type LoadedSops, sopFolders } from "./load_definitions.ts";
import { gateSubject, pendingApproval } from "./step_approvals.ts";
import { cancelStepRun, type StepRuns } from "./step_run.ts";

/** Settings of `[sops]` and others. They are read again at each use. */
export interface SopSettings {
  /** Absolute folders */
  readonly dirs: readonly string[];
  readonly approvalTimeoutMs: number;
  readonly forbiddenPaths: readonly string[];
  /** Days an ended execution is kept; 0 for ever */
  readonly retentionDays: number;
}

/** Store, runs, tools and settings that procedures work with. */
export interface SopsOptions {
  readonly kit: Pick<Kit, "clock" | "random" | "log">;
  readonly store: Store;
  readonly approvals: Approvals;
  readonly files: Files;
  /** Scopes that a token has now. undefined: the token does not count any more */
  readonly scopesOf: (tokenId: string | null) => readonly Scope[] | undefined | Promise<readonly Scope[] | undefined>;
  /** undefined: there is no agent, or not yet */
  readonly runs: () => StepRuns | undefined;
  readonly tools: () => Pick<ToolExecutor, "get" | "shown" | "masked" | "bind" | "enabled">;
  /** Files that outside content reached. Default: none is known */
  readonly taintedFiles?: Pick<TaintedFiles, "of"> | undefined;
  /** Absolute */
  readonly workspaceRoot: string;
  /** Absolute */
  readonly dataDir: string;
  readonly settings: () => SopSettings;
  /** Makes the part of this gateway in the executions, each of which has one owner. Default: the gateway is alone, and owns all */
  readonly work?: ExecutorOptions["work"];
}

/**
 * Procedures, and the executor that advances their executions.
 *
 * Call `stopCancelled()` before the recovery of runs, `start()` after the recovery, and `stop()` before runs are drained.
 */
export interface SopService extends Sops {
  /** Cancels the runs of executions that were being cancelled at the last stop. Called once, before runs go on */
  stopCancelled(): Promise<void>;
  /** Goes on with the executions that a stop left open. Called once, when runs can be started */
  start(): Promise<void>;
  /** Stops. Open executions go on at the next start */
  stop(): Promise<void>;
}

/** Executions that may be open at once */
const MAX_OPEN = 64;
/** Open executions that a list shows */
const OPEN_SHOWN = 20;
/** Depth of runs within runs that is searched */
const MAX_DEPTH = 32;
/** Milliseconds that `approve` waits for an approval that is about to be filed */
const ASKING_MS = 5_000;

/** The procedures over a store. */
export class ProcedureService implements SopService {
  readonly #options: SopsOptions;
  readonly #store: ExecutionStore;
  readonly #executor: Executor;

  constructor(options: SopsOptions) {
    this.#options = options;
    this.#store = new ExecutionStore(options.store);
    this.#executor = new Executor({
      ...options,
      store: this.#store,
      approvalTimeoutMs: () => options.settings().approvalTimeoutMs,
      retentionDays: () => options.settings().retentionDays,
    });
  }

  stopCancelled(): Promise<void> {
    return this.#executor.stopCancelled();
  }

  start(): Promise<void> {
    return this.#executor.start();
  }

  stop(): Promise<void> {
    return this.#executor.close();
  }

  async list({ caller }: Pick<SopCaller, "caller">): Promise<SopCatalogue> {
    const { sops, invalid } = await this.#load();
    const newestFirst = (await this.#store.open()).toReversed();
    const ids = await Promise.all(newestFirst.map(async (id) => ({ id, owner: await this.#store.ownerOf(id) })));
    const { reached, hidden } = onlyReached(ids, caller, ({ owner }) => owner);
    const open = await Promise.all(
      reached.slice(0, OPEN_SHOWN).map(({ id }) => unlessUnreadable(this.#store.find(id))),
    );
    return {
      sops: sops.map((found) => sopSummary(found, (tool) => this.#whyOff(tool))),
      invalid,
      open: open.filter((kept) => kept !== undefined).map(({ execution: { id, sop, status } }) => ({
        id,
        sop,
        status,
      })),
      hidden,
    };
  }

  async execute({ sop, inputs, ...by }: Parameters<Sops["execute"]>[0]): Promise<SopExecutionView> {
    await this.#checkMayExecute(sop, by);
    const found = findSop(sop, await this.#load());
    const { definition, file, digest } = found;
    const checked = await checkInputs(definition, inputs);
    const open = await this.#store.open();
    const owners = open.length < shareOf(MAX_OPEN) ? [] : await Promise.all(open.map((id) => this.#store.ownerOf(id)));
    const own = owners.filter((owner) => owner === by.caller.tokenId).length;
    if (!hasRoom({ all: open.length, own }, MAX_OPEN)) {
      const reason = `${open.length} executions are open, ${own} of this token; end some first`;
      throw new ToolError("overloaded", `Cannot execute "${sop}": ${reason}`);
    }
    const { caller, runId, mayGrant, tools, limits, taint } = by;
    const outside = await this.#taintOf(file);
    const isGated = !mayGrant && await this.#isGated(found, outside);
    const execution = newExecution(definition, {
      id: this.#options.kit.random.id("sop_"),
      time: this.#time(),
      isGated,
    });
    await this.#store.create(execution, {
      v: 1,
      definition,
      file,
      digest,
      inputs: checked,
      requested_by: {
        via: caller.via,
        token_id: caller.tokenId,
        run_id: runId,
        scopes: caller.scopes.filter(isTokenScope),
      },
      tools: tools === undefined ? null : [...tools],
      limits: limits === undefined ? null : { ...limits },
      ...taintField(joinTaints(taint, outside)),
    }, this.#executor.opening(execution.id, this.#isLocal(definition)));
    this.#executor.begin(execution.id);
    return await shownAfter("started", execution.id, () => this.#view(execution));
  }

  /** Tells whether a step may need this machine, as its files or programs. */
  #isLocal({ steps }: SopDefinition): boolean {
    const tools = this.#options.tools();
    return steps.some(({ work }) => {
      if (work.kind === "manual") return false;
      return tools.enabled(work.kind === "tool" ? [work.tool] : work.tools).some(({ local }) => local);
    });
  }

  /** Returns the outside content in a file of a definition. */
  async #taintOf(file: string): Promise<Taint> {
    const { taintedFiles, workspaceRoot } = this.#options;
    return await taintedFiles?.of([resolve(workspaceRoot, file)]) ?? UNTAINTED;
  }

  async status(id: string, by: Pick<SopCaller, "caller">): Promise<SopExecutionView> {
    const { execution } = await this.#reach(id, "show", by);
    // A person may have reviewed the run meanwhile
    if (execution.steps[currentStep(execution)]?.status === "needs_review") this.#executor.goOn(id);
    return await this.#view(execution);
  }

  async advance(id: string, by: SopCaller): Promise<SopExecutionView> {
    for (;;) {
      const found = await this.#reach(id, "advance", by);
      const { execution } = found;
      if (execution.status === "failed" || execution.status === "cancelled") throw ended("advance", execution);
      const approval = await this.#pendingApproval(execution);
      if (approval !== undefined) {
        const { waits_for } = await this.#view(execution);
        throw new ToolError("approval_required", `Cannot advance "${id}": ${approval.reason}. ${waits_for}`);
      }
      if (await this.#endHandWork(found)) return await this.#viewAfter("advanced", id);
    }
  }

  async cancel(id: string, by: SopCaller): Promise<SopExecutionView> {
    for (;;) {
      const found = await this.#reach(id, "cancel", by);
      const { execution } = found;
      if (hasEnded(execution)) throw ended("cancel", execution);
      if (!execution.cancelling && !await this.#change(found, { ...execution, cancelling: true })) continue;
      // Both are on disk before the reply: no start lets the step go on
      await cancelStepRun(execution, this.#options.runs());
      return await this.#viewAfter("cancelled", id);
    }
  }

  async approve(id: string, { caller, mayGrant }: SopCaller): ReturnType<Sops["approve"]> {
    await this.#reach(id, "approve", { caller });
    const { execution } = await this.#untilAsked(id);
    const approval = await this.#pendingApproval(execution);
    if (approval === undefined) {
      if (hasEnded(execution)) throw ended("approve", execution);
      throw new ToolError("conflict", `Cannot approve "${id}": it waits for no approval; sop_status shows where it is`);
    }
    if (!mayGrant) return { granted: false, execution: await this.#view(execution) };
    await this.#grant(approval, caller);
    const view = async () => await this.#view((await this.#find(id)).execution);
    return { granted: true, execution: await shownAfter("approved", id, view) };
  }

  async #load(): Promise<LoadedSops> {
    const { files, workspaceRoot, dataDir, settings } = this.#options;
    const { dirs, forbiddenPaths } = settings();
    const folders = sopFolders({ dirs, dataDir, workspaceRoot });
    return await loadDefinitions({ files, workspaceRoot, forbiddenPaths, folders });
  }

  #whyOff(name: string): string | null {
    const tool = this.#options.tools().get(name);
    return tool === undefined ? "there is no such tool" : tool.reason;
  }

  async #checkMayExecute(sop: string, { caller, runId }: SopCaller): Promise<void> {
    if (caller.via === "sop" || await this.#isWithin(runId)) {
      throw new ToolError("sop_nested", `Cannot execute "${sop}": what a procedure starts does not start procedures`);
    }
    if (this.#options.runs() !== undefined) return;
    const reason =
      'its steps are runs of the agent, and there is none here: start one with "postern gateway", without ' +
      '--no-agent and with a [provider] kind other than "none"';
    throw new ToolError("agent_unavailable", `Cannot execute "${sop}": ${reason}`);
  }

  /** Tells whether a run is part of an execution: a step's run, or a run that it started. */
  async #isWithin(runId: string): Promise<boolean> {
    let id: string | null | undefined = runId;
    for (let depth = 0; id && depth < MAX_DEPTH; depth++) {
      if (id.startsWith("sop_")) return true;
      id = (await this.#options.runs()?.get(id))?.parent_id;
    }
    return false;
  }

  /** Tells whether a person must approve the begin: no definition from a workspace, and none that outside content reached, runs by itself. */
  async #isGated(found: FoundSop, outside: Taint): Promise<boolean> {
    // A folder of the operator may lie in the workspace, where a tool can have written it
    if (!found.inWorkspace && outside.length === 0) return false;
    const { approvals, workspaceRoot } = this.#options;
    const rule = await approvals.remembered(gateSubject(found, workspaceRoot), "");
    if (rule?.decision !== "deny") return rule === undefined;
    const reason = `a person denied this very procedure before; "postern approval revoke ${rule.id}" lifts that`;
    throw new ToolError("denied", `Cannot execute "${found.definition.id}": ${reason}`);
  }

  /** Finds an execution that the caller may reach. @throws {ToolError} `not_found`; `insufficient_scope` for another token's */
  async #reach(id: string, action: string, { caller }: Pick<SopCaller, "caller">): Promise<KeptExecution> {
    const found = await this.#find(id);
    checkOwner("execution", { action, id }, { owner: await this.#store.ownerOf(id), caller });
    return found;
  }

  async #find(id: string): Promise<KeptExecution> {
    const found = await this.#store.find(id);
    if (found !== undefined) return found;
    throw new ToolError(
      "not_found",
      `Cannot find the execution ${JSON.stringify(id.slice(0, 64))}: sop_list shows those that are open`,
    );
  }

  /** Marks the step that waits for a person's work as done. @returns false when the execution has changed meanwhile */
  async #endHandWork(found: KeptExecution): Promise<boolean> {
    const { execution } = found;
    const index = currentStep(execution);
    const state = execution.steps[index];
    if (state?.status !== "waiting") return true;
    const result = { v: 1, status: "completed", output: "Done by hand", data: null } as const;
    const next = stepEnded(execution, { index, status: "completed", time: this.#time() });
    return await this.#change(found, next, { stepId: state.id, result });
  }

  /** Writes a change that a caller makes, with the signal for the owner. @returns false when the execution has changed meanwhile */
  async #change(found: KeptExecution, next: Execution, result?: EndedStep): Promise<boolean> {
    return await this.#store.change({ ...found, alongside: await this.#executor.signal(next.id) }, next, result);
  }

  /** Returns the execution once its approval is filed, or after 5 s. */
  async #untilAsked(id: string): Promise<KeptExecution> {
    const limit = this.#options.kit.clock.timeoutSignal(ASKING_MS);
    try {
      return await this.#executor.untilAsked(id, limit.signal) ?? await this.#find(id);
    } catch (error) {
      if (error instanceof CancelError) return await this.#find(id);
      throw error;
    } finally {
      limit.clear();
    }
  }

  async #grant(approval: Approval, by: Caller): Promise<void> {
    try {
      await this.#options.approvals.answer(approval.id, { decision: "approve", by });
    } catch (error) {
      // Somebody answered at the same moment
      if (!(error instanceof HttpError)) throw error;
      throw new ToolError("conflict", error.message, { cause: error });
    }
  }

  #pendingApproval(execution: Execution): Promise<Approval | undefined> {
    return pendingApproval(execution, this.#options.approvals);
  }

  /** Lets an execution go on after a change, and returns it. @param done what was done to it */
  async #viewAfter(done: string, id: string): Promise<SopExecutionView> {
    this.#executor.goOn(id);
    return await shownAfter(done, id, async () => await this.#view((await this.#find(id)).execution));
  }

  async #view(execution: Execution): Promise<SopExecutionView> {
    return executionView({
      execution,
      plan: await this.#store.plan(execution.id),
      results: await this.#store.results(execution),
      approval: await this.#pendingApproval(execution),
      waitsForWorkspace: !hasEnded(execution) && await this.#executor.waitsForWorkspace(execution.id),
    });
  }

  #time(): string {
    return new Date(this.#options.kit.clock.now()).toISOString();
  }
}

/**
 * Shows an execution after a change of it. The change is made, so nobody may take an error of the store for its failure.
 * @throws {ToolError} `storage_away` when the store went down after the change
 */
async function shownAfter<T>(done: string, id: string, view: () => Promise<T>): Promise<T> {
  try {
    return await view();
  } catch (error) {
    if (!isStorageAway(error)) throw error;
    throw new ToolError(
      "storage_away",
      `Cannot show the execution "${id}": it was ${done}, and the database went down after that; sop_status shows it later`,
    );
  }
}

function ended(action: string, { id, status, error }: Execution): ToolError {
  const why = error === null ? "" : ` (${error.message})`;
  return new ToolError("conflict", `Cannot ${action} "${id}": it is ${status} already${why}`);
}
