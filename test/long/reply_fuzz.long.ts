import { test } from "node:test";
import { fuzzReplies } from "../support/reply_fuzz.ts";

/** Seeds of each format; 500 replies each. */
const SEEDS = Array.from({ length: 10 }, (_, i) => i + 1);

for (const form of ["openai_compatible", "anthropic"] as const) {
  test(`after each of 5,000 replies a plain message is answered: ${form}`, async () => {
    for (const seed of SEEDS) await fuzzReplies({ form, replies: 500, seed });
  });
}
