import assert from "node:assert/strict";
import { test } from "node:test";
import type { Script } from "../../../fixtures/scripted_provider.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import type { SopExecutionView } from "../../../lib/tools/sops/sops.ts";
import { createCrashingStore, Killed } from "../../support/crashing_store.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { BY_AGENT, BY_PERSON, createSopBench, type SopBench } from "./sop_bench.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const PROCEDURE = `
[[steps]]
id = "look"
tool = "look"

[[steps]]
id = "push"
tool = "push"
input = { what = "{{steps.look.output}}" }
requires_approval = true

[[steps]]
id = "call"
manual = "Call"

[[steps]]
id = "tell"
instructions = "Tell about {{steps.push.output}}"
`;

interface World {
  readonly workspace: Workspace;
  readonly store: Store;
  readonly clock: FakeClock;
  /** Effects that took place, whatever became of the process */
  readonly effects: string[];
  seed: number;
  /** How often a person had to look what became of a call */
  reviews: number;
}

function start(world: World, store: Store): SopBench {
  const { workspace, clock, effects } = world;
  return createSopBench({
    workspace,
    clock,
    store,
    seed: ++world.seed,
    tools: [
      { name: "look", run: () => "seen" },
      { name: "push", access: "state", decision: "ask", run: ({ what }) => `pushed ${effects.push(String(what))}` },
    ],
    script: () => "Told",
  });
}

/** Acts as the person: approves, does manual steps, and reviews a call whose end nobody knows. @returns true when there was such a call */
async function help({ sops, approvals, runs }: SopBench, view: SopExecutionView, effects: readonly string[]) {
  if (view.approval !== null) await approvals.answer(view.approval.id, { decision: "approve", by: BY_PERSON.caller });
  if (view.steps.some(({ status }) => status === "waiting")) await sops.advance(view.id, BY_PERSON);
  const review = view.steps.find(({ status }) => status === "needs_review");
  if (review === undefined) return false;
  const outcome = effects.length > 0 ? "done" : "not_done";
  await runs.resolve(review.run_id ?? "", { action: "resume", outcome, by: BY_PERSON.caller });
  return true;
}

/** Returns the outcome of work that fails because its process has ended. */
function whenKilled(error: unknown): string {
  if (error instanceof Killed) return "killed";
  throw error;
}

/** Works on until the end. @returns how it ended */
async function workOn(bench: SopBench, id: string, world: World): Promise<string> {
  for (let i = 0; i < 400; i++) {
    try {
      const view = await bench.sops.status(id, BY_AGENT);
      if (["completed", "failed", "cancelled"].includes(view.status)) return view.status;
      if (await help(bench, view, world.effects)) world.reviews++;
    } catch (error) {
      // Somebody was faster
      if ((error as { code?: string }).code !== "conflict") throw error;
    }
    if (i > 100) await world.clock.advance(2_000);
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  return `stuck: ${JSON.stringify(await bench.sops.status(id, BY_AGENT), null, 1)}`;
}

/**
 * Does `work` in a new world with a kill at the first write, at the second, and so on until none comes any more.
 * @param work told which write it is; says whether the kill came
 * @returns how many writes there were
 */
async function atEachWrite(
  files: Readonly<Record<string, string>>,
  work: (world: World, at: number) => Promise<boolean>,
): Promise<number> {
  for (let at = 1;; at++) {
    let wasKilled = false;
    await withWorkspace(files, async (workspace) => {
      const clock = createFakeClock();
      const world = { workspace, store: createMemoryStore(), clock, effects: [], seed: 0, reviews: 0 };
      wasKilled = await work(world, at);
    });
    if (!wasKilled) return at;
  }
}

for (const when of ["before", "after"] as const) {
  test(`a kill ${when} any write leaves an execution that is finished after the next start, with each effect once`, async () => {
    let reviews = 0;
    const at = await atEachWrite({ "own/p.toml": PROCEDURE }, async (world, at) => {
      const crashing = createCrashingStore(world.store, { crashAt: at, when });
      const first = start(world, crashing);
      let id: string | undefined;
      const working = async () => {
        id = await first.execute("p");
        return await workOn(first, id, world);
      };
      const killed = crashing.crashed.then(() => "killed");
      const ended = await Promise.race([working().catch(() => killed), killed]);
      if (ended !== "killed") {
        assert.equal(ended, "completed");
        return false;
      }

      const second = start(world, world.store);
      await second.runs.recover();
      await second.sops.start();
      const [open] = (await second.sops.list(BY_AGENT)).open;
      const known = id ?? open?.id;
      // Accepted is not lost; what was not, was never begun
      if (known !== undefined) assert.equal(await workOn(second, known, world), "completed", `write ${at}`);
      assert.equal(world.effects.length, known === undefined ? 0 : 1, `write ${at}`);
      const { approvals } = await second.approvals.list({ limit: 100 });
      const aboutStep = approvals.filter(({ tool }) => tool === "sop_advance");
      assert.ok(aboutStep.length <= 1, `write ${at}: ${aboutStep.length} approvals of the step`);
      await second.sops.stop();
      reviews += world.reviews;
      return true;
    });
    assert.ok(at > 15, `only ${at} writes`);
    assert.ok(reviews > 0, "no kill came in the middle of an effect");
  });
}

/** An execution whose one step is at work as its process ends. */
async function atWork({ sops, execute, until }: SopBench): Promise<string> {
  const id = await execute("w");
  await until(id, ({ steps }) => steps[0]?.status === "running");
  await sops.stop();
  return id;
}

for (const when of ["before", "after"] as const) {
  test(`a kill ${when} any write of a cancelling keeps the run of a step that was at work from going on`, async () => {
    const definition = '[[steps]]\nid = "work"\ninstructions = "Push"\n';
    const at = await atEachWrite({ "own/w.toml": definition }, async (world, at) => {
      const bench = (store: Store, script: Script) =>
        createSopBench({
          workspace: world.workspace,
          clock: world.clock,
          store,
          seed: ++world.seed,
          tools: [{ name: "push", access: "state", run: () => `pushed ${world.effects.push("push")}` }],
          script,
        });
      const id = await atWork(bench(world.store, () => ({ hang: "before" })));
      const pushing = (_request: unknown, turn: number) => turn === 0 ? { toolCalls: [{ name: "push" }] } : "Done";
      const crashing = createCrashingStore(world.store, { crashAt: at, when });
      const first = bench(crashing, pushing);
      const cancelled = await Promise.race([
        crashing.crashed,
        first.sops.cancel(id, BY_PERSON).then(() => true, whenKilled),
      ]) === true;
      const wasKilled = !crashing.healthy();

      const second = bench(world.store, pushing);
      await second.sops.stopCancelled();
      await second.runs.recover();
      await second.sops.start();
      const ended = ({ status }: SopExecutionView) => status === "cancelled" || status === "completed";
      const { status } = await second.until(id, ended);
      // A request that was not written down was not accepted
      if (cancelled || status === "cancelled") assert.deepEqual([status, world.effects], ["cancelled", []], `${at}`);
      for (const { sops } of [first, second]) await sops.stop();
      return wasKilled;
    });
    assert.ok(at > 2, `only ${at} writes`);
  });

  test(`a kill ${when} any write of a cancelling leaves an execution that is cancelled, without an effect`, async () => {
    const at = await atEachWrite({ "own/p.toml": PROCEDURE }, async (world, at) => {
      const early = start(world, world.store);
      const id = await early.execute("p");
      await early.until(id, ({ approval }) => approval !== null);
      await early.sops.stop();
      const crashing = createCrashingStore(world.store, { crashAt: at, when });
      const first = start(world, crashing);
      const working = async () => {
        await first.sops.start();
        await first.sops.cancel(id, BY_PERSON);
        await first.until(id, "cancelled");
      };
      await Promise.race([crashing.crashed, working().catch(whenKilled)]);
      await first.sops.stop();
      const wasKilled = !crashing.healthy();

      const second = start(world, world.store);
      await second.sops.stopCancelled();
      await second.runs.recover();
      await second.sops.start();
      const { status, waits_for } = await second.sops.status(id, BY_AGENT);
      // A request that was not written down was not accepted
      if (status !== "cancelled" && waits_for !== "It is being cancelled") await second.sops.cancel(id, BY_PERSON);
      await second.until(id, "cancelled");
      assert.deepEqual(world.effects, []);
      const { approvals } = await second.approvals.list({ limit: 100 });
      assert.deepEqual(approvals.map(({ status }) => status), ["cancelled"], `write ${at}`);
      await second.sops.stop();
      return wasKilled;
    });
    assert.ok(at > 3, `only ${at} writes`);
  });
}
