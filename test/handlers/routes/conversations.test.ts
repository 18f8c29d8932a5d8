import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { conversationRoute } from "../../../handlers/routes/conversations.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { createConversations } from "../../../lib/runs/conversations/conversations.ts";
import { jsonOf } from "../../support/json_of.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { createTestRouter, type SendInit } from "../../support/test_router.ts";

const time = "2026-01-01T00:00:00.000Z";
const caller = { via: "http", tokenId: "tok_1", scopes: ["chat"] } as const;

function setUp() {
  const atWork = new Set<string>();
  // Only whether a conversation is at work is asked
  const runs = { runIn: (id: string) => atWork.has(id) ? "run_1" : undefined } as Partial<
    RunSupervisor
  > as RunSupervisor;
  const { services, send } = createTestRouter({ agent: { runs, providers: undefined as never } });
  const conversations = createConversations({ store: services.store, random: createSeededRandom() });
  const add = async (id: string, ...messages: Message[]) => {
    await services.store.batch(await conversations.writes(id, { runId: "run_1", caller, messages, taint: [], time }));
  };
  const json = async (method: string, path: string, init: SendInit = {}) => {
    const reply = await send(method, path, { token: "token_runs", ...init });
    return { status: reply.status, ...await jsonOf(reply) };
  };
  return { atWork, add, json };
}

const said = (content: string): Message => ({ role: "user", content });
const idsOf = ({ data }: { readonly data: readonly { readonly id: string }[] }) => data.map(({ id }) => id);

test("conversations are listed newest first, a page at a time", async () => {
  const { add, json } = setUp();
  for (const id of ["a", "b", "c"]) await add(id, said("x"), said("y"));
  const first = await json("GET", "/v1/conversations?limit=2");
  assert.deepEqual([idsOf(first), first.has_more, first.last_id], [["c", "b"], true, "b"]);
  assert.deepEqual(first.data[0], {
    id: "c",
    object: "conversation",
    title: "x",
    created_at: time,
    updated_at: time,
    message_count: 2,
  });
  const second = await json("GET", "/v1/conversations?limit=2&after=b");
  assert.deepEqual([idsOf(second), second.has_more], [["a"], false]);
  assert.deepEqual(idsOf(await json("GET", "/v1/conversations?limit=3")), ["c", "b", "a"]);
});

test("messages are read in their order, a page at a time, without the vendor's opaque parts", async () => {
  const { add, json } = setUp();
  const call = { id: "call_1", type: "function", function: { name: "read_file", arguments: "{}" } } as const;
  await add("talk", said("1"), {
    role: "assistant",
    content: null,
    tool_calls: [{ ...call, extra: { extra_content: "s" } }],
    opaque: { vendor: "secret" },
    extra: { reasoning_details: [] },
  });
  await add("talk", { role: "tool", content: "2", tool_call_id: "call_1" });
  const first = await json("GET", "/v1/conversations/talk?limit=2");
  assert.deepEqual([first.id, first.message_count, first.messages.has_more, first.messages.last_id], [
    "talk",
    3,
    true,
    "2",
  ]);
  assert.deepEqual(first.messages.data, [
    { seq: 1, run_id: "run_1", role: "user", content: "1" },
    { seq: 2, run_id: "run_1", role: "assistant", content: null, tool_calls: [call] },
  ]);
  const second = await json("GET", "/v1/conversations/talk?limit=2&after=2");
  assert.deepEqual([second.messages.data, second.messages.has_more], [
    [{ seq: 3, run_id: "run_1", role: "tool", content: "2", tool_call_id: "call_1" }],
    false,
  ]);
  assert.deepEqual((await json("GET", "/v1/conversations/talk?after=3")).messages.data, []);
});

test("a failed call says so, and its schema too", async () => {
  const { add, json } = setUp();
  const failed: Message = { role: "tool", content: "No such file", tool_call_id: "call_1", is_error: true };
  await add("talk", failed);
  const { status: _, ...conversation } = await json("GET", "/v1/conversations/talk");
  assert.deepEqual(conversation.messages.data, [{ seq: 1, run_id: "run_1", ...failed }]);
  assert.deepEqual(v.parse(conversationRoute.reply.schema ?? v.never(), conversation), conversation);
});

test("a deleted conversation is gone with its messages, and its id is as new", async () => {
  const { add, json } = setUp();
  await add("talk", said("old"));
  assert.deepEqual(await json("DELETE", "/v1/conversations/talk"), { status: 200, id: "talk", deleted: true });
  assert.equal((await json("GET", "/v1/conversations/talk")).status, 404);
  assert.equal((await json("DELETE", "/v1/conversations/talk")).status, 404);
  await add("talk", said("new"));
  const { messages } = await json("GET", "/v1/conversations/talk");
  assert.deepEqual(messages.data.map(({ seq, content }: { seq: number; content: string }) => [seq, content]), [
    [1, "new"],
  ]);
});

test("a conversation at work is not deleted", async () => {
  const { add, json, atWork } = setUp();
  for (const id of ["busy", "idle", "old"]) await add(id, said("x"));
  atWork.add("busy");
  const refused = await json("DELETE", "/v1/conversations/busy");
  assert.deepEqual([refused.status, refused.error.code], [409, "conflict"]);
  assert.deepEqual(await json("DELETE", "/v1/conversations"), { status: 200, deleted: 2, at_work: 1 });
  assert.deepEqual(idsOf(await json("GET", "/v1/conversations")), ["busy"]);
});

test("bad positions name the parameter, and only the scope runs sees conversations", async () => {
  const { add, json } = setUp();
  await add("talk", said("x"));
  for (
    const [path, param] of [
      ["/v1/conversations?limit=0", "limit"],
      ["/v1/conversations/talk?after=x", "after"],
      ["/v1/conversations/talk?after=-1", "after"],
    ]
  ) {
    const refused = await json("GET", path ?? "");
    assert.deepEqual([refused.status, refused.error.param], [400, param], path);
  }
  for (const [method, path] of [["GET", ""], ["DELETE", ""], ["GET", "/talk"], ["DELETE", "/talk"]]) {
    const reply = await json(method ?? "", `/v1/conversations${path}`, { token: "token_chat" });
    assert.equal(reply.error.code, "insufficient_scope");
  }
});

test("a conversation is called by the beginning of its first question, until somebody names it", async () => {
  const { add, atWork, json } = setUp();
  const titleOf = async () => (await json("GET", "/v1/conversations/talk")).title;
  await add("talk", { role: "system", content: "Be brief" }, said(`  Which\n\u202e ${"bean ".repeat(30)}`));
  const title = await titleOf();
  assert.match(title, /^Which bean bean .*\.\.\.$/);
  assert.ok(title.length <= 80);
  const renamed = await json("POST", "/v1/conversations/talk", { body: { title: "The beans" } });
  assert.deepEqual([renamed.status, renamed.title, renamed.message_count], [200, "The beans", 2]);
  await add("talk", said("And the peas?"));
  assert.equal(await titleOf(), "The beans");
  atWork.add("talk");
  const refused = await json("POST", "/v1/conversations/talk", { body: { title: "Peas" } });
  assert.deepEqual([refused.status, refused.error.code], [409, "conflict"]);
  assert.equal(await titleOf(), "The beans");
  assert.equal((await json("POST", "/v1/conversations/none", { body: { title: "x" } })).status, 404);
});

test("a conversation that was begun with a picture has no title, nor one of an older version", async () => {
  const { add, json } = setUp();
  await add("picture", {
    role: "user",
    content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }],
  });
  assert.equal((await json("GET", "/v1/conversations/picture")).title, null);
});
