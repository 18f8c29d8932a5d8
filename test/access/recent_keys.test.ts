import fc from "fast-check";
import assert from "node:assert/strict";
import { test } from "node:test";
import { createRecentKeys } from "../../lib/access/recent_keys.ts";

test("it keeps the keys used last, as a plain list of them would", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 5 }),
      fc.array(fc.constantFrom(..."abcdefgh"), { maxLength: 60 }),
      (maxKeys, uses) => {
        const recent = createRecentKeys({
          maxKeys,
          create: () => ({ count: 0 }),
          reset: (value) => void (value.count = 0),
        });
        let reference: { key: string; count: number }[] = [];
        for (const key of uses) {
          const count = (reference.find((item) => item.key === key)?.count ?? 0) + 1;
          reference = [{ key, count }, ...reference.filter((item) => item.key !== key)].slice(0, maxKeys);
          assert.equal(++recent.use(key).count, count);
        }
      },
    ),
    { numRuns: 200 },
  );
});
