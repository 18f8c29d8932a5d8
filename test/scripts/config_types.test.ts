import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type * as v from "valibot";
import type { DeepReadonly } from "../../lib/base/json.ts";
import type { configSchema } from "../../lib/config/config.ts";
import type { GatewayConfig } from "../../lib/config/gateway_config.ts";
import { configTypes } from "../../scripts/config_types.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";

type Given = DeepReadonly<v.InferInput<typeof configSchema>>;

/** The compiler compares what is written with what the schema takes, in both directions. */
export const written: (config: Given) => GatewayConfig = (config) => config;
export const taken: (config: GatewayConfig) => Given = (config) => config;

test("the type of the configuration is that of the schema", () => {
  const text = readFileSync(join(PROJECT_ROOT, "lib/config/gateway_config.ts"), "utf8");
  assert.equal(text, configTypes(), "make it again: npm run docs");
});
