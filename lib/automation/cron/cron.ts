import type { Caller } from "../../base/records/caller.ts";
import type { Firing, Schedule } from "../../base/records/schedule.ts";
import type { Write } from "../../storage/store.ts";
import type { Schedules } from "../../tools/schedule/schedules.ts";

/** Which schedules a list shows. */
export interface ScheduleQuery {
  /** Default: those that are active or paused */
  readonly state?: Schedule["state"] | undefined;
  /** 1-1000 */
  readonly limit: number;
  /** Only those made before this one */
  readonly after?: string | undefined;
}

/** The schedules, their history, and what fires them (docs/design/automation.md "Schedules"). */
export interface Cron extends Schedules {
  /** undefined for an unknown id */
  get(id: string): Promise<Schedule | undefined>;
  /** Newest first; one-time tasks that fired only when `state` asks for them */
  page(query: ScheduleQuery): Promise<{ readonly schedules: readonly Schedule[]; readonly hasMore: boolean }>;
  /** The newest first. @param options.after older than this firing. @returns undefined for an unknown id */
  history(
    id: string,
    options: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<{ readonly firings: readonly Firing[]; readonly hasMore: boolean } | undefined>;
  /**
   * Fires a schedule now, whatever its times and also a paused one, with no more rights than both its maker and `by` have.
   * @param claim a record made in the one transaction that accepts the run, see RunRequest
   * @throws {HttpError} 404 `not_found`; 409 `conflict` while the run before is at work, or where `[cron]` is off; 503 as RunSupervisor.start
   */
  run(id: string, by: Caller, claim?: (runId: string) => Write): Promise<Firing>;
  /** Begins to fire, where `[cron] enabled` says so; what a downtime missed is caught up. Resolves when all are known */
  start(): Promise<void>;
  /** Fires nothing more. Resolves when what is being fired is dealt with */
  stop(): Promise<void>;
}
