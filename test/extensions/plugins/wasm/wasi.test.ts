import assert from "node:assert/strict";
import { test } from "node:test";
import { FuelMeter } from "../../../../lib/extensions/plugins/wasm/fuel_meter.ts";
import { ModuleFailure } from "../../../../lib/extensions/plugins/wasm/module_failure.ts";
import { grantsImport, REFUSING_WASI } from "../../../../lib/extensions/plugins/wasm/module_imports.ts";
import { NO_CAPABILITIES } from "../../../../lib/extensions/plugins/manifest.ts";
import { createWasi } from "../../../../lib/extensions/plugins/wasm/wasi.ts";

const BAD_DESCRIPTOR = 8;
const NOT_CAPABLE = 76;

function createMachine() {
  const memory = new ArrayBuffer(65_536);
  const said: string[] = [];
  const slept: number[] = [];
  const fuel = new FuelMeter(() => {});
  fuel.start(0);
  const functions = createWasi({
    fuel,
    memory: () => memory,
    say: (bytes) => void said.push(Buffer.from(bytes).toString()),
    sleep: (ms) => void slept.push(ms),
  });
  const call = (name: string, ...args: readonly unknown[]) => functions[name]?.(...args as never[]);
  return { call, functions, said, slept, fuel, view: new DataView(memory) };
}

test("there is an empty environment, an input at its end and no folder", () => {
  const { call, view } = createMachine();
  for (const name of ["args_sizes_get", "environ_sizes_get"]) {
    view.setUint32(0, 9, true);
    assert.equal(call(name, 0, 4), 0);
    assert.deepEqual([view.getUint32(0, true), view.getUint32(4, true)], [0, 0]);
  }
  view.setUint32(8, 9, true);
  assert.equal(call("fd_read", 0, 16, 1, 8), 0);
  assert.equal(view.getUint32(8, true), 0);
  assert.equal(call("fd_prestat_get", 3, 0), BAD_DESCRIPTOR);
  assert.equal(call("fd_read", 3, 16, 1, 8), BAD_DESCRIPTOR);
  assert.equal(call("fd_fdstat_get", 3, 0), BAD_DESCRIPTOR);
});

test("what is written to the outputs is kept, and charged by length", () => {
  const { call, said, view, fuel } = createMachine();
  new Uint8Array(view.buffer).set(Buffer.from("hello, world"), 100);
  for (const [index, [at, length]] of [[100, 5], [105, 7]].entries()) {
    view.setUint32(index * 8, at ?? 0, true);
    view.setUint32(index * 8 + 4, length ?? 0, true);
  }
  assert.equal(call("fd_write", 2, 0, 2, 64), 0);
  assert.equal(said.join(""), "hello, world");
  assert.equal(view.getUint32(64, true), 12);
  assert.equal(fuel.used, 2);
  assert.equal(call("fd_write", 3, 0, 2, 64), BAD_DESCRIPTOR);
  view.setUint32(4, 0xffff_ffff, true);
  assert.throws(() => call("fd_write", 1, 0, 1, 64), RangeError, "a length beyond the memory");
});

test("clocks and randomness are real", () => {
  const { call, view } = createMachine();
  assert.equal(call("clock_time_get", 0, 0n, 8), 0);
  assert.ok(Math.abs(Number(view.getBigUint64(8, true) / 1_000_000n) - Date.parse(new Date().toISOString())) < 60_000);
  assert.equal(call("clock_time_get", 9, 0n, 8), 28);
  assert.equal(call("random_get", 0, 65_536), 0);
  assert.ok(new Set(new Uint8Array(view.buffer)).size > 200);
  assert.throws(() => call("random_get", 65_530, 100), RangeError);
});

test("a module that waits for clocks sleeps until the first one", () => {
  const { call, view, slept } = createMachine();
  for (const [index, [userdata, ms]] of ([[7n, 50n], [8n, 20n]] as const).entries()) {
    view.setBigUint64(index * 48, userdata, true);
    view.setUint32(index * 48 + 16, 1, true);
    view.setBigUint64(index * 48 + 24, ms * 1_000_000n, true);
  }
  assert.equal(call("poll_oneoff", 0, 1024, 2, 2048), 0);
  assert.deepEqual(slept, [21]);
  assert.equal(view.getUint32(2048, true), 1);
  assert.equal(view.getBigUint64(1024, true), 8n);
  assert.equal(call("poll_oneoff", 0, 1024, 0, 2048), 28);
});

test("proc_exit() ends the module: done with 0, failed with another code", () => {
  const { call } = createMachine();
  const codeOf = (code: number) => {
    try {
      return call("proc_exit", code);
    } catch (error) {
      return error instanceof ModuleFailure ? error.code : error;
    }
  };
  assert.deepEqual([codeOf(0), codeOf(2)], ["exited", "failed"]);
});

test("files and sockets answer that they are not there, to a module whose manifest lists them", () => {
  const { functions, call } = createMachine();
  for (const name of REFUSING_WASI) assert.equal(call(name), NOT_CAPABLE, name);
  const plain = grantsImport(NO_CAPABILITIES);
  const listed = grantsImport({ ...NO_CAPABILITIES, host_functions: ["path_open", "exec"] });
  const granted = Object.keys(functions).filter((name) => !plain("wasi_snapshot_preview1", name));
  assert.deepEqual(granted.sort(), [...REFUSING_WASI].sort(), "everything else reaches nothing");
  assert.equal(listed("wasi_snapshot_preview1", "path_open"), true);
  assert.equal(listed("wasi_snapshot_preview1", "exec"), false);
  assert.equal(listed("env", "exec"), false);
});

test("a fuel meter counts what the host charges before there is a module, and ends at its limit", () => {
  const meter = new FuelMeter(() => {});
  meter.start(1000);
  const left = { value: meter.tick(-1) };
  assert.equal(left.value, 999);
  meter.charge(500);
  left.value -= 10;
  meter.attach(left);
  assert.equal(meter.used, 511);
  meter.charge(489);
  assert.equal(meter.used, 1000);
  assert.throws(() => meter.charge(1), { code: "out_of_fuel" });
  meter.start(0);
  for (let at = 0; at < 10; at++) meter.charge(1_000_000);
  assert.equal(meter.used, 10_000_000);
});
