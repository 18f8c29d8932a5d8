import assert from "node:assert/strict";
import { chmodSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openChatHistory } from "../../../cli/terminal/chat_history.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const silent = () => assert.fail("something was said");

test("messages and the last conversation are kept between chats, in a file that only the user can read", () =>
  withTemporaryFolder(async (folder) => {
    const first = await openChatHistory(folder, silent);
    assert.deepEqual([first.lines, first.lastConversation], [[], undefined]);
    await first.add("one");
    await first.setConversation("conv_1");
    await first.setConversation("conv_1");
    await first.add(" with a space first");
    await first.add("x".repeat(4_097));
    await first.add("two");
    const path = join(folder, "chat_history");
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal(readFileSync(path, "utf8"), '{"text":"one"}\n{"conversation_id":"conv_1"}\n{"text":"two"}\n');
    const { lines, lastConversation } = await openChatHistory(folder, silent);
    assert.deepEqual([lines, lastConversation], [["two", "one"], "conv_1"]);
  }));

test("a line that cannot be read is skipped, and a file that others can read is closed to them", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "chat_history");
    writeFileSync(path, '{"text":"one"}\n{"text":\n[]\n{"text":7}\n{"text":"two"}\n');
    chmodSync(path, 0o644);
    assert.deepEqual((await openChatHistory(folder, silent)).lines, ["two", "one"]);
    assert.equal(statSync(path).mode & 0o777, 0o600);
  }));

test("a link in its place is not followed: nothing is kept, and that is said once", () =>
  withTemporaryFolder(async (folder) => {
    const target = join(folder, "target");
    writeFileSync(target, "mine\n");
    symlinkSync(target, join(folder, "chat_history"));
    const said: string[] = [];
    const history = await openChatHistory(folder, (message) => void said.push(message));
    await history.add("one");
    await history.add("two");
    assert.deepEqual([history.lines, said.length], [[], 1]);
    assert.match(said[0] ?? "", /^The chat's history is not kept: /);
    assert.equal(readFileSync(target, "utf8"), "mine\n");
  }));

test("a file that grew too long is made short, with the newest lines and the last conversation", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "chat_history");
    const line = (n: number) => `${JSON.stringify({ text: `${n} ${"x".repeat(1_000)}` })}\n`;
    writeFileSync(path, Array.from({ length: 2_000 }, (_, n) => line(n)).join("") + '{"conversation_id":"conv_9"}\n');
    const history = await openChatHistory(folder, silent);
    assert.equal(history.lines.length, 1_000);
    assert.match(history.lines[0] ?? "", /^1999 /);
    assert.ok(statSync(path).size <= 1_100_000, String(statSync(path).size));
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal((await openChatHistory(folder, silent)).lastConversation, "conv_9");
  }));
