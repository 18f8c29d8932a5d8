import * as v from "valibot";
import { finishReasonSchema } from "../../base/records/agent_event.ts";
import { messageSchema } from "../../base/records/message.ts";
import { runSchema } from "../../base/records/run.ts";
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

/** Collection `run_inputs`, by run id: what the run was started with, pinned. Version 2 has what a resumed run needs */
const runInputSchema = v.object({
  v: v.picklist([1, 2]),
  messages: v.array(messageSchema),
  /** `messages` with the parts of earlier turns in their places that only the memory had; absent where there were none */
  spliced: v.optional(v.array(messageSchema)),
  /** As asked for; absent: none was named */
  model: v.optional(v.string()),
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
  /** What that call passes on to what it starts; absent: what is configured */
  passed_tools: v.optional(v.array(v.string())),
  request_id: v.nullable(v.string()),
});
export type RunInput = v.InferOutput<typeof runInputSchema>;

/** What a turn that ended in a record leaves to know beside its events. */
const endedTurnSchema = v.object({
  turn: v.number(),
  finish_reason: finishReasonSchema,
  calls: v.optional(
    v.array(
      v.object({ id: v.string(), name: v.string(), arguments: v.string(), owner: v.picklist(["agent", "client"]) }),
    ),
  ),
  /** The vendor's parts of the reply, as they came */
  opaque: v.optional(v.unknown()),
  /** Provider it belongs to; absent: the run's own */
  provider: v.optional(v.string()),
  last: v.optional(v.literal(true)),
});

/** Stream `run/<id>`: one record for each finished turn, started or ended call. Version 2 has `turns` and `outside` */
const journalRecordSchema = v.object({
  v: v.picklist([1, 2]),
  ...packedEventsSchema.entries,
  /** Ids of the calls started in this record that may change something: one without a tool_end makes the run needs_review */
  effects: v.optional(v.array(v.string())),
  turns: v.optional(v.array(endedTurnSchema)),
  /** Ids of the calls ended in this record whose output came from outside */
  outside: v.optional(v.array(v.string())),
});
export type JournalRecord = v.InferOutput<typeof journalRecordSchema>;

export const RUNS = "runs";
export const RUN_INPUTS = "run_inputs";
/** Runs that have not ended by id, so that recovery need not read all */
export const OPEN_RUNS = "open_runs";

/** Collection `open_runs` */
const openRunSchema = v.object({
  v: v.literal(1),
  /** A person cancelled it: it must not go on */
  cancelled: v.optional(v.literal(true)),
});
export type OpenRun = v.InferOutput<typeof openRunSchema>;

export function parseOpenRun(body: unknown): OpenRun {
  return v.parse(openRunSchema, body);
}

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
