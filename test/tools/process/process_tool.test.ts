import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { createNodeWork } from "../../../lib/extensions/nodes/offer_tools.ts";
import { killLeftovers } from "../../../lib/system/process/leftover_processes.ts";
import { isGone } from "../../support/is_gone.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { createToolBench, type ToolBench, type ToolBenchOptions } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const CONFIG = {
  autonomy: { level: "full" },
  process: { allowed_commands: ["sleep", "sh", "yes"] },
  shell: { sandbox: "off", forbidden_chars: [] },
} as const;
const start = (command: string) => ({ op: "start", command });

/** A bench whose processes end with the test. */
const withBench = (use: (bench: ToolBench, workspace: Workspace) => Promise<void>, more?: Partial<ToolBenchOptions>) =>
  withWorkspace({ "a.txt": "hello\n" }, async (workspace) => {
    const bench = createToolBench({ root: workspace.root, config: CONFIG, ...more });
    try {
      await use(bench, workspace);
    } finally {
      await bench.processes.close();
    }
  });
const outputOf = async (bench: ToolBench, input: unknown) => (await bench.call("process_tool", input)).result.output;
/** The answer of `output` once `pattern` is in it. */
const waitFor = async (bench: ToolBench, input: unknown, pattern: RegExp) => {
  let output = "";
  await until(
    async () => pattern.test(output = await outputOf(bench, input)),
    () => `${pattern} never came: ${output}`,
  );
  return output;
};

test("starts, lists, reads from an offset and kills", () =>
  withBench(async (bench) => {
    assert.equal(await outputOf(bench, { op: "list" }), "no processes");
    const started = await outputOf(bench, start("sh -c 'echo one; echo two; sleep 60'"));
    assert.match(started, /^id=p1 status=running command="sh -c echo one; echo two; sleep 60"$/);
    const output = await waitFor(bench, { op: "output", id: "p1" }, /one\ntwo/);
    assert.match(output, /^id=p1 status=running .* offset=0 next_offset=8 total=8\none\ntwo\n$/);
    assert.match(
      await outputOf(bench, { op: "output", id: "p1", offset: 4 }),
      /offset=4 next_offset=8 total=8\ntwo\n$/,
    );
    assert.match(await outputOf(bench, { op: "output", id: "p1", offset: 99 }), /offset=8 next_offset=8 total=8$/);
    assert.match(await outputOf(bench, { op: "kill", id: "p1" }), /^id=p1 status=killed /);
    assert.match(await outputOf(bench, { op: "kill", id: "p1" }), /^id=p1 status=killed /);
    assert.match(await outputOf(bench, { op: "list" }), /^id=p1 status=killed /);
  }));

test("on a node the gateway lists, reads and kills what it started there", () =>
  withBench(async ({ executor }) => {
    const node = createNodeWork({ executor, random: createSeededRandom(), patterns: ["*"] });
    const call = async (input: Readonly<Record<string, unknown>>) => {
      const frame = {
        type: "invoke",
        id: "1",
        tool: "process_tool",
        input,
        run_id: "run_1",
        call_id: "call_1",
      } as const;
      return (await node.call(frame, new AbortController().signal)).output;
    };
    assert.match(await call(start("sleep 60")), /^id=p1 status=running/);
    assert.match(await call({ op: "list" }), /^id=p1 status=running/);
    assert.match(await call({ op: "output", id: "p1" }), /offset=0/);
    assert.match(await call({ op: "kill", id: "p1" }), /^id=p1 status=killed/);
  }));

test("both streams are kept, each in its order", () =>
  withBench(async (bench) => {
    await outputOf(bench, start("sh -c 'echo one; echo two >&2; sleep 60'"));
    const output = await waitFor(bench, { op: "output", id: "p1" }, /total=8\n/);
    assert.match(output, /^(one\ntwo|two\none)\n$/m);
  }));

test("a process that has ended keeps its status and output", () =>
  withBench(async (bench) => {
    await outputOf(bench, start("cat a.txt none.txt"));
    assert.match(await waitFor(bench, { op: "output", id: "p1" }, /status=1 [\s\S]*hello\n/), /^hello$/m);
    await outputOf(bench, start("sh -c 'kill -TERM $$'"));
    await waitFor(bench, { op: "list" }, /^id=p2 status=signal:SIGTERM /m);
  }));

test("runs allowed commands alone, by the rules of the shell tool", () =>
  withBench(async (bench) => {
    const inputs = ["rm a.txt", "/bin/sleep 1", "cat /etc/passwd", "cat ../outside/secret.txt", "cat .env", "cat 'a"];
    for (const command of [...inputs, "sleep `id`"]) {
      const { result } = await bench.call("process_tool", start(command));
      assert.equal(result.isError, true, command);
      assert.match(result.output, /^Cannot run /, command);
    }
    assert.match((await bench.call("shell", "sleep 0")).result.output, /\[security\] allowed_commands has ls/);
    assert.equal(await outputOf(bench, { op: "list" }), "no processes");
  }));

test("a field that the operation needs is named, and an unknown id", () =>
  withBench(async (bench) => {
    assert.match(await outputOf(bench, { op: "start" }), /"command" is missing/);
    for (const op of ["output", "kill"]) {
      assert.match(await outputOf(bench, { op }), /"id" is missing/);
      const { result } = await bench.call("process_tool", { op, id: "p9" });
      assert.deepEqual([result.isError, result.output], [true, 'Cannot find the process "p9": the processes are none']);
    }
  }));

test("at most max_processes run; as many ended ones can still be read", () =>
  withBench(async (bench) => {
    bench.configure({ ...CONFIG, process: { ...CONFIG.process, max_processes: 2 } });
    for (const id of ["p1", "p2"]) assert.match(await outputOf(bench, start("sleep 60")), new RegExp(`^id=${id} `));
    const refused = await bench.call("process_tool", start("sleep 60"));
    assert.equal(refused.result.isError, true);
    assert.match(
      refused.result.output,
      /2 are running, and \[security.process\] max_processes allows 2; kill one first/,
    );
    for (const id of ["p1", "p2"]) await outputOf(bench, { op: "kill", id });
    for (let i = 0; i < 3; i++) await outputOf(bench, start("sleep 0"));
    await waitFor(bench, { op: "list" }, /^(?!.*running)/s);
    assert.ok((await outputOf(bench, { op: "list" })).split("\n").length <= 3);
  }));

test("of a long output the last bytes are kept", () =>
  withBench(async (bench) => {
    bench.configure({ ...CONFIG, process: { ...CONFIG.process, max_output_bytes: 100 } });
    await outputOf(bench, start("sh -c 'i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; sleep 60'"));
    const output = await waitFor(bench, { op: "output", id: "p1" }, /line 499/);
    assert.match(output, /next_offset=4390 total=4390\n\[The first 4290 bytes are no longer kept\]\n/);
    assert.ok(output.length < 400);
  }));

test("the level decides", () =>
  withBench(async (bench) => {
    for (const level of ["read_only", "supervised"] as const) {
      bench.configure({ ...CONFIG, autonomy: { level } });
      const { ran } = await bench.call("process_tool", start("sleep 60"));
      assert.equal(ran, false, level);
    }
    assert.deepEqual(bench.processes.list(), []);
  }));

test("processes end with the gateway", () =>
  withBench(async (bench) => {
    await outputOf(bench, start("sleep 60"));
    await bench.processes.close();
    assert.equal(bench.processes.list()[0]?.state.kind, "killed");
  }));

test(
  "what a killed gateway left is found by its marker, and nothing else is",
  { skip: process.platform !== "linux" },
  () => {
    const marker = `test-${process.pid}`;
    return withBench(async (bench) => {
      // Its own session: the end of the leader's group does not reach it; nor does its end end the leader
      await outputOf(bench, start("sh -c 'setsid sleep 60 & echo $!; exec sleep 60'"));
      const [child = ""] = /\d+(?=\n$)/.exec(await waitFor(bench, { op: "output", id: "p1" }, /\d\n$/)) ?? [];
      assert.equal(await killLeftovers(`${marker}0`), 0);
      assert.ok(await killLeftovers(marker) >= 1);
      await waitFor(bench, { op: "list" }, /status=signal:SIGKILL/);
      assert.ok(await isGone(child));
    }, { marker });
  },
);
