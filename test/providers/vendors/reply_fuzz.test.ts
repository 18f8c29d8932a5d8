import { test } from "node:test";
import { fuzzReplies } from "../../support/reply_fuzz.ts";
import { triesOf } from "../../support/seeded_random.ts";

for (const form of ["openai_compatible", "anthropic"] as const) {
  test(`after any reply a plain message is answered: ${form}`, () =>
    fuzzReplies({ form, replies: triesOf(25), seed: 7 }));
}
