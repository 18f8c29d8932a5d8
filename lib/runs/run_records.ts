import * as v from "valibot";
import { messageSchema } from "../base/records/message.ts";
import { runSchema } from "../base/records/run.ts";
import { packedEventsSchema } from "./pack_events.ts";

/**
 * What the runs room persists. Every body carries its version `v`; this is the one place where they are parsed, and where an
 * older version is brought up to the newest.
 */

/** Collection `runs`, by run id: the fold so far, and how much of the journal it covers. */
const runRecordSchema = v.object({
  v: v.literal(1),
  run: runSchema,
  /** Last seq in the journal */
  seq: v.number(),
  /** Records in the journal's stream */
  records: v.number(),
});
export type RunRecord = v.InferOutput<typeof runRecordSchema>;

/** Collection `run_inputs`, by run id: what the run was started with, pinned. */
const runInputSchema = v.object({
  v: v.literal(1),
  messages: v.array(messageSchema),
  system_prompt: v.nullable(v.string()),
  parameters: v.record(v.string(), v.unknown()),
  tool_choice: v.optional(v.unknown()),
  parallel_tool_calls: v.optional(v.boolean()),
  /** The agent's tools the model was told of, with the digest of each input schema */
  tools: v.array(v.object({ name: v.string(), digest: v.string() })),
  client_tools: v.array(v.looseObject({ name: v.string() })),
  agent_tools: v.picklist(["configured", "none"]),
  durable: v.boolean(),
  caller: v.object({ via: v.string(), token_id: v.nullable(v.string()), scopes: v.array(v.string()) }),
  depth: v.number(),
  /** The configured agent it is of */
  agent: v.optional(v.string()),
  /** Bounds of its own */
  limits: v.optional(
    v.object({
      max_iterations: v.optional(v.number()),
      max_tool_calls: v.optional(v.number()),
      tokens_per_run: v.optional(v.number()),
    }),
  ),
  /** One tool call in place of a model */
  call: v.optional(v.object({ tool: v.string(), input: v.string() })),
  request_id: v.nullable(v.string()),
});
export type RunInput = v.InferOutput<typeof runInputSchema>;

/** Stream `run/<id>`: one record for each finished turn, started or ended call. */
const journalRecordSchema = v.object({
  v: v.literal(1),
  ...packedEventsSchema.entries,
  /** Ids of the calls started in this record that may change something: one without a tool_end makes the run needs_review */
  effects: v.optional(v.array(v.string())),
});
export type JournalRecord = v.InferOutput<typeof journalRecordSchema>;

export const RUNS = "runs";
export const RUN_INPUTS = "run_inputs";
/** Ids of runs that have not ended, so that recovery need not read all */
export const OPEN_RUNS = "open_runs";

export function journalOf(runId: string): string {
  return `run/${runId}`;
}

export function parseRunRecord(body: unknown): RunRecord {
  return v.parse(runRecordSchema, body);
}

export function parseRunInput(body: unknown): RunInput {
  return v.parse(runInputSchema, body);
}

export function parseJournalRecord(body: unknown): JournalRecord {
  return v.parse(journalRecordSchema, body);
}
