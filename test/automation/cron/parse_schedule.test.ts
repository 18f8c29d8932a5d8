import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../../lib/base/errors.ts";
import { parseSchedule } from "../../../lib/automation/cron/parse_schedule.ts";
import { anyCharacter } from "../../support/any_character.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

test("five cron fields are taken with names, lists, ranges and steps, in whatever case and spacing", () => {
  const rows: readonly (readonly [text: string, expression: string])[] = [
    ["*/7 * * * *", "*/7 * * * *"],
    ["  30\t9  *  * 1-5 ", "30 9 * * 1-5"],
    ["0 0 * * 7", "0 0 * * 7"],
    ["0 0 * jan-mar,Dec sun,MON", "0 0 * JAN-MAR,DEC SUN,MON"],
    ["0-30/10,45 8-18/2 1,15,L * *", "0-30/10,45 8-18/2 1,15,L * *"],
    ["00 09 * * *", "00 09 * * *"],
  ];
  for (const [text, expression] of rows) assert.deepEqual(parseSchedule(text), { kind: "cron", expression }, text);
});

test("plain phrases mean cron fields, or an even interval where the clock has none", () => {
  const cron: readonly (readonly [text: string, expression: string])[] = [
    ["every 15 minutes", "*/15 * * * *"],
    ["Every minute", "* * * * *"],
    ["every 60 minutes", "0 * * * *"],
    ["hourly", "0 * * * *"],
    ["@hourly", "0 * * * *"],
    ["every 2 hours", "0 */2 * * *"],
    ["daily", "0 0 * * *"],
    ["every day at 9:00", "0 9 * * *"],
    ["daily at 6:30 pm", "30 18 * * *"],
    ["every day at 12am", "0 0 * * *"],
    ["every day at noon", "0 12 * * *"],
    ["weekdays at 9:00", "0 9 * * 1-5"],
    ["every weekday at 9:00", "0 9 * * 1-5"],
    ["weekends at 10:15", "15 10 * * 0,6"],
    ["mondays at 18:30", "30 18 * * 1"],
    ["on friday at 17:00", "0 17 * * 5"],
    ["mondays, wednesdays and fridays at 7:05", "5 7 * * 1,3,5"],
    ["mon, tue at 7:05", "5 7 * * 1,2"],
    ["monday to friday at 8:00", "0 8 * * 1-5"],
    ["fri-mon at 8:00", "0 8 * * 5-6,0-1"],
    ["sat to sun at 8:00", "0 8 * * 6,0"],
    ["every week", "0 0 * * 0"],
    ["weekly at 8:00", "0 8 * * 0"],
    ["monthly", "0 0 1 * *"],
    ["yearly", "0 0 1 1 *"],
  ];
  for (const [text, expression] of cron) assert.deepEqual(parseSchedule(text), { kind: "cron", expression }, text);
  const even: readonly (readonly [text: string, everyMs: number])[] = [
    ["every 7 minutes", 7 * MINUTE],
    ["every 90 minutes", 90 * MINUTE],
    ["every 5 hours", 5 * HOUR],
    ["every 24 hours", 24 * HOUR],
    ["every 3 days", 72 * HOUR],
    ["every 2 weeks", 336 * HOUR],
  ];
  for (const [text, everyMs] of even) assert.deepEqual(parseSchedule(text), { kind: "interval", everyMs }, text);
});

test("a schedule with one time is a duration from now, or a time with or without offset", () => {
  const durations: readonly (readonly [text: string, ms: number])[] = [
    ["in 90s", 90_000],
    ["in 10 minutes", 10 * MINUTE],
    ["in 2h30m", 2 * HOUR + 30 * MINUTE],
    ["In 1 day and 2 hours", 26 * HOUR],
    ["in 1 week, 1 second", 168 * HOUR + 1000],
    ["in 5 min 3 secs", 5 * MINUTE + 3000],
  ];
  for (const [text, ms] of durations) assert.deepEqual(parseSchedule(text), { kind: "in", ms }, text);
  const local = { kind: "local", local: "2026-12-24T18:00:00", ms: 0 };
  assert.deepEqual(parseSchedule("at 2026-12-24T18:00"), { kind: "at", time: local });
  assert.deepEqual(parseSchedule("at 2026-12-24 18:00:00"), { kind: "at", time: local });
  const instants: readonly (readonly [text: string, at: number])[] = [
    ["at 2026-12-24T18:00Z", Date.UTC(2026, 11, 24, 18)],
    ["at 2026-12-24T18:00:30.25+01:00", Date.UTC(2026, 11, 24, 17, 0, 30, 250)],
    ["at 2026-12-24T18:00 -0330", Date.UTC(2026, 11, 24, 21, 30)],
    ["at 2028-02-29T00:00+14", Date.UTC(2028, 1, 28, 10)],
  ];
  for (const [text, at] of instants) {
    assert.deepEqual(parseSchedule(text), { kind: "at", time: { kind: "instant", at } }, text);
  }
});

test("what cannot be used is refused with the reason and with what is accepted", () => {
  const rows: readonly (readonly [text: string, reason: RegExp])[] = [
    ["", /1-200 characters/],
    ["x".repeat(201), /1-200 characters/],
    ["* * * *", /it has 4 fields, and cron has five/],
    ["0 0 1 1 * 2027", /it has 6 fields, and cron has five/],
    ["60 * * * *", /its minute "60" must be within 0-59\./],
    ["* 24 * * *", /its hour "24" must be within 0-23\./],
    ["* * 0 * *", /its day of the month "0" must be within 1-31\./],
    ["* * * 13 *", /its month "13" must be within 1-12, or JAN-DEC/],
    ["* * * * 8", /its day of the week "8" must be within 0-7, or SUN-SAT/],
    ["5-1 * * * *", /ends before it begins/],
    ["5/5 * * * *", /is not \*, a value, a range/],
    ["/5 * * * *", /is not \*, a value, a range/],
    ["*/0 * * * *", /a step of 1-59/],
    ["*/99 * * * *", /a step of 1-59/],
    ["-1 * * * *", /is not/],
    ["1.5 * * * *", /is not/],
    ["? ? * * *", /is not/],
    ["0 0 15W * *", /must be within/],
    ["0 0 * * MON#2", /is not/],
    ["0 0 * * SUNDAY", /must be within/],
    ["0 0 *  * 1,", /is not/],
    ["L * * * *", /: not a schedule I understand\. Use five cron fields/],
    ["constructor", /: not a schedule I understand\. Use five cron fields/],
    ["every constructor at 9:00", /: not a schedule I understand\. Use five cron fields/],
    ["every second", /at least one minute/],
    ["every 30 seconds", /at least one minute/],
    ["every 0 minutes", /at least one minute/],
    ["every 999999 weeks", /at most ten years/],
    ["every 10 minutes at 9:00", /a time of day goes with days/],
    ["hourly at 9:00", /not a schedule I understand/],
    ["weekdays", /needs a time, as in "weekdays at 9:00"/],
    ["every day at 25:00", /must be written as 9:00/],
    ["every day at 9", /must be written as 9:00/],
    ["every day at 13pm", /must be written as/],
    ["moondays at 9:00", /not a schedule I understand/],
    ["in 5", /90s, 10 minutes, 2h30m/],
    ["in 0s", /1 second to ten years/],
    ["in 5m 2h", /1 second/],
    ["in 1h 1h", /1 second/],
    ["in 9999 weeks", /ten years/],
    ["in 2h and", /1 second/],
    ["in -5m", /1 second/],
    ["at 2026-02-30T09:00", /that exists/],
    ["at 2026-12-24T24:00", /that exists/],
    ["at 2026-12-24", /ISO 8601/],
    ["at 2026-12-24T18:00+15:00", /ISO 8601/],
    ["at noon", /ISO 8601/],
    ["rm -rf /", /not a schedule I understand/],
  ];
  for (const [text, reason] of rows) {
    assert.throws(() => parseSchedule(text), (error) => {
      assert.ok(error instanceof ToolError && error.code === "invalid_schedule", text);
      assert.match(error.message, reason);
      assert.match(error.message, /^Cannot use the schedule .*\. Use .*[^.]$/s);
      assert.ok(error.message.length < 500);
      return true;
    }, text);
  }
});

test("any text is a schedule or a ToolError, and soon", () => {
  const words = [
    "every",
    "at",
    "in",
    "and",
    "15",
    "minutes",
    "hours",
    "mon",
    "fri",
    "9:00",
    "*",
    "*/5",
    "1-5",
    ",",
    "2h",
    "L",
    "T",
  ];
  const texts = fc.oneof(
    fc.string({ maxLength: 250 }),
    fc.string({ unit: anyCharacter, maxLength: 50 }),
    fc.array(fc.constantFrom(...words), { maxLength: 8 }).map((parts) => parts.join(" ")),
    fc.string({ unit: fc.constantFrom(..."*/-,0159 LWMON#?+atin".split("")), maxLength: 40 }),
    fc.constantFrom("in ", "at ", "every ").map((word) => word + "1 ".repeat(90)),
    fc.constant(`in ${"1h ".repeat(60)}`),
  );
  fc.assert(
    fc.property(texts, (text) => {
      try {
        const parsed = parseSchedule(text);
        if (parsed.kind === "in") assert.ok(parsed.ms >= 1000 && Number.isSafeInteger(parsed.ms));
        if (parsed.kind === "interval") assert.ok(parsed.everyMs >= MINUTE);
      } catch (error) {
        assert.ok(error instanceof ToolError && error.code === "invalid_schedule", String(error));
      }
    }),
    { numRuns: 200 },
  );
});
