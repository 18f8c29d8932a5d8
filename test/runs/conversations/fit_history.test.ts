import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { messageTokens, shortenedTokens } from "../../../lib/agent/estimate_tokens.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import { NO_USAGE } from "../../../lib/base/records/usage.ts";
import { fitHistory } from "../../../lib/runs/conversations/fit_history.ts";

const WINDOW = 2000;

/** A turn: a question, calls with results, an answer. */
const turn = fc.record({
  question: fc.string({ maxLength: 600 }),
  results: fc.array(fc.nat(3000), { maxLength: 3 }),
  answer: fc.string({ maxLength: 600 }),
});
const history = fc.array(turn, { maxLength: 25 }).map((turns) => {
  let id = 0;
  return turns.flatMap(({ question, results, answer }): Message[] => [
    { role: "user", content: question },
    ...results.flatMap((length): Message[] => [
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: `${++id}`, type: "function", function: { name: "look", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: `${id}`, content: "r".repeat(length) },
    ]),
    { role: "assistant", content: answer },
  ]);
});

describe("fitHistory()", () => {
  test("keeps the newest whole turns as they are and hands all others to the summary, in order and once", async () => {
    await fc.assert(
      fc.asyncProperty(
        history,
        fc.nat(1200),
        fc.option(fc.string({ minLength: 1, maxLength: 200 })),
        async (messages, reserved, text) => {
          const summary = text === null ? undefined : { text, covers: 10 };
          let old: readonly Message[] = [];
          const fitted = await fitHistory({ summary, messages, firstSeq: summary === undefined ? 1 : 11 }, {
            windowTokens: WINDOW,
            reservedTokens: reserved,
            summarize(given, earlier) {
              old = given;
              assert.equal(earlier, summary?.text);
              return Promise.resolve({ text: "S", usage: NO_USAGE });
            },
          });
          const pair = summary === undefined && fitted.summary === undefined ? 0 : 2;
          const kept = fitted.messages.slice(pair);
          assert.deepEqual([...old, ...kept], messages);
          assert.ok(kept.length === 0 || kept[0]?.role === "user");
          if (fitted.summary === undefined) {
            assert.equal(old.length, 0);
            return;
          }
          assert.equal(fitted.summary.covers, (summary?.covers ?? 0) + old.length);
          assert.ok(shortenedTokens(kept) <= (WINDOW - reserved) / 2);
          assert.ok(messageTokens(fitted.messages.slice(0, pair)) < 120);
        },
      ),
      { numRuns: 200 },
    );
  });

  test("asks nothing of a model without a window, and of a window too small for the task", async () => {
    const messages: Message[] = Array.from({ length: 50 }, (_, i) => ({ role: "user", content: `${i}`.repeat(500) }));
    const summarize = () => assert.fail("not asked for");
    for (const windowTokens of [0, 999]) {
      const fitted = await fitHistory({ summary: undefined, messages, firstSeq: 1 }, {
        windowTokens,
        reservedTokens: 0,
        summarize,
      });
      assert.deepEqual(fitted.messages, messages);
    }
    const offline = { windowTokens: 2000, reservedTokens: 0, summarize: undefined };
    const notices = async (firstSeq: number, covers: number) => {
      const summary = covers === 0 ? undefined : { text: "All of it", covers };
      return (await fitHistory({ summary, messages, firstSeq }, offline)).notices;
    };
    assert.deepEqual([await notices(1, 0), await notices(11, 10)], [[], []]);
    // Messages that are too old to be read, and that no summary tells of
    for (const [firstSeq, covers, count] of [[501, 0, 500], [501, 10, 490]] as const) {
      const [notice] = await notices(firstSeq, covers);
      assert.ok(notice?.type === "notice");
      assert.deepEqual([notice.code, notice.count], ["history_trimmed", count]);
    }
    assert.deepEqual((await fitHistory({ summary: undefined, messages, firstSeq: 1 }, offline)).messages, messages);
  });
});
