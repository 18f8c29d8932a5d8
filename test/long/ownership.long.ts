/**
 * Enumerates the rules of ownership on larger bounds than `npm test` does: every failure at both gateways, two runs, three gateways. Millions
 * of states; each is reached once, whatever the order of steps.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { explore, type ModelOptions } from "../cluster/ownership_model.ts";

const ENUMERATED: readonly ModelOptions[] = [
  { gateways: 2, runs: 1, failures: ["pause"] },
  { gateways: 2, runs: 1, failures: ["pause", "die"] },
  { gateways: 2, runs: 1, failures: ["cut"] },
  { gateways: 2, runs: 1, failures: ["pause", "die", "cut"], failing: 1 },
  { gateways: 2, runs: 1, failures: ["outage"] },
  { gateways: 2, runs: 1, failures: ["die", "lost"] },
  { gateways: 2, runs: 1, failures: ["suspend"], failing: 1 },
  { gateways: 2, runs: 2, failures: [] },
];

describe("the rules of ownership, larger bounds", () => {
  for (const options of ENUMERATED) {
    const { gateways, runs, failures, failing } = options;
    const where = failing === undefined ? "any gateway" : `${failing} of them`;
    test(`${gateways} gateways, ${runs} runs, failures of ${where}: ${failures.join(", ") || "none"}`, () => {
      const { states, broken, lost } = explore(options);
      console.log(`${states} states`);
      assert.equal(broken, undefined, broken?.steps.join("; "));
      assert.equal(lost, 0);
    });
  }

  for (const gateways of [2, 3]) {
    test(`${gateways} gateways: an outage of the database alone gives no run away`, () => {
      const found = explore({ gateways, runs: 1, failures: ["outage"], isPrompt: true });
      console.log(`${found.states} states`);
      assert.deepEqual([found.broken, found.lost, found.takeovers], [undefined, 0, 0]);
    });
  }
});
