import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { inputBytes, toTokens } from "../../lib/agent/estimate_tokens.ts";
import { fitContext } from "../../lib/agent/context_window.ts";
import type { Message } from "../../lib/base/records/message.ts";

const user = (content: string): Message => ({ role: "user", content });
const assistant = (content: string): Message => ({ role: "assistant", content });
const system: Message = { role: "system", content: "Be brief" };
const call = (id: string): Message => ({
  role: "assistant",
  content: null,
  tool_calls: [{ id, type: "function", function: { name: "look", arguments: "{}" } }],
});
const result = (id: string, content: string): Message => ({ role: "tool", tool_call_id: id, content });
const tokens = (messages: readonly Message[]) => toTokens(inputBytes(messages, []));

describe("fitContext()", () => {
  test("gives the very same messages back when they fit", () => {
    const messages = [system, user("Hi")];
    assert.equal(fitContext(messages, 1000).messages, messages);
  });

  test("shortens tool results before it drops anything", () => {
    const messages = [system, user("Hi"), call("1"), result("1", "x".repeat(20_000)), assistant("Seen"), user("And?")];
    const fitted = fitContext(messages, 1500);
    assert.equal(fitted.dropped, 0);
    assert.equal(fitted.shortened, 1);
    assert.match(String(fitted.messages[3]?.content), /characters were left out here/);
    assert.ok(tokens(fitted.messages) <= 1500);
  });

  test("puts words in the place of old pictures first, and leaves those of the newest step and of the user's last words", () => {
    const picture = { sha256: "ab", media_type: "image/png", bytes: 9, width: 8, height: 6 } as const;
    const seen = (id: string): Message => ({ role: "tool", tool_call_id: id, content: "Taken", pictures: [picture] });
    const image = { type: "image_url", image_url: { url: `data:image/png;base64,${"A".repeat(400_000)}` } } as const;
    const old: Message = { role: "user", content: [image] };
    const messages = [old, call("1"), seen("1"), old, call("2"), seen("2")];
    assert.ok(tokens(messages) < 7000, "a picture counts a flat sum");
    const fitted = fitContext(messages, 4000);
    assert.deepEqual([fitted.dropped, fitted.shortened], [0, 2]);
    assert.deepEqual(fitted.messages[0]?.content, [{ type: "text", text: "[Postern] A picture was left out here." }]);
    assert.match(
      String(fitted.messages[2]?.content),
      /^Taken\n\[Postern\] A picture \(PNG, 8 x 6 pixels\) was left out/,
    );
    assert.deepEqual(fitted.messages.slice(3), messages.slice(3));
    assert.equal(JSON.stringify(fitted.messages[2]).includes("pictures"), false);
  });

  test("drops turns from the middle, marks the place, and keeps the first and the last", () => {
    const messages = [
      system,
      ...["one", "two", "three", "four"].flatMap((word) => [user(word.padEnd(400)), assistant(word)]),
    ];
    const fitted = fitContext(messages, 300);
    const texts = fitted.messages.map((message) => String(message.content).trim());
    assert.equal(texts[0], "Be brief");
    assert.equal(texts[1], "one");
    assert.match(texts[3] ?? "", /^\[Postern\] 4 earlier messages were left out/);
    assert.deepEqual(texts.slice(4), ["four", "four"]);
  });

  test("drops finished steps of the running turn, with their results, but not the newest", () => {
    const steps = ["1", "2", "3"].flatMap((id) => [call(id), result(id, id.repeat(250))]);
    const fitted = fitContext([system, user("Go"), ...steps], 220);
    assert.deepEqual(fitted.messages.map((message) => message.role), ["system", "user", "user", "assistant", "tool"]);
    assert.equal(fitted.messages.at(-1)?.role === "tool" && fitted.messages.at(-1)?.content, "3".repeat(250));
  });

  test("never drops the system prompt or the last user message, however small the window", () => {
    const message = fc.oneof(
      fc.string().map(user),
      fc.string().map(assistant),
      fc.nat(9).chain((id) => fc.string({ maxLength: 500 }).map((text) => result(String(id), text))),
    );
    fc.assert(
      fc.property(fc.array(message, { maxLength: 20 }), fc.nat(500), fc.string(), (middle, window, last) => {
        const lastUser = user(last);
        const { messages } = fitContext([system, ...middle, lastUser], window);
        assert.equal(messages[0], system);
        assert.equal(messages.at(-1), lastUser);
      }),
      { numRuns: 200 },
    );
  });

  test("never parts a call from its results", () => {
    const turn = fc.array(fc.nat(400), { minLength: 0, maxLength: 3 });
    fc.assert(
      fc.property(fc.array(turn, { minLength: 1, maxLength: 6 }), fc.nat(600), (turns, window) => {
        let id = 0;
        const messages = turns.flatMap((results) => [
          user("Go"),
          ...results.flatMap((length) => [call(String(++id)), result(String(id), "r".repeat(length))]),
        ]);
        const open = new Set<string>();
        for (const message of fitContext(messages, window).messages) {
          if (message.role === "assistant") { for (const made of message.tool_calls ?? []) open.add(made.id); }
          if (message.role === "tool") assert.ok(open.delete(message.tool_call_id));
        }
        assert.equal(open.size, 0);
      }),
      { numRuns: 200 },
    );
  });
});
