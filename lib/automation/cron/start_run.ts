import { HttpError, ProviderError } from "../../base/errors.ts";
import { type Caller, commonScopes, type Scope } from "../../base/records/caller.ts";
import { isAtWork } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { RunRequest, RunSupervisor } from "../../runs/run_request.ts";
import { readable, unlessUnreadable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { firingKey, type FiringRecord, FIRINGS, parseFiring, type ScheduleRecord } from "./schedule_record.ts";

/** Store, runs and log for starting the run of a firing. */
export interface StartRunOptions {
  readonly store: Store;
  readonly runs: () => RunSupervisor | undefined;
  readonly log: Logger;
  /** Scopes that a token has now. undefined: the token does not count any more */
  readonly scopesOf: (tokenId: string | null) => readonly Scope[] | undefined;
}

/** When a schedule fires, and by whose word. */
export interface Occasion {
  readonly time: number;
  readonly at: number;
  readonly trigger: "schedule" | "manual";
  /** Caller that asked for the firing. Undefined: the schedule itself fires */
  readonly by?: Caller | undefined;
  /** The firing fails, where it could be tried again otherwise */
  readonly isLast: boolean;
  /** Returns the writes that belong into the same transaction as the firing */
  readonly writes: (firing: FiringRecord) => readonly Write[];
}

/** Outcome of a firing. `recorded`: the outcome is on disk. */
export interface Started {
  readonly firing: FiringRecord;
  readonly recorded: boolean;
}

/**
 * Starts the run of one firing, at most once for its time: the firing, and what else it writes, are recorded in the one transaction that
 * accepts the run.
 *
 * It is skipped while the run before is queued, at work or waits for a person; one that needs review does not hold it up.
 * @param occasion.writes what is written with the firing
 * @returns undefined: it can be tried again later
 */
export async function startRun(
  record: ScheduleRecord,
  occasion: Occasion,
  { store, runs, log, scopesOf }: StartRunOptions,
): Promise<Started | undefined> {
  const supervisor = runs();
  const { caller, id } = record;
  const firing = (more: Partial<FiringRecord>): FiringRecord => ({ ...blank(id, occasion), ...more });
  const without = (status: FiringRecord["status"], reason: string) => ({
    firing: firing({ status, reason }),
    recorded: false,
  });
  if (supervisor === undefined) return without("failed", "There is no agent: [provider] kind is none");
  const scopesNow = scopesOf(caller.token_id);
  if (scopesNow === undefined) {
    const reason = "The token that made the schedule was revoked or has expired: cron_update makes it somebody else's";
    return without("failed", reason);
  }
  const before = record.last_run_id === null ? undefined : await unlessUnreadable(supervisor.get(record.last_run_id));
  if (before !== undefined && isAtWork(before.status)) {
    return without("skipped", `The run of the firing before is still at work: ${before.id} (${before.status})`);
  }
  const started = (runId: string) => firing({ status: "started", run_id: runId });
  const claim = (runId: string): readonly Write[] => {
    const body = started(runId);
    return [{ op: "insert", collection: FIRINGS, key: firingKey(body), body }, ...occasion.writes(body)];
  };
  try {
    const run = await supervisor.start({ ...toRequest(record, occasion, scopesNow), claim });
    return { firing: started(run.id), recorded: true };
  } catch (error) {
    // A firing of this very time exists: from before the clock was turned back, or from this start, whose answer was lost
    const stored = await store.get(FIRINGS, firingKey(firing({})));
    if (stored !== undefined) {
      const [found] = readable(store, FIRINGS, [stored], parseFiring);
      return found === undefined ? without("failed", FIRED_BEFORE) : { firing: found.value, recorded: false };
    }
    if (isShutdown(error)) return undefined;
    if (canWait(error) && !occasion.isLast) {
      log.warn("A schedule cannot fire now, and will be tried again", { schedule_id: id, error });
      return undefined;
    }
    log.error("A schedule could not fire", { schedule_id: id, error });
    return without("failed", reasonOf(error));
  }
}

const FIRED_BEFORE = "It had fired at this time before, and the record of what came of it was damaged";

function blank(scheduleId: string, { time, at, trigger }: Occasion): FiringRecord {
  return {
    v: 1,
    schedule_id: scheduleId,
    time,
    at,
    trigger,
    status: "failed",
    run_id: null,
    reason: null,
    missed_count: null,
    missed_until: null,
  };
}

function toRequest(
  { id, schedule, prompt, call, caller, tools, limits }: ScheduleRecord,
  occasion: Occasion,
  scopesNow: readonly Scope[],
): RunRequest {
  const { by, time } = occasion;
  const via = caller.via ?? "cron";
  const scopes = commonScopes(caller.scopes, scopesNow);
  const when = new Date(time).toISOString();
  return {
    kind: "cron",
    messages: [{ role: "user", content: prompt ?? "" }],
    caller: by === undefined
      ? { via, tokenId: caller.token_id, scopes }
      // Whoever sets off the work of another has no more rights for it than either of them
      : { via, tokenId: by.tokenId, scopes: commonScopes(by.scopes, scopes) },
    durable: true,
    canApprove: false,
    agentTools: "configured",
    clientTools: [],
    parameters: {},
    ...(tools === null ? {} : { tools }),
    ...(limits === null ? {} : { limits }),
    ...(call === null
      ? { instructions: toldBy(id, schedule, when) }
      : { call: { tool: call.tool, input: JSON.stringify(call.input) } }),
  };
}

function toldBy(id: string, schedule: string, when: string): string {
  return `You were started by the schedule "${id}" (${schedule}), due at ${when}. Nobody reads along: do what the message says and ` +
    "report what came of it, without asking back.";
}

/** The next start goes on with it. */
function isShutdown(error: unknown): boolean {
  return error instanceof HttpError && error.code === "shutting_down";
}

/** Tells whether another try may succeed: the queue is full, or the store could not be written. */
function canWait(error: unknown): boolean {
  // A conflict: the schedule was changed in this very moment
  if (error instanceof HttpError) return ["overloaded", "conflict", "storage_unavailable"].includes(error.code);
  return !(error instanceof ProviderError);
}

function reasonOf(error: unknown): string {
  return error instanceof HttpError || error instanceof ProviderError
    ? error.message
    : "Cannot start the run: an internal error, which the gateway's log names";
}
