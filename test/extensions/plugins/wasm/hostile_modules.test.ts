import assert from "node:assert/strict";
import { test } from "node:test";
import { meterModule } from "../../../../lib/extensions/plugins/wasm/meter_module.ts";
import { WasmRefusal } from "../../../../lib/extensions/plugins/wasm/module_bytes.ts";
import { answering, HOSTILE_MODULES, PLAIN_LIMITS } from "../../../support/wasm_modules.ts";

/** The runtime's WASM, of which neither Node's types nor the project's speak. */
const { WebAssembly } = globalThis as unknown as {
  readonly WebAssembly: { validate(bytes: Uint8Array): boolean };
};

function fateOf(bytes: Uint8Array): string {
  try {
    return WebAssembly.validate(meterModule(bytes, PLAIN_LIMITS).bytes) ? "loaded" : "not valid";
  } catch (error) {
    assert.ok(error instanceof WasmRefusal, String(error));
    return "refused";
  }
}

test("a module that answers is loaded", () => assert.equal(fateOf(answering()), "loaded"));

for (const { name, fate, make } of HOSTILE_MODULES) {
  test(`meterModule() ${fate === "refused" ? "refuses" : "loads"} a module with ${name}`, () =>
    assert.equal(fateOf(make()), fate === "refused" ? "refused" : "loaded"));
}
