import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import type { SopExecutionView } from "../../lib/tools/sops/sops.ts";
import { type KillableGateway, withKillableGateway } from "./killable_gateway.ts";
import { createSeededRandom } from "./seeded_random.ts";

/** For all that is left to do after the last kill, longer than it takes on a slow host */
const LIMIT_MS = 240_000;

/** Each step begins with its effect, a line of its name, and ends a moment later. */
function definition(steps: number): string {
  return Array.from({ length: steps }, (_, index) => `
[[steps]]
id = "step-${index}"
tool = "shell"
input = { command = 'sh -c "echo step-${index} >> effects; sleep 0.05"' }
requires_approval = ${index % 3 === 2}
`).join("");
}

/**
 * Executes a procedure of so many steps, with a SIGKILL at a random moment of each stretch of work, and a person who answers what is
 * asked and looks after a call whose end nobody saw; asserts that every step took effect once, in order.
 * @returns how often a person had to look
 */
export async function executeThroughKills(
  { steps, kills, seed }: { readonly steps: number; readonly kills: number; readonly seed: number },
): Promise<number> {
  const random = createSeededRandom(seed);
  const expected = Array.from({ length: steps }, (_, index) => `step-${index}`);
  let reviews = 0;
  await withKillableGateway({ baseUrl: "http://127.0.0.1:9/v1" }, async (gateway) => {
    const effects = () => {
      try {
        return readFileSync(join(gateway.workspace, "effects"), "utf8").trim().split("\n");
      } catch {
        return [];
      }
    };
    mkdirSync(join(gateway.workspace, ".postern", "sops"), { recursive: true });
    writeFileSync(join(gateway.workspace, ".postern", "sops", "long.toml"), definition(steps));
    const { id } = await call(gateway, "sop_execute", { sop: "long" });
    const work = async (stop: () => boolean): Promise<SopExecutionView | undefined> => {
      while (!stop()) {
        const view = await call(gateway, "sop_status", { execution_id: id });
        if (["completed", "failed", "cancelled"].includes(view.status)) return view;
        if (await help(gateway, view, effects())) reviews++;
        await systemClock.sleep(5);
      }
      return undefined;
    };
    for (let kill = 0; kill < kills; kill++) {
      const delay = 20 + ((random.bytes(1)[0] ?? 0) % 200);
      let isOver = false;
      const working = work(() => isOver).catch(() => undefined);
      await systemClock.sleep(delay);
      await gateway.kill();
      isOver = true;
      await working;
      await gateway.restart();
    }
    const limit = systemClock.monotonic() + LIMIT_MS;
    const done = await work(() => systemClock.monotonic() > limit);
    assert.equal(done?.status, "completed", JSON.stringify(done, null, 1));
    assert.deepEqual(effects(), expected);
  });
  return reviews;
}

async function call(gateway: KillableGateway, tool: string, input: unknown): Promise<SopExecutionView> {
  const reply = await gateway.call(`/v1/tools/${tool}/call`, { body: { input } });
  const { data, output } = await reply.json() as { readonly data?: SopExecutionView; readonly output: string };
  assert.ok(data !== undefined, output);
  return data;
}

/** @returns whether a call had to be looked after */
async function help(gateway: KillableGateway, view: SopExecutionView, effects: readonly string[]): Promise<boolean> {
  if (view.approval !== null) {
    const answered = await gateway.call(`/v1/approvals/${view.approval.id}`, { body: { decision: "approve" } });
    assert.ok(answered.status === 200 || answered.status === 409, await answered.text());
  }
  const review = view.steps.find(({ status }) => status === "needs_review");
  if (review === undefined) return false;
  const outcome = effects.includes(review.id) ? "done" : "not_done";
  const resolved = await gateway.call(`/v1/runs/${review.run_id}/resolve`, { body: { action: "resume", outcome } });
  assert.ok(resolved.status === 200 || resolved.status === 409, await resolved.text());
  return resolved.status === 200;
}
