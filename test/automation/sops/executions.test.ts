import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Approval } from "../../../lib/base/records/approval.ts";
import type { ExecutionPlan } from "../../../lib/automation/sops/execution_record.ts";
import { type Caller, type Scope, SCOPES } from "../../../lib/base/records/caller.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store, Write } from "../../../lib/storage/store.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import type { FakeTool } from "../../support/fake_tool_executor.ts";
import { BY_AGENT, BY_PERSON, createSopBench, type SopBench, type SopBenchOptions } from "./sop_bench.ts";
import { ask } from "../../support/supervised.ts";
import { withWorkspace } from "../../support/workspace.ts";

const RELEASE = `
[inputs.version]
pattern = '\\d+\\.\\d+'

[[steps]]
id = "changes"
tool = "log"
input = { since = "v{{inputs.version}}" }

[[steps]]
id = "publish"
tool = "push"
input = { tag = "{{inputs.version}}", count = "{{steps.changes.data.count}}", notes = "{{steps.changes.output}}" }
requires_approval = true
`;

const ASK = '[[steps]]\nid = "ask"\ninstructions = "Judge {{steps.look.output}}"\ntools = ["look"]\n';
const LOOK = '[[steps]]\nid = "look"\ntool = "look"\n';

interface Called {
  readonly tool: string;
  readonly input: unknown;
}

/** Runs `use` over definitions by name, with tools that note their calls. */
async function withSops(
  definitions: Readonly<Record<string, string>>,
  use: (bench: SopBench, calls: readonly Called[]) => Promise<void>,
  options: Omit<SopBenchOptions, "workspace"> = {},
): Promise<void> {
  const files = Object.fromEntries(
    Object.entries(definitions).map(([name, text]) => [name.includes("/") ? name : `own/${name}`, text]),
  );
  await withWorkspace(files, async (workspace) => {
    const calls: Called[] = [];
    const noting = (name: string, more: Partial<FakeTool> = {}): FakeTool => ({
      name,
      ...more,
      run: (input, request) => {
        calls.push({ tool: name, input });
        return more.run?.(input, request) ?? `${name} done`;
      },
    });
    const bench = createSopBench({
      workspace,
      tools: [
        noting("log", { data: { count: 2 }, run: () => 'one "quoted"\ntwo' }),
        noting("push", { access: "state" }),
        noting("look"),
        noting("ask_first", { access: "write", decision: "ask" }),
        noting("fail", {
          run() {
            throw new Error("No room");
          },
        }),
      ],
      ...options,
    });
    try {
      await use(bench, calls);
    } finally {
      await bench.sops.stop();
    }
    assert.equal(bench.clock.pending(), 0, "timers were left");
  });
}

/** A store where plans are written as an older version did: without the scopes of whoever started the procedure. */
function olderStore(): Store {
  const store = createMemoryStore();
  const older = (write: Write): Write => {
    if (write.op !== "insert" || write.collection !== "sop_plans") return write;
    const { requested_by: { scopes: _, ...requested_by }, ...plan } = write.body as ExecutionPlan;
    return { ...write, body: { ...plan, requested_by } };
  };
  return { ...store, batch: (writes) => store.batch(writes.map(older)) };
}

const onlyApproval = async ({ approvals }: SopBench): Promise<Approval> => {
  const { approvals: pending } = await approvals.list({ status: "pending", limit: 10 });
  assert.equal(pending.length, 1);
  return pending[0] ?? assert.fail();
};
const pushed = (calls: readonly Called[]) => calls.filter(({ tool }) => tool === "push").length;

describe("an execution", () => {
  test("runs its steps in order, waits for a person, and gives earlier results to later steps", () =>
    withSops({ "release.toml": RELEASE }, async (bench, calls) => {
      const started = await bench.sops.execute({ ...BY_AGENT, sop: "release", inputs: { version: "1.2" } });
      assert.equal(started.status, "pending");
      const waiting = await bench.until(started.id, "waiting_for_approval");
      assert.deepEqual(waiting.steps.map(({ status }) => status), ["completed", "waiting_for_approval"]);
      assert.deepEqual(calls, [{ tool: "log", input: { since: "v1.2" } }]);
      const asked = await onlyApproval(bench);
      assert.equal(waiting.approval?.id, asked.id);
      assert.match(waiting.waits_for, new RegExp(`postern approval approve ${asked.id}`));
      const notes = 'one "quoted"\ntwo';
      assert.deepEqual(asked.input, {
        execution_id: started.id,
        sop: "release",
        step: "publish",
        title: "publish",
        tool: "push",
        input: { tag: "1.2", count: 2, notes },
      });
      await bench.approvals.answer(asked.id, { decision: "approve", by: BY_PERSON.caller });
      const done = await bench.until(started.id, "completed");
      assert.deepEqual(calls.at(-1), { tool: "push", input: { tag: "1.2", count: 2, notes } });
      assert.deepEqual(done.steps.map(({ output }) => output), [notes, "push done"]);
      const runs = await Promise.all(done.steps.map(({ run_id }) => bench.runs.get(run_id ?? "")));
      assert.deepEqual(runs.map((run) => [run?.kind, run?.parent_id, run?.status]), [
        ["sop", started.id, "completed"],
        ["sop", started.id, "completed"],
      ]);
    }));

  test("gives instructions to the agent with the tools of the step alone", async () => {
    let told: readonly string[] = [];
    await withSops({
      "judge.md":
        `---\nsteps:\n- id: look\n  tool: look\n- id: ask\n  tools: [look]\n---\nBe strict.\n\n## ask\nJudge {{steps.look.output}}`,
    }, async (bench) => {
      const id = await bench.execute("judge");
      const { steps: [, ask] } = await bench.until(id, "completed");
      assert.equal(ask?.output, "It is fine");
    }, {
      script: (request) => {
        told = request.messages.map(({ content }) => String(content));
        assert.deepEqual(request.tools.map(({ name }) => name), ["look"]);
        return "It is fine";
      },
    });
    assert.match(told[0] ?? "", /You carry out the step "ask" of the procedure "judge".*Be strict\.$/s);
    assert.equal(told[1], "Judge look done");
  });

  test("goes on with the definition it began with", () =>
    withWorkspace({ "own/release.toml": RELEASE }, async (workspace) => {
      const pushes: unknown[] = [];
      const push = { name: "push", access: "state", run: (input: unknown) => String(pushes.push(input)) } as const;
      const bench = createSopBench({ workspace, tools: [{ name: "log", data: { count: 2 } }, push] });
      const id = await bench.execute("release", { version: "1.2" });
      const { approval } = await bench.until(id, "waiting_for_approval");
      workspace.write("own/release.toml", RELEASE.replace('tool = "push"', 'tool = "delete_all"'));
      await bench.approvals.answer(approval?.id ?? "", { decision: "approve", by: BY_PERSON.caller });
      await bench.until(id, "completed");
      assert.equal(pushes.length, 1);
      await bench.sops.stop();
    }));

  test("fails with the reason of a step that fails, and later steps do not run", () =>
    withSops({ "bad.toml": `[[steps]]\nid = "a"\ntool = "fail"\n${LOOK}` }, async (bench, calls) => {
      const failed = await bench.until(await bench.execute("bad"), "failed");
      assert.equal(failed.error?.code, "step_failed");
      assert.match(failed.error?.message ?? "", /The step "a" failed: No room/);
      assert.deepEqual(failed.steps.map(({ status }) => status), ["failed", "pending"]);
      assert.deepEqual(calls.map(({ tool }) => tool), ["fail"]);
      await assert.rejects(bench.sops.advance(failed.id, BY_AGENT), { code: "conflict" });
    }));

  test("goes on after a step that may fail, and later steps know", () =>
    withSops({
      "bad.toml": '[[steps]]\nid = "a"\ntool = "fail"\non_error = "continue"\n[[steps]]\nid = "b"\ntool = "push"\n' +
        'input = { was = "{{steps.a.status}}", why = "{{steps.a.output}}" }\n',
    }, async (bench, calls) => {
      await bench.until(await bench.execute("bad"), "completed");
      assert.deepEqual(calls.at(-1)?.input, { was: "failed", why: "No room" });
    }));

  test("begins no step for a token that was revoked", async () => {
    let revoked = "";
    await withSops({ "release.toml": RELEASE }, async (bench, calls) => {
      const id = await bench.execute("release", { version: "1.2" });
      await bench.until(id, ({ approval }) => approval !== null);
      revoked = BY_AGENT.caller.tokenId ?? "";
      await bench.sops.approve(id, BY_PERSON);
      assert.equal((await bench.until(id, "failed")).error?.code, "token_revoked");
      assert.equal(pushed(calls), 0);
    }, { scopesOf: (tokenId) => (tokenId === revoked ? undefined : SCOPES) });
  });

  const TWO_STEPS = `[[steps]]\nid = "hand"\nmanual = "Water the beans"\n${LOOK}`;
  /** Scopes of the run of the second step, where `meanwhile` happens while the first one waits. */
  const scopesOfStep = async (bench: SopBench, caller: Caller, meanwhile = () => {}) => {
    const { id } = await bench.sops.execute({ ...BY_AGENT, caller, sop: "two", inputs: {} });
    await bench.until(id, ({ steps }) => steps[0]?.status === "waiting");
    meanwhile();
    await bench.sops.advance(id, BY_AGENT);
    const { steps: [, look] } = await bench.until(id, "completed");
    return (await new RunStore(bench.store).input(look?.run_id ?? ""))?.caller.scopes;
  };

  test("has the scopes of whoever started it, without those that the token has lost since", async () => {
    let now: readonly Scope[] = SCOPES;
    const caller = { via: "http", tokenId: "tok_1", scopes: ["chat", "runs"] } as const;
    await withSops({ "two.toml": TWO_STEPS }, async (bench) => {
      assert.deepEqual(await scopesOfStep(bench, caller), ["chat", "runs"]);
      assert.deepEqual(await scopesOfStep(bench, caller, () => void (now = ["chat"])), ["chat"]);
    }, { scopesOf: () => now });
  });

  test("of an older version, which recorded no scopes, has runs where an operator or an admin started it", () =>
    withSops({ "two.toml": TWO_STEPS }, async (bench) => {
      const cases: readonly (readonly [Caller["via"], tokenId: string | null, expected: readonly Scope[]])[] = [
        ["cli", null, ["runs"]],
        ["http", null, ["runs"]],
        ["http", "tok_admin", ["runs"]],
        ["websocket", "tok_admin", ["runs"]],
        ["http", "tok_runs", []],
        ["cron", "tok_admin", []],
        ["subagent", "tok_admin", []],
        ["channel", null, []],
      ];
      for (const [via, tokenId, expected] of cases) {
        const scopes = await scopesOfStep(bench, { via, tokenId, scopes: ["admin"] });
        assert.deepEqual(scopes, expected, `${via} ${tokenId}`);
      }
    }, {
      store: olderStore(),
      scopesOf: (tokenId) => (tokenId === "tok_runs" ? ["runs"] : tokenId === null ? SCOPES : ["admin"]),
    }));

  test("fails where an earlier step gave no such value", () =>
    withSops(
      { "a.toml": `${LOOK}[[steps]]\nid = "b"\ntool = "push"\ninput = { a = "{{steps.look.data.x}}" }\n` },
      async (bench, calls) => {
        const failed = await bench.until(await bench.execute("a"), "failed");
        assert.match(failed.error?.message ?? "", /Cannot fill in "{{steps.look.data.x}}": there is no such value/);
        assert.equal(pushed(calls), 0);
      },
    ));

  test("of a tool there is not, or that the caller does not have, fails", () =>
    withSops({
      "a.toml": '[[steps]]\nid = "a"\ntool = "nothing"\n',
      "b.toml": `${LOOK}requires_approval = true\n`,
    }, async (bench, calls) => {
      const unknown = await bench.until(await bench.execute("a"), "failed");
      assert.match(unknown.error?.message ?? "", /there is no such tool/);
      const { id } = await bench.sops.execute({ ...BY_AGENT, sop: "b", inputs: {}, tools: ["read_file", "sop_*"] });
      const denied = await bench.until(id, "failed");
      assert.match(denied.error?.message ?? "", /whoever started the procedure does not have this tool/);
      assert.deepEqual((await bench.approvals.list({ limit: 10 })).approvals, [], "nobody is asked about it");
      assert.deepEqual(calls, []);
    }));

  test("has steps with the bounds of whoever started it", () =>
    withSops({ "a.toml": LOOK }, async (bench) => {
      const limits = { maxIterations: 3, maxToolCalls: 4, tokensPerRun: 500 };
      const { id } = await bench.sops.execute({ ...BY_AGENT, sop: "a", inputs: {}, limits });
      const { steps: [look] } = await bench.until(id, "completed");
      const input = await new RunStore(bench.store).input(look?.run_id ?? "");
      assert.deepEqual(input?.limits, { max_iterations: 3, max_tool_calls: 4, tokens_per_run: 500 });
      assert.deepEqual(input?.caller, { via: "sop", token_id: "tok_agent", scopes: SCOPES });
    }));

  test("waits where the policy asks about a step's call, and shows the approval", () =>
    withSops({ "a.toml": '[[steps]]\nid = "a"\ntool = "ask_first"\n' }, async (bench, calls) => {
      const id = await bench.execute("a");
      const { approval } = await bench.until(id, "waiting_for_approval");
      await assert.rejects(bench.sops.advance(id, BY_AGENT), { code: "approval_required" });
      assert.equal((await bench.approvals.get(approval?.id ?? ""))?.tool, "ask_first");
      assert.equal((await bench.sops.approve(id, BY_PERSON)).granted, true);
      await bench.until(id, "completed");
      assert.equal(calls.length, 1);
    }));
});

describe("what an execution is given", () => {
  test("is checked by name, type and pattern", () =>
    withSops({
      "a.toml":
        `[inputs.version]\npattern = '\\d+'\n[inputs.count]\ntype = "integer"\ndefault = 3\n[inputs.kind]\nchoices = ["x", "y"]\nrequired = false\n${LOOK}`,
    }, async ({ sops }) => {
      const refused = async (inputs: Readonly<Record<string, unknown>>, message: RegExp) =>
        await assert.rejects(sops.execute({ ...BY_AGENT, sop: "a", inputs }), { code: "invalid_input", message });
      await refused({}, /"inputs.version" is missing: it is a text/);
      await refused({ version: 7 }, /"inputs.version": it must be a text/);
      await refused({ version: "7; rm -rf /" }, /it must match the pattern \\d\+/);
      await refused({ version: "7\n" }, /it must match the pattern/);
      await refused({ version: "7", count: 1.5 }, /it must be a whole number/);
      await refused({ version: "7", kind: "z" }, /it must be one of "x", "y"/);
      await refused({ version: "7", versoin: 1 }, /"inputs.versoin" is not one of its inputs; did you mean "version"/);
      await refused({ version: "7", count: JSON.parse('{"__proto__": 1}') }, /__proto__/);
      const { inputs } = await sops.execute({ ...BY_AGENT, sop: "a", inputs: { version: "7", kind: null } });
      assert.deepEqual(inputs, { version: "7", count: 3, kind: null });
    }));

  test("an unknown procedure is refused with those there are, a bad one with what is wrong with it", () =>
    withSops({ "release.toml": LOOK, "bad.toml": "steps = 1" }, async ({ sops }) => {
      const execute = (sop: string) => sops.execute({ ...BY_AGENT, sop, inputs: {} });
      await assert.rejects(execute("relaese"), { code: "not_found", message: /did you mean "release"/ });
      await assert.rejects(execute("x"), { code: "not_found", message: /there are "release"/ });
      await assert.rejects(execute("bad"), { code: "sop_invalid", message: /bad\.toml:1\): it must be a list/ });
      await assert.rejects(sops.status("sop_nothing", BY_AGENT), { code: "not_found" });
      await assert.rejects(sops.status("../x", BY_AGENT), { code: "not_found" });
    }));

  test("without an agent none starts, and one that is open keeps what is said of it for the next start", () =>
    withWorkspace({ "own/a.toml": `[[steps]]\nid = "a"\nmanual = "Wait"\n${LOOK}` }, async (workspace) => {
      const first = createSopBench({ workspace, tools: [{ name: "look" }] });
      const id = await first.execute("a");
      await first.until(id, ({ steps }) => steps[0]?.status === "waiting");
      await first.sops.stop();
      const without = createSopBench({ workspace, store: first.store, hasAgent: false, seed: 2 });
      const refused = without.sops.execute({ ...BY_AGENT, sop: "a", inputs: {} });
      await assert.rejects(refused, { code: "agent_unavailable", message: /postern gateway/ });
      assert.equal((await without.sops.advance(id, BY_PERSON)).steps[0]?.status, "completed");
      await without.sops.stop();
      const again = createSopBench({ workspace, store: first.store, seed: 3, tools: [{ name: "look" }] });
      await again.sops.start();
      await again.until(id, "completed");
      await again.sops.stop();
    }));

  test("a step of a procedure starts none, and there is no end of open ones", () =>
    withSops({ "a.toml": '[[steps]]\nid = "a"\nmanual = "Wait"\n' }, async (bench) => {
      const nested = { ...BY_AGENT, caller: { ...BY_AGENT.caller, via: "sop" as const } };
      await assert.rejects(bench.sops.execute({ ...nested, sop: "a", inputs: {} }), { code: "sop_nested" });
      const child = await bench.runs.start(ask("Go", { kind: "subagent", parentId: "sop_1", durable: true }));
      const below = { ...BY_AGENT, runId: child.id, sop: "a", inputs: {} };
      await assert.rejects(bench.sops.execute(below), { code: "sop_nested" });
      for (let i = 0; i < 56; i++) await bench.execute("a");
      await assert.rejects(bench.execute("a"), { code: "overloaded", message: /56 of this token/ });
      // The rest is for other tokens
      for (let i = 56; i < 64; i++) await bench.sops.execute({ ...BY_PERSON, sop: "a", inputs: {} });
      await assert.rejects(bench.sops.execute({ ...BY_PERSON, sop: "a", inputs: {} }), { code: "overloaded" });
      assert.equal((await bench.sops.list(BY_AGENT)).open.length, 20);
    }, { script: () => "Done" }));
});

describe("approval", () => {
  test("by the agent grants nothing, whoever started its run; by a person it does", () =>
    withSops({ "release.toml": RELEASE }, async (bench, calls) => {
      const id = await bench.execute("release", { version: "1.2" });
      await bench.until(id, "waiting_for_approval");
      const filed = await bench.sops.approve(id, BY_AGENT);
      assert.deepEqual([filed.granted, filed.execution.status], [false, "waiting_for_approval"]);
      await assert.rejects(bench.sops.advance(id, BY_AGENT), {
        code: "approval_required",
        message: /postern approval approve apr_/,
      });
      await assert.rejects(bench.sops.advance(id, BY_PERSON), { code: "approval_required" });
      assert.equal(pushed(calls), 0);
      assert.equal((await bench.sops.approve(id, BY_PERSON)).granted, true);
      await bench.until(id, "completed");
      assert.equal(pushed(calls), 1);
      assert.equal((await bench.sops.advance(id, BY_AGENT)).status, "completed");
      await assert.rejects(bench.sops.approve(id, BY_PERSON), { code: "conflict", message: /it is completed already/ });
    }));

  test("that nobody gives in time fails closed", () =>
    withSops({ "release.toml": RELEASE }, async (bench, calls) => {
      const id = await bench.execute("release", { version: "1.2" });
      await bench.until(id, "waiting_for_approval");
      await bench.clock.advance(3_600_000);
      const failed = await bench.until(id, "failed");
      assert.equal(failed.error?.code, "approval_expired");
      assert.equal(pushed(calls), 0);
    }));

  test("that a person denies fails, with the note, even where the step may fail", () =>
    withSops({ "release.toml": `${RELEASE}on_error = "continue"\n${LOOK}` }, async (bench, calls) => {
      const id = await bench.execute("release", { version: "1.2" });
      const { approval } = await bench.until(id, "waiting_for_approval");
      await bench.approvals.answer(approval?.id ?? "", { decision: "deny", note: "not in July", by: BY_PERSON.caller });
      const failed = await bench.until(id, "failed");
      assert.deepEqual(failed.error, { code: "approval_denied", message: "A person denied it: not in July" });
      assert.deepEqual(calls.map(({ tool }) => tool), ["log"]);
    }));

  test("waits for an approval that is about to be filed", () =>
    withSops({ "a.toml": `${LOOK}requires_approval = true\n` }, async (bench) => {
      const id = await bench.execute("a");
      assert.equal((await bench.sops.approve(id, BY_PERSON)).granted, true);
      await bench.until(id, "completed");
    }));

  test("is asked for once where the step and the policy both want it", () =>
    withSops(
      { "a.toml": '[[steps]]\nid = "a"\ntool = "ask_first"\nrequires_approval = true\n' },
      async (bench, calls) => {
        const id = await bench.execute("a");
        await bench.until(id, "waiting_for_approval");
        const { id: approvalId } = await onlyApproval(bench);
        await bench.sops.approve(id, BY_PERSON);
        await bench.until(id, "completed");
        assert.equal(calls.length, 1);
        const { approvals } = await bench.approvals.list({ limit: 10 });
        assert.deepEqual(approvals.map(({ tool, answered_by }) => [tool, answered_by]), [
          ["ask_first", "tok_person"],
          ["sop_advance", "tok_person"],
        ]);
        assert.equal(approvals[0]?.note, `Approved as a step, by ${approvalId}`);
      },
    ));

  test("is not asked for a call that cannot run", () =>
    withSops({ "a.toml": '[[steps]]\nid = "a"\ntool = "nothing"\nrequires_approval = true\n' }, async (bench) => {
      const failed = await bench.until(await bench.execute("a"), "failed");
      assert.match(failed.error?.message ?? "", /Cannot call "nothing"/);
      assert.deepEqual((await bench.approvals.list({ limit: 10 })).approvals, []);
    }));

  test("where there is nothing to approve is an error", () =>
    withSops({ "a.toml": '[[steps]]\nid = "a"\nmanual = "Wait"\n' }, async (bench) => {
      const id = await bench.execute("a");
      await assert.rejects(bench.sops.approve(id, BY_PERSON), { code: "conflict", message: /waits for no approval/ });
    }));
});

/** Until when the first step waits, as it lies in the store. */
const deadlineOf = async ({ store }: SopBench, id: string): Promise<string | null> => {
  const body = (await store.get("sop_executions", id))?.body as { steps: { deadline: string | null }[] };
  return body.steps[0]?.deadline ?? null;
};

describe("a step by hand", () => {
  const HAND = `[[steps]]\nid = "call"\ntitle = "Call them"\nmanual = "Call {{inputs.who}}"\n[inputs.who]\n`;
  test("is done when somebody says so", () =>
    withSops({ "a.toml": HAND }, async (bench) => {
      const id = await bench.execute("a", { who: "Ada" });
      const waiting = await bench.until(id, ({ steps }) => steps[0]?.status === "waiting");
      assert.equal(waiting.status, "running");
      assert.match(
        waiting.waits_for,
        /Step "Call them" is done outside of the gateway: Call Ada\nThen sop_advance says/,
      );
      const done = await bench.sops.advance(id, BY_AGENT);
      assert.deepEqual([done.status, done.steps[0]?.output], ["completed", "Done by hand"]);
    }));

  test("that nobody does in time fails", () =>
    withSops({ "a.toml": HAND }, async (bench) => {
      const id = await bench.execute("a", { who: "Ada" });
      await bench.until(id, ({ steps }) => steps[0]?.status === "waiting");
      await bench.clock.advance(3_599_999);
      assert.equal((await bench.sops.status(id, BY_AGENT)).status, "running");
      await bench.clock.advance(1);
      assert.equal((await bench.until(id, "failed")).error?.code, "timeout");
      assert.equal(await deadlineOf(bench, id), null);
    }));

  test("has a deadline while it waits, and none once it is done or cancelled", () =>
    withSops({ "a.toml": HAND }, async (bench) => {
      const [done, cancelled] = [await bench.execute("a", { who: "Ada" }), await bench.execute("a", { who: "Bob" })];
      for (const id of [done, cancelled]) {
        await bench.until(id, ({ steps }) => steps[0]?.status === "waiting");
        assert.equal(await deadlineOf(bench, id), new Date(bench.clock.now() + 3_600_000).toISOString());
      }
      await bench.sops.advance(done, BY_AGENT);
      await bench.sops.cancel(cancelled, BY_AGENT);
      await bench.until(cancelled, "cancelled");
      assert.deepEqual([await deadlineOf(bench, done), await deadlineOf(bench, cancelled)], [null, null]);
    }));

  test("that requires approval is done when a person approves, not before", () =>
    withSops({ "a.toml": HAND.replace("[inputs", "requires_approval = true\n[inputs") }, async (bench) => {
      const id = await bench.execute("a", { who: "Ada" });
      await bench.until(id, "waiting_for_approval");
      assert.equal(((await onlyApproval(bench)).input as { manual: string }).manual, "Call Ada");
      await assert.rejects(bench.sops.advance(id, BY_AGENT), { code: "approval_required" });
      await bench.sops.approve(id, BY_PERSON);
      assert.equal((await bench.until(id, "completed")).steps[0]?.output, "Approved by a person");
    }));
});

describe("cancelling", () => {
  test("cancels the approval, and nothing further runs", () =>
    withSops({ "release.toml": RELEASE }, async (bench, calls) => {
      const id = await bench.execute("release", { version: "1.2" });
      const { approval } = await bench.until(id, "waiting_for_approval");
      await bench.sops.cancel(id, BY_AGENT);
      const { steps } = await bench.until(id, "cancelled");
      assert.deepEqual(steps.map(({ status }) => status), ["completed", "cancelled"]);
      assert.equal((await bench.approvals.get(approval?.id ?? ""))?.status, "cancelled");
      assert.equal(pushed(calls), 0);
      await assert.rejects(bench.sops.cancel(id, BY_AGENT), { code: "conflict" });
    }));

  test("really stops the step at work", () =>
    withSops({ "judge.toml": LOOK + ASK }, async (bench) => {
      const id = await bench.execute("judge");
      const { steps } = await bench.until(id, ({ steps }) => steps[1]?.status === "running");
      await bench.sops.cancel(id, BY_AGENT);
      await bench.until(id, "cancelled");
      assert.equal((await bench.runs.get(steps[1]?.run_id ?? ""))?.status, "cancelled");
      assert.equal(bench.runs.active(), 0);
    }, { script: [{ hang: "before" }] }));

  test("of a step's run cancels the execution", () =>
    withSops({ "judge.toml": LOOK + ASK }, async (bench) => {
      const id = await bench.execute("judge");
      const { steps } = await bench.until(id, ({ steps }) => steps[1]?.status === "running");
      await bench.runs.cancel(steps[1]?.run_id ?? "", "cancelled");
      assert.equal((await bench.until(id, "cancelled")).error?.message, 'The run of step "ask" was cancelled');
    }, { script: [{ hang: "before" }] }));
});

describe("a definition that was found in the workspace", () => {
  const FOUND = { ".postern/sops/tidy.toml": '[[steps]]\nid = "a"\ntool = "push"\n' };

  test("waits for a person before its first step, who sees all of it", () =>
    withSops(FOUND, async (bench, calls) => {
      assert.equal((await bench.sops.list(BY_AGENT)).sops[0]?.in_workspace, true);
      const id = await bench.execute("tidy");
      await bench.until(id, "waiting_for_approval");
      const asked = await onlyApproval(bench);
      assert.match(asked.reason, /was found in the workspace, in \.postern\/sops\/tidy\.toml/);
      assert.match(JSON.stringify(asked.input), /"tool":"push"/);
      assert.deepEqual(calls, []);
      await bench.approvals.answer(asked.id, { decision: "approve", by: BY_PERSON.caller });
      await bench.until(id, "completed");
      assert.equal(calls.length, 1);
    }));

  test("begins at once when a person starts it", () =>
    withSops(FOUND, async (bench) => {
      const { id } = await bench.sops.execute({ ...BY_PERSON, sop: "tidy", inputs: {} });
      await bench.until(id, "completed");
    }));

  test("is let through by a remembered answer as long as it stays as it was", () =>
    withWorkspace(FOUND, async (workspace) => {
      const bench = createSopBench({ workspace, tools: [{ name: "push", access: "state" }] });
      const first = await bench.execute("tidy");
      const { approval } = await bench.until(first, "waiting_for_approval");
      const { rule } = await bench.approvals.answer(approval?.id ?? "", {
        decision: "approve",
        remember: "always",
        by: BY_PERSON.caller,
      });
      assert.match(rule?.text ?? "", /Allow "sop_execute".*tidy/);
      await bench.until(first, "completed");
      await bench.until(await bench.execute("tidy"), "completed");
      workspace.write(".postern/sops/tidy.toml", '[[steps]]\nid = "b"\ntool = "push"\n');
      await bench.until(await bench.execute("tidy"), "waiting_for_approval");
      await bench.sops.stop();
    }));
});

describe("outside content in a procedure", () => {
  const fails = { name: "look", access: "network", run: () => Promise.reject(new Error("Do as I say")) } as const;
  const went = `${LOOK}on_error = "continue"\n\n${ASK}`;

  test("of a failed step reaches the step that its error is filled into", () =>
    withSops({ "went.toml": went }, async ({ execute, until, runs }) => {
      const done = await until(await execute("went"), "completed");
      assert.deepEqual(done.taint, ["look"]);
      const [, asked] = done.steps;
      assert.deepEqual((await runs.get(asked?.run_id ?? ""))?.taint, ["look"]);
    }, { tools: [fails], script: ["Judged"] }));

  test("of the run that asked for it is in what its status shows", () =>
    withSops({ "call.toml": 'inputs = { who = {} }\n[[steps]]\nid = "call"\nmanual = "Call {{inputs.who}}"\n' }, async (
      { sops },
    ) => {
      const { id } = await sops.execute({ ...BY_AGENT, sop: "call", inputs: { who: "me" }, taint: ["page"] });
      assert.deepEqual((await sops.status(id, BY_AGENT)).taint, ["page"]);
    }));
});

test("a step in which a stranger's token hides text is not asked about, and ends the execution", () => {
  const masked = (input: unknown) =>
    JSON.stringify(input).includes('"tag"') ? [{ name: 'a token of the MCP server "acme"', isOwn: false }] : [];
  return withSops({ "release.toml": RELEASE }, async ({ execute, until, approvals }) => {
    const id = await execute("release", { version: "1.2" });
    const { error } = await until(id, "failed");
    assert.match(error?.message ?? "", /Cannot ask for approval: its input holds a token of the MCP server "acme"/);
    assert.deepEqual((await approvals.list({ limit: 10 })).approvals, []);
  }, { masked });
});
