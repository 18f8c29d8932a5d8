import assert from "node:assert/strict";
import { test } from "node:test";
import type { ConversationResources } from "../../../handlers/mcp/conversation_resources.ts";
import { ResourceWatch, WATCH_LIMITS } from "../../../handlers/mcp/resource_watch.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

const CONVERSATION = "postern://conversations/c1";

function watchWith() {
  const clock = createFakeClock();
  let changedAt: string | undefined;
  let looks = 0;
  const find = () => {
    looks++;
    // The watch reads nothing but the time
    return changedAt === undefined ? Promise.reject(new Error("none")) : Promise.resolve({ updated_at: changedAt });
  };
  const conversations = { find } as unknown as ConversationResources;
  return {
    clock,
    watch: new ResourceWatch({ conversations, clock }),
    looks: () => looks,
    change: (time: string) => void (changedAt = time),
  };
}

test("changes of one resource that come together are told once, to each function once", async () => {
  const { clock, watch } = watchWith();
  const told: string[] = [];
  const tell = (uri: string) => void told.push(uri);
  const ends = [watch.add("a:b", tell, null), watch.add("a:b", tell, null), watch.add("a:c", tell, null)];
  for (let count = 0; count < 1_000; count++) for (const uri of ["a:b", "a:c", "a:none"]) watch.changed(uri);
  assert.deepEqual(told, []);
  await clock.advance(100);
  assert.deepEqual(told, ["a:b", "a:c"]);
  ends[0]?.();
  ends[0]?.();
  watch.changed("a:b");
  await clock.advance(100);
  assert.deepEqual(told, ["a:b", "a:c", "a:b"], "the second subscription counts still");
  watch.changed("a:b");
  for (const end of ends) end();
  await clock.advance(100);
  assert.equal(told.length, 3, "whoever left hears nothing");
});

test("a conversation is looked at while somebody watches it, from before it exists", async () => {
  const { clock, watch, looks, change } = watchWith();
  const told: string[] = [];
  const end = watch.add(CONVERSATION, (uri) => void told.push(uri), null);
  await clock.advance(4_000);
  assert.deepEqual(told, []);
  change("2026-01-01");
  await clock.advance(2_000);
  change("2026-01-02");
  await clock.advance(4_000);
  assert.deepEqual(told, [CONVERSATION, CONVERSATION]);
  const before = looks();
  end();
  change("2026-01-03");
  await clock.advance(10_000);
  assert.deepEqual([told.length, looks()], [2, before]);
});

test("subscriptions are bounded, and an end makes room", () => {
  const { watch } = watchWith();
  const add = (uri: string, token: string | null) => watch.add(uri, () => {}, token);
  const all = Array.from(
    { length: WATCH_LIMITS.all },
    (_, index) => `tok_${Math.floor(index / WATCH_LIMITS.perToken)}`,
  );
  const ends = all.map((token, index) => add(`a:${index % 7}`, token));
  assert.throws(() => add("a:1", "tok_new"), { code: "overloaded", message: /1024 resources of all clients/ });
  ends[5]?.();
  ends[5]?.();
  add("a:1", "tok_new");
  assert.throws(() => add("a:1", "tok_new"), { code: "overloaded" });
  watch.stop();
});

test("one token takes no room of the others, and no address is too long to keep", () => {
  const { watch } = watchWith();
  const add = (uri: string, token: string | null) => watch.add(uri, () => {}, token);
  const ends = Array.from({ length: WATCH_LIMITS.perToken }, (_, index) => add(`a:${index}`, "tok_1"));
  assert.throws(() => add("a:1", "tok_1"), { code: "overloaded", message: /256 resources of this token/ });
  add("a:1", "tok_2");
  add("a:1", null);
  ends[5]?.();
  ends[5]?.();
  add("a:1", "tok_1");
  assert.throws(() => add("a:1", "tok_1"), { code: "overloaded" });
  assert.throws(() => add(`postern:${"x".repeat(2_048)}`, null), { code: "invalid_request" });
  watch.stop();
});
