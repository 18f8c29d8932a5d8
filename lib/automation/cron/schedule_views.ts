import type { Firing, Schedule } from "../../base/records/schedule.ts";
import type { RunSupervisor } from "../../runs/run_request.ts";
import { firingKey, type FiringRecord, firingsOf, type ScheduleRecord } from "./schedule_record.ts";
import { unlessUnreadable } from "../../storage/read_records.ts";

export interface ViewOptions {
  readonly runs: () => RunSupervisor | undefined;
  /** Masks known secrets in a value */
  readonly shown: (value: unknown) => unknown;
}

/** A schedule as it is shown: times as text, secrets masked, with what became of its newest run. */
export async function toSchedule(record: ScheduleRecord, options: ViewOptions): Promise<Schedule> {
  const { id, state, timing, timezone, prompt, call, next_at, created_at, updated_at, caller, last } = record;
  const shown = (text: string) => String(options.shown(text));
  return {
    id,
    object: "schedule",
    state,
    kind: timing.kind,
    schedule: record.schedule,
    cron: timing.kind === "cron" ? timing.expression : null,
    timezone,
    prompt: prompt === null ? null : shown(prompt),
    tool: call === null ? null : call.tool,
    // Masking keeps the shape
    input: call === null ? null : options.shown(call.input) as Schedule["input"],
    next_at: next_at === null ? null : iso(next_at),
    created_at: iso(created_at),
    updated_at: iso(updated_at),
    created_by: caller.token_id,
    last: last === null ? null : await toFiring(last, options),
  };
}

/** A firing as it is shown, with what became of its run. */
export async function toFiring(record: FiringRecord, { runs, shown }: ViewOptions): Promise<Firing> {
  const { schedule_id, time, at, trigger, status, run_id, reason, missed_count, missed_until } = record;
  const run = run_id === null ? undefined : await unlessUnreadable(runs()?.get(run_id));
  return {
    id: firingKey(record).slice(firingsOf(schedule_id).length),
    object: "schedule_firing",
    schedule_id,
    time: iso(time),
    at: iso(at),
    trigger,
    status,
    run_id,
    reason: reason === null ? null : String(shown(reason)),
    missed_count,
    missed_until: missed_until === null ? null : iso(missed_until),
    run_status: run?.status ?? null,
    run_error: run?.error ?? null,
  };
}

function iso(at: number): string {
  return new Date(at).toISOString();
}
