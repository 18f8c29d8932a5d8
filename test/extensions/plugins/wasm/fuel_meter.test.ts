import assert from "node:assert/strict";
import { test } from "node:test";
import { FuelMeter } from "../../../../lib/extensions/plugins/wasm/fuel_meter.ts";

/** The runtime's WASM, of which neither Node's types nor the project's speak. */
const { WebAssembly } = globalThis as unknown as {
  readonly WebAssembly: { readonly Global: new (type: object, value: number) => { value: number } };
};

test("a charge of more than 31 bits is no gift", () => {
  const meter = new FuelMeter(() => {});
  meter.attach(new WebAssembly.Global({ value: "i32", mutable: true }, 0));
  meter.start(10_000_000_000);
  meter.charge(2 ** 32 - 50_000);
  meter.charge(1);
  assert.equal(meter.used, 2 ** 32 - 49_999);
  assert.throws(() => meter.charge(6_000_000_000), { code: "out_of_fuel" });
});

test("each slice asks whether the call is over", () => {
  let asked = 0;
  const meter = new FuelMeter(() => void asked++);
  meter.attach(new WebAssembly.Global({ value: "i32", mutable: true }, 0));
  meter.start(0);
  for (let units = 0; units < 1_000_000; units += 1000) meter.charge(1000);
  assert.ok(asked >= 9, `${asked}`);
});
