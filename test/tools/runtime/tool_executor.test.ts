import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { CancelError, cancelError } from "../../../lib/base/cancel.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import type { Access } from "../../../lib/guard/policy.ts";
import { BUILTIN_TOOLS } from "../../../lib/tools/builtin.ts";
import { type ContextWith, defineTool } from "../../../lib/tools/runtime/define_tool.ts";
import type { Tool } from "../../../lib/tools/runtime/tool.ts";
import type { ApprovalRequest, Approver, ToolResult } from "../../../lib/tools/runtime/tool_call.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createToolBench, type ToolBenchOptions } from "../../support/tool_bench.ts";

type Run = (context: ContextWith<"memory">) => Promise<ToolResult> | ToolResult;

const done = (output: string, data?: unknown): ToolResult => ({
  output,
  isError: false,
  ...(data === undefined ? {} : { data }),
});

function tool(run: Run, change: { name?: string; access?: Access; on?: () => boolean } = {}): Tool {
  return defineTool({
    name: change.name ?? "probe",
    description: "A tool that tests watch at work",
    access: change.access ?? "read",
    enabled: change.on ?? "always",
    ...(change.on === undefined ? {} : { enabledBy: "[probe] enabled = true" }),
    needs: ["memory"],
    input: v.strictObject({ text: v.pipe(v.string(), v.description("Anything")) }),
    textField: "text",
    effects: ({ text }) => (text.startsWith("path:") ? { paths: [text.slice(5)] } : {}),
    run: async (_input, context) => await run(context),
  });
}

const bench = (tools: readonly Tool[], more: Partial<ToolBenchOptions> = {}) =>
  createToolBench({ root: "/workspace", tools, clock: createFakeClock(), ...more });

test("a call runs and is counted", async () => {
  const { call, metrics } = bench([tool(() => done("hello", { a: 1 }))]);
  assert.deepEqual(await call("probe", "x"), {
    result: { output: "hello", isError: false, data: { a: 1 } },
    ran: true,
    access: "read",
  });
  const text = metrics.render();
  assert.match(text, /postern_tool_calls_total\{tool="probe",outcome="ok"\} 1\n/);
  assert.match(text, /postern_tool_call_duration_seconds_count 1\n/);
});

test("an unknown, disallowed or disabled tool says why and what there is", async () => {
  let on = false;
  const { call, metrics, executor } = bench([
    tool(() => done("ran")),
    tool(() => done("ran"), { name: "off", on: () => on }),
  ]);
  const unknown = await call("nonsense", "x");
  assert.equal(unknown.ran, false);
  assert.equal(unknown.result.output, 'Cannot call "nonsense": there is no such tool; the tools are probe');
  const disallowed = await call("probe", "x", { allowed: ["read*"] });
  assert.match(disallowed.result.output, /does not name it for this caller; the tools are none/);
  assert.equal((await call("probe", "x", { allowed: ["pro*"] })).ran, true);
  const off = await call("off", "x");
  assert.equal(off.result.output, 'Cannot call "off": it is off; set [probe] enabled = true');
  assert.deepEqual(executor.enabled(["*"]).map((known) => known.name), ["probe"]);
  const notOffered = await call("off", "x", { allowed: ["probe"] });
  assert.equal(
    notOffered.result.output,
    'Cannot call "off": it is off; set [probe] enabled = true',
  );
  assert.equal(executor.get("off")?.reason, "it is off; set [probe] enabled = true");
  on = true;
  assert.equal((await call("off", "x")).ran, true);
  assert.equal(executor.get("off")?.reason, null);
  assert.match(metrics.render(), /\{tool="unknown",outcome="unknown"\} 1\n/);
});

test("bad input is a result, and nobody is asked to approve it", async () => {
  let asked = 0;
  const { call } = bench([tool(() => done("ran"), { access: "write" })]);
  const approver = async () => ({ decision: "approve" as const, reason: String(++asked) });
  const bad = await call("probe", '{"wrong":1}', { approver });
  assert.deepEqual([bad.ran, bad.result.isError, bad.access, asked], [false, true, undefined, 0]);
  assert.match(bad.result.output, /"text"/);
});

test("an ask goes to the approver with the prepared call; a denial does not run", async () => {
  let ran = 0;
  const { call, metrics } = bench([tool(() => done(String(++ran)), { access: "write" })]);
  const requests: ApprovalRequest[] = [];
  const denied = await call("probe", "x", {
    approver: async (request) => {
      requests.push(request);
      return { decision: "deny", rule: "approval", reason: "Not today", approvalId: "apr_1" };
    },
  });
  assert.deepEqual(denied, {
    result: { output: "Not today", isError: true },
    ran: false,
    access: "write",
    deniedBy: "person",
    approvalId: "apr_1",
  });
  assert.deepEqual([requests[0]?.tool, requests[0]?.rule, requests[0]?.prepared.input, requests[0]?.scope.runId], [
    "probe",
    "level:supervised/write",
    { text: "x" },
    "run_1",
  ]);
  assert.equal(ran, 0);
  const approved = await call("probe", "x", { approver: async () => ({ decision: "approve", reason: "" }) });
  assert.deepEqual([approved.ran, approved.result.output], [true, "1"]);
  assert.match(metrics.render(), /\{tool="probe",outcome="denied"\} 1\n/);
});

test("a deny is not asked about, and one that arrives while the approval waits stands", async () => {
  const { call, configure } = bench([tool(() => done("ran"), { access: "write" })]);
  let asked = 0;
  const approver = async () => {
    asked++;
    configure({ autonomy: { level: "read_only" } });
    return { decision: "approve" as const, reason: "" };
  };
  assert.equal((await call("probe", "path:/etc/passwd", { approver })).ran, false);
  assert.equal(asked, 0);
  const late = await call("probe", "x", { approver });
  assert.deepEqual([asked, late.ran], [1, false]);
  assert.match(late.result.output, /level "read_only" never allows/);
});

test("a call that is cancelled while a person approves it neither starts nor is audited as allowed", async () => {
  let ran = 0;
  const { call, audit, metrics } = bench([tool(() => done(String(++ran)), { access: "write" })]);
  const controller = new AbortController();
  const started: string[] = [];
  const cancelled = call("probe", "x", {
    signal: controller.signal,
    approver: async () => {
      controller.abort(new CancelError("client_gone"));
      return { decision: "approve", reason: "" };
    },
    onStart: async ({ digest }) => void started.push(digest),
  });
  await assert.rejects(cancelled, (error) => error instanceof CancelError && error.reason === "client_gone");
  assert.deepEqual([ran, started], [0, []]);
  assert.deepEqual(audit.events.map((event) => "decision" in event ? event.decision : event.type), ["ask"]);
  assert.doesNotMatch(metrics.render(), /postern_tool_calls_total\{tool="probe"/);
});

test("the audit has a denial under the rule of whoever denied it, and a yes as a person's word", async () => {
  const rules = ["approval", "nobody_could_answer", "approval_expired"] as const;
  for (const rule of rules) {
    const { call, audit } = bench([tool(() => done("ran"), { access: "write" })]);
    await call("probe", "x", { approver: async () => ({ decision: "deny", rule, reason: "No" }) });
    const last = audit.events.at(-1);
    assert.deepEqual(last?.type === "decision" && [last.decision, last.rule, last.reason], ["deny", rule, "No"]);
  }
  const { call, audit } = bench([tool(() => done("ran"), { access: "write" })]);
  await call("probe", "x", { approver: async () => ({ decision: "approve", reason: "" }) });
  assert.deepEqual(audit.events.map((event) => event.type === "decision" ? [event.decision, event.rule] : event.type), [
    ["ask", "level:supervised/write"],
    ["allow", "approval"],
    "call",
  ]);
});

test("what a call is bound to may fail: a mistake of the tool is not shown to the model, what it says to the model is", async () => {
  const failing = (error: Error): Tool => {
    const made = tool(() => done("ran"), { access: "write" });
    return { ...made, prepare: (input) => ({ ...made.prepare(input), bind: () => Promise.reject(error) }) };
  };
  let asked = 0;
  const approver = async () => ({ decision: "approve" as const, reason: String(++asked) });
  const bug = bench([failing(new Error("token 1234 of /home/ada"))]);
  const hidden = await bug.call("probe", "x", { approver });
  assert.equal(hidden.ran, false);
  assert.match(hidden.result.output, /^Cannot finish "probe": an internal error, which the log has/);
  assert.ok(bug.logged.some(({ level, message }) => level === "error" && message === "A tool failed"));
  const told = bench([failing(new ToolError("not_found", "Cannot open a.txt: it is not there"))]);
  const shown = await told.call("probe", "x", { approver });
  assert.deepEqual([shown.ran, shown.result.output], [false, "Cannot open a.txt: it is not there"]);
  assert.deepEqual([asked, told.logged.filter(({ level }) => level === "error")], [0, []]);
});

test("a tool that is turned off while the approval waits does not run", async () => {
  let on = true;
  const { call } = bench([tool(() => done("ran"), { access: "write", on: () => on })]);
  const approver = async () => {
    on = false;
    return { decision: "approve" as const, reason: "" };
  };
  const { ran, result } = await call("probe", "x", { approver });
  assert.deepEqual([ran, result.output], [false, 'Cannot call "probe": it is off; set [probe] enabled = true']);
});

test("the newest configuration decides", async () => {
  const { call, configure } = bench([tool(() => done("ran"), { access: "write" })]);
  assert.equal((await call("probe", "x")).ran, false);
  configure({ autonomy: { auto_approve: ["probe"] } });
  assert.equal((await call("probe", "x")).ran, true);
  configure({ autonomy: { auto_approve: ["probe"], always_ask: ["probe"] } });
  assert.equal((await call("probe", "x")).ran, false);
});

test("onStart comes after the permission and before the effect, and its failure stops the call", async () => {
  const order: string[] = [];
  const { call } = bench([tool(() => {
    order.push("run");
    return done("");
  })]);
  await call("probe", "x", { onStart: async ({ digest }) => void order.push(`start ${digest.length}`) });
  assert.deepEqual(order, ["start 64", "run"]);
  await assert.rejects(call("probe", "x", { onStart: () => Promise.reject(new Error("disk full")) }), /disk full/);
  assert.equal(order.length, 2);
});

test("a tool gets the services it needs and no others, and reports progress redacted", async () => {
  let seen: string[] = [];
  const progress: string[] = [];
  const { call, redactor } = bench([tool((context) => {
    seen = Object.keys(context.services);
    context.progress("half way with hunter2hunter2");
    return done("");
  })]);
  redactor.add("hunter2hunter2");
  await call("probe", "x", { onProgress: (message) => progress.push(message) });
  assert.deepEqual(seen, ["memory"]);
  assert.deepEqual(progress, ["half way with [redacted]"]);
});

test("a ToolError is its message; a bug is one fixed sentence and a whole log line", async () => {
  const { call, logged } = bench([
    tool(() => Promise.reject(new ToolError("code", "Cannot do it: it is Tuesday")), { name: "honest" }),
    tool(() => Promise.reject(new TypeError("x.y is not a function at /secret/path")), { name: "broken" }),
  ]);
  assert.deepEqual((await call("honest", "x")).result, { output: "Cannot do it: it is Tuesday", isError: true });
  const broken = await call("broken", "x");
  assert.deepEqual([broken.ran, broken.result.output], [
    true,
    'Cannot finish "broken": an internal error, which the log has under call id "call_2"',
  ]);
  assert.equal(logged.length, 1);
  assert.deepEqual([logged[0]?.fields.tool, logged[0]?.fields.call_id, logged[0]?.fields.run_id], [
    "broken",
    "call_2",
    "run_1",
  ]);
  assert.match(JSON.stringify(logged[0]?.fields.error), /x\.y is not a function/);
});

test("output is cut on a character with a notice, secrets across the cut included", async () => {
  const { call, redactor } = bench([
    tool(() => done("é".repeat(200_000)), { name: "long" }),
    tool(() => done(`${"x".repeat(262_140)}hunter2hunter2`), { name: "edge" }),
    tool(() => done("hunter2hunter2 ".repeat(30_000)), { name: "many" }),
    tool(() => done("", { big: "x".repeat(2_000_000) }), { name: "data" }),
    tool(() => done("key hunter2hunter2", { deep: ["hunter2hunter2"] }), { name: "secret" }),
  ]);
  redactor.add("hunter2hunter2");
  const long = (await call("long", "x")).result.output;
  assert.match(long, /^é+\n\[Output cut at 262144 of 400000 bytes: ask for less at a time\]$/);
  assert.ok(Buffer.byteLength(long) < 262_300);
  const edge = (await call("edge", "x")).result.output;
  assert.ok(!edge.includes("hunt"));
  const many = (await call("many", "x")).result.output;
  assert.ok(many.includes("of 450000 bytes") && !many.includes("hunt"), "masks are shorter than what they stand for");
  assert.equal((await call("data", "x")).result.data, undefined);
  assert.deepEqual((await call("secret", "x")).result, {
    output: "key [redacted]",
    isError: false,
    data: { deep: ["[redacted]"] },
  });
});

test("a call over its time limit is stopped and says so", async () => {
  const clock = createFakeClock();
  const { call } = bench([tool((context) => context.clock.sleep(3_600_000, context.signal).then(() => done("late")))], {
    clock,
  });
  const calling = call("probe", "x");
  await clock.advance(120_000);
  const { ran, result } = await calling;
  assert.deepEqual([ran, result.isError, result.output], [
    true,
    true,
    'Cannot finish "probe": it was stopped after 120 s',
  ]);
  assert.equal(clock.pending(), 0);
});

test("a tool may have a time limit of its own, from the newest configuration", async () => {
  const clock = createFakeClock();
  const slow = tool((context) => context.clock.sleep(3_600_000, context.signal).then(() => done("late")));
  const { call } = bench([{ ...slow, timeoutMs: ({ security }) => security.shell.timeout_secs * 5000 }], { clock });
  const calling = call("probe", "x");
  await clock.advance(299_000);
  await clock.advance(1000);
  assert.equal((await calling).result.output, 'Cannot finish "probe": it was stopped after 300 s');
  assert.equal(clock.pending(), 0);
});

test("what a tool throws because it was stopped is the stopping", async () => {
  const clock = createFakeClock();
  const abortError = (signal: AbortSignal) =>
    new Promise<ToolResult>((_, reject) =>
      signal.addEventListener("abort", () => reject(new DOMException("Aborted", "AbortError")))
    );
  const { call, logged } = bench([tool((context) => abortError(context.signal))], { clock, timeoutMs: 1000 });
  const calling = call("probe", "x");
  await clock.advance(1000);
  assert.match((await calling).result.output, /was stopped after 1 s/);
  assert.equal(logged.length, 0);
});

test("a tool that does not hear its signal is left behind", async () => {
  const clock = createFakeClock();
  const { call } = bench([tool(() => new Promise(() => {}))], { clock, timeoutMs: 1000 });
  const calling = call("probe", "x");
  await clock.advance(2900);
  await clock.advance(200);
  assert.match((await calling).result.output, /was stopped after 1 s/);
  assert.equal(clock.pending(), 0);
});

test("a cancelled call throws its reason; a result that came in time is kept", async () => {
  const clock = createFakeClock();
  const { call, metrics } = bench([
    tool((context) => context.clock.sleep(1000, context.signal).then(() => done("late"))),
    tool(
      (context) =>
        new Promise((resolve) => context.signal.addEventListener("abort", () => resolve(done("cleaned up")))),
      {
        name: "tidy",
      },
    ),
  ], { clock });
  const controller = new AbortController();
  const calling = call("probe", "x", { signal: controller.signal });
  const tidy = call("tidy", "x", { signal: controller.signal });
  await clock.advance(0);
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(calling, { name: "CancelError", reason: "client_gone" });
  assert.equal((await tidy).result.output, "cleaned up");
  await assert.rejects(call("probe", "x", { signal: controller.signal }), { reason: "client_gone" });
  assert.match(metrics.render(), /\{tool="probe",outcome="cancelled"\} 1\n/);
  assert.equal(clock.pending(), 0);
});

test("a cancellation while a person is asked ends the call", async () => {
  const { call } = bench([tool(() => done("ran"), { access: "network" })]);
  const controller = new AbortController();
  const calling = call("probe", "x", {
    signal: controller.signal,
    approver: (_request, signal) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(cancelError(signal)))),
  });
  controller.abort(new CancelError("shutdown"));
  await assert.rejects(calling, { reason: "shutdown" });
});

test("a question after the end of its call reaches nobody", async () => {
  let late: ContextWith<"memory">["elicit"];
  let isTaken: boolean | undefined;
  const { call } = bench([tool(({ elicit }) => (late = elicit, done("ran")))]);
  const elicit: Approver["elicit"] = (_request, signal) => {
    isTaken = signal.aborted;
    return Promise.resolve({ action: "cancel", reason: "late" });
  };
  const approver = Object.assign(() => Promise.reject(new TypeError("No call is approved")), { elicit });
  await call("probe", "x", { approver });
  await late?.({ message: "Who?", schema: null, url: "https://example.com/" });
  assert.equal(isTaken, true);
});

test("an approver that fails has approved nothing", async () => {
  const { call, logged } = bench([tool(() => done("ran"), { access: "write" })]);
  const outcome = await call("probe", "x", { approver: () => Promise.reject(new Error("no store")) });
  assert.deepEqual([outcome.ran, outcome.result.isError, logged.length], [false, true, 1]);
});

test("accessOf tells what a call would do without running it", () => {
  let ran = 0;
  const { executor } = bench([tool(() => done(String(++ran)), { access: "network" })]);
  assert.equal(executor.accessOf("probe", "x"), "network");
  assert.equal(executor.accessOf("probe", '{"wrong":1}'), undefined);
  assert.equal(executor.accessOf("none", "x"), undefined);
  assert.equal(ran, 0);
});

test("bind gives what an approval of the call would be bound to, or the words it would be refused with", async () => {
  let ran = 0;
  const { executor, call } = bench([tool(() => done(String(++ran)), { access: "write" })]);
  const { signal } = new AbortController();
  let asked = "";
  await call("probe", "x", {
    approver: ({ binding, reason }) => {
      asked = binding.digest;
      return Promise.resolve({ decision: "deny", rule: "approval", reason });
    },
  });
  const bound = await executor.bind("probe", "x", signal);
  assert.deepEqual(bound.ok && [bound.binding.digest, bound.access], [asked, "write"]);
  for (const [name, input] of [["probe", '{"wrong":1}'], ["none", "x"]] as const) {
    const refused = await executor.bind(name, input, signal);
    assert.match(refused.ok ? "" : refused.reason, new RegExp(`^Cannot call "${name}"`));
  }
  const { executor: denying } = bench([tool(() => done(""), { access: "write" })], {
    config: { autonomy: { level: "read_only" } },
  });
  const denied = await denying.bind("probe", "x", signal);
  assert.match(denied.ok ? "" : denied.reason, /level "read_only" never allows/);
  assert.equal(ran, 0);
});

test("judge gives the words a call would be refused with, and runs nothing", async () => {
  let on = false;
  let ran = 0;
  const { executor, call } = bench([tool(() => done(String(++ran)), { access: "write", on: () => on })], {
    config: { autonomy: { level: "read_only" } },
  });
  const reason = async () => {
    const judged = executor.judge("probe", "x");
    assert.ok(judged?.kind === "judged");
    assert.equal((await call("probe", "x")).result.output, judged.decision.reason);
    return judged.decision.reason;
  };
  const off = await reason();
  assert.ok(off.includes(executor.get("probe")?.reason ?? "on"), "the list gives the denial's own words");
  assert.match(off, /set \[probe\] enabled = true and set \[autonomy\] level = "supervised"$/);
  on = true;
  assert.match(await reason(), /level "read_only" never allows/);
  assert.equal(executor.judge("probe", '{"wrong":1}')?.kind, "bad_input");
  assert.equal(executor.judge("none", "x"), undefined);
  assert.equal(ran, 0);
});

test("list shows every tool with its schema, by name", () => {
  const { executor } = bench(BUILTIN_TOOLS);
  const names = executor.list().map((info) => info.name);
  assert.deepEqual(names, BUILTIN_TOOLS.map((known) => known.name).sort());
  assert.ok(executor.list().every((info) => info.enabled === (info.reason === null) && info.source === "builtin"));
  assert.equal(executor.get("none"), undefined);
});
