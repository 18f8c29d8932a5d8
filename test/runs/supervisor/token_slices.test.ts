import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as rules from "../../../lib/runs/supervisor/token_slices.ts";
import { enumerate, type ModelOptions, type SliceRules } from "./token_slices_model.ts";

const NEEDS = [{ input: 0, output: 1 }, { input: 1, output: 1 }];
const TWO = { gateways: 2, limits: [2, 2], needs: NEEDS } as const;
const BOUNDS: Readonly<Record<string, ModelOptions>> = {
  "two gateways": { ...TWO, limits: [3, 3] },
  "two calls at a time": { ...TWO, calls: 2 },
  "deaths": { ...TWO, dies: true },
  "the database is down for a write, or its answer is lost": { ...TWO, losesAnswers: true },
  "a change of the day": { ...TWO, needs: NEEDS.slice(1), changesDay: true },
  "a change of the database's history": { ...TWO, needs: NEEDS.slice(1), changesHistory: true },
  "calls that use more than was set aside": { ...TWO, overuses: true },
  "a limit that goes down at one gateway before the other": { ...TWO, limits: [2, 1] },
  "a limit that goes up at one gateway before the other": { ...TWO, limits: [1, 2] },
  "three gateways": { gateways: 3, limits: [2, 2], needs: NEEDS.slice(0, 1) },
  "slices of more than one token": { gateways: 2, limits: [40, 40], needs: [{ input: 19, output: 1 }] },
};

describe("a budget in slices, in every order of what gateways do", () => {
  for (const [what, options] of Object.entries(BOUNDS)) {
    test(`spends nothing twice and nothing too much: ${what}`, () => {
      const { broken, mostSpent, states, isAllGivenBack } = enumerate(options);
      assert.equal(broken, undefined);
      const most = Math.max(...options.limits) + (options.overuses ? 1 : 0);
      // Another history forgets what was spent of its last write
      if (options.changesHistory) assert.ok(mostSpent > most);
      else assert.equal(mostSpent, most, "all of it can be spent");
      assert.ok(isAllGivenBack);
      assert.ok(states > 100, `${states} states`);
    });
  }

  const broken: Readonly<Record<string, { readonly rules: Partial<SliceRules>; readonly bounds: string }>> = {
    "what is given back may still be spent": { bounds: "two gateways", rules: { sent: (slice) => slice } },
    "what is given back is kept when the answer is lost": {
      bounds: "the database is down for a write, or its answer is lost",
      rules: {
        sent: (slice) => slice,
        written: (slice, { amount, told }) => ({ ...slice, free: slice.free + amount, told }),
        notWritten: (slice) => slice,
      },
    },
    "what is leased counts before it is written": {
      bounds: "two gateways",
      rules: {
        sent: (slice, { amount, told }) => ({ ...slice, free: slice.free + amount, told }),
        written: (slice) => slice,
        notWritten: (slice, { amount, toldBefore }) => ({ ...slice, free: slice.free - amount, told: toldBefore }),
      },
    },
    "a write that another gateway was faster than counts": {
      bounds: "two gateways",
      rules: { notWritten: rules.written },
    },
    "what others have leased does not count": {
      bounds: "two gateways",
      rules: {
        leased: (pot, slice, options) => rules.leased({ ...pot, tokens: pot.tokens - pot.leased }, slice, options),
      },
    },
    "a call that ends gives all back": {
      bounds: "two gateways",
      rules: { settled: (slice, { reserved }) => rules.settled(slice, { reserved, used: 0 }) },
    },
    "a slice is leased beyond what is left": {
      bounds: "two gateways",
      rules: { leased: (pot, slice, options) => rules.leased(pot, slice, { ...options, limit: options.limit + 1 }) },
    },
    "a slice is kept in another history": {
      bounds: "a change of the database's history",
      rules: { abandoned: (slice) => slice },
    },
    "tokens are given back that the record does not have": {
      bounds: "a change of the database's history",
      rules: {
        returned: (pot, slice, amount) => {
          const move = rules.returned(pot, slice, amount);
          return { ...move, pot: { ...move.pot, tokens: pot.tokens - amount } };
        },
      },
    },
    "a call gets more than its slice has": {
      bounds: "two gateways",
      rules: { setAside: (slice, need, how) => rules.setAside({ ...slice, free: slice.free + 1 }, need, how) },
    },
  };
  for (const [what, { rules, bounds }] of Object.entries(broken)) {
    test(`the enumeration finds it when ${what}`, () => {
      assert.notEqual(enumerate({ ...BOUNDS[bounds] as ModelOptions, rules }).broken, undefined);
    });
  }
});

describe("a slice", () => {
  test("is a twentieth of the budget while there is plenty, and then what is needed", () => {
    const lease = (tokens: number, missing: number) => {
      const next = rules.leased({ tokens, leased: 0 }, rules.NO_SLICE, { missing, limit: 1_000 });
      return next && next.pot.tokens - tokens;
    };
    assert.equal(lease(0, 10), 50);
    assert.equal(lease(0, 300), 300, "a call that needs more than a slice gets what it needs");
    assert.equal(lease(950, 10), 10);
    assert.equal(lease(995, 10), 5);
    assert.equal(lease(1_000, 10), undefined);
  });

  test("is given back down to a twentieth, and whole when little is left for the others", () => {
    const slice = { free: 120, held: 30, told: 0 };
    assert.equal(rules.surplus(slice, { limit: 1_000, scarce: false }), 70);
    assert.equal(rules.surplus(slice, { limit: 1_000, scarce: true }), 120);
  });

  test("writes down what a call used beyond what was set aside for it", () => {
    const given = rules.setAside({ free: 10, held: 0, told: 10 }, { input: 5, output: 5 }, { whole: true });
    assert.ok(given);
    const over = rules.settled(given.slice, { reserved: 10, used: 14 });
    const next = rules.returned({ tokens: 10, leased: 10 }, over, rules.surplus(over, { limit: 1_000, scarce: false }));
    assert.deepEqual(next.pot, { tokens: 14, leased: 0 });
    assert.equal(rules.sent(over, next).free, -4, "as long as nobody knows that it is written down");
    assert.deepEqual(rules.written(rules.sent(over, next), next), { free: 0, held: 0, told: 0 });
  });
});
