import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { Halts } from "../../../lib/guard/halts.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { defineTool } from "../../../lib/tools/runtime/define_tool.ts";
import { TOOLS } from "../../contract/tools.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const BY = { via: "cli", tokenId: null } as const;
const ALL = { kind: "all", name: null } as const;

/** A bench with one tool that writes, and the halts that its executor asks. */
function set(work: (signal: AbortSignal) => Promise<string> = () => Promise.resolve("done")) {
  const clock = createFakeClock();
  const begun: string[] = [];
  const store = createMemoryStore();
  const halts = new Halts({ store, clock, log: SILENT, audit: createFakeAudit(store).append, tell: () => {} });
  const writer = defineTool({
    name: "writer",
    description: "Writes",
    access: "write",
    enabled: "always",
    needs: [],
    input: v.strictObject({}),
    async run(_input, { signal }) {
      begun.push("writer");
      return { output: await work(signal), isError: false };
    },
  });
  const bench = createToolBench({ root: "/nowhere", tools: [writer], clock, halts });
  return { bench, halts, begun, store };
}

test("nobody is asked about a call that is halted, and it does not run", async () => {
  const { bench, halts, begun } = set();
  await halts.halt(ALL, BY);
  const asked: string[] = [];
  const { ran, result } = await bench.call("writer", {}, {
    approver: ({ reason }) => {
      asked.push(reason);
      return Promise.resolve({ decision: "approve", reason: "" });
    },
  });
  assert.deepEqual([ran, result.isError, asked, begun], [false, true, [], []]);
  assert.match(result.output, /^Cannot call "writer": a person has halted all work .*postern resume/);
  const last = bench.audit.events.at(-1);
  assert.ok(last?.type === "decision" && last.decision === "deny" && last.rule === "halted");
  await halts.resume(undefined, BY);
  assert.equal(
    (await bench.call("writer", {}, { approver: () => Promise.resolve({ decision: "approve", reason: "" }) })).ran,
    true,
  );
});

test("a halt that comes after the decision counts at the moment of the effect", async () => {
  const { bench, halts, begun } = set();
  bench.configure({ autonomy: { level: "full" } });
  const { result } = await bench.call("writer", {}, { onStart: async () => void await halts.halt(ALL, BY) });
  assert.deepEqual([result.isError, begun], [true, []]);
  assert.match(result.output, /a person has halted all work/);
});

test("a call at work is stopped, and the model is told by whom", async () => {
  const working = Promise.withResolvers<void>();
  const { bench, halts } = set((signal) => {
    working.resolve();
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
  });
  bench.configure({ autonomy: { level: "full" } });
  const calling = bench.call("writer", {});
  await working.promise;
  await halts.halt({ kind: "tool", name: "writer" }, BY);
  const { result } = await calling;
  assert.equal(result.isError, true);
  assert.match(
    result.output,
    /^Cannot finish "writer": it was stopped in the middle: a person has halted the tool "writer"/,
  );
});

test("a gateway whose last look at the halts failed looks again before a call", async () => {
  const { bench, halts, begun, store } = set();
  bench.configure({ autonomy: { level: "full" } });
  const { get } = store;
  store.get = () => Promise.reject(new Error("away"));
  await assert.rejects(halts.look());
  await assert.rejects(bench.call("writer", {}));
  assert.deepEqual(begun, []);
  store.get = get;
  assert.equal((await bench.call("writer", {})).ran, true);
});

test("every tool that is on is refused by a halt of its name, before anything else is asked of it", () =>
  withWorkspace({}, async ({ root }) => {
    const store = createMemoryStore();
    const audit = createFakeAudit(store).append;
    const halts = new Halts({ store, clock: createFakeClock(), log: SILENT, audit, tell: () => {} });
    const bench = createToolBench({ root, halts, config: { autonomy: { level: "full" } } });
    const on = bench.executor.list().filter(({ enabled }) => enabled);
    assert.ok(on.length > 20);
    for (const { name } of on) {
      await halts.halt({ kind: "tool", name }, BY);
      const { ran, result } = await bench.call(name, TOOLS[name]?.sample ?? {});
      assert.deepEqual(
        [ran, /a person has halted the tool/.test(result.output)],
        [false, true],
        `${name}: ${result.output}`,
      );
      await halts.resume(undefined, BY);
    }
  }));
