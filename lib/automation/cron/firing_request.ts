import type { Clock } from "../../base/clock.ts";
import { HttpError, ProviderError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { type Caller, commonScopes, type Scope } from "../../base/records/caller.ts";
import { joinTaints, type Taint } from "../../base/taint.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { RunRequest, RunSupervisor } from "../../runs/run_request.ts";
import type { Store, Write } from "../../storage/store.ts";
import type { FiringRecord, ScheduleRecord } from "./schedule_record.ts";

/** Clock, store and runs for firing a schedule. */
export interface FireOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: Random;
  /** undefined: there is no agent, or not yet */
  readonly runs: () => RunSupervisor | undefined;
  /** Scopes that a token has now. undefined: the token does not count any more */
  readonly scopesOf: (tokenId: string | null) => readonly Scope[] | undefined | Promise<readonly Scope[] | undefined>;
}

/** `settled`: dealt with, and due again at `nextAt` (undefined: not any more). `later`: to be tried again. */
export type Fired = { readonly kind: "settled"; readonly nextAt: number | undefined } | { readonly kind: "later" };

/** Time of a firing and the caller who asked for it. */
export interface Occasion {
  /** Due time, in milliseconds since the epoch */
  readonly time: number;
  /** Now, in milliseconds since the epoch */
  readonly at: number;
  readonly trigger: "schedule" | "manual";
  /** Caller that asked for the firing. Undefined: the schedule itself fires */
  readonly by?: Caller | undefined;
  /** A firing that cannot start now fails, instead of being tried again */
  readonly isLast: boolean;
  /** Returns the writes that belong into the same transaction as the firing */
  readonly writes: (firing: FiringRecord) => readonly Write[];
}

/** Says that others changed the schedule while it fired: it is to be read again. */
export const CHANGED = "changed";

/**
 * Returns the scopes that the maker of a schedule has now, or why none of its runs can be started.
 * @throws {HttpError} where another gateway may have made the token just now
 */
export async function makerScopes(
  { caller }: ScheduleRecord,
  { scopesOf }: Pick<FireOptions, "scopesOf">,
): Promise<readonly Scope[] | string> {
  return await scopesOf(caller.token_id) ??
    "The token that made the schedule was revoked or has expired: cron_update makes it somebody else's";
}

/** Returns a firing of which nothing is decided yet. */
export function blank(
  scheduleId: string,
  { time, at, trigger }: Pick<Occasion, "time" | "at" | "trigger">,
): FiringRecord {
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

/** Output of a precheck that wakes the model, as the message shows it, and the outside content in it. */
export interface CheckOutput {
  readonly text: string;
  readonly taint: Taint;
}

/** Returns the run of a firing: its precheck, where it has one and nothing was found yet, else its work. */
export function toRequest(
  record: ScheduleRecord,
  { by, time }: Pick<Occasion, "by" | "time">,
  { scopesNow, found }: { readonly scopesNow: readonly Scope[]; readonly found?: CheckOutput | undefined },
): RunRequest {
  const { id, schedule, prompt, caller, tools, limits, links, workspace } = record;
  const call = (found === undefined ? record.precheck : undefined) ?? record.call;
  const taint = found === undefined ? record.taint : joinTaints(record.taint, found.taint);
  const via = caller.via ?? "cron";
  const scopes = commonScopes(caller.scopes, scopesNow);
  const when = new Date(time).toISOString();
  return {
    kind: "cron",
    by: {
      caller: by === undefined
        ? { via, tokenId: caller.token_id, scopes }
        // Whoever sets off the work of another has no more rights for it than either of them
        : { via, tokenId: by.tokenId, scopes: commonScopes(by.scopes, scopes) },
      workspace,
      taint,
      links,
    },
    messages: [{ role: "user", content: `${prompt ?? ""}${found === undefined ? "" : `\n\n${found.text}`}` }],
    durable: true,
    agentTools: "configured",
    agent: {
      tools: tools ?? undefined,
      limits: limits ?? undefined,
      instructions: call === null ? toldBy(id, schedule, when) : undefined,
    },
    call: call === null ? undefined : { tool: call.tool, input: JSON.stringify(call.input) },
  };
}

function toldBy(id: string, schedule: string, when: string): string {
  return `You were started by the schedule "${id}" (${schedule}), due at ${when}. Nobody reads along: do what the message says and ` +
    "report what came of it, without asking back.";
}

/** Tells whether the gateway is shutting down, or all work is halted: the schedule fires after its next start, or the resume. */
export function isHeld(error: unknown): boolean {
  return error instanceof HttpError && (error.code === "shutting_down" || error.code === "halted");
}

const WAITABLE: readonly string[] = ["overloaded", "storage_unavailable", "workspace_unavailable"];

/** Tells whether another try may succeed: the queue is full, or the store could not be written. */
export function canWait(error: unknown): boolean {
  if (error instanceof HttpError) return WAITABLE.includes(error.code);
  return !(error instanceof ProviderError);
}

/** Returns why a run could not be started, for the record of its firing. */
export function startFailure(error: unknown): string {
  return error instanceof HttpError || error instanceof ProviderError
    ? error.message
    : "Cannot start the run: an internal error, which the gateway's log names";
}
