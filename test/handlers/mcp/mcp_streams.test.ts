import assert from "node:assert/strict";
import { test } from "node:test";
import { McpStreams } from "../../../handlers/mcp/mcp_streams.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

/** A stream of events whose source writes when it is told to. */
function setUp(tokenId = "tok_1") {
  const clock = createFakeClock();
  const streams = new McpStreams({ clock });
  let controller!: ReadableStreamDefaultController<Uint8Array>; // `start` runs at once
  const source = new ReadableStream<Uint8Array>({ start: (made) => void (controller = made) });
  const seen: string[] = [];
  const reply = streams.guard(new Response(source, { headers: { "content-type": "text/event-stream" } }), {
    tokenId,
    isStanding: false,
    onGone: () => void seen.push("gone"),
    onOver: () => void seen.push("over"),
  });
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  return {
    clock,
    streams,
    seen,
    turn,
    reply,
    write: (bytes: number) => controller.enqueue(new Uint8Array(bytes)),
    end: () => controller.close(),
  };
}

test("a stream ends with its source, and a long message passes whole", async () => {
  const { reply, write, end, seen, streams } = setUp();
  write(5_000_000);
  end();
  assert.equal((await reply.arrayBuffer()).byteLength, 5_000_000);
  assert.deepEqual(seen, ["over"]);
  assert.equal(streams.count(), 0);
});

test("a reader that lets over 1 MiB wait is disconnected", async () => {
  const { write, seen, turn, streams } = setUp();
  for (let written = 0; written < 40; written++) {
    if (streams.count() > 0) write(64 * 1024);
    await turn();
  }
  assert.deepEqual(seen, ["over", "gone"]);
  assert.equal(streams.count(), 0);
});

test("a reader that takes nothing for 300 s is disconnected at the next comment, and one that reads is not", async () => {
  const idle = setUp();
  idle.write(10);
  await idle.turn();
  await idle.clock.advance(300_000);
  idle.write(10);
  await idle.turn();
  assert.deepEqual(idle.seen, ["over", "gone"]);

  const reading = setUp();
  const reader = reading.reply.body?.getReader();
  for (let read = 0; read < 3; read++) {
    reading.write(10);
    assert.equal((await reader?.read())?.value?.length, 10);
    await reading.clock.advance(299_000);
  }
  assert.deepEqual(reading.seen, []);
  await reader?.cancel();
  assert.deepEqual(reading.seen, ["over", "gone"]);
});

test("the end of a token ends its streams alone", () => {
  const { streams, seen } = setUp("tok_1");
  streams.closeToken("tok_2");
  assert.deepEqual(seen, []);
  streams.closeToken("tok_1");
  assert.deepEqual(seen, ["over", "gone"]);
});

test("streams of others take no room of the command line, which has the bound of one token", () => {
  const { streams } = setUp("other_0");
  const open = (tokenId: string) => {
    streams.checkRoom(tokenId);
    const headers = { "content-type": "text/event-stream" };
    streams.guard(new Response(new ReadableStream(), { headers }), { tokenId, isStanding: false, onGone: () => {} });
  };
  for (let n = 1; n < 4096; n++) open(`other_${n % 64}`);
  assert.throws(() => open("other_64"), { code: "overloaded" });
  for (let n = 0; n < 128; n++) open("control");
  assert.throws(() => open("control"), { code: "overloaded" });
  for (let n = 0; n < 64; n++) streams.closeToken(`other_${n}`);
  streams.closeToken("control");
});
