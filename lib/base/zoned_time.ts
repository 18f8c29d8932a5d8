/**
 * Writes a time as people of that zone write it: ISO 8601 with the offset, without milliseconds.
 * @param at milliseconds since the epoch
 * @param timezone IANA name, or an offset as `+02:00`
 */
export function zonedTime(at: number, timezone: string): string {
  const parts = new Intl.DateTimeFormat("en-US", {
    timeZone: timezone,
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
    timeZoneName: "longOffset",
  }).formatToParts(at);
  const { year, month, day, hour, minute, second, timeZoneName = "" } = Object.fromEntries(
    parts.map(({ type, value }) => [type, value]),
  );
  const offset = timeZoneName.replace("GMT", "") || "+00:00";
  return `${year}-${month}-${day}T${hour}:${minute}:${second}${offset}`;
}

/** Clock on the wall of a zone. Moments are milliseconds since the epoch. */
export interface ZoneClock {
  /** Returns by how many milliseconds the clock is before UTC. */
  offset(at: number): number;
  /** Tells whether the clock is changed within a day and two hours of a moment. */
  isNearChange(at: number): boolean;
  /**
   * Returns the moment at which the clock shows a time: the first of two, and the first moment after a gap for a time in the gap.
   * @param local moment at which a clock in UTC shows that time
   */
  momentOf(local: number): number;
}

/** Longest gap of a clock with room: a day, where the date line was moved over an island. Milliseconds */
export const LONGEST_GAP_MS = 26 * 3_600_000;

/** Creates the clock of a zone. @param timezone IANA name, or an offset as `+02:00` */
export function zoneClock(timezone: string): ZoneClock {
  const format = new Intl.DateTimeFormat("en-US", { timeZone: timezone, timeZoneName: "longOffset" });
  const offset = (at: number) => {
    const [, sign, hours = 0, minutes = 0, seconds = 0] =
      /GMT([+-])(\d\d):(\d\d)(?::(\d\d))?/.exec(format.format(at)) ?? [];
    return (sign === "-" ? -1 : 1) * (Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)) * 1000;
  };
  return {
    offset,
    isNearChange: (at) => offset(at - LONGEST_GAP_MS) !== offset(at + LONGEST_GAP_MS),
    momentOf(local) {
      const before = offset(local - LONGEST_GAP_MS);
      const after = offset(local + LONGEST_GAP_MS);
      const [early, late] = [local - before, local - after];
      if (offset(early) === before) return early;
      if (offset(late) === after) return late;
      // In a gap: the change lies between the two, at a full second
      let [low, high] = [Math.floor(late / 1000), Math.ceil(early / 1000)];
      while (high - low > 1) {
        const middle = Math.floor((low + high) / 2);
        if (offset(middle * 1000) === before) low = middle;
        else high = middle;
      }
      return high * 1000;
    },
  };
}

/** Tells whether the runtime knows this zone: an IANA name, or an offset as `+02:00`. */
export function isTimezone(name: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}
