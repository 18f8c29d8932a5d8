import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ScriptedTurn } from "../../../fixtures/scripted_provider.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { type Message, textOf } from "../../../lib/base/records/message.ts";
import { isAtWork } from "../../../lib/base/records/run.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../../lib/base/telemetry/metrics.ts";
import type { Approvals } from "../../../lib/guard/approvals.ts";
import { StoredApprovals } from "../../../lib/guard/stored_approvals.ts";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { createApprover } from "../../../lib/runs/supervisor/create_approver.ts";
import { createStoredConversations } from "../../../lib/runs/conversations/stored_conversations.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { appliedText } from "../../support/applied_text.ts";
import { createCrashingStore } from "../../support/crashing_store.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { ask, supervised } from "../../support/supervised.ts";

const BY = { via: "http", tokenId: "tok_person" } as const;

/** Turns of the model, by what the user said and how many results it has. */
const TURNS: Readonly<Record<string, readonly ScriptedTurn[]>> = {
  text: [{ text: ["One ", "two ", "three"] }],
  tools: [
    {
      text: ["First ", "I look."],
      toolCalls: [{ id: "up:0", name: "look" }, { id: "up:1", name: "look", arguments: { twice: true } }],
      opaque: "signed",
    },
    { text: ["Now I ", "count.\n"], toolCalls: [{ name: "count", arguments: { by: "tools" } }] },
    { toolCalls: [{ name: "note" }] },
    { text: ["All ", "done"] },
  ],
  asks: [
    { text: "May I?", toolCalls: [{ name: "guarded", arguments: { by: "asks" } }] },
    { text: ["Thank ", "you"] },
  ],
  "first of the talk": [{ text: "one" }],
  "second of the talk": [{ toolCalls: [{ name: "count", arguments: { by: "talk" } }] }, { text: "two" }],
};
const ACCEPTED = Object.keys(TURNS);
const RESULTS: Readonly<Record<string, string>> = {
  text: "One two three",
  tools: "First I look.\n\nNow I count.\nAll done",
  asks: "May I?\n\nThank you",
  "first of the talk": "one",
  "second of the talk": "two",
};

function said({ messages }: ProviderRequest): ScriptedTurn {
  const from = messages.findLastIndex((message) => message.role === "user");
  const last = messages[from];
  const turns = TURNS[last?.role === "user" ? textOf(last.content) : ""] ?? assert.fail("Nobody said that");
  const done = messages.slice(from).filter((message) => message.role === "assistant");
  // The vendor's parts come back to it, whatever happened in between
  for (const [i, turn] of turns.entries()) {
    const message = done[i];
    if (turn.opaque !== undefined && message?.role === "assistant") {
      assert.deepEqual(message.opaque, { scripted: turn.opaque });
      assert.deepEqual(message.vendor_ids, { scripted: turn.toolCalls?.map(({ id }) => id) });
    }
  }
  return turns[done.length] ?? assert.fail("There is no such turn");
}

/** Everything of one process but its store. */
function boot(store: Store, { effects, seed }: { readonly effects: string[]; readonly seed: number }) {
  const clock = createFakeClock();
  const audit = createFakeAudit(store).append;
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSeededRandom(seed + 500),
    log: SILENT,
    metrics: createMetrics(),
    audit,
  });
  const count = (input: Readonly<Record<string, unknown>>) => {
    effects.push(String(input["by"]));
    return "counted";
  };
  const { runs, provider } = supervised(said, {
    store,
    clock,
    seed,
    tools: [
      { name: "look" },
      { name: "note", access: "state", repeatable: true },
      { name: "count", access: "write", run: count },
      { name: "guarded", access: "write", decision: "ask", run: count },
    ],
    whenReaderLeaves: "go_on",
    approverOf: createApprover({ approvals, timeoutMs: () => ({ attached: 1000, durable: 86_400_000 }) }),
  });
  return { runs, approvals, provider };
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Says yes to every question, as long as somebody may be waiting. */
function sayYes(approvals: Approvals): () => void {
  let stopped = false;
  void (async () => {
    for (let i = 0; i < 5000 && !stopped; i++) {
      const { approvals: pending } = await approvals.list({ status: "pending", limit: 100 });
      for (const { id } of pending) await approvals.answer(id, { decision: "approve", by: BY });
      await settle();
    }
  })().catch(() => {});
  return () => {
    stopped = true;
  };
}

/** Collects what a client sees, until the run or the process is over. */
async function watch(runs: RunSupervisor, id: string, into: AgentEvent[]): Promise<void> {
  const { signal } = new AbortController();
  for await (const batch of await runs.follow(id, { afterSeq: into.at(-1)?.seq ?? 0, signal }) ?? []) {
    into.push(...batch);
  }
}

async function untilOver(runs: RunSupervisor, id: string) {
  for (let i = 0; i < 2000; i++) {
    const run = await runs.get(id);
    if (run !== undefined && !isAtWork(run.status)) return run;
    await settle();
  }
  return assert.fail(`The run ${id} never ended`);
}

async function play(
  crashAt: number,
  when: "before" | "after",
): Promise<{ readonly writes: number; readonly reviewed: number }> {
  const disk = createMemoryStore();
  const effects: string[] = [];
  const dying = createCrashingStore(disk, { crashAt, when });
  const before = boot(dying, { effects, seed: 1 });
  const accepted = new Map<string, string>();
  const seen = new Map<string, AgentEvent[]>();
  const stop = sayYes(before.approvals);
  const working = (async () => {
    for (const text of ACCEPTED) {
      const conversationId = text.endsWith("of the talk") ? "talk" : undefined;
      // A run in a conversation outlives its reader by itself. One that claims something begins behind the write of its acceptance
      const claim = conversationId === undefined ? () => [] : undefined;
      const handle = await before.runs.start(ask(text, { durable: claim !== undefined, conversationId, claim }));
      accepted.set(handle.id, text);
      const events: AgentEvent[] = [];
      seen.set(handle.id, events);
      void watch(before.runs, handle.id, events).catch(() => {});
    }
    for (const id of accepted.keys()) await untilOver(before.runs, id);
  })();
  await working.catch(() => {});
  for (let i = 0; i < 20; i++) await settle();
  stop();

  const after = boot(disk, { effects, seed: 2 });
  await after.runs.recover();
  const stopAfter = sayYes(after.approvals);
  let reviewed = 0;
  for (const run of (await after.runs.list({ limit: 100 })).runs) {
    const input = await disk.get("run_inputs", run.id);
    const text = textOf((input?.body as { messages: readonly Message[] }).messages[0]?.content ?? "");
    accepted.set(run.id, text);
  }
  for (const [id, text] of accepted) {
    let run = await untilOver(after.runs, id);
    if (run.status === "needs_review") {
      reviewed++;
      const by = text === "second of the talk" ? "talk" : text;
      const outcome = effects.includes(by) ? "done" : "not_done";
      await after.runs.resolve(id, { action: "resume", outcome, by: BY });
      run = await untilOver(after.runs, id);
    }
    assert.deepEqual([run.status, run.error], ["completed", null], `${text} at ${crashAt}`);
    assert.equal(run.result, RESULTS[text]);
    const events = seen.get(id) ?? [];
    await watch(after.runs, id, events);
    assert.equal(appliedText(events), run.result, `what a client of "${text}" has at ${crashAt}`);
    assert.equal(events.at(-1)?.type, "done");
    const seqs = events.map((event) => event.seq);
    assert.deepEqual(seqs, [...new Set(seqs)].sort((a, b) => a - b), "seqs only grow");
  }
  stopAfter();
  const texts = [...accepted.values()];
  for (const [text, by] of [["tools", "tools"], ["asks", "asks"], ["second of the talk", "talk"]] as const) {
    const expected = texts.includes(text) ? 1 : 0;
    assert.equal(effects.filter((effect) => effect === by).length, expected, `effects of "${text}" at ${crashAt}`);
  }
  const { approvals } = await after.approvals.list({ limit: 100 });
  const asked = new Set(approvals.map(({ call_id }) => call_id));
  if (reviewed === 0) assert.equal(approvals.length, asked.size, `one question a call at ${crashAt}`);
  if (texts.includes("second of the talk")) {
    const stored = createStoredConversations({ store: disk, runIn: () => undefined });
    const history = await stored.messages("talk", { afterSeq: 0, limit: 100 });
    assert.deepEqual(
      history.map(({ message }) => message.role),
      ["user", "assistant", "user", "assistant", "tool", "assistant"],
      `the conversation at ${crashAt}`,
    );
    const shown = texts.filter((text) => text.endsWith("of the talk")).map((text) => RESULTS[text]);
    const said = history.flatMap(({ message }) =>
      message.role === "assistant" && message.content !== null ? [message.content] : []
    );
    assert.deepEqual(said, shown, `what the conversation says at ${crashAt}`);
  }
  return { writes: dying.writes(), reviewed };
}

describe("a crash at any write", () => {
  test("loses no accepted run, doubles no effect and no word, and asks nobody twice", async () => {
    const { writes } = await play(Infinity, "before");
    assert.ok(writes > 30, `${writes} writes are too few for a scenario`);
    let reviewed = 0;
    for (let at = 1; at <= writes; at++) {
      for (const when of ["before", "after"] as const) reviewed += (await play(at, when)).reviewed;
    }
    assert.ok(reviewed > 0, "some crash came in the middle of an effect");
  });
});
