import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { type Caller, hasScope, mayReach } from "../../lib/base/records/caller.ts";
import type { StoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import type { RunReach } from "../../lib/runs/run_request.ts";
import { httpError } from "./http_errors.ts";

/** Position and caller of a reader. */
export interface OpenRunEventsOptions {
  /** Position of the reader, and how the request called it */
  readonly after: { readonly name: string; readonly seq: number };
  /** Ends the reading, not the run */
  readonly signal: AbortSignal;
  readonly caller: Pick<Caller, "tokenId" | "scopes">;
}

/** A run's events after a position, and how far they had come when the reading began. */
export interface RunEvents extends RunReach {
  readonly events: AsyncIterable<readonly AgentEvent[]>;
}

/**
 * A run's events after a reader's position, live to its end. Every door that shows a run's events comes through here.
 * @throws {HttpError} 404 not_found for an unknown run and for one of which nothing is kept; 403 insufficient_scope for a run that
 *   another token began, where the caller lacks `runs`; 400 invalid_request for a position that the run has not reached
 */
export async function openRunEvents(runs: StoredRuns, id: string, options: OpenRunEventsOptions): Promise<RunEvents> {
  const { after, signal, caller } = options;
  if (!hasScope(caller.scopes, "runs")) {
    const starter = await runs.startedBy(id);
    if (starter === undefined) throw unknownRun();
    if (!mayReach(caller, starter)) {
      throw httpError(
        "insufficient_scope",
        'Cannot follow this run: another token began it, and yours lacks the scope "runs"',
      );
    }
  }
  const reach = await runs.reach(id);
  if (reach !== undefined && after.seq > reach.furthest) {
    throw httpError("invalid_request", `Cannot go on after ${after.seq}: the run's events have not come that far`, {
      param: after.name,
    });
  }
  const events = reach === undefined ? undefined : await runs.follow(id, { afterSeq: after.seq, signal });
  if (reach === undefined || events === undefined) {
    throw unknownRun();
  }
  return { ...reach, events };
}

function unknownRun() {
  return httpError(
    "not_found",
    'Cannot follow this run: "postern runs list" and GET /v1/runs show those that are recorded',
  );
}
