import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { CancelError } from "../../../lib/base/cancel.ts";
import type { AuditEvent } from "../../../lib/guard/audit/audit_event.ts";
import { defineTool } from "../../../lib/tools/runtime/define_tool.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const clock = createFakeClock();
const SECRET = "canary-in-an-argument-01";

/** A tool that writes, does what `work` says, and notes when it began. */
function benchOf(work: (signal: AbortSignal) => Promise<string>, onRun: () => void = () => {}) {
  const writer = defineTool({
    name: "writer",
    description: "Writes",
    access: "write",
    enabled: "always",
    needs: [],
    input: v.strictObject({ path: v.pipe(v.string(), v.minLength(1), v.description("Where")) }),
    effects: ({ path }) => ({ paths: [path] }),
    async run(_input, { signal }) {
      onRun();
      return { output: await work(signal), isError: false };
    },
  });
  return createToolBench({ root: "/nowhere", tools: [writer], clock });
}

const shown = (events: readonly AuditEvent[]) =>
  events.map((event) =>
    event.type === "decision"
      ? `${event.decision} ${event.rule}`
      : event.type === "call"
      ? `ran ${event.outcome}`
      : event.type
  );
const approve = { approver: () => Promise.resolve({ decision: "approve", reason: "", approvalId: "apr_1" } as const) };

test("an approved call is told of as asked, as allowed before it runs, and as ended", async () => {
  let before: readonly string[] = [];
  const bench = benchOf(async () => "done", () => before = shown(bench.audit.events));
  await bench.call("writer", { path: "a" }, { ...approve, requestId: "req_1", conversationId: "conv_1" });
  assert.deepEqual(before, ["ask level:supervised/write", "allow approval"]);
  assert.deepEqual(shown(bench.audit.events), [...before, "ran ok"]);
  const [asked, allowed, ended] = bench.audit.events;
  assert.ok(asked?.type === "decision" && allowed?.type === "decision" && ended?.type === "call");
  assert.match(asked.reason, /"writer"/);
  assert.deepEqual([allowed.reason, allowed.approval_id], ["", "apr_1"]);
  for (const event of [asked, allowed, ended]) {
    const { tool, request_id, run_id, call_id, conversation_id, by, input_digest } = event;
    assert.deepEqual({ tool, request_id, run_id, call_id, conversation_id, by }, {
      tool: "writer",
      request_id: "req_1",
      run_id: "run_1",
      call_id: "call_1",
      conversation_id: "conv_1",
      by: { via: "agent", token_id: null },
    });
    assert.match(input_digest ?? "", /^[0-9a-f]{64}$/);
  }
  assert.deepEqual(asked.effects, { paths: ["a"] });
  assert.equal(ended.output_bytes, 4);
  assert.match(ended.output_digest ?? "", /^[0-9a-f]{64}$/);
});

test("every way a call is refused is told of with its rule", async () => {
  const bench = benchOf(() => Promise.resolve("done"));
  const last = () => shown(bench.audit.events).at(-1);
  await bench.call("nothing", {});
  assert.equal(last(), "deny unknown_tool");
  await bench.call("writer", { path: "" });
  assert.equal(last(), "deny bad_input");
  await bench.call("writer", { path: "a" });
  assert.deepEqual(shown(bench.audit.events).slice(-2), ["ask level:supervised/write", "deny approval"]);
  bench.configure({ autonomy: { level: "read_only" } });
  await bench.call("writer", { path: "a" });
  assert.equal(last(), "deny level:read_only/write");
  assert.ok(bench.audit.events.every(({ type }) => type === "decision"));
});

test("a call that the policy allows is one decision and one end, also where it fails or is stopped", async () => {
  const full = { autonomy: { level: "full" } } as const;
  const failing = benchOf(() => Promise.reject(new Error("broken")));
  failing.configure(full);
  await failing.call("writer", { path: "a" });
  assert.deepEqual(shown(failing.audit.events), ["allow level:full/write", "ran failed"]);

  const slow = benchOf((signal) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)))
  );
  slow.configure(full);
  const timedOut = slow.call("writer", { path: "a" });
  await clock.advance(120_000);
  await timedOut;
  assert.deepEqual(shown(slow.audit.events), ["allow level:full/write", "ran timeout"]);
  const controller = new AbortController();
  const call = slow.call("writer", { path: "a" }, {
    signal: controller.signal,
    onStart: () => Promise.resolve(void setImmediate(() => controller.abort(new CancelError("cancelled")))),
  });
  await assert.rejects(call, CancelError);
  assert.deepEqual(shown(slow.audit.events).slice(-2), ["allow level:full/write", "ran cancelled"]);
});

test("nothing runs while the audit cannot be written", async () => {
  let ran = false;
  const bench = benchOf(async () => "done", () => ran = true);
  bench.configure({ autonomy: { level: "full" } });
  bench.audit.fail(new Error("disk full"));
  const { result, ran: told } = await bench.call("writer", { path: "a" });
  assert.deepEqual([ran, told, result.isError], [false, false, true]);
  assert.match(result.output, /the audit cannot be written/);
  assert.ok(bench.logged.some(({ message }) => message === "Cannot write the audit"));
});

test("an effect whose end cannot be told of still gives its result", async () => {
  const bench = benchOf(async () => {
    bench.audit.fail(new Error("disk full"));
    return "done";
  });
  bench.configure({ autonomy: { level: "full" } });
  const { result, ran } = await bench.call("writer", { path: "a" });
  assert.deepEqual([ran, result.isError, result.output], [true, false, "done"]);
});

test("the input itself is not in the audit, nor is the output", async () => {
  const bench = benchOf(() => Promise.resolve(`output ${SECRET}`));
  bench.configure({ autonomy: { level: "full" } });
  await bench.call("writer", { path: "a", other: SECRET });
  await bench.call("writer", `{"path": "${SECRET}`);
  await bench.call("writer", { path: "a" });
  assert.ok(!JSON.stringify(bench.audit.events.filter(({ type }) => type === "call")).includes(SECRET));
  assert.ok(!JSON.stringify(bench.audit.events).includes(SECRET));
});

test("a read that the level allows is refused by the rules for paths as it opens its file, which it does once", () =>
  withWorkspace({ ".env": "KEY=1\n" }, async ({ root }) => {
    const { audit, ...bench } = createToolBench({ root, clock });
    const { result } = await bench.call("read_file", { path: ".env" });
    assert.deepEqual(shown(audit.events), ["allow level:supervised/read", "deny screen", "ran denied"]);
    const [, refused] = audit.events;
    assert.equal(refused?.type === "decision" && refused.reason, result.output);
    assert.match(result.output, /^Cannot open "\.env": files of this name hold credentials; /);
    // A question is opened for no call that cannot run
    const always = createToolBench({ root, clock, config: { autonomy: { always_ask: ["read_file"] } } });
    assert.equal((await always.call("read_file", { path: ".env" }, approve)).ran, false);
    assert.deepEqual(shown(always.audit.events), ["deny screen"]);
  }));
