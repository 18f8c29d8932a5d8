/** Enumerates the rules of a budget in slices on larger bounds than `npm test` does. Up to 170,000 states each. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { enumerate, type ModelOptions } from "../runs/supervisor/token_slices_model.ts";

const NEEDS = [{ input: 0, output: 1 }, { input: 1, output: 1 }, { input: 1, output: 2 }];
const FAULTS = { dies: true, losesAnswers: true, maxStates: 2_000_000 } as const;
const ENUMERATED: readonly ModelOptions[] = [
  { gateways: 2, limits: [4, 4], needs: NEEDS, calls: 2, maxStates: 2_000_000 },
  { gateways: 2, limits: [3, 3], needs: NEEDS, ...FAULTS, faults: 2 },
  { gateways: 2, limits: [2, 2], needs: NEEDS, ...FAULTS, changesDay: true },
  { gateways: 2, limits: [3, 2], needs: NEEDS, ...FAULTS },
  { gateways: 2, limits: [2, 2], needs: NEEDS, ...FAULTS, overuses: true },
  { gateways: 3, limits: [2, 2], needs: NEEDS.slice(0, 2), ...FAULTS },
  { gateways: 2, limits: [2, 2], needs: NEEDS.slice(1, 2), ...FAULTS, faults: 2, changesHistory: true },
];

for (const options of ENUMERATED) {
  const { needs, maxStates: _, ...bounds } = options;
  test(`spends nothing twice and nothing too much: ${JSON.stringify(bounds)}, ${needs.length} needs`, () => {
    const { broken, states } = enumerate(options);
    console.log(`${states} states`);
    assert.equal(broken, undefined);
  });
}
