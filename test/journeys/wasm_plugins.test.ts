import assert from "node:assert/strict";
import { test } from "node:test";
import { samplePackage, sampleTool, sha256 } from "../support/plugin_package.ts";
import { answeringWat, compileWat } from "../support/wat.ts";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

/** Installs and enables a WASM plugin with the tool `say`, as a person does over HTTP. */
async function enableModule(gateway: RunningGateway, id: string, module: Uint8Array, fields: object = {}) {
  const bytes = samplePackage(
    { id, tools: [sampleTool(`say_${id}`)], wasm: { file: "words.wasm", sha256: sha256(module) }, ...fields },
    [{ name: "words.wasm", bytes: module }],
  );
  const headers = { "content-type": "application/x-tar" };
  const { digest } = await jsonOf(gateway.call("/v1/plugins", { body: bytes, headers }));
  return await jsonOf(gateway.call(`/v1/plugins/${id}/enable`, { body: { digest } }));
}

test("a WASM module answers as a tool of the gateway", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: { autonomy: { level: "full" } } });
    const enabled = await enableModule(gateway, "a", compileWat(answeringWat("three words")));
    assert.deepEqual([enabled.state, enabled.on], ["enabled", true]);
    const called = await jsonOf(gateway.call("/v1/tools/say_a/call", { body: { input: { text: "x" } } }));
    assert.match(JSON.stringify(called), /three words/);
  }));
