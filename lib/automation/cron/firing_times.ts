import { createHash } from "node:crypto";
import { Cron } from "croner";
import { LONGEST_GAP_MS, zoneClock, zonedTime } from "../../base/zoned_time.ts";
import { type ParsedSchedule, unusable } from "./parse_schedule.ts";
import type { ScheduleRecord, Timing } from "./schedule_record.ts";

/** Times at which a schedule fires, in milliseconds since the epoch. */
export interface FiringTimes {
  /** Returns the first time after `now`; undefined: there is none any more */
  next(now: number): number | undefined;
  /** Returns the last time up to `now`; undefined: there was none */
  latest(now: number): number | undefined;
}

/** Returns the times of a schedule, each put off by its jitter. @throws {TypeError} as `firingTimes` */
export function timesOf(
  { id, timing, timezone, jitter_secs: jitter = 0 }: Pick<ScheduleRecord, "id" | "timing" | "timezone" | "jitter_secs">,
): FiringTimes {
  const times = firingTimes(timing, timezone);
  if (jitter === 0) return times;
  /** Moment of a slot: before the next slot, and the same at each gateway and after each restart */
  const moment = (slot: number) => {
    const room = Math.min(jitter * 1000, (times.next(slot) ?? Infinity) - slot - 1);
    return slot + createHash("sha256").update(`${id}/${slot}`).digest().readUInt32BE() % (room + 1);
  };
  return {
    next(now) {
      const slot = times.latest(now);
      if (slot !== undefined && moment(slot) > now) return moment(slot);
      const next = times.next(now);
      return next === undefined ? undefined : moment(next);
    },
    latest(now) {
      const slot = times.latest(now);
      if (slot === undefined || moment(slot) <= now) return slot === undefined ? undefined : moment(slot);
      const before = times.latest(slot - 1);
      return before === undefined ? undefined : moment(before);
    },
  };
}

/**
 * Returns the times of a timing in its zone.
 *
 * Daylight saving, for fields without `*` and steps in minute and hour (`30 2 * * *`, `0 2,14 * * *`): a time that is skipped fires once,
 * at the first moment after the gap; one that occurs twice fires the first time alone. Other fields (`0 * * * *`, every 15 minutes) follow
 * the clock on the wall: what is skipped does not fire, what occurs twice fires twice, so that an hourly schedule fires each real hour.
 * An interval is the same number of seconds on every day.
 * @throws {TypeError} for an expression or a zone that was not checked before
 */
export function firingTimes(timing: Timing, timezone: string): FiringTimes {
  switch (timing.kind) {
    case "cron":
      return cronTimes(timing.expression, timezone);
    case "interval":
      return {
        next: (now) =>
          timing.from + Math.max(1, Math.floor((now - timing.from) / timing.every_ms) + 1) * timing.every_ms,
        latest(now) {
          const count = Math.floor((now - timing.from) / timing.every_ms);
          return count < 1 ? undefined : timing.from + count * timing.every_ms;
        },
      };
    case "once":
      return {
        next: (now) => (timing.at > now ? timing.at : undefined),
        latest: (now) => (timing.at <= now ? timing.at : undefined),
      };
  }
}

function cronTimes(expression: string, timezone: string): FiringTimes {
  const isTimeOfDay = expression.split(" ").slice(0, 2).every((field) => !/[*/]/.test(field));
  if (!isTimeOfDay) return fieldTimes(expression, timezone);
  // The times as a clock shows them that is never changed
  const { next, latest } = fieldTimes(expression, "UTC");
  const { offset, isNearChange, momentOf } = zoneClock(timezone);
  // Near a change the clock may show again what it showed, or has skipped what it would show
  const shown = (now: number, direction: number) =>
    now + offset(now) + (isNearChange(now) ? direction * LONGEST_GAP_MS : 0);
  const moment = (local: number | undefined) => local === undefined ? undefined : momentOf(local);
  return {
    next(now) {
      let local = next(shown(now, -1));
      while (local !== undefined && momentOf(local) <= now) local = next(local);
      return moment(local);
    },
    latest(now) {
      let local = latest(shown(now, 1));
      while (local !== undefined && momentOf(local) > now) local = latest(local - 1);
      return moment(local);
    },
  };
}

/** Returns the times at which a clock shows what the fields say, and no others. */
function fieldTimes(expression: string, timezone: string): FiringTimes {
  // Paused: croner calculates the times and sets no timer
  const cron = new Cron(expression, { timezone, mode: "5-part", fixedTimeRule: "no-wildcard", paused: true });
  return {
    next: (now) => cron.nextRun(new Date(now))?.getTime(),
    latest: (now) => cron.previousRuns(1, new Date(now + 1))[0]?.getTime(),
  };
}

/**
 * Returns the timing of a parsed schedule in its zone, as of now.
 *
 * A local time that daylight saving skips means the first moment after the gap. A local time that occurs twice means the first.
 * @param given the text, for the refusal
 * @throws {ToolError} `invalid_schedule` for a time that has passed, and for what never fires
 */
export function toTiming(
  parsed: ParsedSchedule,
  { given, timezone, now }: { readonly given: string; readonly timezone: string; readonly now: number },
): Timing {
  switch (parsed.kind) {
    case "cron": {
      const timing: Timing = { kind: "cron", expression: parsed.expression };
      if (firingTimes(timing, timezone).next(now) === undefined) {
        throw unusable(given, "it never fires, since no such day exists", "recurring");
      }
      return timing;
    }
    case "interval":
      return { kind: "interval", every_ms: parsed.everyMs, from: now };
    case "in":
      return { kind: "once", at: now + parsed.ms };
    case "at": {
      const { time } = parsed;
      const at = time.kind === "instant"
        ? time.at
        : zoneClock(timezone).momentOf(Date.parse(`${time.local}Z`)) + time.ms;
      if (at <= now) {
        throw unusable(given, `that time has passed, and now it is ${zonedTime(now, timezone)}`, "one_time");
      }
      return { kind: "once", at };
    }
  }
}
