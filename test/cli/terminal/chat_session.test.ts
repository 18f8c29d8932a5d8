import assert from "node:assert/strict";
import { test } from "node:test";
import { openChatSession } from "../../../cli/terminal/chat_session.ts";

type Reached = Parameters<typeof openChatSession>[0];

/** A gateway whose socket gives these frames, and nothing behind them. */
function gatewayWith(frames: readonly object[]): Reached {
  const socket = {
    send() {},
    close() {},
    async *frames() {
      for (const frame of frames) yield JSON.stringify(frame);
      await new Promise(() => {});
    },
  };
  const fake = { call: async () => ({ ticket: "t" }), running: { client: { openSocket: async () => socket } } };
  // A session reaches no other part of a gateway
  return fake as unknown as Reached;
}

const start = { type: "run_start", run_id: "run_1", conversation_id: "conv_1" };
const accepted = { type: "accepted", run_id: "run_2", mode: "steer", steers: "run_1" };
const taken = { type: "message_taken", run_id: "run_1", message_id: "run_2", text: "And that" };
const done = { type: "done", run_id: "run_1" };
const refused = { type: "error", code: "overloaded", message: "Cannot take the message" };
const next = { ...start, run_id: "run_2" };
const nextDone = { type: "done", run_id: "run_2" };

const ORDERS = [
  [start, accepted, taken, done],
  [start, taken, accepted, done],
  [start, taken, done, accepted],
  [start, refused, done],
  [start, done, refused],
  [start, done, accepted, next, nextDone],
  [start, accepted, done, next, nextDone],
  // The reply waits for its turn, or is refused, and so may the message be
  [refused, start, done],
  [refused, refused],
  [refused, accepted, next, nextDone],
  [start, refused, accepted, next, nextDone],
];
for (const order of ORDERS) {
  test(`a reply that was said more to is over after ${order.map(({ type }) => type).join(", ")}`, async () => {
    const topic = { model: undefined, conversationId: undefined };
    const session = await openChatSession(gatewayWith(order), { topic, canApprove: true });
    const reply = session.send("Do this", [])[Symbol.asyncIterator]();
    const seen: string[] = [];
    let reading = reply.next();
    session.steer("And that", "steer");
    for (let event = await reading; event.done !== true; event = await reading) {
      seen.push(event.value.type);
      reading = reply.next();
    }
    assert.deepEqual(seen, order.map(({ type }) => type));
  });
}
