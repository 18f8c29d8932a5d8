/**
 * Prints what metering costs: the time of work in a WASM module beside the same module without metering, and the time of the first
 * load of the module: `node test/bench/wasm_meter.bench.ts [module]`. The work is Rust (`wasm_meter.rs`) and needs `rustc` with the target
 * wasm32-unknown-unknown; with a module of one's own only its load is measured.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { METER, meterModule, TICK } from "../../lib/extensions/plugins/wasm/meter_module.ts";

/** The runtime's WASM, of which neither Node's types nor the project's speak. */
const { WebAssembly } = globalThis as unknown as {
  readonly WebAssembly: {
    readonly Module: new (bytes: Uint8Array) => object;
    readonly Instance: new (module: object, imports: object) => { readonly exports: unknown };
  };
};

const SIZES = {
  ...{ empty_loop: 3000, fib: 20, sieve: 100_000, matrix: 80, sort: 20_000, hash_map: 20_000 },
  ...{ words: 2000, sha256: 200_000, json: 600, regex: 200, bytes_copy: 200_000 },
};
const LIMITS = { memoryMb: 256, moduleMb: 50, isGranted: () => true };
const MS_EACH = 1500;

const [given] = process.argv.slice(2);
const bytes = given === undefined ? build() : readFileSync(given);
const start = performance.now();
const metered = meterModule(bytes, LIMITS);
const meteredAt = performance.now();
const module = new WebAssembly.Module(metered.bytes);
const [meterMs, compileMs] = [meteredAt - start, performance.now() - meteredAt].map((ms) => ms.toFixed(1));
console.log(`first load of ${bytes.length} bytes: metering ${meterMs} ms, compiling ${compileMs} ms`);
if (given === undefined) compare();

function build(): Uint8Array {
  const folder = mkdtempSync(join(tmpdir(), "postern-bench-"));
  try {
    const source = fileURLToPath(new URL("wasm_meter.rs", import.meta.url));
    const file = join(folder, "work.wasm");
    const target = ["--edition", "2021", "--target", "wasm32-unknown-unknown", "--crate-type", "cdylib"];
    execFileSync("rustc", [...target, "-C", "opt-level=3", "-C", "strip=debuginfo", source, "-o", file], {
      stdio: "inherit",
    });
    return readFileSync(file);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function compare(): void {
  const tick = () => 100_000;
  // The module exports exactly these functions
  const open = (module: object) =>
    new WebAssembly.Instance(module, { [METER]: { [TICK]: tick } }).exports as Readonly<
      Record<keyof typeof SIZES, (size: number) => number>
    >;
  const plain = open(new WebAssembly.Module(bytes));
  const counted = open(module);
  // Object.keys gives text, and the keys of SIZES are known
  for (const name of Object.keys(SIZES) as (keyof typeof SIZES)[]) {
    const best = [Infinity, Infinity];
    for (const end = performance.now() + MS_EACH; performance.now() < end;) {
      for (const [index, work] of [plain[name], counted[name]].entries()) {
        const begin = performance.now();
        work(SIZES[name]);
        best[index] = Math.min(best[index] ?? Infinity, performance.now() - begin);
      }
    }
    const [one = 0, other = 0] = best;
    console.log(
      `${name}: plain ${one.toFixed(3)} ms, metered ${other.toFixed(3)} ms, ${(other / one).toFixed(2)} times`,
    );
  }
}
