import * as v from "valibot";

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
