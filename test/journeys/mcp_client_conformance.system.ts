import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Revision, runClientScenario } from "../support/client_conformance.ts";

/** Scenarios that go the longest ways. All of them run in test/long/mcp_client_conformance.long.ts. */
const SCENARIOS: readonly (readonly [revision: Revision, scenario: string])[] = [
  ["2025-11-25", "auth/scope-step-up"],
  ["2026-07-28", "auth/authorization-server-migration"],
  ["2026-07-28", "http-custom-headers"],
];

describe("the official conformance suite, a part of its client part", {
  skip: "Deno" in globalThis ? "the suite runs on Node" : false,
  concurrency: true,
}, () => {
  for (const [revision, scenario] of SCENARIOS) {
    test(`passes ${scenario} of ${revision}`, async () => {
      const { passes, says } = await runClientScenario(scenario, revision);
      assert.ok(passes, says.join("\n"));
    });
  }
});
