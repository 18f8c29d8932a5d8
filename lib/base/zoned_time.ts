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

/** Tells whether the runtime knows this zone: an IANA name, or an offset as `+02:00`. */
export function isTimezone(name: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}
