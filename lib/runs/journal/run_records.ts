import * as v from "valibot";
import { storedObject } from "../../base/records/stored_object.ts";
import { finishReasonSchema } from "../../base/records/agent_event.ts";
import { messageSchema } from "../../base/records/message.ts";
import { runSchema } from "../../base/records/run.ts";
import { Collection } from "../../storage/read_records.ts";
import { packedEventsSchema } from "./pack_events.ts";

// Records of runs. Every body carries its version `v`. They are parsed here alone, and an older version is brought up to the newest here.

/**
 * Number of events that may be shown before they are in the journal. A crash loses events that were shown and not written. The run
 * then goes on with this many seqs left out, so that no seq is used twice and a reader's position stays valid.
 */
export const SEQ_WINDOW = 10_000;

/**
 * Returns the furthest seq that may have been shown of a run whose journal ends at `seq`; after a crash the run goes on beyond it.
 * Returns 0 before the first record: until then nothing is shown, and a run that was never in the journal starts from its first event.
 */
export function shownUpTo(seq: number): number {
  return seq === 0 ? 0 : seq + SEQ_WINDOW;
}

/** Record in the collection `runs`, by run id: the fold so far, and the part of the journal that the fold covers. */
const runRecordSchema = storedObject({
  v: v.literal(1),
  run: storedObject(runSchema.entries),
  /** Last seq in the journal. */
  seq: v.number(),
  /** Number of records in the journal's stream. */
  records: v.number(),
});
/** A run with the fold of its journal. */
export type RunRecord = v.InferOutput<typeof runRecordSchema>;

/** Record in the collection `run_inputs`, by run id: the pinned input of a run. Version 2 has all that a resumed run needs. */
const runInputSchema = storedObject({
  v: v.picklist([1, 2]),
  messages: v.array(messageSchema),
  /** `messages` with parked parts of earlier turns in their places; absent when there were none. */
  spliced: v.optional(v.array(messageSchema)),
  /** Model that the request named; absent: none. */
  model: v.optional(v.string()),
  system_prompt: v.nullable(v.string()),
  parameters: v.record(v.string(), v.unknown()),
  tool_choice: v.optional(v.unknown()),
  parallel_tool_calls: v.optional(v.boolean()),
  /** Tools of the agent that the model may call, with the digest of each input schema; `deferred`: the model is not told of it at first. */
  tools: v.array(storedObject({ name: v.string(), digest: v.string(), deferred: v.optional(v.literal(true)) })),
  client_tools: v.array(v.looseObject({ name: v.string() })),
  agent_tools: v.picklist(["configured", "none"]),
  durable: v.boolean(),
  caller: storedObject({ via: v.string(), token_id: v.nullable(v.string()), scopes: v.array(v.string()) }),
  depth: v.number(),
  /** Name of the configured agent. */
  agent: v.optional(v.string()),
  /** Bounds that the run has of its own. */
  limits: v.optional(
    storedObject({
      max_iterations: v.optional(v.number()),
      max_tool_calls: v.optional(v.number()),
      tokens_per_run: v.optional(v.number()),
    }),
  ),
  /** The model condenses the messages; absent: it answers. */
  condenses: v.optional(v.literal(true)),
  /** A single tool call in place of a model. */
  call: v.optional(storedObject({
    tool: v.string(),
    input: v.string(),
    /** Digest of the state that a person approved the call for; absent: nobody did beforehand */
    digest: v.optional(v.string()),
  })),
  /** Tools that runs started by that call inherit; absent: the configured tools. */
  passed_tools: v.optional(v.array(v.string())),
  /** Workspace of the cluster that its tools need; absent: none. */
  workspace: v.optional(v.string()),
  request_id: v.nullable(v.string()),
  /** Origins of outside content that the request was made from; absent: none. */
  taint: v.optional(v.array(v.string())),
  /** Addresses that the writer of the messages had read; absent: none. */
  links: v.optional(v.array(v.string())),
  /** Place that the run goes on behind; absent: none. */
  after: v.optional(storedObject({ conversation_id: v.string(), run_id: v.string() })),
});
/** The pinned input of a run. */
export type RunInput = v.InferOutput<typeof runInputSchema>;

/** Returns the place that a run goes on behind; undefined: none. */
export function placeIn({ after }: RunInput) {
  return after && { conversationId: after.conversation_id, runId: after.run_id };
}

/** Returns the workspace whose gateways alone may go on with a run; null: any may. An attached run goes on nowhere: any gateway may end it. */
export function workspaceOf({ durable, workspace }: Pick<RunInput, "durable" | "workspace">): string | null {
  return durable ? workspace ?? null : null;
}

/** Facts about a turn that ended in a record, beside its events. */
const endedTurnSchema = v.object({
  turn: v.number(),
  finish_reason: finishReasonSchema,
  calls: v.optional(
    v.array(
      v.object({
        id: v.string(),
        /** Id that the vendor gave the call; absent: the same, or an earlier version wrote the record. */
        vendor_id: v.optional(v.string()),
        name: v.string(),
        arguments: v.string(),
        owner: v.picklist(["agent", "client"]),
      }),
    ),
  ),
  /** Parts of the reply in the vendor's own form, unchanged. */
  opaque: v.optional(v.unknown()),
  /** Provider of those parts; absent: the run's own. */
  provider: v.optional(v.string()),
  last: v.optional(v.literal(true)),
});

/** Record in the stream `run/<id>`: one for each finished turn, started call and ended call. Version 2 has `turns`. */
const journalRecordSchema = v.object({
  v: v.picklist([1, 2]),
  ...packedEventsSchema.entries,
  /** Ids of calls started in this record that may change something. A call without a tool_end makes the run needs_review. */
  effects: v.optional(v.array(v.string())),
  turns: v.optional(v.array(endedTurnSchema)),
  /** Ids of calls ended in this record whose output came from outside, in records of earlier versions. Their tool_end says it now. */
  outside: v.optional(v.array(v.string())),
});
/** Record of a run's journal. */
export type JournalRecord = v.InferOutput<typeof journalRecordSchema>;

/** Record in the collection `open_runs`, by run id. */
const openRunSchema = storedObject({
  v: v.literal(1),
  /** True when a person cancelled the run, so that it does not go on. */
  cancelled: v.optional(v.literal(true)),
  /** Run at work that its message was sent to; absent: none. */
  steers: v.optional(v.string()),
});

/** Record in the collection `run_responses`, by run id: what a stored response of `/v1/responses` repeats of its request. */
const runResponseSchema = storedObject({
  v: v.literal(1),
  /** Fields of the request, without its input. */
  request: v.record(v.string(), v.unknown()),
  /** Items of the input; absent: they were more than `MAX_RESPONSE_BYTES`. */
  input: v.optional(v.array(v.looseObject({ type: v.string() }))),
  /** Items of earlier responses and of the input that bring tools; absent from records of older versions. */
  brought: v.optional(v.array(v.looseObject({ type: v.string() }))),
});

/** Most bytes of JSON of the input that is kept with a stored response, and of the fields of its request. */
export const MAX_RESPONSE_BYTES = 4 * 1024 * 1024;

/** Removes a run as a whole, with its journal and its traces in a cluster. */
const onDamage = {
  removes: ["runs", "run_inputs", "run_responses", "open_runs", "run_claims", "run_signals"],
  drops: journalOf,
};
/** Collection of the runs. */
export const RUNS = new Collection("runs", runRecordSchema, { onDamage });
/** Collection of the pinned inputs. */
export const RUN_INPUTS = new Collection("run_inputs", runInputSchema, { onDamage });
/** Collection of the requests of stored responses. */
export const RUN_RESPONSES = new Collection("run_responses", runResponseSchema, { replaced: "never changed" });
/**
 * Collection of the runs that have not ended, so that recovery need not read all runs. The run of a damaged record can be read: it ends as
 * cancelled at the next start, since nobody knows whether it may go on.
 */
export const OPEN_RUNS = new Collection("open_runs", openRunSchema, {
  onDamage: { becomes: { v: 1, cancelled: true } },
});

/** Returns the name of the stream with a run's journal. */
export function journalOf(runId: string): string {
  return `run/${runId}`;
}

/** Parses a record of a journal. @throws {v.ValiError} for a body that no version wrote */
export function parseJournalRecord(body: unknown): JournalRecord {
  return v.parse(journalRecordSchema, body);
}
