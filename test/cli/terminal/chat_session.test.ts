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
  // What a session reaches of a gateway
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
  [accepted, taken, done],
  [taken, accepted, done],
  [taken, done, accepted],
  [refused, done],
  [done, refused],
  [done, accepted, next, nextDone],
  [accepted, done, next, nextDone],
];
for (const order of ORDERS) {
  test(`a reply that was said more to is over after ${order.map(({ type }) => type).join(", ")}`, async () => {
    const topic = { model: undefined, conversationId: undefined };
    const session = await openChatSession(gatewayWith([start, ...order]), { topic, canApprove: true });
    const seen: string[] = [];
    for await (const { type } of session.send("Do this", [])) {
      if (seen.push(type) === 1) session.steer("And that", "steer");
    }
    assert.deepEqual(seen, [start, ...order].map(({ type }) => type));
  });
}
