import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../support/until.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const ON = { POSTERN__CRON__ENABLED: "true", POSTERN__CRON__TIMEZONE: '"Europe/Berlin"' };
const WAYS: readonly (readonly [name: string, (machine: Machine, use: () => Promise<void>) => Promise<unknown>])[] = [
  ["through the running gateway", (machine, use) => machine.withGateway([], use, { env: ON })],
  ["without a gateway", (_machine, use) => use()],
];

for (const [name, way] of WAYS) {
  test(`a schedule is added, listed, shown, paused and removed, ${name}`, () =>
    onMachine(async (machine) => {
      const run = (...argv: readonly string[]) => machine.run(argv, { env: ON });
      await way(machine, async () => {
        assert.equal((await run("cron", "list")).stdout, "No schedule is active or paused\n");
        assert.equal((await run("cron", "list", "--state", "paused")).stdout, "There is no such schedule\n");
        const added = await run("schedule", "add", "weekdays at 9:00", "Write the", "report", "--id", "report");
        assert.deepEqual([added.code, added.stderr], [0, ""]);
        assert.match(added.stdout, /^Added "report" \(weekdays at 9:00 = 0 9 \* \* 1-5, Europe\/Berlin\): prompt/);
        assert.match((await run("cron", "list")).stdout, /^report +active +weekdays at 9:00 +Europe\/Berlin +\d{4}-/m);
        assert.equal((await run("cron", "history", "report")).stdout, "It has not fired yet\n");
        assert.match((await run("schedule", "show", "report")).stdout, /^"report" .*\n\nWrite the report\n$/);
        assert.match((await run("schedule", "disable", "report")).stdout, /^Paused "report"/);
        assert.match((await run("cron", "list", "--state", "paused")).stdout, /^report +paused/m);
        assert.deepEqual(JSON.parse((await run("cron", "list", "--json")).stdout)[0].next_at, null);
        assert.match((await run("schedule", "enable", "report")).stdout, /^Resumed "report"/);
        assert.equal((await run("schedule", "remove", "report")).stdout, 'Removed "report"\n');
        const once = await run("schedule", "add", "in 2 hours", "--tool", "glob_search", "--input", '{"pattern":"*"}');
        assert.match(once.stdout, /^Added "glob_search" \(in 2 hours, Europe\/Berlin\): calls glob_search/);
        await run("schedule", "add", "hourly", "Tidy up my notes, and tell me");
        assert.match(
          (await run("schedule", "show", "tidy-up-my-notes", "--json")).stdout,
          /"prompt": "Tidy up my notes, and/,
        );
        assert.match((await run("schedule", "add", "sometimes", "x")).stderr, /Cannot use the schedule "sometimes"/);
        for (const wrong of [["hourly"], ["hourly", "x", "--tool", "glob_search"]]) {
          assert.equal((await run("schedule", "add", ...wrong)).code, 2);
        }
        const unknown = await run("cron", "history", "report");
        assert.deepEqual([unknown.code, unknown.stdout], [1, ""]);
        assert.match(unknown.stderr, /Cannot find this schedule: "postern schedule list"/);
      });
    }));
}

test("a schedule is run now in the running gateway, and its run is in the history", () =>
  onMachine(async (machine) => {
    const run = (...argv: readonly string[]) => machine.run(argv, { env: ON });
    const nowhere = await run("cron", "run", "report");
    assert.equal(nowhere.code, 1);
    assert.match(nowhere.stderr, /no gateway is running.*postern gateway/);
    await machine.withGateway([], async () => {
      const call = { id: "list", schedule: "hourly", tool: "glob_search", input: { pattern: "*.md" } };
      await run("tools", "call", "cron_add", "--input", JSON.stringify(call));
      assert.match((await run("cron", "list")).stdout, /^list +active +hourly .* glob_search {"pattern":"\*\.md"}$/m);
      const fired = await run("cron", "run", "list");
      assert.match(fired.stdout, /^run_\w+: started\n$/);
      const id = fired.stdout.split(":")[0];
      let history = "";
      await until(
        async () => / completed/.test(history = (await run("cron", "history", "list")).stdout),
        "it never ends",
      );
      assert.match(history, new RegExp(`T\\d\\d:\\d\\d:\\d\\d\\+0[12]:00 +manual +started +${id} +completed`));
    }, { env: ON });
  }));

test("where [cron] is off, the list says that nothing fires, and nothing is added", () =>
  onMachine(async ({ run }) => {
    const added = await run(["schedule", "add", "hourly", "x"]);
    assert.deepEqual([added.code, added.stdout], [1, ""]);
    assert.match(added.stderr, /\[cron\] enabled = true|cron\.enabled true/);
    const { code, stderr } = await run(["cron", "list"]);
    assert.deepEqual([code, stderr], [0, "No schedule fires: [cron] enabled is false\n"]);
  }));
