import assert from "node:assert/strict";
import { test } from "node:test";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createToolBench } from "../../support/tool_bench.ts";

function setUp() {
  const clock = createFakeClock();
  const bench = createToolBench({
    root: "/workspace",
    clock,
    config: { cron: { enabled: true, timezone: "Europe/Berlin" } },
  });
  const say = async (name: string, input: unknown) => {
    const { result } = await bench.call(name, input);
    return `${result.isError ? "error: " : ""}${result.output}`;
  };
  return { ...bench, clock, say };
}

test("a schedule is added, listed, changed, paused, resumed and removed", async () => {
  const { say, call } = setUp();
  assert.equal(await say("cron_list", {}), "There are no schedules");
  assert.equal(
    await say("cron_add", { id: "report", schedule: "weekdays at 9:00", prompt: "Write the report" }),
    'Added "report" (weekdays at 9:00 = 0 9 * * 1-5, Europe/Berlin): prompt "Write the report"; next at 2026-01-01T09:00:00+01:00',
  );
  assert.equal(
    await say("cron_update", { id: "report", schedule: "30 18 * * MON", timezone: "America/New_York" }),
    'Updated "report" (30 18 * * MON, America/New_York): prompt "Write the report"; next at 2026-01-05T18:30:00-05:00',
  );
  assert.match(await say("cron_pause", "report"), /^Paused "report" .*; paused$/);
  assert.match(await say("cron_list", { state: "paused" }), /^"report" /);
  assert.equal(await say("cron_list", { state: "done" }), "There is no such schedule");
  assert.match(await say("cron_resume", { id: "report" }), /^Resumed "report" .*; next at 2026-01-05/);
  const { result } = await call("cron_list", {});
  const { schedules } = result.data as { schedules: { id: string; cron: string }[] };
  assert.deepEqual(schedules.map(({ id, cron }) => [id, cron]), [["report", "30 18 * * MON"]]);
  assert.equal(await say("cron_remove", "report"), 'Removed "report"');
  assert.match(await say("cron_remove", "report"), /^error: Cannot remove "report": there is no schedule/);
});

test("a schedule that fires once is made for a time of the configured zone, of its own offset, or in a while", async () => {
  const { say } = setUp();
  assert.match(
    await say("schedule", { id: "eve", at: "2026-12-24T18:00", prompt: "Light the tree" }),
    /^Scheduled "eve" \(at 2026-12-24T18:00, Europe\/Berlin\): .*next at 2026-12-24T18:00:00\+01:00$/,
  );
  assert.match(
    await say("schedule", { at: "2026-07-01T09:00:00-04:00", prompt: "x" }),
    /"task_\w+".* 2026-07-01T15:00:00\+02:00/,
  );
  assert.match(
    await say("schedule", { in: "2h30m", tool: "read_file", input: { path: "a.txt" } }),
    /calls read_file; .*T03:30:00\+01:00/,
  );
  for (
    const [input, about] of [
      [{ prompt: "x" }, /either "at" or "in", and one is missing$/],
      [{ at: "2026-12-24T18:00", in: "5m", prompt: "x" }, /both are given$/],
      [{ in: "soon", prompt: "x" }, /"in soon": it must be 1 second to ten years, such as 90s/],
      [{ at: "yesterday", prompt: "x" }, /must be a date and time of ISO 8601/],
      [{ at: "2025-12-24T18:00", prompt: "x" }, /that time has passed, and now it is 2026-01-01T01:00:00\+01:00/],
      [{ in: "5m" }, /either "prompt" or "tool"/],
    ] as const
  ) assert.match(await say("schedule", input), about);
});

test("the tools are off until [cron] is on, and at read_only nothing is scheduled", async () => {
  const off = createToolBench({ root: "/workspace" });
  const refused = await off.call("cron_add", { id: "a", schedule: "hourly", prompt: "x" });
  assert.match(refused.result.output, /\[cron\] enabled = true/);
  const careful = createToolBench({
    root: "/workspace",
    config: { cron: { enabled: true }, autonomy: { level: "read_only" } },
  });
  assert.equal((await careful.call("cron_add", { id: "a", schedule: "hourly", prompt: "x" })).ran, false);
  assert.equal((await careful.call("cron_list", {})).ran, true);
});

test("a caller with few tools schedules none but those", async () => {
  const { call } = setUp();
  const few = { allowed: ["cron_add", "read_file"] };
  const input = { id: "a", schedule: "hourly", tool: "shell", input: { command: "ls" } };
  assert.match((await call("cron_add", input, few)).result.output, /the caller itself has no tool "shell"/);
  assert.equal(
    (await call("cron_add", { ...input, tool: "read_file", input: { path: "a" } }, few)).result.isError,
    false,
  );
});

test("a known secret in a prompt is masked wherever the schedule shows", async () => {
  const { call, say, redactor } = setUp();
  redactor.add("correct-horse-battery");
  await say("cron_add", { id: "a", schedule: "hourly", prompt: "Use correct-horse-battery" });
  const { result } = await call("cron_list", {});
  assert.doesNotMatch(JSON.stringify(result), /correct-horse/);
});
