import assert from "node:assert/strict";
import { test } from "node:test";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { exitCodeOf, judge, type Round } from "./verdict.ts";

/** Rounds with `ratio`, up to `spread` more or less, on a machine whose speed changes threefold meanwhile. */
function roundsOf(ratio: number, spread: number, { count = 20, seed = 1 } = {}): readonly Round[] {
  const random = createSeededRandom(seed);
  return Array.from({ length: count }, () => {
    const [speed = 0, noise = 0] = random.bytes(2);
    const base = 100 + speed;
    return { base, tree: base * ratio * (1 + spread * (noise / 127.5 - 1)) };
  });
}

/** Verdicts of 50 runs, each once. */
const verdictsOf = (...[ratio, spread]: [ratio: number, spread: number]) =>
  new Set(Array.from({ length: 50 }, (_, seed) => judge(roundsOf(ratio, spread, { seed })).verdict));

test("the same tree holds against itself, and a smaller one too", () => {
  assert.deepEqual([...verdictsOf(1, 0.15)], ["holds"]);
  assert.deepEqual([...verdictsOf(0.7, 0.15)], ["holds"]);
});

test("a growth by 15 % is found, also where rounds spread as much", () => {
  assert.deepEqual([...verdictsOf(1.15, 0.15)], ["grew"]);
});

test("a growth by less than 5 % is none", () => {
  assert.deepEqual([...verdictsOf(1.04, 0.03)], ["holds"]);
});

test("a spread that could hide a growth by 15 % is too much to judge", () => {
  assert.ok(verdictsOf(1.05, 0.9).has("too noisy"));
  const { verdict, low, high } = judge(roundsOf(1, 0.9, { count: 8 }));
  assert.equal(verdict, "too noisy");
  assert.ok(low <= 1.05 && high >= 1.15, `${low} - ${high}`);
});

test("a few rounds that something disturbed change no verdict", () => {
  const disturbed = (rounds: readonly Round[], by: number) =>
    rounds.map(({ tree, base }, index) => ({ base, tree: index % 10 === 3 ? tree * by : tree }));
  assert.equal(judge(disturbed(roundsOf(1, 0.05), 3)).verdict, "holds");
  assert.equal(judge(disturbed(roundsOf(1.15, 0.05), 1 / 3)).verdict, "grew");
});

test("the estimate lies within its bounds, near the ratio", () => {
  const { ratio, low, high } = judge(roundsOf(1.1, 0.1));
  assert.ok(low < ratio && ratio < high && Math.abs(ratio - 1.1) < 0.03, `${low} < ${ratio} < ${high}`);
});

test("fewer than six rounds are too few for a verdict, whatever they say", () => {
  for (const ratio of [1, 2]) {
    assert.equal(judge(roundsOf(ratio, 0.01, { count: 5 })).verdict, "too noisy");
    assert.equal(judge(roundsOf(ratio, 0.01, { count: 6 })).verdict, ratio === 1 ? "holds" : "grew");
  }
});

test("a figure without rounds, or with a value that is none, is missing", () => {
  assert.equal(judge([]).verdict, "missing");
  for (const value of [Number.NaN, 0, -1, Number.POSITIVE_INFINITY]) {
    assert.equal(judge([...roundsOf(1, 0.01), { tree: value, base: 100 }]).verdict, "missing");
    assert.equal(judge([...roundsOf(1, 0.01), { tree: 100, base: value }]).verdict, "missing");
  }
});

test("a run fails for a figure that grew, and passes only when each of its figures holds", () => {
  const holds = judge(roundsOf(1, 0.01));
  const grew = judge(roundsOf(2, 0.01));
  const noisy = judge(roundsOf(1, 0.01, { count: 5 }));
  const missing = judge([]);
  assert.equal(exitCodeOf([holds, holds]), 0);
  assert.equal(exitCodeOf([holds, grew]), 1);
  assert.equal(exitCodeOf([missing, grew, noisy]), 1);
  assert.equal(exitCodeOf([holds, missing]), 2);
  assert.equal(exitCodeOf([noisy, holds]), 2);
  assert.equal(exitCodeOf([]), 2);
});
