import { Buffer } from "node:buffer";
import { CancelError, cancelError, type CancelReason } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { lazily } from "../../base/lazily.ts";
import { hasScope, isSameToken } from "../../base/records/caller.ts";
import { isAtWork, type Run } from "../../base/records/run.ts";
import type { Config } from "../../config/config.ts";
import { unlessUnreadable } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import {
  type NewSubAgent,
  SUB_AGENT_LIMITS,
  type SubAgentCaller,
  type SubAgents,
  type SubAgentView,
} from "../../tools/agents/sub_agents.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { reasonUnknown } from "../supervisor/agent_profile.ts";
import { createDelegation } from "./delegation.ts";
import type { RunRequest, RunSupervisor } from "../run_request.ts";
import { nextTurn, startOnce, subAgentRequest, toLimits } from "./sub_agent_request.ts";
import { grantTools, heldTools, lineageOf } from "./sub_agent_grant.ts";
import { createSubAgentRecords, idOfCall, SUB_AGENTS, type SubAgentRecord, turnWrite } from "./sub_agent_records.ts";

export interface SubAgentsOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** `[agents.<name>]`, the newest ones */
  readonly agents: () => Config["agents"];
  readonly tools: () => Pick<ToolExecutor, "enabled" | "get">;
  /** undefined without an agent */
  readonly runs: () => RunSupervisor | undefined;
}

/** Characters of a task that its record keeps */
const SHOWN_TASK = 200;

/** The sub-agents as runs of kind `subagent`. Which of them are at work is read from the store once, and known from then on. */
export function createSubAgents({ store, clock, agents, tools, runs }: SubAgentsOptions): SubAgents {
  const supervisor = (): RunSupervisor => {
    const found = runs();
    if (found !== undefined) return found;
    throw new ToolError("agent_unavailable", "Cannot use sub-agents: the gateway runs without an agent");
  };
  const delegation = createDelegation({ store, clock, supervisor });
  const records = createSubAgentRecords({
    store,
    runOf: async (id) => await unlessUnreadable(runs()?.get(id)),
    isWaitedFor: delegation.isWaitedFor,
  });
  let starting = 0;

  /** The sub-agent that the caller is itself; undefined for every other caller. */
  const selfOf = async (by: SubAgentCaller): Promise<SubAgentRecord | undefined> => {
    if (by.caller.via !== "subagent") return undefined;
    const self = by.conversationId === null ? await records.ofRun(by.runId) : await records.find(by.conversationId);
    if (self !== undefined) return self;
    throw new ToolError(
      "not_found",
      "Cannot use sub-agents here: which sub-agent stands behind this call is not known",
    );
  };

  const visible = async (id: string, by: SubAgentCaller): Promise<SubAgentRecord> => {
    const [record, self] = await Promise.all([records.find(id), selfOf(by)]);
    if (record !== undefined && isBelow(record, self) && mayReach(by, record)) return record;
    throw new ToolError(
      "not_found",
      `Cannot find the sub-agent ${JSON.stringify(id)}: subagent_list shows those there are`,
    );
  };

  const working = lazily(async () => {
    const found = new Set<string>();
    for await (const record of records.all()) if (record.kind === "spawn") found.add(record.id);
    return found;
  });

  const isWorking = async (id: string) => {
    const record = await records.find(id);
    return record !== undefined && isAtWork((await records.view(record)).status);
  };

  /** Holds a place among those that may work at once while `start` runs. */
  const withPlace = async <T>(id: string, start: () => Promise<T>): Promise<T> => {
    const known = await working();
    for (const other of known) if (other !== id && !await isWorking(other)) known.delete(other);
    if (!known.has(id) && known.size + starting >= SUB_AGENT_LIMITS.active) {
      const most = `${SUB_AGENT_LIMITS.active} work in the background already`;
      throw new ToolError("too_many_sub_agents", `Cannot start a sub-agent: ${most}; wait for one, or cancel one`);
    }
    starting++;
    try {
      const started = await start();
      known.add(id);
      return started;
    } finally {
      starting--;
    }
  };

  const configOf = (name: string | undefined) => {
    const configured = agents();
    if (name === undefined) return undefined;
    if (Object.hasOwn(configured, name)) return configured[name];
    const reason = reasonUnknown(Object.keys(configured));
    throw new ToolError("unknown_agent", `Cannot use the agent ${JSON.stringify(name)}: ${reason}`);
  };

  /** @throws {ToolError} before anything is started */
  const plan = async (
    kind: SubAgentRecord["kind"],
    { task, agent, tools: asked }: NewSubAgent,
    { id, by }: { readonly id: string; readonly by: SubAgentCaller },
  ) => {
    checkText(kind === "spawn" ? "task" : "prompt", task);
    const config = configOf(agent);
    const parent = await selfOf(by);
    const lineage = lineageOf({ id, agent: agent ?? null, config }, { by, parent });
    const granted = grantTools(tools(), { by, asked, agent: config });
    if (!await records.makeRoom()) {
      throw new ToolError(
        "too_many_sub_agents",
        `Cannot start a sub-agent: ${SUB_AGENT_LIMITS.kept} are at work already`,
      );
    }
    const limits = by.inherited?.limits;
    const record: Omit<SubAgentRecord, "run_id"> = {
      v: 1,
      id,
      kind,
      agent: agent ?? null,
      task: task.slice(0, SHOWN_TASK),
      ...lineage,
      tools: [...granted],
      token_id: by.caller.tokenId,
      ...(limits === undefined ? {} : { limits: toLimits(limits) }),
      created_at: new Date(clock.now()).toISOString(),
      ended: null,
    };
    return record;
  };

  /** The newest run, once it is over or `signal` aborts. */
  const awaitNewest = async (record: SubAgentRecord, signal: AbortSignal): Promise<Run | undefined> => {
    for (;;) {
      const { run_id: id } = await records.view(record);
      const run = await supervisor().ended(id, signal);
      if ((await records.view(record)).run_id === id) return run;
    }
  };

  const cancelRuns = async (record: SubAgentRecord, reason: CancelReason): Promise<boolean> => {
    let stopped = false;
    for (const runId of (await records.runsOf(record)).toReversed()) {
      stopped = await supervisor().cancel(runId, reason) || stopped;
    }
    return stopped;
  };

  const collect = async (
    by: SubAgentCaller,
    keep: (record: SubAgentRecord, view: SubAgentView) => boolean,
  ): Promise<readonly SubAgentView[]> => {
    const self = await selfOf(by);
    const views: SubAgentView[] = [];
    for await (const record of records.all()) {
      if (!isBelow(record, self) || !mayReach(by, record)) continue;
      const view = await records.view(record);
      if (keep(record, view)) views.push(view);
      if (views.length === SUB_AGENT_LIMITS.listed) break;
    }
    return views;
  };

  return {
    async spawn(order, by) {
      const id = idOfCall("sub_", by);
      const known = await records.find(id);
      if (known !== undefined) return await records.view(known);
      return await withPlace(id, async () => {
        const planned = await plan("spawn", order, { id, by });
        const claim = claimOf(planned);
        await startOnce(supervisor(), {
          ...subAgentRequest(planned, { text: order.task, by, durable: true }),
          conversationId: id,
          claim,
        });
        return await records.view(await visible(id, by));
      });
    },
    list: ({ status }, by) =>
      collect(by, (record, view) => record.kind === "spawn" && (status === undefined || view.status === status)),
    status: async (id, by) => await records.view(await visible(id, by)),
    async result(id, by) {
      const record = await visible(id, by);
      const limit = clock.timeoutSignal(SUB_AGENT_LIMITS.waitMs);
      let run: Run | undefined;
      try {
        run = await awaitNewest(record, AbortSignal.any([by.signal, limit.signal]));
      } catch (error) {
        if (!(error instanceof CancelError)) throw error;
        if (by.signal.aborted) throw cancelError(by.signal);
      } finally {
        limit.clear();
      }
      const view = await records.view(record);
      const working = isAtWork(view.status);
      return {
        view,
        result: working ? null : run?.result ?? null,
        error: working || view.status === "completed" ? null : run?.error?.message ?? "its record is gone",
        ageMs: clock.now() - Date.parse(record.created_at),
      };
    },
    async message(id, text, by) {
      checkText("text", text);
      const record = await visible(id, by);
      if (record.kind === "delegate") {
        throw new ToolError("not_found", `Cannot send to "${id}": a delegation ends with its answer; delegate again`);
      }
      if ((await records.view(record)).status === "needs_review") {
        throw new ToolError("conflict", `Cannot send to "${id}": its last run waits for a person to review it`);
      }
      const held = heldTools(tools(), by);
      await withPlace(id, () => {
        const request = subAgentRequest(nextTurn(record, { held, by }), { text, by, durable: true });
        return startOnce(supervisor(), { ...request, conversationId: id, claim: turnWrite(id, by) });
      });
      return await records.view(record);
    },
    async cancel(id, by) {
      return await cancelRuns(await visible(id, by), "cancelled");
    },
    async delegate({ agent, prompt }, by) {
      const id = idOfCall("del_", by);
      const known = await records.find(id);
      if (known !== undefined) return await delegation.durable(known, by);
      const planned = await plan("delegate", { task: prompt, agent }, { id, by });
      if (by.inherited?.durable !== true) return await delegation.attached(planned, { prompt, by });
      const claim = claimOf(planned);
      await startOnce(supervisor(), { ...subAgentRequest(planned, { text: prompt, by, durable: true }), claim });
      return await delegation.durable(await visible(id, by), by);
    },
    delegations: (by) => collect(by, () => true),
  };
}

/** Whether `self` may see it; undefined: a caller that is no sub-agent sees all. */
function isBelow(record: SubAgentRecord, self: SubAgentRecord | undefined): boolean {
  return self === undefined || record.ancestors.includes(self.id);
}

/** Tells whether a caller may reach a sub-agent: the caller's token started it, or the caller has the scope `runs`. */
function mayReach({ caller }: SubAgentCaller, { token_id: tokenId }: SubAgentRecord): boolean {
  return hasScope(caller.scopes, "runs") || isSameToken({ tokenId: tokenId ?? null }, caller);
}

/** The record, in the transaction that accepts its first run: of two starts of one call, one is made. */
function claimOf(planned: Omit<SubAgentRecord, "run_id">): NonNullable<RunRequest["claim"]> {
  return (runId) => ({
    op: "insert",
    collection: SUB_AGENTS,
    key: planned.id,
    body: { ...planned, run_id: runId },
  });
}

function checkText(field: string, text: string): void {
  const bytes = Buffer.byteLength(text);
  if (bytes <= SUB_AGENT_LIMITS.textBytes && text.trim() !== "") return;
  const reason = text.trim() === "" ? "it is blank" : `it has ${bytes} bytes`;
  throw new ToolError(
    "invalid_input",
    `Cannot use "${field}": it must be 1-${SUB_AGENT_LIMITS.textBytes} bytes of text, and ${reason}`,
  );
}
