import { Buffer } from "node:buffer";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { lazily } from "../../base/lazily.ts";
import { isAtWork, type Run } from "../../base/records/run.ts";
import { taintField, UNTAINTED } from "../../base/taint.ts";
import type { Config } from "../../config/config.ts";
import { unlessUnreadable } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import {
  type DelegatedAnswer,
  type NewSubAgent,
  SUB_AGENT_LIMITS,
  type SubAgentList,
  type SubAgents,
  type SubAgentView,
} from "../../tools/agents/sub_agents.ts";
import type { CallContext } from "../../tools/runtime/tool_call.ts";
import { checkOwner, onlyReached } from "../../tools/runtime/owned_things.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { reasonUnknown } from "../supervisor/agent_profile.ts";
import { createDelegation, type Delegation, type DelegationOptions } from "./delegation.ts";
import type { RunRequest, RunSupervisor } from "../run_request.ts";
import {
  grantTools,
  heldTools,
  lineageOf,
  nextTask,
  startOnce,
  subAgentRequest,
  toLimits,
} from "./sub_agent_request.ts";
import {
  createSubAgentRecords,
  idOfCall,
  SUB_AGENTS,
  type SubAgentRecord,
  type SubAgentRecords,
  taskWrite,
} from "./sub_agent_records.ts";

/** Services and settings that sub-agents need. */
export interface SubAgentsOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** Returns the newest `[agents.<name>]`. */
  readonly agents: () => Config["agents"];
  readonly tools: () => Pick<ToolExecutor, "enabled" | "get">;
  /** Returns the supervisor; undefined without an agent. */
  readonly runs: () => RunSupervisor | undefined;
  /** Fences of the gateways of a cluster. Default: the gateway is alone */
  readonly cluster?: DelegationOptions["cluster"];
  /** Aborts when the gateway closes. Default: never */
  readonly closing?: AbortSignal | undefined;
}

/** Characters of a task that its record keeps. */
const SHOWN_TASK = 200;

/** The sub-agents, which are runs of kind `subagent`. */
export class SubAgentService implements SubAgents {
  readonly #options: SubAgentsOptions;
  readonly #delegation: Delegation;
  readonly #records: SubAgentRecords;
  /** Ids of sub-agents that may be at work. Read from the store once, and known from then on. */
  readonly #working: () => Promise<Set<string>>;
  /** Number of starts under way. */
  #starting = 0;

  constructor(options: SubAgentsOptions) {
    this.#options = options;
    const { store, clock, runs, cluster, closing } = options;
    this.#delegation = createDelegation({ store, clock, cluster, closing, supervisor: () => this.#supervisor() });
    this.#records = createSubAgentRecords({
      store,
      runOf: async (id) => await unlessUnreadable(runs()?.get(id)),
      isWaitedFor: this.#delegation.isWaitedFor,
    });
    this.#working = lazily(async () => {
      const found = new Set<string>();
      for await (const record of this.#records.all()) if (record.kind === "spawn") found.add(record.id);
      return found;
    });
  }

  async spawn(order: NewSubAgent, by: CallContext): Promise<SubAgentView> {
    const id = idOfCall("sub_", by);
    const known = await this.#records.find(id);
    if (known !== undefined) return await this.#records.view(known);
    return await this.#withPlace(id, async () => {
      const planned = await this.#plan("spawn", order, { id, by });
      await startOnce(this.#supervisor(), {
        ...subAgentRequest(planned, { text: order.task, by, durable: true }),
        conversationId: id,
        claim: claimOf(planned),
      });
      return await this.#records.view(await this.#visible(id, "show", by));
    });
  }

  list({ status }: Parameters<SubAgents["list"]>[0], by: CallContext): Promise<SubAgentList> {
    return this.#collect(
      by,
      (record, view) => record.kind === "spawn" && (status === undefined || view.status === status),
    );
  }

  async status(id: string, by: CallContext): Promise<SubAgentView> {
    return await this.#records.view(await this.#visible(id, "show", by));
  }

  async result(id: string, by: CallContext): ReturnType<SubAgents["result"]> {
    const { clock } = this.#options;
    const record = await this.#visible(id, "wait for", by);
    const limit = clock.timeoutSignal(SUB_AGENT_LIMITS.waitMs);
    let run: Run | undefined;
    try {
      run = await this.#awaitNewest(record, AbortSignal.any([by.signal, limit.signal]));
    } catch (error) {
      if (!(error instanceof CancelError)) throw error;
      if (by.signal.aborted) throw cancelError(by.signal);
    } finally {
      limit.clear();
    }
    const view = await this.#records.view(record);
    const working = isAtWork(view.status);
    return {
      view,
      result: working ? null : run?.result ?? null,
      error: working || view.status === "completed" ? null : run?.error?.message ?? "its record is gone",
      ageMs: clock.now() - Date.parse(record.created_at),
      taint: working ? UNTAINTED : run?.taint ?? UNTAINTED,
    };
  }

  async message(id: string, text: string, by: CallContext): Promise<SubAgentView> {
    checkText("text", text);
    const record = await this.#visible(id, "tell", by);
    if (record.kind === "delegate") {
      throw new ToolError("not_found", `Cannot send to "${id}": a delegation ends with its answer; delegate again`);
    }
    if ((await this.#records.view(record)).status === "needs_review") {
      throw new ToolError("conflict", `Cannot send to "${id}": its last run waits for a person to review it`);
    }
    const held = heldTools(this.#options.tools(), by);
    await this.#withPlace(id, () => {
      const request = subAgentRequest(nextTask(record, { held, by }), { text, by, durable: true });
      return startOnce(this.#supervisor(), { ...request, conversationId: id, claim: taskWrite(id, by) });
    });
    return await this.#records.view(record);
  }

  /** Cancels the runs of a sub-agent, the newest first. @returns false when none of them was at work */
  async cancel(id: string, by: CallContext): Promise<boolean> {
    const record = await this.#visible(id, "cancel", by);
    let stopped = false;
    for (const runId of (await this.#records.runsOf(record)).toReversed()) {
      stopped = await this.#supervisor().cancel(runId, "cancelled") || stopped;
    }
    return stopped;
  }

  async delegate({ agent, prompt }: Parameters<SubAgents["delegate"]>[0], by: CallContext): Promise<DelegatedAnswer> {
    const id = idOfCall("del_", by);
    const known = await this.#records.find(id);
    if (known !== undefined) return await this.#delegation.durable(known, by);
    const planned = await this.#plan("delegate", { task: prompt, agent }, { id, by });
    if (by.inherited?.durable !== true) return await this.#delegation.attached(planned, { prompt, by });
    const claim = claimOf(planned);
    await startOnce(this.#supervisor(), { ...subAgentRequest(planned, { text: prompt, by, durable: true }), claim });
    return await this.#delegation.durable(await this.#visible(id, "wait for", by), by);
  }

  delegations(by: CallContext): Promise<SubAgentList> {
    return this.#collect(by, () => true);
  }

  #supervisor(): RunSupervisor {
    const found = this.#options.runs();
    if (found !== undefined) return found;
    throw new ToolError("agent_unavailable", "Cannot use sub-agents: the gateway runs without an agent");
  }

  /** Returns the sub-agent that the caller is itself; undefined for every other caller. */
  async #selfOf(by: CallContext): Promise<SubAgentRecord | undefined> {
    if (by.caller.via !== "subagent") return undefined;
    const self = by.conversationId === null
      ? await this.#records.ofRun(by.runId)
      : await this.#records.find(by.conversationId);
    if (self !== undefined) return self;
    throw new ToolError(
      "not_found",
      "Cannot use sub-agents here: which sub-agent stands behind this call is not known",
    );
  }

  /** @throws {ToolError} `not_found` for a sub-agent that the caller may not see; `insufficient_scope` for another token's */
  async #visible(id: string, action: string, by: CallContext): Promise<SubAgentRecord> {
    const [record, self] = await Promise.all([this.#records.find(id), this.#selfOf(by)]);
    if (record === undefined || !isBelow(record, self)) {
      throw new ToolError(
        "not_found",
        `Cannot find the sub-agent ${JSON.stringify(id)}: subagent_list shows those there are`,
      );
    }
    checkOwner("sub_agent", { action, id }, { owner: record.token_id, caller: by.caller });
    return record;
  }

  async #isWorking(id: string): Promise<boolean> {
    const record = await this.#records.find(id);
    return record !== undefined && isAtWork((await this.#records.view(record)).status);
  }

  /** Holds a place among the sub-agents that may work at once while `start` runs. */
  async #withPlace<T>(id: string, start: () => Promise<T>): Promise<T> {
    const known = await this.#working();
    for (const other of known) if (other !== id && !await this.#isWorking(other)) known.delete(other);
    if (!known.has(id) && known.size + this.#starting >= SUB_AGENT_LIMITS.active) {
      const most = `${SUB_AGENT_LIMITS.active} work in the background already`;
      throw new ToolError("too_many_sub_agents", `Cannot start a sub-agent: ${most}; wait for one, or cancel one`);
    }
    this.#starting++;
    try {
      const started = await start();
      known.add(id);
      return started;
    } finally {
      this.#starting--;
    }
  }

  #configOf(name: string | undefined): Config["agents"][string] | undefined {
    const configured = this.#options.agents();
    if (name === undefined) return undefined;
    if (Object.hasOwn(configured, name)) return configured[name];
    const reason = reasonUnknown(Object.keys(configured));
    throw new ToolError("unknown_agent", `Cannot use the agent ${JSON.stringify(name)}: ${reason}`);
  }

  /** @throws {ToolError} before anything is started */
  async #plan(
    kind: SubAgentRecord["kind"],
    { task, agent, tools: asked }: NewSubAgent,
    { id, by }: { readonly id: string; readonly by: CallContext },
  ): Promise<Omit<SubAgentRecord, "run_id">> {
    const { tools, clock } = this.#options;
    checkText(kind === "spawn" ? "task" : "prompt", task);
    const config = this.#configOf(agent);
    const parent = await this.#selfOf(by);
    const lineage = lineageOf({ id, agent: agent ?? null, config }, { by, parent });
    const granted = grantTools(tools(), { by, asked, agent: config });
    if (!await this.#records.makeRoom()) {
      throw new ToolError(
        "too_many_sub_agents",
        `Cannot start a sub-agent: ${SUB_AGENT_LIMITS.kept} are at work already`,
      );
    }
    const limits = by.inherited?.limits;
    return {
      v: 1,
      id,
      kind,
      agent: agent ?? null,
      task: task.slice(0, SHOWN_TASK),
      ...lineage,
      tools: [...granted],
      token_id: by.caller.tokenId,
      ...(limits === undefined ? {} : { limits: toLimits(limits) }),
      ...taintField(by.taint),
      created_at: new Date(clock.now()).toISOString(),
      ended: null,
    };
  }

  /** Returns the newest run, once it is over or `signal` aborts. */
  async #awaitNewest(record: SubAgentRecord, signal: AbortSignal): Promise<Run | undefined> {
    for (;;) {
      const { run_id: id } = await this.#records.view(record);
      const run = await this.#supervisor().ended(id, signal);
      if ((await this.#records.view(record)).run_id === id) return run;
    }
  }

  async #collect(
    by: CallContext,
    keep: (record: SubAgentRecord, view: SubAgentView) => boolean,
  ): Promise<SubAgentList> {
    const self = await this.#selfOf(by);
    const below: SubAgentRecord[] = [];
    for await (const record of this.#records.all()) if (isBelow(record, self)) below.push(record);
    const { reached, hidden } = onlyReached(below, by.caller, ({ token_id }) => token_id);
    const views: SubAgentView[] = [];
    for (const record of reached) {
      const view = await this.#records.view(record);
      if (keep(record, view)) views.push(view);
      if (views.length === SUB_AGENT_LIMITS.listed) break;
    }
    return { views, hidden };
  }
}

/** Tells whether `self` may see a sub-agent. Undefined: a caller that is no sub-agent sees all. */
function isBelow(record: SubAgentRecord, self: SubAgentRecord | undefined): boolean {
  return self === undefined || record.ancestors.includes(self.id);
}

/** Returns the claim that writes the record in the transaction of its first run: of two starts of one call, one is made. */
function claimOf(planned: Omit<SubAgentRecord, "run_id">): NonNullable<RunRequest["claim"]> {
  return (runId) => SUB_AGENTS.insert(planned.id, { ...planned, run_id: runId });
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
