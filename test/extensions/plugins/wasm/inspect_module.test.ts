import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { inspectModule } from "../../../../lib/extensions/plugins/wasm/inspect_module.ts";
import { answering, HOSTILE_MODULES, moduleOf, PLAIN_LIMITS } from "../../../support/wasm_modules.ts";

const featuresSection = [
  ...[15, ...new TextEncoder().encode("target_features"), 2, 0x2b, 4, ...new TextEncoder().encode("simd")],
  ...[0x2d, 3, ...new TextEncoder().encode("gc\u001b")],
];

test("a report says what a module imports and exports, its memory, its tables, and that nothing refuses it", () => {
  const module = answering(undefined, { memory: [2, 9], start: [], tail: [[0, featuresSection]] });
  assert.deepEqual(inspectModule(module, PLAIN_LIMITS), {
    imports: [
      { module: "extism:host/env", name: "alloc", kind: "function", type: "(i64) -> i64", granted: true },
      { module: "extism:host/env", name: "store_u8", kind: "function", type: "(i64, i32) -> nothing", granted: true },
      { module: "extism:host/env", name: "output_set", kind: "function", type: "(i64, i64) -> nothing", granted: true },
    ],
    exports: [
      { name: "execute", kind: "function", type: "() -> i32" },
      { name: "memory", kind: "memory", type: null },
    ],
    memory: { min: 2, max: 9 },
    tables: [{ min: 1, max: null }],
    functions: 2,
    has_start: true,
    custom_sections: ["target_features"],
    features: ["simd", "-gc\\u001b"],
    refusal: null,
  });
});

test("a report says which imports are not granted, and the reason why the module is refused", () => {
  const imports = [{ module: "env", name: "exec", type: "ii:i" }] as const;
  const { imports: listed, refusal } = inspectModule(answering(undefined, { imports }), PLAIN_LIMITS);
  assert.deepEqual(listed.filter(({ granted }) => !granted), [
    { module: "env", name: "exec", kind: "function", type: "(i32, i32) -> i32", granted: false },
  ]);
  assert.deepEqual(refusal, { code: "module_import", reason: 'it imports what it was not granted: "env exec"' });
});

test("a report of a component names the component model", () => {
  const component = Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0, 7, 3, 1, 2, 3);
  const { refusal, exports } = inspectModule(component, PLAIN_LIMITS);
  assert.match(refusal?.reason ?? "", /component model/);
  assert.deepEqual(exports, []);
});

test("a report has what stands before the damage", () => {
  const { exports, memory, refusal } = inspectModule(answering().slice(0, -7), PLAIN_LIMITS);
  assert.deepEqual([exports.length, memory?.min, refusal?.code], [2, 1, "module_invalid"]);
});

test("a report of each hostile module is short and refuses those that must not be loaded", () => {
  for (const { name, fate, make } of HOSTILE_MODULES) {
    const report = inspectModule(make(), PLAIN_LIMITS);
    assert.equal(report.refusal !== null, fate === "refused", name);
    assert.ok(JSON.stringify(report).length < 2000, name);
  }
});

test("a report is bounded, however many things a module lists", () => {
  const name = [1, 65, 0];
  const module = moduleOf([7, [0xe0, 0xd4, 3, ...Array.from({ length: 60_000 }, () => [...name, 0]).flat()]]);
  assert.equal(inspectModule(module, PLAIN_LIMITS).exports.length, 1000);
});

test("inspectModule() throws for no bytes", () => {
  const module = answering(undefined, { start: [], tail: [[0, featuresSection]] });
  fc.assert(
    fc.property(fc.nat(module.length - 1), fc.nat(255), (at, byte) => {
      const damaged = module.slice();
      damaged[at] = byte;
      inspectModule(damaged, PLAIN_LIMITS);
    }),
    { numRuns: 500 },
  );
  fc.assert(fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
    inspectModule(bytes, PLAIN_LIMITS);
    inspectModule(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...bytes), PLAIN_LIMITS);
  }));
});
