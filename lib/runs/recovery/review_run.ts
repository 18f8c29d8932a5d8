import type { AgentEventBody } from "../../base/records/agent_event.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { storedActor } from "../../base/records/caller.ts";
import { isEnded, type Run } from "../../base/records/run.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { Write } from "../../storage/store.ts";
import { appendEvents } from "../journal/run_recorder.ts";
import { type RecalledRun, recallRun, type StartedCall } from "./recall_run.ts";
import type { InterruptedRun, RecoverOptions } from "./recover_runs.ts";
import { OPEN_RUNS, placeIn, RUN_INPUTS, type RunInput, workspaceOf } from "../journal/run_records.ts";
import type { RunReview } from "../run_request.ts";
import { JournalError, type RunRights, type RunStore } from "../journal/run_store.ts";

/** Journal, audit, and the way to continue a run. */
export interface ResolveOptions {
  readonly runs: RunStore;
  readonly time: () => string;
  readonly audit: AuditAppend | undefined;
  readonly ownership: RunRights;
  readonly giveBack: RecoverOptions["giveBack"];
  readonly resume: (interrupted: InterruptedRun) => void | Promise<void>;
}

const MAX_NOTE = 1000;

/**
 * Ends a run that is `needs_review`, or lets it go on. The decision is on disk and in the audit when the promise resolves. A run that goes
 * on is durable from then on.
 * @throws {HttpError} 404 `not_found`; 409 `conflict` for a run in another state, or one that cannot go on; 400 for a note too long
 */
export async function resolveRun(id: string, review: RunReview, options: ResolveOptions): Promise<Run> {
  const { runs } = options;
  const { run, input } = await findRun(id, runs);
  if (run.status !== "needs_review") {
    throw conflict(isEnded(run.status) ? `it is ${run.status} already` : "it is at work");
  }
  if ((review.note?.length ?? 0) > MAX_NOTE) throw noteTooLong();
  const recalled = await recallRun(runs, id);
  if (review.action === "close") await close({ run, input, recalled, review }, options);
  else {
    if (!recalled.isWhole) {
      throw conflict("an older version recorded it, and not all that is needed to go on; close it");
    }
    await goOn({ run, input, recalled, review }, options);
  }
  return (await findRun(id, runs)).run;
}

interface Reviewed {
  readonly run: Run;
  readonly recalled: RecalledRun;
  readonly review: RunReview;
}

async function close(
  { run, input, recalled, review }: Reviewed & { readonly input: RunInput },
  options: ResolveOptions,
): Promise<void> {
  const message = `${nameOf(review)} closed it after a call was cut off: ${toolsOf(recalled)}${withNote(review)}`;
  await write({ run, recalled, review }, [{ type: "error", code: "closed", message }], options);
  const place = placeIn(input);
  const { id: runId, conversation_id: conversationId } = run;
  if (place !== undefined && conversationId !== null) await options.giveBack?.(conversationId, { place, runId });
}

async function goOn(
  { run, input, recalled, review }: Reviewed & { readonly input: RunInput },
  options: ResolveOptions,
): Promise<void> {
  const outcome = review.outcome ?? "unknown";
  const results = outcome === "not_done" ? [] : recalled.openEffects.map((call) => toResult(call, outcome, review));
  const { tokenId: by } = review.by;
  const bodies: AgentEventBody[] = [{ type: "review_answered", outcome, by, note: review.note ?? null }, ...results];
  const pinned: RunInput = { ...input, durable: true };
  await write({ run, recalled, review }, bodies, options, [
    OPEN_RUNS.put(run.id, { v: 1 }),
    RUN_INPUTS.put(run.id, pinned),
    ...options.ownership.opening({
      id: run.id,
      conversationId: run.conversation_id,
      parentId: run.parent_id,
      workspace: workspaceOf(pinned),
    }),
  ]);
  const { seq, approvals } = await recallRun(options.runs, run.id);
  await options.resume({ run, input: pinned, seq, approvals });
}

async function write(
  { run, recalled, review }: Reviewed,
  bodies: readonly AgentEventBody[],
  { runs, time, audit, ownership }: ResolveOptions,
  writes: readonly Write[] = [],
): Promise<void> {
  const { action, outcome, note, by } = review;
  try {
    await appendEvents(run.id, recalled.seq, bodies, {
      runs,
      time,
      writes,
      check: ownership.unowned(run.id),
      ...(audit === undefined ? {} : {
        write: (all) =>
          audit({
            type: "review",
            action: action === "close" ? "closed" : "resumed",
            outcome: action === "close" ? null : outcome ?? "unknown",
            tools: recalled.openEffects.map(({ tool }) => tool),
            run_id: run.id,
            conversation_id: run.conversation_id,
            by: storedActor(by),
            note: note ?? null,
          }, all),
      }),
    });
  } catch (error) {
    if (error instanceof JournalError) throw conflict("somebody else decided about it at the same moment");
    throw error;
  }
}

function toResult({ id, tool }: StartedCall, outcome: "done" | "unknown", review: RunReview): AgentEventBody {
  const said = outcome === "done"
    ? `${nameOf(review)} has looked and says that the call was made to its end; what it gave is lost`
    : `${
      nameOf(review)
    } does not know whether the call was made to its end; look at what it would have changed before you call it again`;
  const output = `[Postern] This call was cut off. ${said}${withNote(review)}`;
  return { type: "tool_end", call_id: id, tool, output, is_error: outcome === "unknown", duration_ms: 0 };
}

function toolsOf({ openEffects }: RecalledRun): string {
  return openEffects.map(({ tool }) => tool).join(", ") || "its work";
}

function nameOf({ by }: RunReview): string {
  return by.tokenId === null ? `A person (${by.via})` : `A person (${by.via}, token ${by.tokenId})`;
}

function withNote({ note }: RunReview): string {
  return note === undefined || note === "" ? "" : `: ${note}`;
}

async function findRun(id: string, runs: RunStore): Promise<{ readonly run: Run; readonly input: RunInput }> {
  const [run, input] = await Promise.all([runs.get(id), runs.input(id)]);
  if (run !== undefined && input !== undefined) return { run, input };
  throw refuse("not_found", 'Cannot find this run: "postern run list" and GET /v1/runs show those that are recorded');
}

function conflict(reason: string): HttpError {
  return refuse("conflict", `Cannot resolve this run: ${reason}`);
}

function noteTooLong(): HttpError {
  return refuse("invalid_request", `Cannot take a note of more than ${MAX_NOTE} characters`, { param: "note" });
}
