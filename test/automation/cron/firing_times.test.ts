import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { firingTimes, toTiming } from "../../../lib/automation/cron/firing_times.ts";
import { zoneClock, zonedTime } from "../../../lib/base/zoned_time.ts";
import { parseSchedule } from "../../../lib/automation/cron/parse_schedule.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";

const NOW = Date.UTC(2026, 0, 1);
const DAY = 86_400_000;
const at = (text: string) => Date.parse(text);
const timesOf = (schedule: string, timezone: string, now = NOW) =>
  firingTimes(toTiming(parseSchedule(schedule), { given: schedule, timezone, now }), timezone);

/** The times of a schedule from a moment on, as the zone's own clock shows them. */
function list(
  schedule: string,
  { zone, from, count }: { zone: string; from: string; count: number },
): readonly string[] {
  const times = timesOf(schedule, zone);
  const found: string[] = [];
  for (let now: number | undefined = at(from); found.length < count;) {
    now = times.next(now);
    if (now === undefined) break;
    found.push(zonedTime(now, zone).slice(5, 22).replace("T", " "));
  }
  return found;
}

const BERLIN = "Europe/Berlin";
const NEW_YORK = "America/New_York";
const LORD_HOWE = "Australia/Lord_Howe";

test("Berlin in spring: a time of day that is skipped fires after the gap, once; others leave it out", () => {
  const from = "2026-03-28T12:00:00Z";
  assert.deepEqual(list("30 2 * * *", { zone: BERLIN, from, count: 2 }), ["03-29 03:00:00+02", "03-30 02:30:00+02"]);
  assert.deepEqual(list("30 2,14 * * *", { zone: BERLIN, from, count: 3 }), [
    "03-28 14:30:00+01",
    "03-29 03:00:00+02",
    "03-29 14:30:00+02",
  ]);
  assert.deepEqual(list("*/30 2 * * *", { zone: BERLIN, from, count: 1 }), ["03-30 02:00:00+02"]);
  assert.deepEqual(list("every 30 minutes", { zone: BERLIN, from: "2026-03-29T00:00:00Z", count: 3 }), [
    "03-29 01:30:00+01",
    "03-29 03:00:00+02",
    "03-29 03:30:00+02",
  ]);
});

test("Berlin in autumn: a time of day that occurs twice fires the first time alone; others fire each real hour", () => {
  const from = "2026-10-24T12:00:00Z";
  assert.deepEqual(list("30 2 * * *", { zone: BERLIN, from, count: 2 }), ["10-25 02:30:00+02", "10-26 02:30:00+01"]);
  assert.deepEqual(list("30 2,14 * * *", { zone: BERLIN, from, count: 3 }), [
    "10-24 14:30:00+02",
    "10-25 02:30:00+02",
    "10-25 14:30:00+01",
  ]);
  assert.deepEqual(list("hourly", { zone: BERLIN, from: "2026-10-24T23:30:00Z", count: 4 }), [
    "10-25 02:00:00+02",
    "10-25 02:00:00+01",
    "10-25 03:00:00+01",
    "10-25 04:00:00+01",
  ]);
});

test("New York: the same in March and in November", () => {
  assert.deepEqual(list("30 2 * * *", { zone: NEW_YORK, from: "2026-03-07T12:00:00Z", count: 2 }), [
    "03-08 03:00:00-04",
    "03-09 02:30:00-04",
  ]);
  assert.deepEqual(list("30 1 * * *", { zone: NEW_YORK, from: "2026-10-31T12:00:00Z", count: 2 }), [
    "11-01 01:30:00-04",
    "11-02 01:30:00-05",
  ]);
  assert.deepEqual(list("hourly", { zone: NEW_YORK, from: "2026-11-01T04:30:00Z", count: 3 }), [
    "11-01 01:00:00-04",
    "11-01 01:00:00-05",
    "11-01 02:00:00-05",
  ]);
});

test("Lord Howe: half an hour is skipped, and half an hour occurs twice", () => {
  assert.deepEqual(list("15 2 * * *", { zone: LORD_HOWE, from: "2026-10-03T00:00:00Z", count: 2 }), [
    "10-04 02:30:00+11",
    "10-05 02:15:00+11",
  ]);
  assert.deepEqual(list("45 1 * * *", { zone: LORD_HOWE, from: "2026-04-03T20:00:00Z", count: 2 }), [
    "04-05 01:45:00+11",
    "04-06 01:45:00+10",
  ]);
  assert.equal(list("every 15 minutes", { zone: LORD_HOWE, from: "2026-04-04T14:00:00Z", count: 8 }).length, 8);
  const quarters = timesOf("every 15 minutes", LORD_HOWE);
  let now = at("2026-04-04T14:00:00Z");
  for (let count = 0; count < 12; count++) assert.equal((now = quarters.next(now) ?? 0) % 900_000, 0);
  assert.equal(now, at("2026-04-04T17:00:00Z"), "each real quarter of an hour");
});

test("Nuuk and Havana: a gap that ends or begins at midnight", () => {
  for (const zone of ["America/Nuuk", "America/Scoresbysund"]) {
    assert.deepEqual(list("30 23 * * *", { zone, from: "2026-03-28T12:00:00Z", count: 2 }), [
      "03-29 00:00:00-01",
      "03-29 23:30:00-01",
    ]);
    assert.deepEqual(list("30 23 28 3 *", { zone, from: "2026-03-28T12:00:00Z", count: 2 }), [
      "03-29 00:00:00-01",
      "03-28 23:30:00-01",
    ]);
  }
  assert.deepEqual(list("30 0 * * *", { zone: "America/Havana", from: "2026-03-07T12:00:00Z", count: 2 }), [
    "03-08 01:00:00-04",
    "03-09 00:30:00-04",
  ]);
});

test("a time of day in each zone that changes its clock is what a plain reading of that clock says", () => {
  const seen = new Set<string>();
  const random = createSeededRandom(7);
  const pick = (max: number) => (random.bytes(1)[0] ?? 0) % max;
  // With Casablanca, whose clock shows the same in January and July
  const zones = Intl.supportedValuesOf("timeZone").filter((zone) =>
    zone === "Africa/Casablanca" || new Set([NOW, NOW + 182 * DAY].map(zoneClock(zone).offset)).size > 1
  );
  for (const zone of ["Pacific/Apia", ...zones]) {
    for (const change of changesOf(zone, zone === "Pacific/Apia" ? 2011 : 2026)) {
      const [before = 0, after = 0] = [change - 1000, change].map(zoneClock(zone).offset);
      const rule = [change, before, after].join();
      if (seen.has(rule)) continue;
      seen.add(rule);
      const [from, to] = [change - 3 * DAY, change + 3 * DAY];
      // An hour beside the change, or any other
      const near = new Date(change + before).getUTCHours() + 22 + pick(5);
      const hour = (pick(4) > 0 ? near : pick(24)) % 24;
      const minutes = [...new Set([pick(60), pick(60)])];
      const expression = `${minutes.join(",")} ${hour} * * *`;
      const expected = new Set<number>();
      for (let day = Math.floor(from / DAY) - 1; day <= to / DAY + 1; day++) {
        for (const minute of minutes) {
          const local = day * DAY + hour * 3_600_000 + minute * 60_000;
          // The first minute at which the clock shows that time, or a later one
          let at = from - 3 * DAY;
          while (at + (at < change ? before : after) < local) at += 60_000;
          expected.add(at);
        }
      }
      const wanted = [...expected].filter((at) => at > from && at <= to).sort((one, other) => one - other);
      const times = timesOf(expression, zone, from - DAY);
      const found: number[] = [];
      for (let at = times.next(from) ?? Infinity; at <= to; at = times.next(at) ?? Infinity) found.push(at);
      const shown = (list: readonly number[]) => list.map((at) => new Date(at).toISOString());
      assert.deepEqual(
        shown(found),
        shown(wanted),
        `${expression} in ${zone} around ${new Date(change).toISOString()}`,
      );
      for (const [index, at] of wanted.entries()) {
        assert.equal(times.latest(at), at);
        if (index > 0) assert.equal(times.latest(at - 1), wanted[index - 1]);
      }
    }
  }
  assert.ok(seen.size > 20, `${seen.size} changes`);
});

/** Moments of a year, to the minute, from which on the clock of a zone is another. */
function changesOf(zone: string, year: number): readonly number[] {
  const found: number[] = [];
  const { offset } = zoneClock(zone);
  for (let at = Date.UTC(year, 0, 1); at < Date.UTC(year + 1, 0, 1); at += 28 * DAY) {
    if (offset(at) === offset(at + 28 * DAY)) continue;
    let [low, high] = [at, at + 28 * DAY];
    while (high - low > 60_000) {
      const middle = low + Math.floor((high - low) / 120_000) * 60_000;
      if (offset(middle) === offset(at)) low = middle;
      else high = middle;
    }
    found.push(high);
  }
  return found;
}

test("an interval is as long on the day of the change", () => {
  const now = at("2026-03-28T12:00:00Z");
  const times = timesOf("every 24 hours", BERLIN, now);
  assert.equal(times.next(now), at("2026-03-29T12:00:00Z"));
  assert.equal(times.next(at("2026-03-29T12:00:00Z")), at("2026-03-30T12:00:00Z"));
  assert.equal(times.latest(now + 1), undefined);
  assert.equal(times.latest(at("2026-04-10T13:00:00Z")), at("2026-04-10T12:00:00Z"));
  assert.equal(times.next(now - 1e9), at("2026-03-29T12:00:00Z"), "a clock that was turned back");
});

test("month ends, leap days, steps, Sunday as 0 and 7, ranges and names", () => {
  const utc = (schedule: string, count = 3, from = "2026-01-01T00:00:00Z") =>
    list(schedule, { zone: "UTC", from, count }).map((time) => time.slice(0, 11));
  assert.deepEqual(utc("0 0 L * *"), ["01-31 00:00", "02-28 00:00", "03-31 00:00"]);
  assert.deepEqual(utc("0 0 31 * *"), ["01-31 00:00", "03-31 00:00", "05-31 00:00"]);
  const leap = timesOf("0 0 29 2 *", "UTC");
  assert.equal(leap.next(NOW), Date.UTC(2028, 1, 29));
  assert.equal(leap.next(Date.UTC(2096, 1, 29)), Date.UTC(2104, 1, 29), "2100 has none");
  assert.deepEqual(
    utc("*/7 * * * *", 10).slice(-3),
    ["01-01 00:56", "01-01 01:00", "01-01 01:07"],
    "each hour from its start",
  );
  assert.deepEqual(utc("0 0 * * 7"), utc("0 0 * * 0"));
  assert.deepEqual(utc("0 0 * * SUN"), ["01-04 00:00", "01-11 00:00", "01-18 00:00"]);
  assert.deepEqual(utc("0 0 * * FRI-SUN"), ["01-02 00:00", "01-03 00:00", "01-04 00:00"]);
  assert.deepEqual(utc("0 0 13 * FRI", 4), ["01-02 00:00", "01-09 00:00", "01-13 00:00", "01-16 00:00"], "either day");
});

test("what never fires, and what has passed, is refused", () => {
  for (const schedule of ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "at 2025-12-31T23:59Z", "at 1950-01-01T00:00"]) {
    assert.throws(
      () => timesOf(schedule, BERLIN),
      (error) =>
        error instanceof ToolError && error.code === "invalid_schedule" && /never fires|has passed/.test(error.message),
    );
  }
});

test("a local time is of its zone; one that is skipped means the moment after, of one that occurs twice the first is meant", () => {
  const once = (text: string, zone: string) => new Date(timesOf(`at ${text}`, zone).next(NOW) ?? 0).toISOString();
  assert.equal(once("2026-07-01T09:00", BERLIN), "2026-07-01T07:00:00.000Z");
  assert.equal(once("2026-07-01T09:00:00.250", NEW_YORK), "2026-07-01T13:00:00.250Z");
  assert.equal(once("2026-03-29T02:30", BERLIN), "2026-03-29T01:00:00.000Z");
  assert.equal(once("2026-03-28T23:30", "America/Nuuk"), "2026-03-29T01:00:00.000Z");
  assert.equal(once("2026-10-25T02:30", BERLIN), "2026-10-25T00:30:00.000Z");
  assert.equal(once("2026-10-04T02:15", LORD_HOWE), "2026-10-03T15:30:00.000Z");
  assert.equal(once("2026-07-01T09:00", "+02:00"), "2026-07-01T07:00:00.000Z");
});

interface Wanted {
  readonly text: string;
  readonly matches: (value: number) => boolean;
}

function field(min: number, max: number): fc.Arbitrary<Wanted> {
  const value = fc.integer({ min, max });
  const step = fc.integer({ min: 1, max: Math.min(max, 12) });
  const item = fc.oneof(
    fc.constant<Wanted>({ text: "*", matches: () => true }),
    value.map((one): Wanted => ({ text: String(one), matches: (given) => given === one })),
    fc.tuple(value, value).map(([a, b]): Wanted => {
      const [from, to] = [Math.min(a, b), Math.max(a, b)];
      return { text: `${from}-${to}`, matches: (given) => given >= from && given <= to };
    }),
    step.map((by): Wanted => ({ text: `*/${by}`, matches: (given) => (given - min) % by === 0 })),
  );
  return fc.array(item, { minLength: 1, maxLength: 2 }).map((items) => ({
    text: items.map(({ text }) => text).join(","),
    matches: (given) => items.some(({ matches }) => matches(given)),
  }));
}

test("the next time is after now, matches the fields, and none between them does", () => {
  const schedules = fc.record({
    minute: field(0, 59),
    hour: field(0, 23),
    day: field(1, 28),
    month: field(1, 12),
    weekday: field(0, 6),
    now: fc.integer({ min: Date.UTC(2020, 0, 1), max: Date.UTC(2040, 0, 1) }),
  });
  fc.assert(
    fc.property(schedules, ({ minute, hour, day, month, weekday, now }) => {
      const matches = (time: number) => {
        const date = new Date(time);
        const byDay = day.matches(date.getUTCDate());
        const byWeekday = weekday.matches(date.getUTCDay());
        // Of two days that are both restricted, either one is enough
        const free = [day, weekday].some(({ text }) => text === "*");
        return minute.matches(date.getUTCMinutes()) && hour.matches(date.getUTCHours()) &&
          month.matches(date.getUTCMonth() + 1) && (free ? byDay && byWeekday : byDay || byWeekday);
      };
      const text = [minute, hour, day, month, weekday].map(({ text }) => text).join(" ");
      const times = timesOf(text, "UTC");
      const next = times.next(now);
      assert.ok(next !== undefined && next > now, text);
      assert.equal(next % 60_000, 0);
      assert.ok(matches(next), `${text} at ${new Date(next).toISOString()}`);
      const first = Math.floor(now / 60_000) * 60_000 + 60_000;
      const span = Math.min((next - first) / 60_000, 3000);
      for (let step = 0; step < span; step++) {
        const between = first + step * 60_000;
        assert.ok(!matches(between), `${text} skips ${new Date(between).toISOString()}`);
      }
      assert.equal(times.latest(next), next);
      assert.ok((times.latest(next - 1) ?? 0) <= now);
    }),
    { numRuns: 150 },
  );
});

test("over a change of the clock the next time is after now, and latest() agrees with it", () => {
  const schedules = fc.constantFrom(
    "30 2 * * *",
    "*/7 * * * *",
    "15 1-2 * * *",
    "hourly",
    "45 1,2 * * 0",
    "0 */5 * * *",
  );
  const zones = fc.constantFrom(BERLIN, NEW_YORK, LORD_HOWE, "Africa/Casablanca", "America/St_Johns", "Pacific/Apia");
  const days = fc.constantFrom(
    "2026-03-08",
    "2026-03-29",
    "2026-10-25",
    "2026-11-01",
    "2026-04-04",
    "2026-10-03",
    "2011-12-30",
  );
  fc.assert(
    fc.property(schedules, zones, days, fc.integer({ min: -129_600, max: 129_600 }), (schedule, zone, day, offset) => {
      const now = at(`${day}T00:00:00Z`) + offset * 1000;
      const times = timesOf(schedule, zone);
      const next = times.next(now) ?? 0;
      assert.ok(next > now);
      assert.equal(times.latest(next), next);
      assert.ok((times.latest(next - 1) ?? 0) <= now);
      assert.equal(times.next(Math.floor((now + next) / 2)), next);
    }),
    { numRuns: 150 },
  );
});
