import assert from "node:assert/strict";
import { test } from "node:test";
import { toOffers } from "../../lib/tools/program_offers.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { processorMs } from "../support/processor_time.ts";

const matchOf = (uri: string) => {
  const resource = { name: "log", read: () => Promise.resolve("") };
  const [offered] = toOffers({ resources: { [uri]: resource } }).resources;
  return offered?.match ?? assert.fail(uri);
};

test("an address that fits a template in many ways is parted at once, or refused at once", () => {
  const match = matchOf("log://{year}-{month}-{day}-{part}");
  assert.deepEqual(match("log://2026-11-29-a%2Fb"), { year: "2026", month: "11", day: "29", part: "a/b" });
  assert.deepEqual(match("log://a-b-c-d-e-f"), { year: "a-b-c", month: "d", day: "e", part: "f" });
  const day = matchOf("log://{year}-{month}-{day}");
  const started = processorMs();
  assert.equal(day(`log://${"-".repeat(1_600)}/`), undefined);
  // A pattern takes seconds to try all ways, and hours for one name more
  assert.ok(processorMs() - started < 1_000);
});

test("templates take what a pattern with a group for each name takes", () => {
  const { bytes } = createSeededRandom(7);
  const below = (count: number) => (bytes(1)[0] ?? 0) % count;
  const pick = (from: readonly string[]) => from[below(from.length)] ?? "";
  const some = (from: readonly string[], most: number) =>
    Array.from({ length: below(most + 1) }, () => pick(from)).join("");
  let fitting = 0;
  for (let round = 0; round < 3_000; round++) {
    const parts = Array.from({ length: 2 + below(3) }, () => some(["a", "-", "/", "-a"], 2));
    const uri = `x://h${parts.reduce((all, part, index) => `${all}{n${index}}${part}`)}`;
    const match = matchOf(uri);
    const pattern = new RegExp(`^x://h${parts.join("([^/]+)")}$`);
    for (let tries = 0; tries < 5; tries++) {
      const asked = `x://h${some(["a", "-", "/", "b", "-a"], 12)}`;
      const found = pattern.exec(asked)?.slice(1);
      if (found !== undefined) fitting++;
      const values = match(asked);
      assert.deepEqual(values && Object.values(values), found, `${uri} ${asked}`);
    }
  }
  assert.ok(fitting > 500, String(fitting));
});
