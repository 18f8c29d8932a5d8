import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { createPluginRegistry } from "../../../lib/extensions/plugins/plugin_registry.ts";
import type { Services } from "../../../lib/services.ts";
import { type PluginBench, withPlugins } from "../../support/plugin_bench.ts";
import { samplePackage, tarOf } from "../../support/plugin_package.ts";
import { createPublisher, writeRegistry } from "../../support/plugin_registry.ts";
import { createTestRouter, errorOf } from "../../support/test_router.ts";

const TAR = { "content-type": "application/x-tar" };

/** Runs `use` with a router over plugins, and a registry in a folder. */
function withRouter(
  use: (
    bench: PluginBench & { readonly send: ReturnType<typeof createTestRouter>["send"]; readonly folder: string },
  ) => Promise<void>,
): Promise<void> {
  return withPlugins(async (bench) => {
    const { plugins, store, clock, audit } = bench;
    const folder = join(bench.workspaceRoot, "../registry");
    bench.config = { ...bench.config, plugins: { ...bench.config.plugins, registry_url: folder } };
    const registry = createPluginRegistry({
      ...{ plugins, store, clock, audit: audit.append, config: () => bench.config },
      guardedFetch: () => Promise.reject(new Error("Nothing is fetched")),
    });
    const services: Services["plugins"] = () =>
      Promise.resolve({ plugins, registry, tools: plugins.tools, close: plugins.close });
    const { send } = createTestRouter({ plugins: services });
    await use(Object.assign(Object.create(bench), { send, folder }));
  });
}

const jsonOf = async (reply: Response) => await reply.json() as Record<string, unknown>;

test("a package goes through POST, enable, disable and DELETE, each with its audit event", () =>
  withRouter(async ({ send, audit, plugins }) => {
    const made = await send("POST", "/v1/plugins", { headers: TAR, body: samplePackage() });
    assert.equal(made.status, 201);
    const { id, state, digest, on } = await jsonOf(made);
    assert.deepEqual([id, state, on], ["words", "installed", false]);
    const enable = (digest: unknown) => send("POST", "/v1/plugins/words/enable", { body: { digest } });
    const other = await enable("0".repeat(64));
    assert.deepEqual([other.status, (await errorOf(other)).code], [409, "conflict"]);
    assert.equal((await enable("x")).status, 400);
    const enabled = await jsonOf(await enable(digest));
    assert.deepEqual([enabled["state"], enabled["on"], enabled["reason"]], ["enabled", true, null]);
    const list = await jsonOf(await send("GET", "/v1/plugins"));
    assert.deepEqual((list["data"] as { id: string }[]).map((one) => one.id), ["words"]);
    assert.equal((await jsonOf(await send("GET", "/v1/plugins/words")))["state"], "enabled");
    assert.equal((await jsonOf(await send("POST", "/v1/plugins/words/disable")))["state"], "disabled");
    assert.equal((await send("DELETE", "/v1/plugins/words")).status, 204);
    for (const [method, path] of [["GET", ""], ["POST", "/disable"], ["DELETE", ""]] as const) {
      const gone = await send(method, `/v1/plugins/words${path}`);
      assert.deepEqual([gone.status, (await errorOf(gone)).code], [404, "not_found"], path);
    }
    assert.deepEqual(plugins.list(), []);
    const events = audit.events.map((event) =>
      event.type === "plugin" ? `${event.action} ${event.by?.via}` : event.type
    );
    assert.deepEqual(events, ["installed http", "enabled http", "disabled http", "removed http"]);
  }));

test("a hostile package is 400 with its reason, one that is too large is 413 before it is read, another type is 415", () =>
  withRouter(async ({ send, plugins }) => {
    const install = (body: Uint8Array, headers: object = TAR) =>
      send("POST", "/v1/plugins", { headers: { ...TAR, ...headers }, body });
    const hostile = await install(tarOf([{ name: "../evil" }]));
    assert.deepEqual([hostile.status, /"\.\.\/evil"/.test((await errorOf(hostile)).message)], [400, true]);
    const large = await install(samplePackage(), { "content-length": "67108865" });
    assert.deepEqual([large.status, (await errorOf(large)).code], [413, "payload_too_large"]);
    assert.equal((await install(new Uint8Array(20_000_000))).status, 400, "more than max_request_bytes is read");
    assert.equal((await install(samplePackage(), { "content-type": "application/json" })).status, 415);
    assert.equal((await send("POST", "/v1/plugins?serve=yes", { headers: TAR, body: samplePackage() })).status, 400);
    assert.deepEqual(plugins.list(), []);
  }));

test("the bound of packages is the route's own: other routes keep theirs", () =>
  withRouter(async ({ send }) => {
    const reply = await send("POST", "/v1/plugins/words/enable", {
      body: "{}",
      headers: { "content-length": "20000000" },
    });
    assert.equal(reply.status, 413);
  }));

test("serve=true serves a package until it is deleted", () =>
  withRouter(async ({ send, plugins }) => {
    const served = await send("POST", "/v1/plugins?serve=true", { headers: TAR, body: samplePackage() });
    assert.deepEqual([served.status, (await jsonOf(served))["source"]], [201, "dev"]);
    assert.ok(plugins.get("words")?.on);
    assert.equal((await send("DELETE", "/v1/plugins/words?serve=true")).status, 204);
    assert.deepEqual(plugins.list(), []);
    assert.equal((await send("DELETE", "/v1/plugins/words?serve=true")).status, 404);
  }));

test("the registry is searched, installed from, and its keys are trusted", () =>
  withRouter(async ({ send, folder, plugins }) => {
    const none = await send("GET", "/v1/plugin-registry");
    assert.deepEqual([none.status, (await errorOf(none)).code], [502, "provider_error"]);
    const [ann, eve] = [createPublisher(), createPublisher()];
    writeRegistry(folder, { packages: [{ version: "1.0.0" }], publisher: ann });
    const found = await jsonOf(await send("GET", "/v1/plugin-registry?query=words"));
    assert.deepEqual((found["data"] as { id: string; key: string }[]).map(({ id, key }) => [id, key]), [[
      "words",
      ann.key,
    ]]);
    const install = () => send("POST", "/v1/plugin-registry/install", { body: { id: "words" } });
    assert.equal((await jsonOf(await install()))["signature"], "pinned");
    assert.equal(plugins.get("words")?.version, "1.0.0");
    writeRegistry(folder, { packages: [{ version: "2.0.0" }], publisher: eve, serial: 2 });
    assert.equal((await install()).status, 400);
    const trust = await send("POST", "/v1/plugin-registry/trust-key", { body: { id: "words", key: eve.key } });
    assert.deepEqual(await jsonOf(trust), { id: "words", key: eve.key });
    assert.equal((await jsonOf(await install()))["changed"], true);
    const unknown = await send("POST", "/v1/plugin-registry/install", { body: { id: "nobody" } });
    assert.equal(unknown.status, 404);
  }));
