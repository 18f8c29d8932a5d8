import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../support/until.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const ON = { POSTERN__CRON__ENABLED: "true", POSTERN__CRON__TIMEZONE: '"Europe/Berlin"' };
const WAYS: readonly (readonly [name: string, (machine: Machine, use: () => Promise<void>) => Promise<unknown>])[] = [
  ["through the running gateway", (machine, use) => machine.withGateway([], use, { env: ON })],
  ["without a gateway", (_machine, use) => use()],
];
const ADD = JSON.stringify({ id: "report", schedule: "weekdays at 9:00", prompt: "Write the report" });

for (const [name, way] of WAYS) {
  test(`a schedule is added by its tool, listed, paused and removed, ${name}`, () =>
    onMachine(async (machine) => {
      const run = (...argv: readonly string[]) => machine.run(argv, { env: ON });
      await way(machine, async () => {
        assert.equal((await run("cron", "list")).stdout, "No schedule is active or paused\n");
        assert.equal((await run("cron", "list", "--state", "paused")).stdout, "There is no such schedule\n");
        const added = await run("tools", "call", "cron_add", "--input", ADD);
        assert.deepEqual([added.code, added.stderr], [0, ""]);
        assert.match(added.stdout, /^Added "report" \(weekdays at 9:00 = 0 9 \* \* 1-5, Europe\/Berlin\): prompt/);
        assert.match((await run("cron", "list")).stdout, /^report +active +weekdays at 9:00 +Europe\/Berlin +\d{4}-/m);
        assert.equal((await run("cron", "history", "report")).stdout, "It has not fired yet\n");
        assert.equal((await run("tools", "call", "cron_pause", "--input", "report")).code, 0);
        assert.match((await run("cron", "list", "--state", "paused")).stdout, /^report +paused/m);
        assert.deepEqual(JSON.parse((await run("cron", "list", "--json")).stdout)[0].next_at, null);
        assert.equal((await run("tools", "call", "cron_remove", "--input", "report")).stdout, 'Removed "report"\n');
        const unknown = await run("cron", "history", "report");
        assert.deepEqual([unknown.code, unknown.stdout], [1, ""]);
        assert.match(unknown.stderr, /Cannot find this schedule/);
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

test("where [cron] is off, the list says that nothing fires", () =>
  onMachine(async ({ run }) => {
    const { code, stderr } = await run(["cron", "list"]);
    assert.deepEqual([code, stderr], [0, "No schedule fires: [cron] enabled is false\n"]);
  }));
