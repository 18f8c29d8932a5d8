/**
 * Prints what recorded runs cost on a database in a temporary folder: `node test/bench/records.bench.ts`.
 *
 * The lists read 100,000 runs of which 3 need review. The turns are those of one client that waits for each, as a person does.
 */
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { createScriptedProviders } from "../../fixtures/scripted_provider.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import type { RunStatus } from "../../lib/base/records/run.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { createStoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import { RUNS } from "../../lib/runs/journal/run_records.ts";
import { Supervisor } from "../../lib/runs/supervisor/supervisor.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import type { Store, Write } from "../../lib/storage/store.ts";
import { chunkProvider } from "./chunk_provider.ts";
import { createFakeToolExecutor } from "../support/fake_tool_executor.ts";

const RUNS_KEPT = 100_000;
const NEED_REVIEW = 3;
const LISTS = 200;
const TURNS = 20_000;

const show = (name: string, value: string) => console.log(`${name.padEnd(60)} ${value.padStart(12)}`);

function showTimes(name: string, times: readonly number[]): void {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (part: number) =>
    `${(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0).toFixed(2)} ms`;
  show(`${name}, p50`, at(0.5));
  show(`${name}, p99`, at(0.99));
  show(`${name}, longest`, at(1));
}

async function fill(store: Store): Promise<void> {
  const time = "2026-01-01T00:00:00.000Z";
  const bodyOf = (id: string, status: RunStatus) => ({
    v: 1,
    run: {
      id,
      object: "run",
      kind: "chat",
      status,
      created_at: time,
      started_at: time,
      ended_at: time,
      model: "model-1",
      conversation_id: null,
      parent_id: null,
      result: "word ".repeat(100),
      error: null,
      usage: { prompt_tokens: 100, completion_tokens: 100, total_tokens: 200 },
    },
    seq: 12,
    records: 2,
  });
  for (let from = 0; from < RUNS_KEPT; from += 1000) {
    const writes: Write[] = [];
    for (let index = from; index < from + 1000; index++) {
      const id = `run_${String(index).padStart(10, "0")}`;
      writes.push({
        op: "put",
        collection: RUNS.name,
        key: id,
        body: bodyOf(id, index < NEED_REVIEW ? "needs_review" : "completed"),
      });
    }
    await store.batch(writes);
  }
}

async function lists(store: Store): Promise<void> {
  const storedRuns = createStoredRuns({ store });
  for (const status of [undefined, "completed", "needs_review", "failed"] as const) {
    const times: number[] = [];
    let found = 0;
    for (let round = 0; round < LISTS; round++) {
      const begun = performance.now();
      found = (await storedRuns.list({ status, limit: 20 })).runs.length;
      times.push(performance.now() - begun);
    }
    showTimes(`a page of ${RUNS_KEPT} runs, status ${status ?? "any"} (${found})`, times);
  }
}

async function turns(store: Store, path: string): Promise<void> {
  const runs = new Supervisor({
    store,
    kit: { clock: systemClock, random: createSystemRandom(), log: SILENT, metrics: createMetrics() },
    providers: createScriptedProviders(chunkProvider),
    tools: createFakeToolExecutor([]),
    configured: {
      agent: () => ({
        systemPrompt: "",
        maxIterations: 20,
        maxToolCalls: 100,
        parallelTools: true,
        toolSearch: "auto",
        contextWindowTokens: 0,
        tokensPerRun: 0,
        tools: [],
      }),
      limits: () => ({ maxConcurrent: 16, maxQueued: 1000, maxPerConversation: 8 }),
    },
  });
  const begunBytes = statSync(path).size;
  const times: number[] = [];
  for (let turn = 0; turn < TURNS; turn++) {
    const begun = performance.now();
    const handle = await runs.start({
      kind: "chat",
      by: { caller: { via: "http", tokenId: null, scopes: ["runs"] } },
      messages: [{ role: "user", content: "Hello" }],
      durable: true,
      agentTools: "none",
    });
    for await (const _ of handle.events());
    times.push(performance.now() - begun);
  }
  showTimes("a durable turn of one client", times.slice(TURNS / 10));
  show("database a turn", `${((statSync(path).size - begunBytes) / TURNS / 1000).toFixed(1)} kB`);
}

const folder = mkdtempSync(join(tmpdir(), "postern-bench-"));
const path = join(folder, "postern.db");
const store = await openSqliteStore({ path, clock: systemClock });
try {
  await turns(store, path);
  await fill(store);
  await lists(store);
} finally {
  await store.close();
  rmSync(folder, { recursive: true, force: true });
}
