import assert from "node:assert/strict";
import { test } from "node:test";
import type { Script } from "../../../fixtures/scripted_provider.ts";
import { cancelError } from "../../../lib/base/cancel.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { type Message, textOf } from "../../../lib/base/records/message.ts";
import type { MessageMode } from "../../../lib/base/records/run.ts";
import { createStoredConversations } from "../../../lib/runs/conversations/stored_conversations.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import type { FakeTool } from "../../support/fake_tool_executor.ts";
import {
  ask,
  type AskOptions,
  only,
  readAll,
  supervised,
  type SupervisedOptions,
  typesOf,
} from "../../support/supervised.ts";
import { until } from "../../support/until.ts";

/** A tool whose calls wait until the test lets them go. */
function heldTool(name: string, access: FakeTool["access"]) {
  const held: (() => void)[] = [];
  const tool: FakeTool = {
    name,
    access: access ?? "read",
    run: (_input, { signal }) =>
      new Promise((resolve, reject) => {
        held.push(() => resolve("done"));
        signal.addEventListener("abort", () => reject(cancelError(signal)), { once: true });
      }),
  };
  return { tool, held };
}

/** The last words of the user, and how many results follow them. */
function place(messages: readonly Message[]) {
  const at = messages.findLastIndex(({ role }) => role === "user");
  return { said: textOf(messages[at]?.content ?? ""), results: messages.length - at - 1 };
}

/** A run at work in the conversation "talk", and the way to say something to it. */
function scene(script: Script, options: SupervisedOptions = {}) {
  const write = heldTool("write", "write");
  const read = heldTool("read", "read");
  const made = supervised(script, { tools: [write.tool, read.tool], whenReaderLeaves: "go_on", ...options });
  const { runs, store } = made;
  const begin = async (text = "Work") => {
    const handle = await runs.start(ask(text, { conversationId: "talk" }));
    return { id: handle.id, events: readAll(handle) };
  };
  const say = (mode: MessageMode, text: string, more: AskOptions = {}) =>
    runs.start({ ...ask(text, { conversationId: "talk", durable: true, ...more }), by: byOf(mode, more) });
  const byOf = (mode: MessageMode, more: AskOptions) => ({ ...ask("", more).by, steers: { mode } });
  const told = async () =>
    (await createStoredConversations({ store, runIn: () => undefined }).messages("talk", { afterSeq: 0, limit: 100 }))
      .map(({ message }) => `${message.role}: ${message.content === null ? "(calls)" : textOf(message.content)}`);
  return { ...made, write: write.held, read: read.held, begin, say, told };
}

const twoCalls = (tool: string, count = 2): Script => ({ messages }) => {
  const { said, results } = place(messages);
  if (said !== "Work" || results > 0) return { text: `To ${said}` };
  return { toolCalls: Array.from({ length: count }, (_, index) => ({ name: tool, arguments: { index } })) };
};

const skippedOf = (events: readonly AgentEvent[]) =>
  events.flatMap((event) => event.type === "tool_end" ? [event.skipped === true] : []);

test("a steering message is taken in between two calls: the one at work ends, the next is skipped, and the run goes on", async () => {
  const { begin, say, write, told, runs, provider } = scene(twoCalls("write"));
  const { id, events } = await begin();
  await until(() => write.length === 1);
  const message = await say("steer", "Use b");
  assert.deepEqual(message.steers, { run_id: id, mode: "steer" });
  assert.equal((await runs.get(message.id))?.status, "queued");
  write[0]?.();
  const shown = await events;
  assert.deepEqual(skippedOf(shown), [false, true]);
  const taken = only(shown, "message_taken");
  assert.deepEqual([taken.message_id, taken.text, taken.by], [message.id, "Use b", "tok_1"]);
  const order = typesOf(shown).filter((type) => type !== "text_delta");
  assert.ok(order.indexOf("message_taken") > order.lastIndexOf("tool_end"));
  assert.ok(order.indexOf("message_taken") < order.lastIndexOf("turn_start"));
  assert.equal(shown.at(-1)?.type, "done");
  assert.equal(write.length, 1, "the second call was not made");
  const run = await runs.ended(message.id, new AbortController().signal);
  assert.deepEqual([run?.status, run?.error?.code], ["cancelled", "taken_in"]);
  assert.deepEqual(await told(), [
    "user: Work",
    "assistant: (calls)",
    "tool: done",
    "tool: Not called: the user has sent a message meanwhile, which follows. Call it again if it is still needed",
    "user: Use b",
    "assistant: To Use b",
  ]);
  assert.equal(provider.requests.length, 2);
});

test("calls at work side by side all finish, and those that have not begun are skipped", async () => {
  const { begin, say, read } = scene(twoCalls("read", 10));
  const { events } = await begin();
  await until(() => read.length === 8);
  await say("steer", "Stop reading");
  for (const end of [...read]) end();
  assert.deepEqual(skippedOf(await events), [...Array(8).fill(false), true, true]);
  assert.equal(read.length, 8);
});

test("a message that came after the last call, or during a reply without one, is the next turn, and nothing of it is lost", async () => {
  const end = Promise.withResolvers<void>();
  const { begin, say, told, runs } = scene(({ messages }) => {
    const { said } = place(messages);
    return said === "Work" ? { text: ["half ", "whole"], holdUntil: end.promise } : { text: `To ${said}` };
  });
  const { id, events } = await begin();
  await until(async () => (await runs.get(id))?.status === "running");
  const message = await say("steer", "More");
  const reply = readAll(message);
  end.resolve();
  assert.deepEqual(typesOf(await events).filter((type) => type === "message_taken"), []);
  assert.equal((await reply).at(-1)?.type, "done");
  assert.deepEqual(await told(), ["user: Work", "assistant: half whole", "user: More", "assistant: To More"]);
  const late = await say("steer", "Late");
  assert.equal(late.steers, undefined, "the answer says that it is the next turn");
  await readAll(late);
  assert.deepEqual((await told()).slice(-2), ["user: Late", "assistant: To Late"]);
});

test("a message to a run that waits for its slot is taken in before the first token", async () => {
  const { begin, runs, told, write } = scene(twoCalls("write"), { limits: { maxConcurrent: 1 } });
  const other = await runs.start(ask("Work", { conversationId: "other", durable: true }));
  await until(() => write.length === 1);
  const { id, events } = await begin("Count");
  const by = { ...ask("").by, steers: { mode: "steer", runId: id } } as const;
  await runs.start({ ...ask("To ten", { conversationId: "talk", durable: true }), by });
  await runs.cancel(other.id, "cancelled");
  assert.deepEqual(typesOf(await events).slice(0, 3), ["run_start", "message_taken", "turn_start"]);
  assert.deepEqual(await told(), ["user: Count", "user: To ten", "assistant: To To ten"]);
});

test("two messages at once are taken in both, once, in the order of their acceptance", async () => {
  const { begin, say, write, told } = scene(twoCalls("write"));
  const { events } = await begin();
  await until(() => write.length === 1);
  const [one, two] = await Promise.all([say("steer", "one"), say("steer", "two")]);
  write[0]?.();
  const taken = (await events).flatMap((event) => event.type === "message_taken" ? [event.message_id] : []);
  assert.deepEqual(taken, [one.id, two.id]);
  assert.deepEqual((await told()).filter((line) => line.startsWith("user")), ["user: Work", "user: one", "user: two"]);
});

test("queued messages keep their turns behind the run that takes a steering one in", async () => {
  const { begin, say, write, told } = scene(twoCalls("write"));
  const { events } = await begin();
  await until(() => write.length === 1);
  const queued = readAll(await say("queue", "Then"));
  await say("steer", "Now");
  write[0]?.();
  await events;
  await queued;
  const said = (await told()).filter((line) => !line.startsWith("tool"));
  assert.deepEqual(said, [
    "user: Work",
    "assistant: (calls)",
    "user: Now",
    "assistant: To Now",
    "user: Then",
    "assistant: To Then",
  ]);
});

test("an interrupting message ends the turn, whose stopped call keeps its result, and is answered next", async () => {
  const { begin, say, write, told, runs } = scene(twoCalls("write"));
  const { id, events } = await begin();
  await until(() => write.length === 1);
  const message = await say("interrupt", "No, b");
  const reply = readAll(message);
  const end = (await events).at(-1);
  assert.deepEqual(end?.type === "error" && [end.code, end.interrupted, end.message], [
    "cancelled",
    true,
    "A person interrupted the reply with another message",
  ]);
  assert.equal((await reply).at(-1)?.type, "done");
  assert.equal((await runs.get(id))?.status, "cancelled");
  assert.deepEqual(await told(), [
    "user: Work",
    "assistant: (calls)",
    "tool: The call was stopped: A person interrupted the reply with another message",
    "user: No, b",
    "assistant: To No, b",
  ]);
  assert.equal(write.length, 1);
});

test("what was asked stays in the conversation where the message comes before the first word of its reply", async () => {
  const { begin, say, told, provider } = scene(({ messages }) => {
    const { said } = place(messages);
    return said === "Work" ? { hang: "before" } : { text: `To ${said}` };
  });
  const { events } = await begin();
  await until(() => provider.requests.length === 1);
  await readAll(await say("interrupt", "In German"));
  assert.equal((await events).at(-1)?.type, "error");
  assert.deepEqual(await told(), ["user: Work", "user: In German", "assistant: To In German"]);
});

test("a message is not taken in by a run that works with more rights than its sender has", async () => {
  const { say, write, runs } = scene(twoCalls("write"));
  const admin = await runs.start(
    ask("Work", {
      conversationId: "talk",
      caller: { via: "http", tokenId: "tok_1", scopes: ["chat", "runs", "tools"] },
    }),
  );
  const events = readAll(admin);
  await until(() => write.length === 1);
  const message = await say("steer", "Hi");
  const other = await say("interrupt", "Hi");
  assert.deepEqual([message.steers, other.steers], [undefined, undefined]);
  write[0]?.();
  await until(() => write.length === 2);
  write[1]?.();
  assert.equal((await events).at(-1)?.type, "done");
});

test("what is halted, draining, over its bound or another token's takes no message", async () => {
  let halted: string | undefined;
  const { begin, say, write, runs, clock } = scene(twoCalls("write"), {
    halted: () => halted,
    limits: { maxPerConversation: 1 },
  });
  await begin();
  await until(() => write.length === 1);
  const stranger = { via: "http", tokenId: "tok_2", scopes: ["chat"] } as const;
  await assert.rejects(say("steer", "Hi", { caller: stranger }), { code: "insufficient_scope" });
  await say("steer", "One");
  await assert.rejects(say("steer", "Two"), { code: "overloaded" });
  halted = "a person has halted it";
  await assert.rejects(say("steer", "Three"), { code: "halted" });
  halted = undefined;
  const drained = runs.drain(0);
  await assert.rejects(say("steer", "Four"), { code: "shutting_down" });
  await clock.advance(10_000);
  await drained;
});

test("a message that its sender cancels while it waits is not taken in", async () => {
  const { begin, say, write, runs, told } = scene(twoCalls("write"));
  const { events } = await begin();
  await until(() => write.length === 1);
  const message = await say("steer", "Hi");
  await runs.cancel(message.id, "cancelled");
  write[0]?.();
  await until(() => write.length === 2);
  write[1]?.();
  assert.deepEqual(skippedOf(await events), [false, false]);
  assert.ok(!(await told()).includes("user: Hi"));
});

test("calls that were skipped for a message are no pattern of the model: it is neither warned nor stopped", async () => {
  const { begin, say, write } = scene(twoCalls("write", 5));
  const { events } = await begin();
  await until(() => write.length === 1);
  await say("steer", "Use b");
  write[0]?.();
  const shown = await events;
  assert.deepEqual(skippedOf(shown), [false, true, true, true, true]);
  assert.deepEqual(typesOf(shown).filter((type) => type === "notice"), []);
});

test("a message that was taken in is in the conversation though the model then refuses the first turn", async () => {
  const refused = { errorBefore: new ProviderError("provider_error", "No", { provider: "scripted" }) };
  const script: Script = ({ messages }) => {
    const { said } = place(messages);
    return said === "To ten" ? refused : { toolCalls: [{ name: "write" }] };
  };
  const { begin, runs, told, write } = scene(script, { limits: { maxConcurrent: 1 } });
  const other = await runs.start(ask("Work", { conversationId: "other", durable: true }));
  await until(() => write.length === 1);
  const { id, events } = await begin("Count");
  const by = { ...ask("").by, steers: { mode: "steer", runId: id } } as const;
  await runs.start({ ...ask("To ten", { conversationId: "talk", durable: true }), by });
  await runs.cancel(other.id, "cancelled");
  const end = (await events).at(-1);
  assert.equal(end?.type, "error");
  assert.deepEqual(await told(), ["user: Count", "user: To ten"]);
});

test("a message that is on disk is accepted, though the run that it interrupts could not be told: that ends at its next look", async () => {
  const disk = createMemoryStore();
  let isBroken = false;
  const batch: Store["batch"] = async (writes) => {
    const cancels = writes.some((write) =>
      write.op === "putIf" && JSON.stringify(write.body).includes('"cancelled":true')
    );
    if (isBroken && cancels) throw new Error("Disk full");
    return await disk.batch(writes);
  };
  const { begin, say, write, runs } = scene(twoCalls("write"), { store: { ...disk, batch } });
  const { id, events } = await begin();
  await until(() => write.length === 1);
  isBroken = true;
  const message = await say("interrupt", "No, b");
  isBroken = false;
  write[0]?.();
  assert.equal((await events).at(-1)?.type, "error");
  assert.equal((await runs.get(id))?.error?.code, "cancelled");
  assert.equal((await readAll(message)).at(-1)?.type, "done");
  assert.equal(write.length, 1);
});

test("a message to a run that waits for a review is answered before its turn, and both reader and model are told", async () => {
  const { begin, say, write, store, clock, told: kept } = scene(twoCalls("write"));
  const { id } = await begin();
  await until(() => write.length === 1);
  const message = await say("steer", "Use b");
  // The process ends in the middle of the call
  const { runs, provider } = supervised(twoCalls("write"), { store, clock, seed: 2, whenReaderLeaves: "go_on" });
  await runs.recover();
  assert.equal((await runs.get(id))?.status, "needs_review");
  const events: AgentEvent[] = [];
  const signal = new AbortController().signal;
  for await (const batch of await runs.follow(message.id, { afterSeq: 0, signal }) ?? []) events.push(...batch);
  const { code, message: told } = only(events, "notice");
  assert.deepEqual([code, told.includes(id), events.at(-1)?.type], ["run_under_review", true, "done"]);
  const sent = provider.requests[0]?.messages.slice(1).map(({ content }) => textOf(content));
  assert.match(sent?.[0] ?? "", /^\[Postern\] The next message was meant for work that was cut off/);
  assert.deepEqual([sent?.slice(1), await kept()], [["Use b"], ["user: Use b", "assistant: To Use b"]]);
});
