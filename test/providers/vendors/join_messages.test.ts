import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Message } from "../../../lib/base/records/message.ts";
import { joinMessages } from "../../../lib/providers/vendors/fit_messages.ts";
import { wrongTurn } from "../../support/turn_template.ts";

const FORM = { instructions: "one_system", alternates: true } as const;
const call = { id: "a", type: "function", function: { name: "look", arguments: "{}" } } as const;

/** Messages of a conversation that a user begins; each call has its result. */
const PIECES: Readonly<Record<string, readonly Message[]>> = {
  user: [{ role: "user", content: "<user>" }],
  parts: [{ role: "user", content: [{ type: "image_url", image_url: { url: "https://a.example/b.png" } }] }],
  assistant: [{ role: "assistant", content: "<assistant>" }],
  system: [{ role: "system", content: "<system>" }],
  developer: [{ role: "developer", content: "<developer>" }],
  call: [{ role: "assistant", content: null, tool_calls: [call] }, {
    role: "tool",
    tool_call_id: "a",
    content: "<result>",
  }],
};

function wordsOf(messages: readonly Message[]): readonly string[] {
  return JSON.stringify(messages.map(({ content }) => content)).match(/<\w+>|image_url"/g) ?? [];
}

test("any conversation that a user begins takes turns, and no text of it is lost", () => {
  const conversation = fc.tuple(
    fc.array(fc.constantFrom("system", "developer"), { maxLength: 2 }),
    fc.array(fc.constantFrom(...Object.keys(PIECES)), { maxLength: 12 }),
  );
  fc.assert(fc.property(conversation, ([head, rest]) => {
    const messages = [...head, "user", ...rest].flatMap((piece) => PIECES[piece] ?? []);
    const joined = joinMessages(messages, FORM);
    assert.equal(wrongTurn(joined), undefined);
    assert.deepEqual(wordsOf(joined), wordsOf(messages));
  }));
});

test("many messages are joined at once", () => {
  const many = (role: "system" | "user") =>
    Array.from(
      { length: 100_000 },
      (_, i): Message => ({ role, content: [{ type: "text", text: `${i}`, name: "x" }] }),
    );
  const [system, user, ...others] = joinMessages([...many("system"), ...many("user")], FORM);
  assert.deepEqual(others, []);
  for (const message of [system, user]) {
    assert.equal(message?.content?.length, 100_000);
    assert.deepEqual(message.content.at(-1), { type: "text", text: "99999", name: "x" });
  }
});

test("texts are joined to one as far as they stand alone", () => {
  const image = { type: "image_url", image_url: { url: "https://a.example/b.png" } } as const;
  const said = (...contents: readonly (Message["content"])[]) =>
    joinMessages(contents.map((content) => ({ role: "user", content }) as Message), FORM).map(({ content }) => content);
  assert.deepEqual(said("a", [{ type: "text", text: "b" }], "c"), ["a\n\nb\n\nc"]);
  assert.deepEqual(said("a", "b", [image], "c"), [[
    { type: "text", text: "a\n\nb" },
    image,
    { type: "text", text: "c" },
  ]]);
  assert.deepEqual(said([image], "a"), [[image, { type: "text", text: "a" }]]);
});
