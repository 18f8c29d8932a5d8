import * as v from "valibot";
import { storedObject } from "../../base/records/stored_object.ts";
import { canonicalDigest } from "../../base/json.ts";
import { isEnded, type Run } from "../../base/records/run.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { SUB_AGENT_LIMITS, type SubAgentView } from "../../tools/agents/sub_agents.ts";
import type { CallContext } from "../../tools/runtime/tool_call.ts";

const recordSchema = storedObject({
  v: v.literal(1),
  id: v.string(),
  kind: v.picklist(["spawn", "delegate"]),
  agent: v.nullable(v.string()),
  task: v.string(),
  /** Id of the first run. */
  run_id: v.string(),
  parent_id: v.nullable(v.string()),
  /** Ids of the sub-agents above this one, the topmost first. */
  ancestors: v.array(v.string()),
  chain: v.array(v.string()),
  depth: v.number(),
  max_depth: v.number(),
  /** Names of the tools that the sub-agent was given. */
  tools: v.array(v.string()),
  limits: v.optional(storedObject({ maxIterations: v.number(), maxToolCalls: v.number(), tokensPerRun: v.number() })),
  /** Token with whose rights the sub-agent was started; null without one. Absent from records of older versions. */
  token_id: v.optional(v.nullable(v.string())),
  /** Origins of outside content that the task was made from. Absent: none */
  taint: v.optional(v.array(v.string())),
  created_at: v.string(),
  /** Gateway of a cluster whose caller waits for a delegation that has no record of its run. Absent: the gateway is alone */
  waiter: v.optional(storedObject({ id: v.string(), fence: v.number() })),
  /** End of a delegation whose run is not kept; null for every other record. */
  ended: v.nullable(storedObject({ status: v.picklist(["completed", "failed", "cancelled"]), at: v.string() })),
});

/** A sub-agent or a delegation as it was started: parentage, depth, tools and limits are pinned. */
export type SubAgentRecord = v.InferOutput<typeof recordSchema>;

const taskSchema = v.object({ v: v.literal(1), run_id: v.string() });

/** Collection of the sub-agents, by id. */
export const SUB_AGENTS = new Collection("sub_agents", recordSchema, { onDamage: { removesBelow: "sub_agent_turns" } });
/** Collection of further tasks of a sub-agent, each with a run of its own, by `<id>/<call>` in their order. */
export const SUB_AGENT_TASKS = new Collection("sub_agent_turns", taskSchema, { replaced: "never changed" });

/** The records of sub-agents, with the state of their runs. */
export interface SubAgentRecords {
  find(id: string): Promise<SubAgentRecord | undefined>;
  /** Returns the delegation or sub-agent that a run belongs to. */
  ofRun(runId: string): Promise<SubAgentRecord | undefined>;
  /** Yields all records, the newest first. */
  all(): AsyncIterable<SubAgentRecord>;
  /** Returns the ids of a sub-agent's runs, in order. */
  runsOf(record: SubAgentRecord): Promise<readonly string[]>;
  view(record: SubAgentRecord): Promise<SubAgentView>;
  /** Makes room for one more record when the bound is reached. @returns false when all recorded sub-agents are at work */
  makeRoom(): Promise<boolean>;
}

const MAX_TASKS = 1000;

/** Returns the id that belongs to one call. The same call made again has the same id. */
export function idOfCall(prefix: string, { runId, callId }: Pick<CallContext, "runId" | "callId">): string {
  return `${prefix}${canonicalDigest([runId, callId]).slice(0, 24)}`;
}

/** Returns the claim of a further task. */
export function taskWrite(id: string, by: CallContext): (runId: string) => Write {
  const key = `${id}/${idOfCall("", by)}`;
  return (runId) => SUB_AGENT_TASKS.insert(key, { v: 1, run_id: runId });
}

/** Returns the records of a store. */
export function createSubAgentRecords({ store, runOf, isWaitedFor }: {
  readonly store: Store;
  readonly runOf: (id: string) => Promise<Run | undefined>;
  /** Tells whether somebody waits for the answer of a delegation, here or at another gateway of the cluster. */
  readonly isWaitedFor: (record: Pick<SubAgentRecord, "id" | "waiter">) => Promise<boolean>;
}): SubAgentRecords {
  const find = async (id: string) => (await SUB_AGENTS.read(store, id))?.value;
  async function* scan(reverse: boolean): AsyncGenerator<SubAgentRecord> {
    for await (const { value } of SUB_AGENTS.all(store, { order: "created", reverse })) yield value;
  }
  const tasksOf = (id: string, options: { readonly reverse: boolean; readonly limit: number }) =>
    SUB_AGENT_TASKS.page(store, { prefix: `${id}/`, order: "created", ...options });
  const view = async (record: SubAgentRecord): Promise<SubAgentView> => {
    const { v: _v, ancestors: _ancestors, limits: _limits, token_id: _token, waiter: _waiter, ended, ...shown } =
      record;
    const [newest] = await tasksOf(record.id, { reverse: true, limit: 1 });
    const runId = newest === undefined ? record.run_id : newest.value.run_id;
    const run = await runOf(runId);
    // A run that is gone, without a recorded end, was stopped with the gateway
    const status = run?.status ?? ended?.status ?? (await isWaitedFor(record) ? "running" : "failed");
    return { ...shown, run_id: runId, status, ended_at: run?.ended_at ?? ended?.at ?? null };
  };
  return {
    find,
    async ofRun(runId) {
      for await (const record of scan(true)) if (record.run_id === runId) return record;
      return undefined;
    },
    all: () => scan(true),
    async runsOf(record) {
      const tasks = await tasksOf(record.id, { reverse: false, limit: MAX_TASKS });
      return [record.run_id, ...tasks.map(({ value }) => value.run_id)];
    },
    view,
    async makeRoom() {
      if (await store.count(SUB_AGENTS.name) < SUB_AGENT_LIMITS.kept) return true;
      for await (const record of scan(false)) {
        if (!isEnded((await view(record)).status)) continue;
        const tasks = await tasksOf(record.id, { reverse: false, limit: MAX_TASKS });
        await store.batch([
          SUB_AGENTS.remove(record.id),
          ...tasks.map(({ key }) => SUB_AGENT_TASKS.remove(key)),
        ]);
        return true;
      }
      return false;
    },
  };
}
