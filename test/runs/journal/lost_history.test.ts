/** Readers of a journal whose database goes on with another history, as after a failover to a standby that lacked its last records. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { KeyedNotifier } from "../../../lib/base/keyed_queues.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { followRun } from "../../../lib/runs/journal/follow_run.ts";
import { appendEvents } from "../../../lib/runs/journal/run_recorder.ts";
import { journalOf, RUNS } from "../../../lib/runs/journal/run_records.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import { RunWatches } from "../../../lib/runs/journal/run_watch.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { ask, readAll, supervised } from "../../support/supervised.ts";

const TIME = "2026-01-01T00:00:00.000Z";

/** Returns a run at work whose journal has lost its last records since `takeBack`. */
async function withJournal() {
  const store = createMemoryStore();
  const tools = [{ name: "look" }];
  const { runs } = supervised([{ text: ["a"], toolCalls: [{ name: "look" }] }, "b"], { store, tools });
  const handle = await runs.start(ask("Go", { durable: true }));
  await readAll(handle);
  const { id } = handle;
  const records = await store.read(journalOf(id), { afterSeq: 0, limit: 100 });
  const run = (await store.get(RUNS.name, id))?.body as { readonly run: object };
  /** Brings the journal to its first records, with a run that is at work. */
  const takeBack = async (count: number) => {
    const kept = records.slice(0, count).map(({ body }) => body as { readonly seq: number; readonly count: number });
    const last = kept.at(-1);
    assert.ok(last);
    const seq = last.seq + last.count - 1;
    const body = { ...run, run: { ...run.run, status: "running", ended_at: null }, seq, records: count };
    await store.batch([
      { op: "drop", stream: journalOf(id) },
      { op: "append", stream: journalOf(id), expectedSeq: 0, records: kept },
      { op: "put", collection: RUNS.name, key: id, body },
    ]);
  };
  await takeBack(records.length - 1);
  return { store, id, takeBack, count: records.length - 1 };
}

/** Writes as the next owner of a run: each group of events is a record. */
async function goOn(store: Store, id: string, ...groups: Parameters<typeof appendEvents>[2][]): Promise<void> {
  const runs = new RunStore(store);
  for (const group of groups) await appendEvents(id, await runs.lastSeq(id), group, { runs, time: () => TIME });
}

const RESTART = [{ type: "turn_restart", turn: 1, from_seq: 2 }, { type: "text_delta", delta: "new" }] as const;
const USAGE = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
const DONE = [{ type: "done", finish_reason: "stop", usage: USAGE }] as const;

async function journalIn(runs: RunStore, id: string): Promise<readonly AgentEvent[]> {
  return (await Array.fromAsync(runs.replay(id, 0))).flat();
}

describe("a reader whose last record was lost in a failover", () => {
  test("goes on with the record that took its place, and a new reader gets no other", async () => {
    const { store, id, takeBack, count } = await withJournal();
    let history = "first";
    const runs = new RunStore(store, { history: () => history });
    const { place } = await runs.read(id, { seq: (await journalIn(runs, id)).at(-1)?.seq ?? 0, record: 0 });
    await takeBack(count - 1);
    await goOn(store, id, [...RESTART]);
    history = "second";
    const { events } = await runs.read(id, place);
    assert.deepEqual(events.map(({ type }) => type), ["turn_restart", "text_delta"]);
    assert.deepEqual(await journalIn(runs, id), await journalIn(new RunStore(store), id));
  });

  test("does so before the gateway knows of the failover, once a record follows", async () => {
    const { store, id, takeBack, count } = await withJournal();
    const runs = new RunStore(store);
    const { place } = await runs.read(id, { seq: (await journalIn(runs, id)).at(-1)?.seq ?? 0, record: 0 });
    await takeBack(count - 1);
    await goOn(store, id, [...RESTART], [...DONE]);
    const { events } = await runs.read(id, place);
    assert.deepEqual(events.map(({ type }) => type), ["turn_restart", "text_delta"]);
    assert.deepEqual(await journalIn(runs, id), await journalIn(new RunStore(store), id));
  });

  test("is told of the restart by the watch of a run elsewhere, which shows nothing that was lost to new readers", async () => {
    const { store, id, takeBack, count } = await withJournal();
    let history = "first";
    const runs = new RunStore(store, { history: () => history });
    const news = new KeyedNotifier();
    const clock = createFakeClock();
    const watches = new RunWatches({
      ...{ runs, news, clock, random: createSeededRandom(), log: SILENT },
      links: { ownerOf: () => Promise.resolve({ kind: "nobody" }), events: () => assert.fail("There is no link") },
    });
    const leaving = new AbortController();
    const follow = async (into: AgentEvent[]) => {
      const options = { afterSeq: 0, signal: leaving.signal, runs, news, clock, watches, isShared: true };
      for await (const events of followRun(id, { ...options, find: () => undefined })) into.push(...events);
    };
    // The watch begins before the last record, which it keeps
    await takeBack(count - 1);
    const [early, late]: [AgentEvent[], AgentEvent[]] = [[], []];
    const reading = [follow(early)];
    await clock.advance(1_000);
    await takeBack(count);
    await clock.advance(2_000);
    const lost = early.at(-1);
    await takeBack(count - 1);
    history = "second";
    await clock.advance(2_000);
    reading.push(follow(late));
    await clock.advance(1_000);
    assert.equal(late.some(({ seq }) => seq === lost?.seq), false);
    await goOn(store, id, [...RESTART]);
    await clock.advance(2_000);
    await goOn(store, id, [...DONE]);
    await clock.advance(2_000);
    await Promise.all(reading);
    const stored = await journalIn(new RunStore(store), id);
    assert.deepEqual(late, stored);
    assert.deepEqual(early, stored.toSpliced(stored.length - 3, 0, lost ?? assert.fail("It was shown")));
    leaving.abort();
    watches.stop();
  });
});
