import assert from "node:assert/strict";
import { test } from "node:test";
import { FuelMeter } from "../../../../lib/extensions/plugins/wasm/fuel_meter.ts";
import { Kernel, Variables } from "../../../../lib/extensions/plugins/wasm/kernel.ts";

/** Returns what reaches the gateway of a request in JSON. */
function asked(text: string, name = "workspace_read"): unknown {
  let input: unknown;
  const kernel = new Kernel({
    fuel: new FuelMeter(() => {}),
    maxBytes: 10_000_000,
    variables: new Variables(),
    settings: new Map(),
    say: () => {},
    ask(request) {
      input = request.kind === "http" ? request.request : request.input;
      return { head: {} };
    },
  });
  const bytes = new TextEncoder().encode(text);
  const memory = { read: () => ({ bytes: () => bytes }), alloc: () => 1n, length: () => 1n };
  // The function uses these three of Extism's state alone
  kernel.workspaceFunctions()[name]?.(memory as never, (1n << 48n) as never);
  return input;
}

test("a request reaches the gateway as a few fields, since each list and level would cost the gateway time", () => {
  assert.deepEqual(asked('{"path": "a", "more": {"b": "c"}}'), { path: "a", more: { b: "c" } });
  const costly = [
    `{"path": [${"1,".repeat(1000)}1]}`,
    `{"path": ${'{"a":'.repeat(9000)}1${"}".repeat(9000)}}`,
    JSON.stringify(Object.fromEntries(Array.from({ length: 101 }, (_, index) => [index, 1]))),
    '{"path": {"a": {"b": 1}}}',
    "[1]",
    "null",
  ];
  for (const text of costly) assert.equal(asked(text), null, text.slice(0, 40));
});

test("a request of more than 1 MiB is read only when it writes a file", () => {
  const text = JSON.stringify({ path: "x".repeat(2_000_000) });
  assert.throws(() => asked(text), { code: "failed", message: /a text of more than 1048576 bytes/ });
  assert.equal(typeof asked(text, "workspace_write"), "object");
});
