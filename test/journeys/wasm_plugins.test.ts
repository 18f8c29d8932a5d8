import assert from "node:assert/strict";
import { test } from "node:test";
import { samplePackage, sampleTool, sha256 } from "../support/plugin_package.ts";
import { answering, HOSTILE_MODULES } from "../support/wasm_modules.ts";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

/** Installs and enables a WASM plugin with the tool `say_<id>`, as a person does over HTTP. Returns why it is not installed, where it is not. */
async function enableModule(gateway: RunningGateway, id: string, module: Uint8Array): Promise<string | undefined> {
  const body = samplePackage(
    { id, tools: [sampleTool(`say_${id}`)], wasm: { file: "words.wasm", sha256: sha256(module) } },
    [{ name: "words.wasm", bytes: module }],
  );
  const headers = { "content-type": "application/x-tar" };
  const { digest, error } = await jsonOf(gateway.call("/v1/plugins", { body, headers }));
  if (error !== undefined) return error.message;
  const { on } = await jsonOf(gateway.call(`/v1/plugins/${id}/enable`, { body: { digest } }));
  assert.equal(on, true, id);
  return undefined;
}

const callModule = (gateway: RunningGateway, id: string) =>
  jsonOf(gateway.call(`/v1/tools/say_${id}/call`, { body: { input: { text: "x" } } }));

/** Hostile modules by a part of their names, with the error that the installation or a call of each gets. */
const ATTACKS: readonly (readonly [name: string, error: RegExp])[] = [
  ["a loop without end", /all of its 1000000 units of fuel; \[runtime\.wasm\] fuel_limit/],
  ["memory that grows without end", /units of fuel/],
  ["memory of the host that grows without end", /units of fuel|memory_limit_mb/],
  ["a table that grows without end", /units of fuel/],
  ["a function of sockets of WASI", /^Cannot use .*was not granted: "wasi_snapshot_preview1 sock_send"/],
  ["a function of the user's host", /^Cannot use .*was not granted: "extism:host\/user run_command"/],
  ["calls without end", /it used up its stack/],
  ["a trap", /it trapped: unreachable/],
  ["a start function without end", /its initialisation, .* 100000000 units of fuel/],
  ["a truncated module", /^Cannot use the plugin "a\d+"/],
  ["a custom section longer than the module", /^Cannot use the plugin "a\d+"/],
  ["a memory that begins with 4 GB", /^Cannot use .*memory_limit_mb is 64/],
];

test("hostile modules are refused or stopped, and the gateway goes on", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: { autonomy: { level: "full" } } });
    await enableModule(gateway, "good", answering('{"output":"three words"}'));
    for (const [index, [wanted, error]] of ATTACKS.entries()) {
      const found = HOSTILE_MODULES.find(({ name }) => name.endsWith(wanted));
      assert.ok(found, wanted);
      const id = `a${index}`;
      const refusal = await enableModule(gateway, id, found.make());
      if (refusal !== undefined) {
        assert.match(refusal, error, wanted);
        continue;
      }
      const [called, health] = await Promise.all([callModule(gateway, id), gateway.call("/health")]);
      assert.equal(health.status, 200, wanted);
      assert.equal(called.is_error, true, wanted);
      assert.match(JSON.stringify(called.output).replaceAll('\\"', '"'), error, wanted);
    }
    const { output, is_error } = await callModule(gateway, "good");
    assert.equal(is_error, false);
    assert.match(output, /three words/);
  }));
