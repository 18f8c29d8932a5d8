/**
 * Measures the cost of the journal: `node test/bench/runs.bench.ts`: durable runs on disk beside durable runs in memory and attached runs
 * without a journal, and what the event loop feels of the disk. Where a C compiler is at hand, the delays are measured once more with
 * a disk that takes 10 ms for every sync.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { createScriptedProviders } from "../../fixtures/scripted_provider.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { Supervisor } from "../../lib/runs/supervisor/supervisor.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import { chunkProvider } from "./chunk_provider.ts";
import { createFakeToolExecutor } from "../support/fake_tool_executor.ts";
import { median } from "./median.ts";

const RUNS = 4_000;
const AT_ONCE = 32;
const ROUNDS = 5;
const PACED_PER_SECOND = 200;
const PACED_SECONDS = 5;
const SYNC_MS = 10;
const SLOW = "--slow-disk";

function startRuns(store: Store, durable: boolean) {
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
      limits: () => ({ maxConcurrent: AT_ONCE, maxQueued: 10_000, maxPerConversation: 8 }),
    },
  });
  return async () => {
    const handle = await runs.start({
      kind: "chat",
      by: { caller: { via: "http", tokenId: null, scopes: ["runs"] } },
      messages: [{ role: "user", content: "Hello" }],
      durable,
      agentTools: "none",
    });
    for await (const _ of handle.events());
  };
}

/** As many runs as possible, 32 at once. */
async function throughput(name: string, run: () => Promise<void>): Promise<void> {
  const rounds: { readonly perSecond: number; readonly cpu: number }[] = [];
  for (let round = 0; round <= ROUNDS; round++) {
    const cpu = process.cpuUsage();
    const begun = performance.now();
    let left = RUNS;
    await Promise.all(Array.from({ length: AT_ONCE }, async () => {
      while (left-- > 0) await run();
    }));
    const { user, system } = process.cpuUsage(cpu);
    // The first round only warms up
    if (round > 0) rounds.push({ perSecond: RUNS / ((performance.now() - begun) / 1000), cpu: (user + system) / RUNS });
  }
  const perSecond = median(rounds.map((round) => round.perSecond));
  const cpu = median(rounds.map((round) => round.cpu));
  console.log(
    `${name.padEnd(44)} ${perSecond.toFixed(0).padStart(6)} runs/s ${cpu.toFixed(0).padStart(5)} us CPU a run`,
  );
}

/** 200 runs a second, and how late a timer of 1 ms is meanwhile. */
async function loopDelay(name: string, run: () => Promise<void>): Promise<void> {
  const delays: number[] = [];
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    delays.push(Math.max(0, now - last - 1));
    last = now;
  }, 1);
  const waits: number[] = [];
  const working: Promise<void>[] = [];
  const begun = performance.now();
  for (let i = 0; i < PACED_PER_SECOND * PACED_SECONDS; i++) {
    await systemClock.sleep(Math.max(0, begun + (i * 1000) / PACED_PER_SECOND - performance.now()));
    const started = performance.now();
    working.push(run().then(() => void waits.push(performance.now() - started)));
  }
  await Promise.all(working);
  clearInterval(timer);
  const of = (values: number[], part: number) => values.sort((a, b) => a - b)[Math.floor(values.length * part)] ?? 0;
  console.log(
    `${name.padEnd(44)} event loop p50 ${of(delays, 0.5).toFixed(2)} p99 ${of(delays, 0.99).toFixed(2)} ` +
      `max ${of(delays, 0.9999).toFixed(2)} ms; a run p50 ${of(waits, 0.5).toFixed(1)} p99 ${
        of(waits, 0.99).toFixed(1)
      } ms`,
  );
}

/** Runs this file with every sync of the disk made slow, below SQLite and Node. */
function withSlowDisk(folder: string): void {
  const source = join(folder, "slow_sync.c");
  const library = join(folder, "slow_sync.so");
  writeFileSync(
    source,
    `#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int f) { usleep(${SYNC_MS * 1000}); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(f); }
int fdatasync(int f) { usleep(${SYNC_MS * 1000}); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(f); }
`,
  );
  const built = spawnSync("cc", ["-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], { encoding: "utf8" });
  if (built.status !== 0) {
    return console.log(`A slow disk: skipped, since cc cannot build for it (${built.error ?? built.stderr})`);
  }
  spawnSync(process.execPath, [import.meta.filename, SLOW], {
    stdio: "inherit",
    env: { ...process.env, LD_PRELOAD: library },
  });
}

const folder = mkdtempSync(join(tmpdir(), "postern-runs-bench-"));
try {
  const disk = await openSqliteStore({ path: join(folder, "postern.db"), clock: systemClock });
  const onDisk = startRuns(disk, true);
  if (process.argv.includes(SLOW)) {
    await loopDelay(`durable, on disk, ${SYNC_MS} ms a sync`, onDisk);
  } else {
    await throughput("attached, no journal", startRuns(createMemoryStore(), false));
    await throughput("durable, in memory", startRuns(createMemoryStore(), true));
    await throughput("durable, on disk, full sync", onDisk);
    await loopDelay("attached, no journal", startRuns(createMemoryStore(), false));
    await loopDelay("durable, on disk", onDisk);
    withSlowDisk(folder);
  }
  await disk.close();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
