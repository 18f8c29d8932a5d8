/**
 * Prints how long a warm call of an MCP server over standard input and output takes, p50 and p99 in milliseconds: through Postern's
 * connection, and through the bare client of the SDK with its own transport: `node test/bench/mcp.bench.ts [calls]`.
 */
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { NEVER, withMcp } from "../support/mcp_bench.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { median } from "./median.ts";

const CALLS = Number(process.argv[2] ?? 2_000);
const ROUNDS = 5;
const params = { name: "echo", arguments: { text: "hello" } };
const FIXTURE = join(PROJECT_ROOT, "fixtures/mcp/server.mjs");

for (const era of ["legacy", "modern"] as const) {
  const behaviour = { era };
  const bare = new Client({ name: "bench", version: "1" }, { versionNegotiation: { mode: "auto" } });
  await bare.connect(
    new StdioClientTransport({ command: process.execPath, args: [FIXTURE, JSON.stringify(behaviour)] }),
  );
  const one = { command: process.execPath, args: [FIXTURE, JSON.stringify(behaviour)] };
  await withMcp({ servers: { one } }, async ({ server }) => {
    const own = server();
    await own.freshTools(NEVER);
    const times: Record<"bare" | "own", number[]> = { bare: [], own: [] };
    // By turns: a busy moment of the machine hits both
    for (let round = 0; round < ROUNDS; round++) {
      times.bare.push(...await measure(() => bare.request({ method: "tools/call", params })));
      times.own.push(...await measure(() => own.request("tools/call", params, { signal: NEVER })));
    }
    const [bareMs, ownMs] = [median(times.bare), median(times.own)];
    const line = (name: string, values: readonly number[]) =>
      console.log(`${era} ${name}: p50 ${median(values).toFixed(3)} ms, p99 ${percentile(values, 0.99).toFixed(3)} ms`);
    line("bare SDK client", times.bare);
    line("Postern", times.own);
    console.log(`${era} overhead: ${(ownMs - bareMs).toFixed(3)} ms at p50`);
  });
  await bare.close();
}

async function measure(call: () => Promise<unknown>): Promise<readonly number[]> {
  const times: number[] = [];
  for (let index = 0; index < CALLS / ROUNDS + 50; index++) {
    const start = performance.now();
    await call();
    if (index >= 50) times.push(performance.now() - start);
  }
  return times;
}

function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length * share)] ?? Number.NaN;
}
