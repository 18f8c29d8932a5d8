import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { HttpError } from "../../../lib/base/errors.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import { CONVERSATIONS, conversationStream } from "../../../lib/runs/conversations/conversation_records.ts";
import { type ConversationCaller, createConversations } from "../../../lib/runs/conversations/conversations.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { ask, readAll, supervised } from "../../support/supervised.ts";

const time = "2026-01-01T00:00:00.000Z";
const next = { runId: "run_next", lostBefore: time };
const caller = { via: "http", tokenId: "tok_1", scopes: ["chat"] } as const;

function setUp() {
  const store = createMemoryStore();
  const conversations = createConversations({ store, random: createSeededRandom() });
  const add = async (id: string, messages: readonly Message[]) =>
    store.batch(await conversations.writes(id, { runId: "run_1", caller, messages, taint: [], time }));
  return { store, conversations, add };
}

describe("conversations", () => {
  test("keep messages in order and once", async () => {
    const { conversations, add } = setUp();
    await add("talk", [{ role: "user", content: "1" }, { role: "assistant", content: "2" }]);
    await add("talk", [{ role: "user", content: "3" }]);
    const { messages } = await conversations.history("talk", caller);
    assert.deepEqual(messages.map((message) => message.content), ["1", "2", "3"]);
  });

  test("refuse a second writer that did not see the first", async () => {
    const { store, conversations } = setUp();
    const messages: Message[] = [{ role: "user", content: "1" }];
    const both = await Promise.all(
      [1, 2].map(() => conversations.writes("talk", { runId: "r", caller, messages, taint: [], time })),
    );
    assert.deepEqual([await store.batch(both[0] ?? []), await store.batch(both[1] ?? [])], [true, false]);
  });

  test("give the newest 1,000 messages, from a user message on", async () => {
    const { conversations, add } = setUp();
    const turns = Array.from({ length: 700 }, (_, i): Message[] => [
      { role: "user", content: `question ${i}` },
      { role: "assistant", content: `answer ${i}` },
    ]);
    await add("talk", [...turns.flat(), { role: "user", content: "last" }]);
    const { messages, firstSeq } = await conversations.history("talk", caller);
    assert.equal(messages.length, 999);
    assert.equal(firstSeq, 403);
    assert.equal(messages[0]?.role, "user");
    assert.equal(messages.at(-1)?.content, "last");
  });

  test("give as many of the newest messages as 16 MiB hold, from a user message on", async () => {
    const { conversations, add } = setUp();
    // Five of these are more than 16 MiB, four are not
    const content = "x".repeat(4 * 1024 * 1024 - 100);
    for (let turn = 0; turn < 3; turn++) {
      await add("talk", [{ role: "user", content }, { role: "assistant", content: `${turn}${content}` }]);
    }
    const { messages, firstSeq } = await conversations.history("talk", caller);
    assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "user", "assistant"]);
    assert.equal(firstSeq, 3);
    const large: Message = { role: "user", content: "x".repeat(9 * 1024 * 1024) };
    await add("two", [large, { ...large }]);
    assert.equal((await conversations.history("two", caller)).firstSeq, 2);
    await add("one", [{ role: "user", content: "x".repeat(17 * 1024 * 1024) }]);
    assert.equal((await conversations.history("one", caller)).messages.length, 1, "the last message is always given");
  });

  test("keep a summary in place of the messages it covers, which stay stored", async () => {
    const { store, conversations, add } = setUp();
    const say = (...texts: string[]) => texts.map((content): Message => ({ role: "user", content }));
    await add("talk", say("1", "2", "3"));
    await conversations.summarized("talk", { text: "One and two", covers: 2 }, time);
    await add("talk", say("4"));
    const history = await conversations.history("talk", caller);
    assert.deepEqual([history.summary?.text, history.summary?.covers, history.firstSeq], ["One and two", 2, 3]);
    assert.deepEqual(history.messages.map((message) => message.content), ["3", "4"]);
    assert.equal((await store.read("conversation/talk", { afterSeq: 0, limit: 10 })).length, 4);
    await conversations.summarized("unknown", { text: "x", covers: 1 }, time);
    assert.deepEqual((await conversations.history("unknown", caller)).messages, []);
  });

  test("go on behind a run, in a branch where another one does, with a summary where it covers no more", async () => {
    const { store, conversations } = setUp();
    const say = async (runId: string, text: string, id = "talk") =>
      store.batch(
        await conversations.writes(id, {
          runId,
          caller,
          messages: [{ role: "user", content: text }, { role: "assistant", content: `to ${text}` }],
          taint: [`web_fetch ${text}`],
          time,
        }),
      );
    const behind = (runId: string, isBusy = false) =>
      conversations.goOnAfter({ conversationId: "talk", runId }, { ...next, caller, time, isBusy });
    const textsOf = async (id: string) =>
      (await conversations.history(id, caller)).messages.map(({ content }) => content);
    for (const text of ["1", "2", "3"]) await say(`run_${text}`, text);

    const first = await behind("run_1");
    assert.deepEqual(await textsOf(first), ["1", "to 1"]);
    const { taint } = await conversations.history(first, caller);
    assert.deepEqual(taint, ["web_fetch 1", "web_fetch 2", "web_fetch 3"]);
    // A summary of more than this is left aside: the messages are all there
    await conversations.summarized("talk", { text: "S", covers: 2 }, time);
    assert.deepEqual(await textsOf(await behind("run_1", true)), [
      "[Postern] The first 2 messages of this conversation, condensed:\n\nS",
      "I have read it.",
    ]);
    await conversations.summarized("talk", { text: "S", covers: 4 }, time);
    assert.deepEqual(await textsOf(await behind("run_1")), ["1", "to 1"]);

    const [one, other] = await Promise.all([behind("run_3"), behind("run_3")]);
    assert.deepEqual([one, other].filter((id) => id === "talk"), ["talk"]);
    assert.notEqual(await behind("run_3"), "talk");
    // Given back, it goes to the next one; a branch goes, unless somebody else has said something in it
    const place = { conversationId: "talk", runId: "run_3" };
    // Another run has taken it since
    await conversations.giveBack("talk", { place, runId: "run_lost" });
    assert.notEqual(await behind("run_3"), "talk");
    await conversations.giveBack("talk", { place, runId: next.runId });
    assert.notEqual(await behind("run_3", true), "talk");
    assert.equal(await behind("run_3"), "talk");
    const [branch, used] = [await behind("run_3"), await behind("run_3")];
    await say("run_4", "4", used);
    for (const id of [branch, used]) await conversations.giveBack(id, { place, runId: next.runId });
    assert.deepEqual([(await textsOf(branch)).length, (await textsOf(used)).length], [0, 6]);
    // A message that is said frees the place behind it
    await say("run_5", "5");
    assert.equal(await behind("run_5"), "talk");
  });

  test("refuse a branch of a conversation that became another token's while it was read", async () => {
    const { store, conversations } = setUp();
    const messages: readonly Message[] = [{ role: "user", content: "mine" }];
    const said = { runId: "run_1", messages, taint: [], time };
    await store.batch(await conversations.writes("talk", { ...said, caller }));
    let reads = 0;
    const swapping = new Proxy(store, {
      get(target, name: keyof Store) {
        const value = target[name];
        if (typeof value !== "function") return value;
        return async (...given: never[]) => {
          // The messages are read once for the place of the run, then for the history
          if (name === "read" && ++reads === 2) {
            await store.batch([CONVERSATIONS.remove("talk"), { op: "drop", stream: conversationStream("talk") }]);
            const theirs = { caller: { ...caller, tokenId: "tok_2" }, title: "Their secret" };
            await store.batch(await conversations.writes("talk", { ...said, ...theirs }));
          }
          return await (value as (...given: never[]) => unknown).apply(target, given); // as the store declares it
        };
      },
    });
    const racing = createConversations({ store: swapping, random: createSeededRandom() });
    await assert.rejects(
      racing.goOnAfter({ conversationId: "talk", runId: "run_1" }, { ...next, caller, time, isBusy: true }),
      { code: "insufficient_scope" },
    );
    assert.equal(reads, 2);
  });

  test("copy for the branches of one token 64 MiB of history in a minute", async () => {
    const { conversations, add } = setUp();
    await add("talk", [{ role: "user", content: "a".repeat(15 * 1024 * 1024) }]);
    const branch = (at: string, as: ConversationCaller = caller) =>
      conversations.goOnAfter({ conversationId: "talk", runId: "run_1" }, {
        ...{ ...next, caller: as, time: at, isBusy: true },
      });
    for (let copies = 0; copies < 5; copies++) await branch(time);
    await assert.rejects(branch(time), { code: "rate_limited", headers: { "retry-after": "60" } });
    await branch(time, { ...caller, tokenId: "tok_2", scopes: ["chat", "runs"] });
    await branch(new Date(Date.parse(time) + 62_000).toISOString());
  });

  test("refuse to go on behind what they do not keep, what is too long, and what is another token's", async () => {
    const { conversations, add } = setUp();
    const behind = (conversationId: string, as: typeof caller = caller) =>
      conversations.goOnAfter({ conversationId, runId: "run_1" }, { ...next, caller: as, time, isBusy: true });
    const isRefusal = (code: string) => (error: unknown) => error instanceof HttpError && error.code === code;
    await assert.rejects(behind("unknown"), isRefusal("conflict"));
    const turn: readonly Message[] = [{ role: "user", content: "1" }, { role: "assistant", content: "2" }];
    await add("long", Array.from({ length: 501 }, () => turn).flat());
    await assert.rejects(behind("long"), isRefusal("conflict"));
    await add("talk", turn);
    await assert.rejects(behind("talk", { ...caller, tokenId: "tok_2" as "tok_1" }), isRefusal("insufficient_scope"));
  });

  test("make up an id for new and refuse one that is no id", () => {
    const { conversations } = setUp();
    assert.match(conversations.open("new"), /^conv_\w{24}$/);
    assert.equal(conversations.open("my.talk:1"), "my.talk:1");
    for (const bad of ["", "a b", "../x", "é", "a".repeat(129)]) {
      assert.throws(
        () => conversations.open(bad),
        (error) => error instanceof HttpError && error.param === "conversation_id",
      );
    }
  });
});

describe("runs of a conversation", () => {
  test("send its history before the new message", async () => {
    const { runs, provider } = supervised(["Hello", "Bob"]);
    const handle = await runs.start(ask("I am Bob", { conversationId: "new" }));
    await readAll(handle);
    await readAll(await runs.start(ask("Who am I?", { conversationId: handle.conversationId ?? "" })));
    const texts = provider.requests[1]?.messages.slice(1).map((message) => message.content);
    assert.deepEqual(texts, ["I am Bob", "Hello", "Who am I?"]);
  });

  test("wait for each other, each seeing what the one before said", async () => {
    const { runs, provider, clock } = supervised([{ delayMs: 50, text: "one" }, "two", "three"]);
    const handles = await Promise.all(["a", "b", "c"].map((text) => runs.start(ask(text, { conversationId: "talk" }))));
    const reading = Promise.all(handles.map(readAll));
    await clock.advance(100);
    await reading;
    const texts = provider.requests[2]?.messages.slice(1).map((message) => message.content);
    assert.deepEqual(texts, ["a", "one", "b", "two", "c"]);
  });

  test("keep tool calls with their results, and instructions out of the record", async () => {
    const { runs, provider } = supervised([{ toolCalls: [{ name: "look" }] }, "Seen", "Yes"], {
      tools: [{ name: "look" }],
    });
    const messages: Message[] = [{ role: "system", content: "Rhyme" }, { role: "user", content: "Look" }];
    await readAll(await runs.start(ask("", { messages, conversationId: "talk" })));
    await readAll(await runs.start(ask("Did you?", { conversationId: "talk" })));
    const roles = provider.requests[2]?.messages.map((message) => message.role);
    assert.deepEqual(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
  });

  test("keep what was said before a cancellation, with every call answered", async () => {
    const { runs, provider } = supervised(
      [{ text: "I will look", toolCalls: [{ name: "look" }] }, { text: "I see a", hang: "after" }, "Go on"],
      { tools: [{ name: "look" }] },
    );
    const handle = await runs.start(ask("Look", { conversationId: "talk" }));
    for await (const batch of handle.events()) {
      if (batch.some((event) => event.type === "text_delta" && event.delta.endsWith("I see a"))) {
        handle.cancel("cancelled");
      }
    }
    await readAll(await runs.start(ask("And?", { conversationId: "talk" })));
    const texts = provider.requests[2]?.messages.slice(1).map((message) => message.content);
    assert.deepEqual(texts, ["Look", "I will look", "{}", "I see a", "And?"]);
  });

  test("keep no empty reply, which no vendor would take back", async () => {
    const { runs, provider } = supervised([{}, "Here"]);
    await readAll(await runs.start(ask("First", { conversationId: "talk" })));
    await readAll(await runs.start(ask("Second", { conversationId: "talk" })));
    assert.deepEqual(provider.requests[1]?.messages.slice(1).map((message) => message.content), ["First", "Second"]);
  });

  test("that were refused before the first delta leave it as it was", async () => {
    const { runs, provider } = supervised([{ errorBefore: new Error("Broken") }, "Hello"]);
    await readAll(await runs.start(ask("First", { conversationId: "talk" })));
    await readAll(await runs.start(ask("Second", { conversationId: "talk" })));
    assert.deepEqual(provider.requests[1]?.messages.slice(1).map((message) => message.content), ["Second"]);
  });

  /** A conversation with one run, and a store that can hold back the next write of its record alone. */
  async function heldBack(script: readonly string[], options: Parameters<typeof supervised>[1] = {}) {
    const memory = createMemoryStore();
    const [reached, through] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let holds: "taken" | "given back" | undefined;
    const batch: Store["batch"] = async (writes) => {
      const [write] = writes;
      const body = writes.length === 1 && write !== undefined && "body" in write ? write.body : undefined;
      const kind = typeof body === "object" && body !== null && "continued" in body ? "taken" : "given back";
      if (body === undefined || kind !== holds) return await memory.batch(writes);
      holds = undefined;
      reached.resolve();
      await through.promise;
      return await memory.batch(writes);
    };
    const store: Store = {
      ...memory,
      batch,
      putIfVersion: (collection, key, version, body) => batch([{ op: "putIf", collection, key, version, body }]),
    };
    const { runs, provider } = supervised(script, { ...options, store });
    const first = await runs.start(ask("one", { conversationId: "new" }));
    await readAll(first);
    const conversationId = first.conversationId ?? assert.fail();
    const behind = (text: string, model?: string) => {
      const { by, ...rest } = ask(text, { model });
      return runs.start({ ...rest, by: { ...by, after: { conversationId, runId: first.id } } });
    };
    return {
      ...{ runs, provider, conversationId, behind, reached: reached.promise, letThrough: through.resolve },
      hold: (kind: typeof holds) => void (holds = kind),
    };
  }

  test("behind another one get no turn of a run that began meanwhile: they become a branch", async () => {
    const { runs, provider, conversationId, behind, hold, reached, letThrough } = await heldBack(["1", "2", "3"]);
    hold("taken");
    const starting = behind("after one");
    await reached;
    const between = await runs.start(ask("in between", { conversationId }));
    letThrough();
    const branch = await starting;
    assert.notEqual(branch.conversationId, conversationId);
    await Promise.all([readAll(between), readAll(branch)]);
    const asked = provider.requests.map(({ messages }) => messages.slice(1).map(({ content }) => content));
    assert.deepEqual(asked.slice(1).sort(), [["one", "1", "after one"], ["one", "1", "in between"]]);
  });

  test("that were refused behind another one lose nothing that was said meanwhile", async () => {
    const refused = new Error("No such model");
    const { runs, provider, conversationId, behind, hold, reached, letThrough } = await heldBack(["1", "2", "3"], {
      wrap: (providers) => ({
        ...providers,
        resolve(model) {
          if (model === "nobody") throw refused;
          return providers.resolve(model);
        },
      }),
    });
    hold("given back");
    const starting = assert.rejects(behind("after one", "nobody"), refused);
    await reached;
    await readAll(await runs.start(ask("two", { conversationId })));
    letThrough();
    await starting;
    const last = await readAll(await runs.start(ask("three", { conversationId })));
    assert.equal(last.at(-1)?.type, "done");
    const asked = provider.requests.at(-1)?.messages.slice(1).map(({ content }) => content);
    assert.deepEqual(asked, ["one", "1", "two", "2", "three"]);
  });

  test("read nothing when they begin, and are written once, at the end of their first run", async () => {
    const store = createMemoryStore();
    const read: string[] = [];
    const written: string[] = [];
    const counting: Store = {
      ...store,
      get(collection, key) {
        read.push(collection);
        return store.get(collection, key);
      },
      batch(writes) {
        written.push(writes.map((write) => "collection" in write ? write.collection : "stream").join(" "));
        return store.batch(writes);
      },
    };
    const { runs } = supervised(["Hello", "Again"], { store: counting });
    const first = await runs.start(ask("Hi", { conversationId: "new" }));
    await readAll(first);
    assert.equal(read.length, 0, read.join(" "));
    assert.deepEqual(written, [
      "runs run_inputs open_runs stream",
      "runs stream open_runs conversations stream",
    ]);
    await readAll(await runs.start(ask("And?", { conversationId: first.conversationId ?? "" })));
    assert.equal(read.includes("conversations"), true);
  });
});
