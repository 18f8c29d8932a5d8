/**
 * Measures the cost of the supervisor and the loop beside the provider itself: CPU per run of 20 chunks: `node test/bench/agent.bench.ts`.
 * The scripted provider yields without waiting, so all that is measured is ours. Lower is better; the first round only warms up.
 */
import { performance } from "node:perf_hooks";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import type { RunRequest } from "../../lib/runs/run_request.ts";
import { Supervisor } from "../../lib/runs/supervisor/supervisor.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createScriptedProviders } from "../../fixtures/scripted_provider.ts";
import { chunkProvider } from "./chunk_provider.ts";
import { createFakeToolExecutor } from "../support/fake_tool_executor.ts";

const RUNS = 20_000;
const ROUNDS = 5;

const runs = new Supervisor({
  store: createMemoryStore(),
  kit: { clock: systemClock, random: createSystemRandom(), log: SILENT, metrics: createMetrics() },
  providers: createScriptedProviders(chunkProvider),
  tools: createFakeToolExecutor([{ name: "read_file" }]),
  configured: {
    agent: () => ({
      systemPrompt: "",
      maxIterations: 20,
      maxToolCalls: 100,
      parallelTools: true,
      toolSearch: "auto",
      contextWindowTokens: 0,
      tokensPerRun: 0,
      tools: ["*"],
    }),
    limits: () => ({ maxConcurrent: 16, maxQueued: 1000, maxPerConversation: 8 }),
  },
});

const request: RunRequest = {
  kind: "chat",
  by: { caller: { via: "http", tokenId: null, scopes: ["chat"] } },
  messages: [{ role: "user", content: "Hello" }],
  durable: false,
  agentTools: "none",
};

let events = 0;
const direct = async () => {
  const asked = { model: "m", messages: request.messages, tools: [], parameters: {} };
  const controller = new AbortController();
  for await (const batch of chunkProvider.stream(asked, { signal: controller.signal })) events += batch.length;
};
const supervised = (asked: RunRequest) => async () => {
  const handle = await runs.start(asked);
  for await (const batch of handle.events()) events += batch.length;
};

const cases: readonly (readonly [name: string, run: () => Promise<void>])[] = [
  ["provider alone", direct],
  ["supervised, no tools", supervised(request)],
  ["supervised, agent tools offered", supervised({ ...request, agentTools: "configured" })],
];
for (let round = 0; round <= ROUNDS; round++) {
  for (const [name, run] of cases) {
    const cpu = process.cpuUsage();
    const begun = performance.now();
    for (let i = 0; i < RUNS; i++) await run();
    const { user, system } = process.cpuUsage(cpu);
    const wall = ((performance.now() - begun) * 1000) / RUNS;
    if (round > 0) {
      console.log(`${name.padEnd(34)} ${((user + system) / RUNS).toFixed(1)} us CPU  ${wall.toFixed(1)} us wall`);
    }
  }
}
console.log(`${events} events`);
