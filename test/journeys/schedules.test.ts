import assert from "node:assert/strict";
import { test } from "node:test";
import type { Firing, Schedule } from "../../lib/base/records/schedule.ts";
import { countingCommand } from "../support/killable_gateway.ts";
import { jsonOf, type KillableGateway, until, withWorld } from "../support/world.ts";

const TASKS = 12;
const AT_WORK = ["queued", "running", "waiting_for_approval"];
/** Nothing in this journey asks a model */
const NO_MODEL = { baseUrl: "http://127.0.0.1:9/v1" };

async function listOf<T>(gateway: KillableGateway, path: string): Promise<readonly T[]> {
  return (await jsonOf(gateway.call(path))).data;
}

test("schedules that are due while the gateway is killed fire once each, with one effect at most", () =>
  withWorld(async (world) => {
    const gateway = await world.killableGateway(NO_MODEL);
    const doneOf = () => listOf<Schedule>(gateway, "/v1/schedules?state=done");
    for (let index = 0; index < TASKS; index++) {
      const input = { id: `task${index}`, in: "1s", tool: "shell", input: { command: countingCommand() } };
      const reply = await jsonOf(gateway.call("/v1/tools/schedule/call", { body: { input } }));
      assert.equal(reply.is_error, false);
    }
    await until(async () => (await doneOf()).length > 0);
    await gateway.kill();
    await gateway.restart();
    await until(async () => {
      const done = await doneOf();
      return done.length === TASKS && done.every(({ last }) => !AT_WORK.includes(last?.run_status ?? ""));
    });
    const statuses: (string | null | undefined)[] = [];
    for (let index = 0; index < TASKS; index++) {
      const firings = await listOf<Firing>(gateway, `/v1/schedules/task${index}/history`);
      assert.deepEqual(firings.map(({ status }) => status), ["started"], `task${index}`);
      statuses.push(firings[0]?.run_status);
    }
    const completed = statuses.filter((status) => status === "completed").length;
    const unknown = statuses.filter((status) => status === "needs_review").length;
    assert.equal(completed + unknown, TASKS, statuses.join(" "));
    assert.ok(gateway.counted() >= completed && gateway.counted() <= TASKS, `${gateway.counted()} effects`);
  }));
