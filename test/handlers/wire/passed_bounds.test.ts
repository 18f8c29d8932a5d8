import assert from "node:assert/strict";
import { test } from "node:test";
import { HttpError } from "../../../lib/base/errors.ts";
import type { CompletionBody } from "../../../handlers/wire/completion_body.ts";
import { toMessageInput } from "../../../handlers/wire/messages/to_message_input.ts";
import { toCompletionInput } from "../../../handlers/wire/to_completion_input.ts";

type Json = Readonly<Record<string, unknown>>;

/** The readers of both formats that pass unknown fields on. */
const READERS: Readonly<Record<string, (body: Json, plain: boolean) => unknown>> = {
  completions: (body, plain) => toCompletionInput(body as CompletionBody, { plain }), // read is what it says
  messages: (body, plain) => toMessageInput(body, { plain, headers: new Headers() }),
};

const HI = { role: "user", content: "Hi" };
const fieldsOf = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`field_${i}`, 1]));
const nested = (depth: number): unknown => depth === 0 ? 1 : [nested(depth - 1)];
const MESSAGES = Array.from({ length: 201 }, () => ({ ...HI, ...fieldsOf(100) }));

/** Bodies at a bound and beyond it, with the field that a refusal names. */
const ROWS: readonly (readonly [fits: Json, beyond: Json, param: string, reason: RegExp])[] = [
  [fieldsOf(100), fieldsOf(101), "field_100", /more than 100 fields/],
  [{ messages: MESSAGES.slice(1) }, { messages: MESSAGES }, "messages[].field_0", /more than 20000 fields/],
  [{ deep: nested(32) }, { deep: nested(33) }, "deep", /deeper than 32 levels/],
  [{ long: ["x".repeat(4_194_303)] }, { long: ["x".repeat(4_194_304)] }, "long", /more than 4194304 characters/],
  [{ a: "x".repeat(4_194_303), b: 1 }, { a: "x".repeat(4_194_303), b: [], c: 1 }, "c", /more than 4194304 characters/],
  [{}, { [`${"n".repeat(500)}`]: nested(33) }, "n".repeat(128), /deeper/],
];

for (const [format, read] of Object.entries(READERS)) {
  test(`unknown fields of ${format} that go on to the model are bounded, and named`, () => {
    for (const [fits, beyond, param, reason] of ROWS) {
      read({ messages: [HI], ...fits }, true);
      assert.throws(() => read({ messages: [HI], ...beyond }, true), (error) => {
        assert.ok(error instanceof HttpError);
        assert.deepEqual([error.status, error.code, error.param], [400, "invalid_request", param]);
        assert.match(error.message, reason);
        return true;
      });
      // With the agent's tools on, nothing of them goes on
      read({ messages: [HI], ...beyond }, false);
    }
  });
}
