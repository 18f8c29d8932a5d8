import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LEFT, METER, meterModule, TICK } from "../../../../lib/extensions/plugins/wasm/meter_module.ts";
import { ModuleWriter, WasmRefusal } from "../../../../lib/extensions/plugins/wasm/module_bytes.ts";

const LIMITS = { memoryMb: 1, moduleMb: 1, isGranted: (module: string) => module === "env" };
const HEADER = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
const SLICE = 100_000;

/** The runtime's WASM, of which neither Node's types nor the project's speak. */
const { WebAssembly } = globalThis as unknown as {
  readonly WebAssembly: {
    readonly Module: new (bytes: Uint8Array) => object;
    readonly Instance: new (module: object, imports: object) => { readonly exports: unknown };
    validate(bytes: Uint8Array): boolean;
  };
};

type Section = readonly [id: number, bytes: readonly number[] | Uint8Array];

function moduleOf(...sections: readonly Section[]): Uint8Array<ArrayBuffer> {
  const module = new ModuleWriter().bytes(HEADER);
  for (const [id, bytes] of sections) module.byte(id).u32(bytes.length).bytes(bytes);
  return module.view().slice();
}

/** A module with the function `run(i32) => i32` of this code, three more locals, a memory of one page, a global and a table. */
function program(code: readonly number[], more: { readonly memory?: Section; readonly table?: Section } = {}) {
  const body = new ModuleWriter().bytes([1, 3, 0x7f, ...code, 0x0b]);
  return moduleOf(
    [1, [1, 0x60, 1, 0x7f, 1, 0x7f]],
    [3, [1, 0]],
    more.table ?? [4, [1, 0x70, 0, 1]],
    more.memory ?? [5, [1, 0, 1]],
    [6, [1, 0x7f, 1, 0x41, 7, 0x0b]],
    [7, [1, 3, 0x72, 0x75, 0x6e, 0, 0]],
    [10, new ModuleWriter().byte(1).sized(body).view()],
  );
}

/** Runs a module, metered or plain. `fuel` ends it. */
function run(bytes: Uint8Array, { input = 5, fuel = 10_000_000, isMetered = true } = {}) {
  let given = 0;
  const tick = (left: number) => {
    if (given - left > fuel) throw new Error("fuel_limit");
    const next = Math.min(SLICE, fuel - given + left);
    given += next - left;
    return next;
  };
  const module = isMetered ? meterModule(bytes, LIMITS).bytes : bytes;
  const instance = new WebAssembly.Instance(new WebAssembly.Module(module), { [METER]: { [TICK]: tick } });
  // The programs export exactly this; a plain one has no fuel
  const { run, [LEFT]: left } = instance.exports as {
    readonly run: (input: number) => number;
    readonly [LEFT]?: { readonly value: number };
  };
  const used = () => given - (left?.value ?? 0);
  try {
    return { value: run(input), used: used() };
  } catch (error) {
    return { value: String(error), used: used() };
  }
}

function refusalOf(bytes: Uint8Array): string {
  try {
    meterModule(bytes, LIMITS);
    return "none";
  } catch (error) {
    assert.ok(error instanceof WasmRefusal, String(error));
    return `${error.code}: ${error.message}`;
  }
}

test("a loop ends when its fuel is used, and a unit is a basic block", () => {
  assert.deepEqual(run(program([0x03, 0x40, 0x0c, 0, 0x0b, 0x41, 0]), { fuel: 250_000 }).value, "Error: fuel_limit");
  assert.equal(run(program([0x41, 0])).used, 1);
  assert.equal(run(program([0x20, 0, 0x04, 0x7f, 0x41, 1, 0x05, 0x41, 2, 0x0b])).used, 2);
});

test("bulk operations, growth and long blocks charge for their length", () => {
  assert.equal(run(program([0x41, 0, 0x41, 1, 0x41, 0x80, 0x80, 4, 0xfc, 11, 0, 0x41, 0])).used, 1 + 1024);
  assert.equal(run(program([0x41, 2, 0x40, 0])).used, 1 + 128);
  assert.equal(run(program([...Array(1000).fill(0x01), 0x41, 0])).used, 11);
});

test("memory and tables have a bound, which growing does not pass", () => {
  assert.equal(run(program([0x41, 15, 0x40, 0])).value, 1);
  assert.equal(run(program([0x41, 16, 0x40, 0])).value, -1);
  const growTable = (entries: readonly number[]) => program([0xd0, 0x70, 0x41, ...entries, 0xfc, 15, 0]);
  assert.equal(run(growTable([0x80, 0x08])).value, 1);
  assert.equal(run(growTable([0xa0, 0x8d, 6])).value, -1);
});

/** Modules that are refused, with what the refusal says. */
const REFUSED: readonly (readonly [name: string, bytes: Uint8Array, says: RegExp])[] = [
  ["no WASM", new TextEncoder().encode("#!/bin/sh\n"), /module_invalid.*no WASM/],
  ["a component", Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0), /module_feature.*component model/],
  ["a truncated module", program([0x41, 0]).slice(0, -4), /module_invalid/],
  ["a module that is too large", new Uint8Array(1_048_577), /module_too_large.*max_module_size_mb is 1/],
  [
    "a custom section that lies about its size",
    Uint8Array.of(...HEADER, 0, 0xff, 0x7f, 1),
    /module_invalid/,
  ],
  ["a custom section whose name is longer than it", moduleOf([0, [9, 65]]), /module_invalid/],
  ["sections out of order", moduleOf([3, [0]], [1, [0]]), /not in order/],
  ["two sections of one kind", moduleOf([1, [0]], [1, [0]]), /not in order/],
  ["a section with bytes behind its list", moduleOf([1, [0, 0]]), /longer than what it holds/],
  ["a number of types that lies", moduleOf([1, [0xff, 0xff, 0xff, 0xff, 0x0f]]), /module_too_large/],
  [
    "an import that is not granted",
    moduleOf([1, [1, 0x60, 0, 0]], [2, [1, 1, 0x78, 1, 0x79, 0, 0]]),
    /module_import.*"x y"/,
  ],
  ["an import of memory", moduleOf([2, [1, 3, 0x65, 0x6e, 0x76, 1, 0x6d, 2, 0, 1]]), /module_import.*memory "env m"/],
  ["shared memory", program([0x41, 0], { memory: [5, [1, 3, 1, 1]] }), /threads/],
  ["memory64", program([0x41, 0], { memory: [5, [1, 4, 1]] }), /memory64/],
  ["two memories", program([0x41, 0], { memory: [5, [2, 0, 1, 0, 1]] }), /several memories/],
  ["a memory above the limit", program([0x41, 0], { memory: [5, [1, 0, 17]] }), /memory_limit_mb is 1/],
  ["a table above the limit", program([0x41, 0], { table: [4, [1, 0x70, 0, 0xa1, 0x8d, 6]] }), /100001 entries/],
  ["exceptions", program([0x06, 0x40, 0x0b, 0x41, 0]), /exceptions/],
  ["a section of tags", moduleOf([13, [0]]), /exceptions/],
  ["garbage collection", program([0xfb, 0, 0]), /garbage collection/],
  ["types of garbage collection", moduleOf([1, [1, 0x5f, 0]]), /garbage collection/],
  ["atomic instructions", program([0xfe, 0x03, 0, 0x41, 0]), /threads/],
  ["writing the fuel", program([0x41, 0, 0x24, 1, 0x41, 0]), /global that it does not have/],
  ["exporting the fuel", moduleOf([7, [1, 1, 0x78, 3, 0]]), /global that it does not have/],
  ["calling the tick", program([0x41, 0, 0x10, 1]), /function 1, which it does not have/],
  ["code that nests too deep", program(Array(10_001).fill(0).flatMap(() => [0x02, 0x40])), /nests deeper/],
  ["reading the count of fuel", program([0x20, 4]), /local that it does not have/],
  [
    "writing the count of fuel by an index that is longer than it needs to be",
    program([0x41, 0, 0x21, 0x84, 0, 0x41, 0]),
    /local that/,
  ],
  ["a branch out of the function", program([0x0c, 1]), /branch of it has no label/],
  ["a block of the type of the tick", program([0x41, 0, 0x02, 1, 0x0b]), /type that it does not have/],
  ["a call by the type of the tick", program([0x41, 0, 0x41, 0, 0x11, 1, 0]), /type that it does not have/],
];

for (const [name, bytes, says] of REFUSED) {
  test(`meterModule() refuses ${name}`, () => assert.match(refusalOf(bytes), says));
}

test("meterModule() refuses or keeps what damaged bytes are, and throws nothing else", () => {
  const bytes = program([0x20, 0, 0x04, 0x7f, 0x41, 1, 0x05, 0x41, 2, 0x0b]);
  fc.assert(
    fc.property(fc.nat(bytes.length - 1), fc.nat(255), (at, byte) => {
      const damaged = bytes.slice();
      damaged[at] = byte;
      if (refusalOf(damaged) !== "none") return;
      // The engine takes a metered module only where it takes the plain one: metering makes no damaged module valid
      if (WebAssembly.validate(meterModule(damaged, LIMITS).bytes)) {
        assert.ok(WebAssembly.validate(damaged), `${at} ${byte}`);
      }
    }),
    { numRuns: 2000 },
  );
});
