import * as v from "valibot";
import { canonicalDigest } from "../../base/canonical_json.ts";
import { isEnded, type Run } from "../../base/records/run.ts";
import { readable, readRecord, readRecords } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { SUB_AGENT_LIMITS, type SubAgentCaller, type SubAgentView } from "../../tools/agents/sub_agents.ts";

const recordSchema = v.object({
  v: v.literal(1),
  id: v.string(),
  kind: v.picklist(["spawn", "delegate"]),
  agent: v.nullable(v.string()),
  task: v.string(),
  /** Its first run */
  run_id: v.string(),
  parent_id: v.nullable(v.string()),
  /** Ids of the sub-agents above it, the topmost first */
  ancestors: v.array(v.string()),
  chain: v.array(v.string()),
  depth: v.number(),
  max_depth: v.number(),
  /** Names of the tools it was given */
  tools: v.array(v.string()),
  limits: v.optional(v.object({ maxIterations: v.number(), maxToolCalls: v.number(), tokensPerRun: v.number() })),
  /** The token with whose rights it was started; null without one. Absent from records of older versions */
  token_id: v.optional(v.nullable(v.string())),
  created_at: v.string(),
  /** Of a delegation whose run is not kept */
  ended: v.nullable(v.object({ status: v.picklist(["completed", "failed", "cancelled"]), at: v.string() })),
});

/** A sub-agent or a delegation as it was started: parentage, depth, tools and limits are pinned. */
export type SubAgentRecord = v.InferOutput<typeof recordSchema>;

const turnSchema = v.object({ v: v.literal(1), run_id: v.string() });

/** By id. */
export const SUB_AGENTS = "sub_agents";
/** Further runs of a sub-agent, by `<id>/<call>` in their order. */
export const SUB_AGENT_TURNS = "sub_agent_turns";

/** @throws {v.ValiError} for a body that no version wrote */
export function parseSubAgent(body: unknown): SubAgentRecord {
  return v.parse(recordSchema, body);
}

/** Id of the run of a further turn. @throws {v.ValiError} for a body that no version wrote */
export function parseTurn(body: unknown): string {
  return v.parse(turnSchema, body).run_id;
}

/** The records of sub-agents and what became of them. */
export interface SubAgentRecords {
  find(id: string): Promise<SubAgentRecord | undefined>;
  /** The delegation or sub-agent that a run is of */
  ofRun(runId: string): Promise<SubAgentRecord | undefined>;
  /** Newest first */
  all(): AsyncIterable<SubAgentRecord>;
  /** Ids of its runs, in order */
  runsOf(record: SubAgentRecord): Promise<readonly string[]>;
  view(record: SubAgentRecord): Promise<SubAgentView>;
  /** Makes room for one more where there are as many as are kept. @returns false when all of them are at work */
  makeRoom(): Promise<boolean>;
}

export interface SubAgentRecordsOptions {
  readonly store: Store;
  readonly runOf: (id: string) => Promise<Run | undefined>;
  /** Whether this process waits for the answer of a delegation */
  readonly isWaitedFor: (id: string) => boolean;
}

const MAX_TURNS = 1000;

/** An id that one call makes and no other: made again, it is found. */
export function idOfCall(prefix: string, { runId, callId }: Pick<SubAgentCaller, "runId" | "callId">): string {
  return `${prefix}${canonicalDigest([runId, callId]).slice(0, 24)}`;
}

/** The write that claims a further turn. */
export function turnWrite(id: string, by: SubAgentCaller): (runId: string) => Write {
  const key = `${id}/${idOfCall("", by)}`;
  return (runId) => ({ op: "insert", collection: SUB_AGENT_TURNS, key, body: { v: 1, run_id: runId } });
}

export function createSubAgentRecords({ store, runOf, isWaitedFor }: SubAgentRecordsOptions): SubAgentRecords {
  const find = async (id: string) => {
    return (await readRecord(store, SUB_AGENTS, id, parseSubAgent))?.value;
  };
  async function* scan(reverse: boolean): AsyncGenerator<SubAgentRecord> {
    for await (const { value } of readRecords(store, SUB_AGENTS, parseSubAgent, { order: "created", reverse })) {
      yield value;
    }
  }
  const turnsOf = async (id: string, options: { readonly reverse: boolean; readonly limit: number }) => {
    const page = await store.scan(SUB_AGENT_TURNS, { prefix: `${id}/`, order: "created", ...options });
    return readable(store, SUB_AGENT_TURNS, page, parseTurn);
  };
  const view = async (record: SubAgentRecord): Promise<SubAgentView> => {
    const { v: _v, ancestors: _ancestors, limits: _limits, token_id: _token, ended, ...shown } = record;
    const [newest] = await turnsOf(record.id, { reverse: true, limit: 1 });
    const runId = newest === undefined ? record.run_id : newest.value;
    const run = await runOf(runId);
    // A run that is not there any more, and did not say how it ended, was stopped with the gateway
    const status = run?.status ?? ended?.status ?? (isWaitedFor(record.id) ? "running" : "failed");
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
      const turns = await turnsOf(record.id, { reverse: false, limit: MAX_TURNS });
      return [record.run_id, ...turns.map(({ value }) => value)];
    },
    view,
    async makeRoom() {
      if (await store.count(SUB_AGENTS) < SUB_AGENT_LIMITS.kept) return true;
      for await (const record of scan(false)) {
        if (!isEnded((await view(record)).status)) continue;
        const turns = await turnsOf(record.id, { reverse: false, limit: MAX_TURNS });
        await store.batch([
          { op: "delete", collection: SUB_AGENTS, key: record.id },
          ...turns.map(({ key }): Write => ({ op: "delete", collection: SUB_AGENT_TURNS, key })),
        ]);
        return true;
      }
      return false;
    },
  };
}
