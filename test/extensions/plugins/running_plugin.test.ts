import assert from "node:assert/strict";
import { test } from "node:test";
import type { PluginAnswer, PluginCall } from "../../../lib/extensions/plugins/plugin_host.ts";
import { RunningPlugin } from "../../../lib/extensions/plugins/running_plugin.ts";

const CALL: PluginCall = {
  tool: "count",
  input: {},
  context: { workspace_root: "/", allow_sensitive_file_reads: false, allow_sensitive_file_writes: false },
};
const { signal } = new AbortController();

/** A running plugin whose hosts answer with their number when the test lets them. */
function createBench() {
  const bench = { key: "a", fails: 0, opened: 0, closed: [] as number[], errors: [] as unknown[], closeFails: false };
  const gates: PromiseWithResolvers<void>[] = [];
  const running = new RunningPlugin({
    key: () => bench.key,
    open() {
      if (bench.fails-- > 0) return Promise.reject(new Error("cannot open"));
      const number = ++bench.opened;
      return Promise.resolve({
        async call(): Promise<PluginAnswer> {
          const gate = Promise.withResolvers<void>();
          gates.push(gate);
          await gate.promise;
          return { output: String(number), is_error: false };
        },
        close() {
          bench.closed.push(number);
          return bench.closeFails ? Promise.reject(new Error("cannot close")) : Promise.resolve();
        },
      });
    },
    onCloseError: (error) => void bench.errors.push(error),
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const letAnswer = async () => {
    await settle();
    for (const gate of gates.splice(0)) gate.resolve();
    await settle();
  };
  return { bench, running, letAnswer, call: () => running.call(CALL, signal) };
}

test("calls share one host until its key changes; the old host answers its calls and then closes", async () => {
  const { bench, call, letAnswer } = createBench();
  const first = [call(), call()];
  await new Promise((resolve) => setImmediate(resolve));
  bench.key = "b";
  const second = call();
  assert.deepEqual([bench.opened, bench.closed], [2, []]);
  await letAnswer();
  assert.deepEqual((await Promise.all([...first, second])).map(({ output }) => output), ["1", "1", "2"]);
  await letAnswer();
  assert.deepEqual(bench.closed, [1]);
});

test("retire() waits for the calls, and a host that fails to open or to close does not stop it", async () => {
  const { bench, running, call, letAnswer } = createBench();
  bench.fails = 1;
  await assert.rejects(call(), /cannot open/);
  const last = call();
  let isRetired = false;
  bench.closeFails = true;
  const retired = running.retire().then(() => void (isRetired = true));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isRetired, false);
  await letAnswer();
  await Promise.all([last, retired]);
  assert.deepEqual([bench.closed, bench.errors.length], [[1], 1]);
  await assert.rejects(call(), TypeError);
  await running.retire();
});

test("retire() of a plugin that was never called ends at once, and close() does not wait for calls", async () => {
  await createBench().running.retire();
  const { bench, running, call, letAnswer } = createBench();
  const open = call();
  await new Promise((resolve) => setImmediate(resolve));
  await running.close();
  assert.deepEqual(bench.closed, [1]);
  await letAnswer();
  await open;
});
