import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ParkedClientCalls } from "../../lib/agent/parked_client_calls.ts";
import type { Message } from "../../lib/base/records/message.ts";
import { createFakeClock } from "../support/fake_clock.ts";

const calls = (...ids: string[]): Message => ({
  role: "assistant",
  content: null,
  tool_calls: ids.map((id) => ({ id, type: "function", function: { name: "f", arguments: "{}" } })),
});
const result = (id: string, content = "r"): Message => ({ role: "tool", tool_call_id: id, content });
const kept = (id: string): readonly Message[] => [calls(id, `own_${id}`), result(`own_${id}`)];
const isSpliced = (messages: readonly Message[]) =>
  messages.some((message) => message.role === "tool" && message.tool_call_id.startsWith("own_"));

describe("suspended turns", () => {
  test("leave messages alone that name none of them", () => {
    const turns = new ParkedClientCalls(createFakeClock());
    const messages = [calls("call_other"), result("call_other")];
    assert.equal(turns.splice(messages), messages);
  });

  test("are spliced in every time the client sends its history again", () => {
    const turns = new ParkedClientCalls(createFakeClock());
    turns.keep(["a"], kept("a"));
    const messages = [calls("a"), result("a"), { role: "user", content: "More" } as const];
    for (let i = 0; i < 2; i++) {
      assert.deepEqual(turns.splice(messages), [...kept("a"), result("a"), { role: "user", content: "More" }]);
    }
  });

  test("stand before a tool message that comes without its assistant message", () => {
    const turns = new ParkedClientCalls(createFakeClock());
    turns.keep(["a"], kept("a"));
    assert.deepEqual(turns.splice([result("a")]), [...kept("a"), result("a")]);
  });

  test("are 256 at most, the oldest goes first", () => {
    const turns = new ParkedClientCalls(createFakeClock());
    for (let i = 0; i <= 256; i++) turns.keep([`c${i}`], kept(`c${i}`));
    assert.equal(isSpliced(turns.splice([result("c0")])), false);
    assert.equal(isSpliced(turns.splice([result("c1")])), true);
  });

  test("are 64 MiB at most", () => {
    const turns = new ParkedClientCalls(createFakeClock());
    const large = "x".repeat(40 * 1024 * 1024);
    turns.keep(["a"], [...kept("a"), { role: "user", content: large }]);
    turns.keep(["b"], [...kept("b"), { role: "user", content: large }]);
    assert.equal(isSpliced(turns.splice([result("a")])), false);
    assert.equal(isSpliced(turns.splice([result("b")])), true);
  });

  test("that are gone are named only where the model is about to answer, not deep in the history", () => {
    const turns = new ParkedClientCalls(createFakeClock());
    const id = "call_x";
    turns.noteGone([id]);
    const old = [
      calls(id),
      result(id),
      { role: "assistant", content: "Done" } as const,
      { role: "user", content: "Next" } as const,
    ];
    assert.equal(turns.splice(old), old);
    assert.match(String(turns.splice([calls(id), result(id, "25")]).at(-1)?.content), /^25\n\n\[Postern\]/);
  });
});
