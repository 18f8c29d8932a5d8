import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as ownership from "../../lib/cluster/ownership.ts";
import { explore, type ModelOptions, type Rules } from "./ownership_model.ts";

/**
 * States that the enumeration visits; `test/long/ownership.long.ts` has the larger ones. A change of a rule or of the model changes these
 * numbers: read what the new ones mean before you write them down.
 */
const ENUMERATED: readonly (ModelOptions & { readonly states: number })[] = [
  { gateways: 2, runs: 1, failures: [], states: 33_583 },
  { gateways: 2, runs: 1, failures: ["pause"], failing: 1, states: 67_166 },
  { gateways: 2, runs: 1, failures: ["die", "lost"], failing: 1, states: 52_033 },
];

describe("the rules of ownership, all interleavings of 2 gateways", () => {
  for (const { states, ...options } of ENUMERATED) {
    test(`hold with failures: ${options.failures.join(", ") || "none but lateness"}`, () => {
      const found = explore(options);
      assert.equal(found.broken, undefined, found.broken?.steps.join("; "));
      assert.equal(found.lost, 0, "each state leads to one where the run has ended");
      assert.ok(found.takeovers > 0, "the enumeration comes to takeovers at all");
      assert.equal(found.states, states);
    });
  }

  test("an outage of the database alone gives no run away", () => {
    const found = explore({ gateways: 2, runs: 1, failures: ["outage"], isPrompt: true });
    assert.deepEqual([found.broken, found.lost, found.takeovers], [undefined, 0, 0]);
  });
});

test("an owner may act while its deadline has passed by neither clock, and no clock went back", () => {
  const terms = { leaseMs: 1_000, marginMs: 250 };
  const hold = ownership.held(1, { monotonic: 10, wall: 500 });
  const mayAct = (monotonic: number, wall: number, of = hold) =>
    ownership.mayAct(of, { monotonic: 10 + monotonic, wall: 500 + wall }, terms);
  assert.deepEqual([mayAct(0, 0), mayAct(749, 749)], [true, true]);
  assert.deepEqual([mayAct(750, 0), mayAct(0, 750), mayAct(-1, 0), mayAct(0, -1)], [false, false, false, false]);
  assert.equal(mayAct(0, 0, ownership.brokenHold(hold)), false);
  assert.deepEqual([1_000, 60_000].map(ownership.marginOf), [250, 2_000]);
});

/** Rules with one thing wrong. The enumeration must find what each of them breaks. */
const MUTATED: readonly { readonly what: string; readonly options: ModelOptions; readonly breaks: RegExp }[] = [
  {
    what: "there is no margin",
    options: { ...pausing(), terms: { leaseMs: 3, marginMs: 0 } },
    breaks: /while an effect/,
  },
  {
    what: "an owner has no deadline of its own",
    options: pausing({ mayAct: ({ sentAt }) => sentAt !== undefined }),
    breaks: /while an effect/,
  },
  {
    what: "the deadline counts from the answer to the renewal",
    options: { ...pausing(), countsFrom: "answer" },
    breaks: /while an effect/,
  },
  { what: "a write does not carry its fence", options: pausing({ counts: () => true }), breaks: /does not own/ },
  {
    what: "a gateway is fenced off before its lease has run out",
    options: pausing({ fencedRow: (row) => ({ ...row, fence: row.fence + 1 }) }),
    breaks: /while an effect/,
  },
  {
    what: "a claim is free whatever its owner's fence is",
    options: pausing({ mayClaim: (_claim, _rowOf, isAtWork) => !isAtWork }),
    breaks: /while an effect/,
  },
  {
    what: "a gateway claims what it still works on after a loss",
    options: pausing({ mayClaim: ownership.isFree }),
    breaks: /earlier work/,
  },
  {
    what: "a gateway forgets its claims at a loss, and lets work without a claim go on",
    options: { ...pausing(), forgets: true },
    breaks: /effects of two owners overlap|while an effect|does not own/,
  },
  {
    what: "the deadline is looked at by the monotonic clock alone",
    options: {
      gateways: 2,
      runs: 1,
      failures: ["suspend"],
      failing: 1,
      rules: {
        mayAct: ({ sentAt }, now, { leaseMs, marginMs }) =>
          sentAt !== undefined && now.monotonic - sentAt.monotonic < leaseMs - marginMs,
      },
    },
    breaks: /while an effect/,
  },
];

function pausing(rules: Partial<Rules> = {}): ModelOptions {
  return { gateways: 2, runs: 1, failures: ["pause"], failing: 1, rules };
}

describe("the enumeration finds what a wrong rule breaks", () => {
  for (const { what, options, breaks } of MUTATED) {
    test(what, () => assert.match(explore(options).broken?.promise ?? "nothing", breaks));
  }

  test("a claim of a gateway that was fenced off stays: the run is lost", () => {
    const options = { gateways: 2, runs: 1, failures: ["die"], failing: 1 } as const;
    assert.ok(
      explore({ ...options, rules: { mayClaim: (claim, _rowOf, isAtWork) => !isAtWork && claim === undefined } }).lost >
        0,
    );
  });

  test("a claimant needs no unbroken renewals of its own: an outage of the database gives runs away", () => {
    const options = { gateways: 2, runs: 1, failures: ["outage"], isPrompt: true } as const;
    assert.ok(explore({ ...options, rules: { mayTakeOver: ownership.mayAct } }).takeovers > 0);
    assert.ok(explore({ ...options, rules: { brokenHold: (hold) => hold } }).takeovers > 0);
  });
});
