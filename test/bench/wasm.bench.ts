/**
 * Prints how long a call of a WASM plugin takes, p50 and p99 in milliseconds, beside a bare call of Extism in this thread, and how long a
 * module of 1 MB takes to load: `node test/bench/wasm.bench.ts [calls] [module]`. A module is one that answers `execute` in JSON.
 */
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { createPlugin } from "@extism/extism";
import { systemClock } from "../../lib/base/clock.ts";
import { withModule } from "../support/wasm_bench.ts";
import { answeringWat, compileWat } from "../support/wat.ts";
import { median } from "./median.ts";

const CALLS = Number(process.argv[2] ?? 500);
const given = process.argv[3] === undefined ? undefined : new Uint8Array(readFileSync(process.argv[3]));
const INPUT = JSON.stringify({ tool: "say", input: { text: "hello" }, context: {} });
/** Code of functions that make a module of about 1 MB. */
const FUNCTION = `(func (param i32 i32) (result i32)
  (if (local.get 0) (then (return (i32.add (i32.mul (local.get 0) (i32.const 12345)) (local.get 1)))))
  (block $out (loop $next (br_if $out (i32.ge_u (local.get 1) (i32.const 99)))
    (local.set 1 (i32.add (local.get 1) (i32.load (local.get 0)))) (br $next))) (local.get 1))`;
const SMALL = compileWat(answeringWat("ready"));
const LARGE = compileWat(answeringWat("ready", FUNCTION.repeat(17_500)));

await bare("bare call of Extism", given ?? SMALL);
await plugin("call of a plugin", given ?? SMALL);
await loading("loading 1 MB", LARGE);

/** Measures a call with pauses, in which the next instance is made, and without. */
async function plugin(name: string, module: Uint8Array): Promise<void> {
  await withModule(module, async ({ call }) => {
    await measure(`${name}, one each 10 ms`, () => call("hello"), () => systemClock.sleep(10));
    await measure(`${name}, one after the other`, () => call("hello"));
  });
}

async function bare(name: string, module: Uint8Array): Promise<void> {
  const instance = await createPlugin({ wasm: [{ data: new Uint8Array(module) }] }, { useWasi: given !== undefined });
  await measure(name, () => instance.call("execute", INPUT));
  await instance.close();
}

async function loading(name: string, module: Uint8Array): Promise<void> {
  const [opening, first]: readonly number[][] = [[], []];
  for (let round = 0; round < 10; round++) {
    const start = performance.now();
    await withModule(module, async ({ call }) => {
      opening?.push(performance.now() - start);
      await call("hello");
      first?.push(performance.now() - start);
    });
  }
  const [opened, called] = [median(opening ?? []).toFixed(1), median(first ?? []).toFixed(1)];
  console.log(`${name} (${module.length} bytes), with its thread: ${opened}, until the first answer ${called}`);
}

async function measure(name: string, work: () => Promise<unknown>, pause?: () => Promise<void>): Promise<void> {
  const calls = pause === undefined ? CALLS * 4 : CALLS;
  for (let at = 0; at < 100; at++) await work();
  const times: number[] = [];
  for (let at = 0; at < calls; at++) {
    await pause?.();
    const start = performance.now();
    await work();
    times.push(performance.now() - start);
  }
  times.sort((a, b) => a - b);
  const part = (share: number) => (times[Math.floor(times.length * share)] ?? 0).toFixed(3);
  console.log(`${name}: p50 ${part(0.5)}, p99 ${part(0.99)}`);
}
