import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { toChunk, toDelta, toSse, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { type KillableGateway, withKillableGateway } from "../support/killable_gateway.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const ROUNDS = 60;
/** Clients that repeat one request at once */
const CLIENTS = 8;
const MAX_KILL_MS = 400;

interface UpstreamMessage {
  readonly role: string;
  readonly content: string;
}

/** Returns the model's reply: first a call that counts the key it was asked with, then an answer with the key. */
function chunksFor(messages: readonly UpstreamMessage[]): readonly unknown[] {
  const key = messages.findLast(({ role }) => role === "user")?.content ?? "";
  if (messages.at(-1)?.role === "tool") {
    return [toDelta({ content: "answer " }), toDelta({ content: key }), toDelta({}, "stop")];
  }
  const call = {
    index: 0,
    id: `call_${key}`,
    type: "function",
    function: { name: "shell", arguments: JSON.stringify({ command: `sh -c "echo ${key} >> counter; sleep 0.02"` }) },
  };
  return [toDelta({ role: "assistant", content: null, tool_calls: [call] }), toDelta({}, "tool_calls")];
}

async function startUpstream() {
  return await startFakeServer((seen, response) => {
    // The gateway sends messages of text only here
    const { messages } = seen.json as { readonly messages: readonly UpstreamMessage[] };
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end([...chunksFor(messages), USAGE_CHUNK, toChunk([])].map(toSse).join("") + "data: [DONE]\n\n");
  });
}

interface Kind {
  readonly path: string;
  readonly body: (key: string) => unknown;
}

const KINDS: readonly Kind[] = [
  { path: "/v1/chat/completions", body: (key) => ({ messages: [{ role: "user", content: key }] }) },
  { path: "/v1/chat/completions", body: (key) => ({ messages: [{ role: "user", content: key }], stream: true }) },
  { path: "/api/chat", body: (key) => ({ message: key }) },
  { path: "/v1/runs", body: (key) => ({ message: key }) },
  { path: "/v1/webhook/default?wait=1", body: (key) => ({ message: key }) },
  {
    path: "/v1/tools/shell/call",
    body: (key) => ({ input: { command: `sh -c "echo ${key} >> counter; sleep 0.02"` } }),
  },
];

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Repeats a request until the gateway, whichever process it is, has answered it. */
async function askUntilAnswered(gateway: KillableGateway, kind: Kind, key: string): Promise<Answer> {
  for (;;) {
    try {
      const headers = { "idempotency-key": key };
      const reply = await gateway.call(kind.path, { headers, body: kind.body(key) });
      const text = await reply.text();
      if (reply.status < 500) return { status: reply.status, text };
    } catch {
      // The gateway was killed in the middle of this request
    }
    await systemClock.sleep(20);
  }
}

test("repeats of every kind over kills at random moments: one effect and one answer for each key, or an honest 409", async () => {
  const random = createSeededRandom(7);
  const upstream = await startUpstream();
  const outcomes = new Map<string, number>();
  try {
    await withKillableGateway({ baseUrl: `${upstream.origin}/v1` }, async (gateway) => {
      for (let round = 0; round < ROUNDS; round++) {
        const keys = KINDS.map((_, index) => `k${round}x${index}`);
        const asked = KINDS.flatMap((kind, index) =>
          Array.from({ length: CLIENTS }, () => askUntilAnswered(gateway, kind, keys[index] ?? ""))
        );
        await systemClock.sleep(((random.bytes(1)[0] ?? 0) / 256) * MAX_KILL_MS);
        await gateway.kill();
        await gateway.restart();
        const answers = await Promise.all(asked);
        for (const [index, kind] of KINDS.entries()) {
          const own = answers.slice(index * CLIENTS, (index + 1) * CLIENTS);
          const good = own.filter(({ status }) => status < 300);
          const name = `${kind.path} ${keys[index]}`;
          assert.ok(own.every(({ status }) => status < 300 || status === 409), `${name}: ${JSON.stringify(own)}`);
          assert.ok(new Set(good.map(({ text }) => text)).size <= 1, `${name}: ${JSON.stringify(good)}`);
          const outcome = good.length === 0 ? "409" : "answered";
          outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        }
      }
      await systemClock.sleep(1000);
      const counted = new Map<string, number>();
      for (const key of readFileSync(join(gateway.workspace, "counter"), "utf8").trim().split("\n")) {
        counted.set(key, (counted.get(key) ?? 0) + 1);
      }
      assert.deepEqual([...counted].filter(([, times]) => times > 1), []);
      console.log(`${ROUNDS} kills, ${counted.size} effects: ${JSON.stringify(Object.fromEntries(outcomes))}`);
    });
  } finally {
    await upstream.close();
  }
});
