import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { ScriptedTurn } from "../../../fixtures/scripted_provider.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { type AgentEvent, isTerminal } from "../../../lib/base/records/agent_event.ts";
import { applyEvent, createRunState } from "../../../lib/runs/journal/apply_event.ts";
import type { RunHandle } from "../../../lib/runs/run_request.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { ask, supervised } from "../../support/supervised.ts";

const TOOLS = [
  { name: "look" },
  { name: "change", access: "state" as const },
  { name: "fetch", access: "network" as const },
  {
    name: "fail",
    run: () => {
      throw new Error("It failed");
    },
  },
  { name: "refused", access: "write" as const, decision: "ask" as const },
];
const WEATHER = { name: "weather", description: "The weather", parameters: undefined };

const pieces = fc.array(fc.string({ maxLength: 6 }), { maxLength: 4 });
const toolCall = fc.record({
  name: fc.constantFrom("look", "change", "fetch", "fail", "refused", "weather", "unknown"),
  arguments: fc.oneof(fc.record({ n: fc.nat(3) }), fc.constant("{broken")),
});
const turn: fc.Arbitrary<ScriptedTurn> = fc.record({
  text: pieces,
  reasoning: pieces,
  toolCalls: fc.oneof({ weight: 2, arbitrary: fc.array(toolCall, { maxLength: 3 }) }, fc.constant([])),
  usage: fc.constantFrom(null, { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 }),
  ...{ fate: fc.constantFrom("finish", "finish", "finish", "before", "after", "hang") },
}).map(({ fate, ...given }) => {
  const error = new ProviderError("provider_error", "The upstream failed", { provider: "scripted" });
  if (fate === "before") return { ...given, errorBefore: error };
  if (fate === "after") return { ...given, errorAfter: error };
  return fate === "hang" ? { ...given, hang: "after" as const } : given;
});
const scenario = fc.record({
  turns: fc.array(turn, { minLength: 1, maxLength: 5 }),
  /** Cancelled after this many arrays; a hanging turn is always cancelled at last */
  cancelAfter: fc.integer({ min: 0, max: 12 }),
  maxIterations: fc.integer({ min: 1, max: 4 }),
  conversation: fc.boolean(),
});

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Reads a run, cancelling it after some arrays, and whenever it says nothing any more. */
async function readWithCancel(handle: RunHandle, cancelAfter: number) {
  const events: AgentEvent[] = [];
  let thrown: unknown;
  let over = false;
  const reading = (async () => {
    let arrays = 0;
    if (cancelAfter === 0) handle.cancel("cancelled");
    for await (const batch of handle.events()) {
      events.push(...batch);
      if (++arrays === cancelAfter) handle.cancel("cancelled");
    }
  })().catch((error) => (thrown = error)).finally(() => (over = true));
  for (let quiet = 0, seen = 0; !over; quiet = events.length === seen ? quiet + 1 : 0, seen = events.length) {
    if (quiet > 20) handle.cancel("timeout");
    await settle();
  }
  await reading;
  return { events, thrown };
}

function assertWhole(events: readonly AgentEvent[]): void {
  assert.deepEqual(events.map((event) => event.seq), events.map((_, i) => i + 1));
  assert.deepEqual(events.filter(isTerminal), events.slice(-1));
  const open = new Set<string>();
  for (const event of events) {
    if (event.type === "tool_start") open.add(event.call_id);
    if (event.type === "tool_end") assert.ok(open.delete(event.call_id), "a tool_end follows its tool_start");
  }
  assert.equal(open.size, 0, "every started call has ended");
}

const script = (turns: readonly ScriptedTurn[]) => (_: unknown, i: number) => turns[i] ?? "The end";

describe("whatever the model does and whenever it is cancelled", () => {
  test("an attached run's events are gapless and end with exactly one terminal event", async () => {
    await fc.assert(
      fc.asyncProperty(scenario, async ({ turns, cancelAfter, maxIterations, conversation }) => {
        const { runs } = supervised(script(turns), { tools: TOOLS, agent: { maxIterations } });
        const more = conversation ? { conversationId: "talk" } : {};
        const { events, thrown } = await readWithCancel(
          await runs.start(ask("Go", { clientTools: [WEATHER], ...more })),
          cancelAfter,
        );
        if (thrown === undefined) assertWhole(events);
        else assert.deepEqual([thrown instanceof ProviderError, events], [true, []]);
        assert.equal(runs.active(), 0);
      }),
      { numRuns: 150 },
    );
  });

  test("a durable run's journal is its live stream: its fold is the run, and any suffix can be replayed", async () => {
    await fc.assert(
      fc.asyncProperty(scenario, fc.nat(30), async ({ turns, cancelAfter, maxIterations }, afterSeq) => {
        const store = createMemoryStore();
        const { runs } = supervised(script(turns), { store, tools: TOOLS, agent: { maxIterations } });
        const handle = await runs.start(ask("Go", { durable: true, clientTools: [WEATHER] }));
        const { events, thrown } = await readWithCancel(handle, cancelAfter);
        const journal = new RunStore(store);
        const replayed: AgentEvent[] = [];
        for await (const batch of journal.replay(handle.id, 0)) replayed.push(...batch);
        assertWhole(replayed);
        assert.deepEqual(replayed.slice(0, thrown === undefined ? undefined : -1), events);
        const suffix: AgentEvent[] = [];
        for await (const batch of journal.replay(handle.id, afterSeq)) suffix.push(...batch);
        assert.deepEqual(suffix, replayed.slice(afterSeq));
        const run = await journal.get(handle.id);
        assert.ok(run !== undefined);
        assert.deepEqual(replayed.reduce(applyEvent, createRunState(run)).run, run);
      }),
      { numRuns: 150 },
    );
  });

  test("a run whose reader left is recorded to its one terminal event", async () => {
    await fc.assert(
      fc.asyncProperty(scenario, async ({ turns, cancelAfter, maxIterations }) => {
        const store = createMemoryStore();
        const { runs, provider } = supervised(script(turns), { store, tools: TOOLS, agent: { maxIterations } });
        const handle = await runs.start(ask("Go", { conversationId: "talk" }));
        const iterator = handle.events()[Symbol.asyncIterator]();
        for (let i = 0; i < cancelAfter; i++) {
          const step = await Promise.race([
            iterator.next().catch(() => undefined),
            settle().then(settle).then(() => undefined),
          ]);
          if (step === undefined || step.done) break;
        }
        await iterator.return?.();
        assert.equal(provider.active, 0);
        assert.equal(runs.active(), 0);
        const journal = new RunStore(store);
        const replayed: AgentEvent[] = [];
        for await (const batch of journal.replay(handle.id, 0)) replayed.push(...batch);
        assertWhole(replayed);
        assert.deepEqual(await journal.open(), []);
      }),
      { numRuns: 150 },
    );
  });
});
