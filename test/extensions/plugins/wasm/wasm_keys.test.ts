import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePluginManifest } from "../../../../lib/extensions/plugins/manifest.ts";
import { missingGrant } from "../../../../lib/extensions/plugins/plugin_gate.ts";
import { CONFIG_KEYS } from "../../../contract/config_keys.ts";
import { sampleManifest } from "../../../support/plugin_package.ts";
import { configOf } from "../../../support/running_gateway.ts";
import { withModule } from "../../../support/wasm_bench.ts";
import { programWat } from "../../../support/wat.ts";

const LOOP = programWat("(loop $again (br $again)) (i32.const 0)");
/** Grows its memory to 32 MB and writes there. */
const GROWING = programWat(
  "(drop (memory.grow (i32.const 510))) (i32.store (i32.const 33000000) (i32.const 1)) (i32.const 3)",
);

type Table = Readonly<Record<string, unknown>>;

/** Returns the error of a call under a setting, or of the loading. */
const errorOf = (source: string | Uint8Array, wasm: Table, fuel?: number): Promise<string> =>
  withModule(source, async ({ call }) => void await call(), { wasm, ...(fuel === undefined ? {} : { fuel }) }).then(
    () => "none",
    (error: Error) => error.message,
  );

/** Returns what keeps a plugin off that asks for these capabilities. */
const wayOn = (capabilities: Table, wasm: Table) =>
  missingGrant(
    parsePluginManifest(JSON.stringify(sampleManifest({ capabilities }))),
    configOf({ runtime: { wasm } }),
  ) ?? "on";

/** Keys with two settings each, whose effects differ. */
const KEYS: Readonly<Record<string, readonly (readonly [effect: () => string | Promise<string>, expected: RegExp])[]>> =
  {
    fuel_limit: [
      [() => errorOf(LOOP, { fuel_limit: 1000 }), /all of its 1000 units/],
      [() => errorOf(LOOP, { fuel_limit: 0, timeout_secs: 1 }), /within 1 s/],
    ],
    max_fuel: [
      [() => errorOf(LOOP, { max_fuel: 500 }, 9000), /all of its 500 units.*max_fuel is 500/],
      [() => errorOf(LOOP, { max_fuel: 0 }, 9000), /all of its 9000 units.*manifest asks for no more/],
    ],
    memory_limit_mb: [
      [() => errorOf(GROWING, { memory_limit_mb: 16 }), /it trapped: .*out of bounds/],
      [() => errorOf(GROWING, { memory_limit_mb: 64 }), /returned 3/],
    ],
    max_module_size_mb: [
      [() => errorOf(new Uint8Array(1_100_000), { max_module_size_mb: 1 }), /max_module_size_mb is 1/],
      [() => errorOf(new Uint8Array(1_100_000), { max_module_size_mb: 2 }), /it is no WASM/],
    ],
    timeout_secs: [
      [() => errorOf(LOOP, { timeout_secs: 1, fuel_limit: 0 }), /within 1 s, as \[runtime\.wasm\] timeout_secs/],
      [() => errorOf(LOOP, { timeout_secs: 30, fuel_limit: 1_000_000 }), /units of fuel/],
    ],
    allow_workspace_read: [
      [() => wayOn({ workspace: "read" }, {}), /^set \[runtime\.wasm\] allow_workspace_read = true$/],
      [() => wayOn({ workspace: "read" }, { allow_workspace_read: true }), /^on$/],
    ],
    allow_workspace_write: [
      [() => wayOn({ workspace: "write" }, { allow_workspace_read: true }), /allow_workspace_write = true$/],
      [() => wayOn({ workspace: "write" }, { allow_workspace_read: true, allow_workspace_write: true }), /^on$/],
    ],
    allowed_hosts: [
      [() => wayOn({ hosts: ["a.example"] }, {}), /^add "a\.example" to \[runtime\.wasm\] allowed_hosts$/],
      [() => wayOn({ hosts: ["a.example"] }, { allowed_hosts: ["a.example"] }), /^on$/],
      [() => wayOn({ hosts: ["*.a.example"] }, { allowed_hosts: ["b.a.example"] }), /^add /],
    ],
    "security.capability_escalation_mode": [
      [() => wayOn({ workspace: "read" }, { security: { capability_escalation_mode: "deny" } }), /^set /],
      [() => {
        try {
          return wayOn({}, { security: { capability_escalation_mode: "allow" } });
        } catch (error) {
          return String(error);
        }
      }, /capability_escalation_mode/],
    ],
  };

/** Keys that other tests turn: plugins.test.ts, and those of modules of `tools_dir`. */
const ELSEWHERE = [
  "security.module_hash_policy",
  "tools_dir",
  "security.require_workspace_relative_tools_dir",
  "security.reject_symlink_modules",
  "security.reject_symlink_tools_dir",
];

test("every key of [runtime.wasm] is turned by a test", () => {
  const keys = Object.keys(CONFIG_KEYS).filter((key) => key.startsWith("runtime.wasm."));
  assert.deepEqual(
    keys.map((key) => key.slice("runtime.wasm.".length)).sort(),
    [...Object.keys(KEYS), ...ELSEWHERE].sort(),
  );
});

for (const [key, effects] of Object.entries(KEYS)) {
  test(`[runtime.wasm] ${key} has an effect`, async () => {
    for (const [effect, expected] of effects) assert.match(await effect(), expected);
  });
}
