import assert from "node:assert/strict";
import { test } from "node:test";
import type { CommandContext } from "../../../cli/command.ts";
import type { ReachedGateway } from "../../../cli/reach_gateway.ts";
import { runEvents, showRunEvents } from "../../../cli/terminal/show_run_events.ts";

/** Follows a run after seq 2 at a gateway that sends these events and is then gone. */
async function followed(events: readonly { readonly seq: number; readonly type: string; readonly delta?: string }[]) {
  const said: string[] = [];
  const context = {
    io: {
      stdout: () => {},
      stderr: (text: string) => said.push(text),
      onInterrupt: () => () => {},
      isTerminal: { stdout: false, stderr: false },
    },
    flags: { json: false },
    say: (text: string) => said.push(text),
  } as unknown as CommandContext;
  const stream = async function* () {
    for (const event of events) yield new TextEncoder().encode(`id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`);
    throw new TypeError("the connection broke");
  };
  const gateway = { stream: () => Promise.resolve(stream()) } as unknown as ReachedGateway;
  await assert.rejects(
    showRunEvents("run_1", { context, gateway, after: 2, follow: true }),
    /^TypeError: the connection broke$/,
  );
  return said;
}

test("a connection that breaks while a run is followed tells where to go on", async () => {
  assert.deepEqual(await followed([{ seq: 3, type: "text_delta", delta: "Water" }]), [
    "The run goes on: postern run events run_1 --follow --after 3",
  ]);
});

test("one that breaks before anything new leaves it at the reason, and so does one after the run's end", async () => {
  assert.deepEqual(await followed([]), []);
  assert.deepEqual(await followed([{ seq: 3, type: "done" }]), []);
});

test("events are read however the network cuts them", async () => {
  const events = [{ seq: 1, type: "text_delta", delta: "für 你好 😀\u2028\n\ndata: no" }, { seq: 2, type: "done" }];
  const text = `: hello\n\n${
    events.map((event) => `id: ${event.seq}\r\ndata: ${JSON.stringify(event)}\r\n\r\n`).join("")
  }`;
  const bytes = async function* () {
    for (const byte of new TextEncoder().encode(text)) yield Uint8Array.of(byte);
  };
  const gateway = { stream: () => Promise.resolve(bytes()) } as unknown as ReachedGateway;
  assert.deepEqual(await Array.fromAsync(runEvents(gateway, "run_1", { after: 0, follow: false })), events);
});
