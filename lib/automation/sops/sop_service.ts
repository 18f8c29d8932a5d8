import { join } from "node:path";
import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { HttpError, ToolError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Approval } from "../../base/records/approval.ts";
import type { Caller, Scope } from "../../base/records/caller.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { APPROVAL_LIMITS, type Approvals } from "../../guard/approvals.ts";
import type { Store } from "../../storage/store.ts";
import type { Files } from "../../system/files/files.ts";
import { checkOwner, onlyReached } from "../../tools/runtime/owned_things.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { SopCaller, SopExecutionView, Sops } from "../../tools/sops/sops.ts";
import { createExecutor } from "./create_executor.ts";
import { checkInputs } from "./definition.ts";
import { currentStep, type Execution, hasEnded, stepEnded } from "./execution_record.ts";
import { createExecutionStore, type KeptExecution } from "./execution_store.ts";
import { executionView, sopSummary } from "./execution_view.ts";
import { findSop, type FoundSop, loadDefinitions, type LoadedSops, type SopFolder } from "./load_definitions.ts";
import { gateSubject } from "./step_approvals.ts";
import { cancelStepRun, type StepRuns } from "./step_run.ts";

/** Settings of `[sops]`, and others that are read anew each time. */
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
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly approvals: Approvals;
  readonly files: Files;
  /** Scopes that a token has now. undefined: the token does not count any more */
  readonly scopesOf: (tokenId: string | null) => readonly Scope[] | undefined;
  /** undefined: there is no agent, or not yet */
  readonly runs: () => StepRuns | undefined;
  readonly tools: () => Pick<ToolExecutor, "get" | "shown" | "bind" | "enabled">;
  /** Absolute */
  readonly workspaceRoot: string;
  /** Absolute */
  readonly dataDir: string;
  readonly settings: () => SopSettings;
}

/**
 * The procedures, and the executor that carries their executions on.
 *
 * Call `stopCancelled()` before runs are recovered, `start()` after it, and `stop()` before they are drained.
 */
export interface SopService extends Sops {
  /** Cancels the runs of what was being cancelled when it stopped: once, before runs go on */
  stopCancelled(): Promise<void>;
  /** Goes on with what a stop left open; once, when runs can be started */
  start(): Promise<void>;
  /** Stops; what is open goes on at the next start */
  stop(): Promise<void>;
}

/** Executions that may be open at once */
const MAX_OPEN = 64;
/** Open executions that a list shows */
const OPEN_SHOWN = 20;
/** Runs within runs that are looked at */
const MAX_DEPTH = 32;
/** Milliseconds that `approve` waits for an approval that is about to be filed */
const ASKING_MS = 5_000;

/** Procedures over a store. One gateway owns a store's executions. */
export function createSops(options: SopsOptions): SopService {
  const { clock, random, approvals } = options;
  const store = createExecutionStore(options.store);
  const executor = createExecutor({
    ...options,
    store,
    approvalTimeoutMs: () => options.settings().approvalTimeoutMs,
    retentionDays: () => options.settings().retentionDays,
  });
  const time = () => new Date(clock.now()).toISOString();

  const load = async (): Promise<LoadedSops> => {
    const { dirs, forbiddenPaths } = options.settings();
    const own = [...dirs, join(options.dataDir, "sops")].map((path): SopFolder => (
      { path, shownAs: path, inWorkspace: false }
    ));
    const shownAs = join(".postern", "sops");
    const found: SopFolder = { path: join(options.workspaceRoot, shownAs), shownAs, inWorkspace: true };
    const { files, workspaceRoot } = options;
    return await loadDefinitions({ files, workspaceRoot, forbiddenPaths, folders: [...own, found] });
  };

  const find = async (id: string): Promise<KeptExecution> => {
    const found = await store.find(id);
    if (found !== undefined) return found;
    throw new ToolError(
      "not_found",
      `Cannot find the execution ${JSON.stringify(id.slice(0, 64))}: sop_list shows those that are open`,
    );
  };

  /** Finds an execution that the caller may reach. @throws {ToolError} `not_found`; `insufficient_scope` for another token's */
  const reach = async (id: string, action: string, { caller }: Pick<SopCaller, "caller">): Promise<KeptExecution> => {
    const found = await find(id);
    checkOwner("execution", { action, id }, { owner: await store.ownerOf(id), caller });
    return found;
  };

  /** Returns the approval that an execution waits for now. */
  const questionOf = async (execution: Execution): Promise<Approval | undefined> => {
    if (hasEnded(execution) || execution.cancelling) return undefined;
    const state = execution.steps[currentStep(execution)];
    if (state?.status === "running") {
      const { approvals: pending } = await approvals.list({ status: "pending", limit: APPROVAL_LIMITS.pending });
      return pending.find(({ run_id }) => run_id === state.run_id);
    }
    const isGated = execution.gate !== null && !execution.gate.granted;
    const id = isGated
      ? execution.gate?.approval_id
      : state?.status === "waiting_for_approval"
      ? state.approval_id
      : null;
    const asked = id ? await approvals.get(id) : undefined;
    return asked?.status === "pending" ? asked : undefined;
  };

  /** Returns the execution with its approval, where one is about to be filed. */
  const asked = async (id: string): Promise<KeptExecution> => {
    const limit = clock.timeoutSignal(ASKING_MS);
    try {
      return await executor.asked(id, limit.signal) ?? await find(id);
    } catch (error) {
      if (error instanceof CancelError) return await find(id);
      throw error;
    } finally {
      limit.clear();
    }
  };

  const view = async (execution: Execution): Promise<SopExecutionView> =>
    executionView({
      execution,
      plan: await store.plan(execution.id),
      results: await store.results(execution),
      approval: await questionOf(execution),
    });

  const whyOff = (name: string): string | null => {
    const tool = options.tools().get(name);
    return tool === undefined ? "there is no such tool" : tool.reason;
  };

  /** Tells whether a run is part of an execution: a step's run, or a run that it started. */
  const isWithin = async (runId: string): Promise<boolean> => {
    let id: string | null | undefined = runId;
    for (let depth = 0; id && depth < MAX_DEPTH; depth++) {
      if (id.startsWith("sop_")) return true;
      id = (await options.runs()?.get(id))?.parent_id;
    }
    return false;
  };

  /** Tells whether a person must approve the begin: no definition from a workspace runs by itself. */
  const isGated = async (found: FoundSop): Promise<boolean> => {
    if (!found.inWorkspace) return false;
    const rule = await approvals.remembered(gateSubject(found, options.workspaceRoot), "");
    if (rule?.decision !== "deny") return rule === undefined;
    const reason = `a person denied this very procedure before; "postern approvals revoke ${rule.id}" lifts that`;
    throw new ToolError("denied", `Cannot execute "${found.definition.id}": ${reason}`);
  };

  const grant = async (approval: Approval, by: Caller): Promise<void> => {
    try {
      await approvals.answer(approval.id, { decision: "approve", by });
    } catch (error) {
      // Somebody answered at the same moment
      if (!(error instanceof HttpError)) throw error;
      throw new ToolError("conflict", error.message, { cause: error });
    }
  };

  return {
    stopCancelled: executor.stopCancelled,
    start: executor.start,
    stop: executor.close,

    async list({ caller }) {
      const { sops, invalid } = await load();
      const ids = await Promise.all(
        (await store.open()).toReversed().map(async (id) => ({ id, owner: await store.ownerOf(id) })),
      );
      const { reached, hidden } = onlyReached(ids, caller, ({ owner }) => owner);
      const open = await Promise.all(reached.slice(0, OPEN_SHOWN).map(({ id }) => store.find(id)));
      return {
        sops: sops.map((found) => sopSummary(found, whyOff)),
        invalid,
        open: open.flatMap((kept) =>
          kept === undefined ? [] : [{ id: kept.execution.id, sop: kept.execution.sop, status: kept.execution.status }]
        ),
        hidden,
      };
    },

    async execute({ sop, inputs, caller, runId, mayGrant, tools, limits }) {
      if (caller.via === "sop" || await isWithin(runId)) {
        throw new ToolError("sop_nested", `Cannot execute "${sop}": what a procedure starts does not start procedures`);
      }
      if (options.runs() === undefined) {
        const reason =
          'its steps are runs of the agent, and there is none here: start one with "postern gateway", without ' +
          '--no-agent and with a [provider] kind other than "none"';
        throw new ToolError("agent_unavailable", `Cannot execute "${sop}": ${reason}`);
      }
      const found = findSop(sop, await load());
      const { definition, file, digest } = found;
      const checked = await checkInputs(definition, inputs);
      if ((await store.open()).length >= MAX_OPEN) {
        throw new ToolError("overloaded", `Cannot execute "${sop}": ${MAX_OPEN} executions are open; end some first`);
      }
      const execution: Execution = {
        v: 1,
        id: random.id("sop_"),
        sop: definition.id,
        status: "pending",
        created_at: time(),
        started_at: null,
        ended_at: null,
        error: null,
        cancelling: false,
        gate: mayGrant || !await isGated(found) ? null : { approval_id: null, granted: false },
        steps: definition.steps.map(({ id }) => ({
          id,
          status: "pending",
          approval_id: null,
          granted: false,
          call_digest: null,
          run_id: null,
          deadline: null,
          started_at: null,
          ended_at: null,
        })),
      };
      await store.create(execution, {
        v: 1,
        definition,
        file,
        digest,
        inputs: checked,
        requested_by: { via: caller.via, token_id: caller.tokenId, run_id: runId, scopes: [...caller.scopes] },
        tools: tools === undefined ? null : [...tools],
        limits: limits === undefined ? null : { ...limits },
      });
      executor.goOn(execution.id);
      return await view(execution);
    },

    async status(id, by) {
      const { execution } = await reach(id, "show", by);
      // A person may have said meanwhile what became of it
      if (execution.steps[currentStep(execution)]?.status === "needs_review") executor.goOn(id);
      return await view(execution);
    },

    async advance(id, by) {
      for (;;) {
        const found = await reach(id, "advance", by);
        const { execution } = found;
        if (execution.status === "failed" || execution.status === "cancelled") throw ended("advance", execution);
        const approval = await questionOf(execution);
        if (approval !== undefined) {
          const { waits_for } = await view(execution);
          throw new ToolError("approval_required", `Cannot advance "${id}": ${approval.reason}. ${waits_for}`);
        }
        const index = currentStep(execution);
        const state = execution.steps[index];
        if (state?.status === "waiting") {
          const result = { v: 1, status: "completed", output: "Done by hand", data: null, outside: false } as const;
          const next = stepEnded(execution, { index, status: "completed", time: time() });
          if (!await store.change(found, next, { stepId: state.id, result })) continue;
        }
        executor.goOn(id);
        return await view((await find(id)).execution);
      }
    },

    async cancel(id, by) {
      for (;;) {
        const found = await reach(id, "cancel", by);
        const { execution } = found;
        if (hasEnded(execution)) throw ended("cancel", execution);
        if (!execution.cancelling && !await store.change(found, { ...execution, cancelling: true })) continue;
        // Both on disk before it is answered: no start lets the step go on
        await cancelStepRun(execution, options.runs());
        executor.goOn(id);
        return await view((await find(id)).execution);
      }
    },

    async approve(id, { caller, mayGrant }) {
      await reach(id, "approve", { caller });
      const { execution } = await asked(id);
      const approval = await questionOf(execution);
      if (approval === undefined) {
        if (hasEnded(execution)) throw ended("approve", execution);
        throw new ToolError(
          "conflict",
          `Cannot approve "${id}": it waits for no approval; sop_status shows where it is`,
        );
      }
      if (!mayGrant) return { granted: false, execution: await view(execution) };
      await grant(approval, caller);
      return { granted: true, execution: await view((await find(id)).execution) };
    },
  };
}

function ended(action: string, { id, status, error }: Execution): ToolError {
  const why = error === null ? "" : ` (${error.message})`;
  return new ToolError("conflict", `Cannot ${action} "${id}": it is ${status} already${why}`);
}
