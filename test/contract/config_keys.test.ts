import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultConfig } from "../../lib/config/config.ts";
import { allKeys } from "../../lib/config/schema_keys.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";
import { CONFIG_KEYS, REQUIRED } from "./config_keys.ts";

test("the schema has the keys of the configuration table, no more and no fewer", () => {
  assert.deepEqual([...allKeys()].sort(), Object.keys(CONFIG_KEYS).sort());
});

test("every key of a fixed table has the default of the configuration table", () => {
  const config = defaultConfig();
  for (const [key, expected] of Object.entries(CONFIG_KEYS)) {
    if (!key.includes("<")) assert.deepEqual(valueAt(config, key), expected, key);
  }
});

test("the tables of the user's naming have the defaults of the configuration table", () => {
  const result = validateConfig([{
    providers: { x: { base_url: "http://127.0.0.1:1/v1" } },
    autonomy: { rules: [{ name: "r", tool: "t", then: "ask" }] },
    tools: { x: {} },
    mcp: { servers: { x: { command: "server" } } },
    agents: { x: {} },
    channels: { x: {} },
    notify: [{ name: "n", events: ["run_ended"], kind: "command", command: ["true"] }],
    query_classification: { rules: [{ hint: "h" }] },
    hardware: { boards: { x: {} } },
    secrets: { x: { env: "X_TOKEN", hosts: ["x.example"], tools: ["http_request"] } },
    http_request: { credentials: { x: { secret: "x", hosts: ["x.example"] } } },
  }]);
  assert.ok("config" in result);
  const given = new Set([
    "providers.<name>.base_url",
    "mcp.servers.<name>.command",
    "notify.<n>.command",
    "secrets.<name>.env",
    "secrets.<name>.hosts",
    "secrets.<name>.tools",
    "http_request.credentials.<name>.secret",
  ]);
  for (const [key, expected] of Object.entries(CONFIG_KEYS)) {
    if (!key.includes("<") || expected === REQUIRED || given.has(key)) continue;
    assert.deepEqual(valueAt(result.config, key), expected, key);
  }
});

test("a key without a default must be given", () => {
  const tables = {
    autonomy: { rules: [{}] },
    http_request: { credentials: { x: {} } },
    model_routes: [{}],
    embedding_routes: [{}],
    notify: [{}],
    query_classification: { rules: [{}] },
    hardware: { boards: { x: { memory_map: [{}] } } },
  };
  const result = validateConfig([tables]);
  assert.ok("findings" in result);
  const missing = result.findings.map(({ path }) =>
    path.map((part) => (part === "x" ? "<name>" : part === 0 ? "<n>" : part)).join(".")
  );
  assert.deepEqual(missing.sort(), Object.keys(CONFIG_KEYS).filter((key) => CONFIG_KEYS[key] === REQUIRED).sort());
});

function valueAt(config: unknown, key: string): unknown {
  let value = config;
  // The tests above put exactly these names into the tables
  for (const part of key.split(".")) {
    value = (value as Record<string, unknown>)[part === "<name>" ? "x" : part === "<n>" ? "0" : part];
  }
  return value;
}
