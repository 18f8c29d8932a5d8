import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import { changeConfig, KEY_CHANGES } from "../../lib/config/change_config.ts";
import type { Config } from "../../lib/config/config.ts";
import { allKeys } from "../../lib/config/schema_keys.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";

function configOf(table: Record<string, unknown>): Config {
  const result = validateConfig([table as Parameters<typeof validateConfig>[0][number]]);
  assert.ok("config" in result, JSON.stringify(result));
  return result.config;
}

test("every key of the schema is in exactly one class", () => {
  const entries = Object.keys(KEY_CHANGES);
  const holding = (key: string) => entries.filter((entry) => key === entry || key.startsWith(`${entry}.`));
  for (const key of allKeys()) assert.equal(holding(key).length, 1, `${key}: ${holding(key).join(", ") || "none"}`);
});

test("every class holds a key of the schema", () => {
  const keys = allKeys();
  for (const entry of Object.keys(KEY_CHANGES)) {
    assert.ok(keys.some((key) => key === entry || key.startsWith(`${entry}.`)), entry);
  }
});

test("live keys take the new value, others keep the running one and are named", () => {
  const running = configOf({ gateway: { port: 1234, rate_limit_max: 5 }, channels: { old: {} } });
  const next = configOf({
    gateway: { port: 4321, rate_limit_max: 6, websocket: { heartbeat_secs: 20 } },
    autonomy: { level: "read_only" },
    channels: { new: {} },
  });
  const { config, applied, needsRestart } = changeConfig(running, next);
  assert.deepEqual(needsRestart, ["gateway.port", "gateway.websocket.heartbeat_secs"]);
  assert.equal(config.gateway.port, 1234);
  assert.equal(config.gateway.websocket.heartbeat_secs, 30);
  assert.equal(config.gateway.rate_limit_max, 6);
  assert.equal(config.autonomy.level, "read_only");
  assert.deepEqual(Object.keys(config.channels), ["new"]);
  for (const key of ["gateway.rate_limit_max", "autonomy.level", "channels.old.kind", "channels.new.kind"]) {
    assert.ok(applied.includes(key), key);
  }
  assert.ok(Object.isFrozen(config) && Object.isFrozen(config.gateway));
  assert.equal(next.gateway.port, 4321);
});

test("a value that went back to the running one needs no restart any more", () => {
  const running = configOf({ gateway: { port: 1 } });
  const changed = changeConfig(running, configOf({ gateway: { port: 2 } }));
  assert.deepEqual(changed.needsRestart, ["gateway.port"]);
  const back = changeConfig(changed.config, configOf({ gateway: { port: 1 } }));
  assert.deepEqual([back.applied, back.needsRestart], [[], []]);
});

test("the same configuration changes nothing", () => {
  const { applied, needsRestart } = changeConfig(configOf({ agents: { a: {} } }), configOf({ agents: { a: {} } }));
  assert.deepEqual([applied, needsRestart], [[], []]);
});

test("a list is one key", () => {
  const { applied } = changeConfig(configOf({}), configOf({ autonomy: { auto_approve: ["shell", "apply_patch"] } }));
  assert.deepEqual(applied, ["autonomy.auto_approve"]);
});

for (const [before, after] of [["none", "offline"], ["offline", "none"]] as const) {
  test(`an agent does not come or go while the gateway runs: provider.kind from ${before} to ${after}`, () => {
    const running = configOf({ provider: { kind: before } });
    const { config, needsRestart } = changeConfig(running, configOf({ provider: { kind: after, model: "m" } }));
    assert.deepEqual(config.provider, running.provider);
    assert.deepEqual(needsRestart, ["provider.kind", "provider.model"]);
  });
}

test("the provider is live otherwise", () => {
  const next = configOf({ provider: { kind: "openai_compatible", base_url: "http://127.0.0.1:1/v1" } });
  const { config, needsRestart } = changeConfig(configOf({}), next);
  assert.deepEqual([config.provider, needsRestart], [next.provider, []]);
});

test("what would contradict a value that stays until the restart is refused as a whole", () => {
  const running = configOf({ gateway: { require_pairing: false } });
  const next = configOf({ gateway: { require_pairing: true, cors_origins: ["*"] } });
  assert.throws(() => changeConfig(running, next), (error) => {
    assert.ok(error instanceof ConfigError);
    assert.equal(error.key, "gateway.cors_origins");
    assert.match(error.message, /or restart, as gateway\.require_pairing can only change then$/);
    return true;
  });
});
