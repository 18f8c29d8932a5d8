import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { type Clock, systemClock } from "../../../../lib/base/clock.ts";
import type { ToolError } from "../../../../lib/base/errors.ts";
import { nextTick } from "../../../../lib/base/tick.ts";
import { withModule } from "../../../support/wasm_bench.ts";
import { answeringWat, compileWat, EXTISM_WAT, programWat } from "../../../support/wat.ts";

const LOOP = "(loop $again (br $again)) (i32.const 0)";
const HELLO = answeringWat("hello");
/** An answer that is written after the code of a test. */
const OK = '(data (i32.const 1000) "{\\"output\\":\\"ok\\"}")';
const SAY_OK = "(call $answer (i32.const 1000) (i32.const 15)) (i32.const 0)";

/** Units of a call that uses everything that is charged by length: counted once, and the same wherever the test runs. */
const SAME_FUEL = 28_466;

const refusalOf = (source: string | Uint8Array, options = {}) =>
  withModule(source, () => Promise.resolve(), options).then(
    () => "none",
    ({ code, message }: ToolError) => `${code}: ${message}`,
  );

test("a module answers, and what it used is known", () =>
  withModule(HELLO, async ({ call, host }) => {
    const first = await call();
    assert.equal(first.output, "hello");
    assert.equal(first.is_error, false);
    assert.equal(first.used?.fuel, 43);
    assert.ok((first.used?.memory_bytes ?? 0) >= 131_072);
    const second = await call();
    assert.equal(second.used?.fuel, first.used?.fuel, "each call begins with a fresh memory");
    assert.deepEqual(host.facts.exports, ["execute"]);
  }));

test("a call uses the same fuel on every runtime", () =>
  withModule(
    programWat(
      `(local $at i32)
      (loop $again
        (memory.fill (i32.const 20000) (i32.const 1) (i32.const 10000))
        (drop (table.grow 0 (ref.null func) (i32.const 100)))
        (drop (call $alloc (i64.const 6400)))
        (br_if $again (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 100))))
      (drop (memory.grow (i32.const 2)))
      ${SAY_OK}`,
      `${OK} (table 10 funcref)`,
    ),
    async ({ call }) => {
      for (const fuel of [SAME_FUEL, SAME_FUEL]) assert.equal((await call()).used?.fuel, fuel);
    },
  ));

test("a module that is done may end itself, and one that is closed answers no more", () =>
  withModule(
    programWat(
      `(call $answer (i32.const 1000) (i32.const 15)) (if (i64.gt_u (call $input_length) (i64.const 200))
      (then (loop $again (br $again)))) (call $exit (i32.const 0)) (i32.const 1)`,
      OK,
    ).replace(
      "(module",
      '(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))',
    ),
    async ({ call, host }) => {
      assert.equal((await call()).output, "ok");
      const called = call("x".repeat(200));
      const ended = assert.rejects(called, { code: "plugin_failed", message: /its thread was ended|it was closed/ });
      await host.close();
      await ended;
      await assert.rejects(call(), { code: "plugin_failed", message: /it was closed/ });
    },
    { wasm: { fuel_limit: 0 } },
  ));

test("a module whose thread was ended, since nobody called it, answers from a new one", () => {
  const idle = new Set<() => void>();
  // Nobody waits for the 60 seconds
  const clock: Clock = {
    ...systemClock,
    after(ms, fn) {
      if (ms !== 60_000) return systemClock.after(ms, fn);
      idle.add(fn);
      return { clear: () => void idle.delete(fn) };
    },
  };
  return withModule(HELLO, async ({ call, host }) => {
    const { used } = await call();
    await until(() => idle.size === 1);
    for (const end of idle) end();
    assert.equal((await call()).used?.fuel, used?.fuel);
    assert.deepEqual(host.facts.exports, ["execute"]);
  }, { clock });
});

test("a loop ends by its fuel, and the next call works", () =>
  withModule(
    programWat(
      `(if (i32.eqz (call $input_loads)) (then ${LOOP.replace("(i32.const 0)", "")})) ${SAY_OK}`,
      `${OK}
    (func $input_loads (result i32) (i64.gt_u (call $input_length) (i64.const 200)))`,
    ),
    async ({ call }) => {
      await assert.rejects(call(), {
        code: "plugin_out_of_fuel",
        message: /it used all of its 1000000 units of fuel; \[runtime\.wasm\] fuel_limit is 1000000/,
      });
      assert.equal((await call("x".repeat(200))).output, "ok");
    },
  ));

test("a loop without a limit of fuel ends by its time, and by a cancel", () =>
  withModule(programWat(LOOP), async ({ call }) => {
    await assert.rejects(call(), { code: "plugin_timeout", message: /1 s, as \[runtime\.wasm\] timeout_secs/ });
    const stop = new AbortController();
    const called = call("", stop.signal);
    stop.abort();
    await assert.rejects(called, { name: "CancelError" });
  }, { wasm: { fuel_limit: 0, timeout_secs: 1 } }));

test(
  "a module that is closed in a call leaves no thread that runs on",
  { skip: process.platform !== "linux" },
  async () => {
    const threads = () => readdirSync("/proc/self/task").filter((thread) => /^worker/i.test(nameOf(thread)));
    const before = new Set(threads());
    const added = () => threads().filter((thread) => !before.has(thread));
    await withModule(programWat(LOOP), async ({ call, host }) => {
      const called = assert.rejects(call(), { code: "plugin_failed", message: /its thread was ended/ });
      await until(() => added().length > 0);
      await host.close();
      await called;
      await until(() => added().length === 0);
    }, { wasm: { fuel_limit: 0, timeout_secs: 60 } });
  },
);

/** Returns the name of a thread of this process; "" once it is gone. */
function nameOf(thread: string): string {
  try {
    return readFileSync(`/proc/self/task/${thread}/comm`, "utf8").trim();
  } catch {
    return "";
  }
}

/** Looks in each turn of the event loop until something holds, for 10 seconds at most. */
async function until(holds: () => boolean): Promise<void> {
  const end = systemClock.monotonic() + 10_000;
  while (!holds()) {
    assert.ok(systemClock.monotonic() < end, "it does not hold within 10 s");
    await nextTick();
  }
}

test("a module reaches the clocks, the randomness and the outputs of WASI in a call", () =>
  withModule(
    `(module
      (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
      (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      ${EXTISM_WAT}
      (data (i32.const 8) "\\64\\00\\00\\00\\05\\00\\00\\00") (data (i32.const 100) "hello") ${OK}
      (func (export "execute") (result i32)
        (if (call $clock (i32.const 0) (i64.const 1) (i32.const 200)) (then unreachable))
        (if (i64.eqz (i64.load (i32.const 200))) (then unreachable))
        (if (call $random (i32.const 300) (i32.const 64)) (then unreachable))
        (if (i64.eqz (i64.or (i64.load (i32.const 300)) (i64.load (i32.const 356)))) (then unreachable))
        (if (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 400)) (then unreachable))
        (if (i32.ne (i32.load (i32.const 400)) (i32.const 5)) (then unreachable))
        ${SAY_OK}))`,
    async ({ call }) => assert.equal((await call()).output, "ok"),
  ));

test("a manifest gets the fuel that it asks for, up to max_fuel", async () => {
  const spent = (options: object) =>
    withModule(programWat(LOOP), ({ call }) => call().then(() => {}), options).then(() => "", (error) => error.message);
  assert.match(await spent({ fuel: 5000 }), /its 5000 units of fuel; its manifest asks for no more/);
  assert.match(await spent({ fuel: 5000, wasm: { max_fuel: 4000 } }), /its 4000 units.*max_fuel is 4000/);
});

test("traps, the stack, errors and exit codes end one call", async () => {
  const endings: readonly (readonly [code: string, message: RegExp])[] = [
    ["unreachable", /it trapped: .*unreachable/],
    ["(call $deep)", /it used up its stack/],
    ["(i32.div_s (i32.const 1) (i32.const 0))", /it trapped: .*(divide|division) by zero/],
    ["(call $error_set (call $keep (i32.const 2000) (i32.const 3))) (i32.const 1)", /it says: bad/],
    ["(call $error_set (call $keep (i32.const 2000) (i32.const 3))) unreachable", /it says: bad/],
    ["(i32.const 3)", /execute\(\) returned 3 and set no error/],
    ["(call $output_set (i64.const 0x5000000000000) (i64.const 3)) (i32.const 0)", /memory that it did not allocate/],
    ["(drop (call $alloc (i64.const -1))) (i32.const 0)", /more than the 64 MB of \[runtime\.wasm\] memory_limit_mb/],
    ["(loop $more (drop (call $alloc (i64.const 1000000))) (br $more)) (i32.const 0)", /more than the 64 MB/],
    ["(loop $more (drop (call $alloc (i64.const 1))) (br $more)) (i32.const 0)", /more than 32767 pieces/],
    [
      "(drop (memory.grow (i32.const 100000))) (i32.store (i32.const 67000000) (i32.const 1)) (i32.const 0)",
      /it trapped/,
    ],
  ];
  const cases = endings.map(([code], index) => `(func $case${index} (result i32) ${code})`);
  const dispatch = endings.map((_, index) =>
    `(if (i32.eq (call $choice) (i32.const ${index})) (then (return (call $case${index}))))`
  );
  // The choice is the first character of the text: {"tool":"say","input":{"text":"
  const source = programWat(
    `${dispatch.join("\n")} ${SAY_OK}`,
    `${OK} (data (i32.const 2000) "bad")
    ${cases.join("\n")}
    (func $deep (result i32) (i32.add (call $deep) (i32.const 1)))
    (func $choice (result i32) (i32.sub (call $input_load (i64.const 31)) (i32.const 97)))`,
  );
  await withModule(source, async ({ call }) => {
    for (const [index, [, message]] of endings.entries()) {
      await assert.rejects(
        call(String.fromCharCode(97 + index)),
        { code: "plugin_failed", message },
        endings[index]?.[0],
      );
      assert.equal((await call("z")).output, "ok", "the next call works");
    }
  }, { wasm: { fuel_limit: 100_000_000 } });
});

test("hostile modules are refused before any of their code runs", async () => {
  assert.match(
    await refusalOf(new Uint8Array([1, 2, 3])),
    /^module_invalid: Cannot load plugin "sample": it is no WASM/,
  );
  assert.match(await refusalOf(compileWat(HELLO).subarray(0, 200)), /^module_invalid/);
  assert.match(await refusalOf(new Uint8Array([0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0])), /component model/);
  assert.match(await refusalOf('(module (import "env" "memory" (memory 1)))'), /^module_import.*memory "env memory"/);
  const smuggled = [
    "env abort",
    "wasi_snapshot_preview1 path_open",
    "wasi_snapshot_preview1 sock_send",
    "extism:host/env http_request",
    "extism:host/user workspace_read",
    "extism:host/user toString",
    "extism:host/env constructor",
    "postern:meter tick",
  ];
  for (const name of smuggled) {
    const [module, field] = name.split(" ");
    assert.match(
      await refusalOf(`(module (import "${module}" "${field}" (func)))`),
      new RegExp(`^module_import: .*${name}`),
    );
  }
  assert.match(await refusalOf("(module (memory 2000))"), /^module_too_large.*memory_limit_mb is 64/);
  assert.match(
    await refusalOf("(module (memory 1) (memory 1))").catch(String),
    /several memories|multiple memories|only one memory/,
  );
  assert.match(await refusalOf("(module (table 10000000 funcref))"), /^module_too_large/);
  assert.match(await refusalOf("(module (memory 1 1 shared))"), /^module_feature/);
  assert.match(
    await refusalOf(new Uint8Array(2_000_000), { wasm: { max_module_size_mb: 1 } }),
    /^module_too_large.*max_module_size_mb is 1/,
  );
  assert.match(await refusalOf('(module (func (export "other")))'), /^module_invalid.*exports no function "execute"/);
});

test("the start function and _initialize have a hundred times the fuel, and no more", () =>
  withModule(
    `(module ${EXTISM_WAT} (func $begin ${LOOP} drop) (start $begin) (func (export "execute") (result i32) (i32.const 0)))`,
    async ({ call }) => {
      await assert.rejects(call(), {
        code: "plugin_out_of_fuel",
        message: /its initialisation, which has 100 times .* its 100000 units of fuel/,
      });
      await assert.rejects(call(), { code: "plugin_out_of_fuel" });
    },
    { wasm: { fuel_limit: 1000 } },
  ));
