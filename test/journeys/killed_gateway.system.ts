import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { appliedText } from "../support/applied_text.ts";
import { countingCommand } from "../support/killable_gateway.ts";
import {
  jsonOf,
  type KillableGateway,
  type OpenAiUpstream,
  readSse,
  until,
  type UpstreamReply,
  withWorld,
} from "../support/world.ts";

const MESSAGES = [{ role: "user", content: "Count once" }];
const COUNT: UpstreamReply = {
  kind: "tool_call",
  name: "shell",
  arguments: [JSON.stringify({ command: countingCommand() })],
};
const STORM = 500;

async function withUpstream(
  script: readonly UpstreamReply[],
  use: (gateway: KillableGateway, upstream: OpenAiUpstream) => Promise<void>,
): Promise<void> {
  await withWorld(async (world) => {
    const upstream = await world.upstream(...script);
    const gateway = await world.killableGateway(upstream);
    await use(gateway, upstream);
  });
}

const keyed = (key: string, body: unknown) => ({ headers: { "idempotency-key": key }, body });

/** The requests for completions that the upstream has seen */
const turnsOf = (upstream: OpenAiUpstream) => upstream.requests.filter(({ path }) => path === "/v1/chat/completions");

test("what a command planted under protected names before a kill -9 is in quarantine after the next start", () =>
  withUpstream([], async (gateway) => {
    const { workspace, dataDir } = gateway;
    mkdirSync(join(workspace, "mine/.git"), { recursive: true });
    const command = `sh -c "mkdir -p sub/.git plugins; echo evil > sub/.git/config; echo made > made; sleep 60"`;
    const call = gateway.call("/v1/tools/shell/call", { body: { input: { command } } }).catch(() => {});
    await until(() => existsSync(join(workspace, "made")), "the command does not begin");
    await gateway.kill();
    await call;
    assert.ok(existsSync(join(workspace, "sub/.git/config")), "nobody has looked yet");
    await gateway.restart();
    assert.deepEqual(["sub/.git", "plugins", "mine/.git"].map((name) => existsSync(join(workspace, name))), [
      false,
      false,
      true,
    ]);
    const kept = readdirSync(join(dataDir, "quarantine"), { recursive: true }).map(String);
    assert.equal(kept.filter((name) => /\/(?:\.git\/config|plugins)$/.test(name)).length, 2, kept.join());
    const { output } = await gateway.stop();
    assert.match(output, /Protected names appeared since a command of an earlier gateway.*sub\/\.git -> /);
  }));

test("a storm of 1,000 repeats across a kill -9 has one effect and one answer", () =>
  withUpstream([COUNT, { kind: "stall", chunks: ["half an "] }], async (gateway, upstream) => {
    const path = "/v1/chat/completions";
    const request = keyed("storm", { messages: MESSAGES });
    const before = Array.from(
      { length: STORM },
      () => gateway.call(path, request).then(() => "answered", () => "cut off"),
    );
    await until(() => turnsOf(upstream).length === 2);
    await gateway.kill();
    assert.deepEqual(new Set(await Promise.all(before)), new Set(["cut off"]));
    upstream.script({ kind: "text", chunks: ["the ", "answer"] });
    await gateway.restart();
    const replies = await Promise.all(Array.from({ length: STORM }, () => gateway.call(path, request)));
    const texts = new Set(await Promise.all(replies.map((reply) => reply.text())));
    assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([200]));
    assert.equal(texts.size, 1);
    assert.equal(JSON.parse([...texts][0] ?? "").choices[0].message.content, "the answer");
    assert.ok(replies.every(({ headers }) => headers.get("idempotency-replayed") === "true"));
    assert.equal(gateway.counted(), 1);
    assert.equal((await jsonOf(gateway.call("/v1/runs"))).data.length, 1);
    const other = await gateway.call(path, keyed("storm", { messages: MESSAGES, n: 1 }));
    assert.equal((await jsonOf(other)).error.code, "idempotency_conflict");
  }));

test("a run that was started under a key is the same run after a kill -9", () =>
  withUpstream([{ kind: "hang" }], async (gateway, upstream) => {
    const request = keyed("run", { message: "Hi" });
    const first = await gateway.call("/v1/runs", request);
    const text = await first.text();
    await gateway.kill();
    upstream.script({ kind: "text", chunks: ["done"] });
    await gateway.restart();
    const again = await gateway.call("/v1/runs", request);
    assert.deepEqual([again.status, again.headers.get("location")], [202, first.headers.get("location")]);
    assert.equal(await again.text(), text);
    assert.equal((await jsonOf(gateway.call("/v1/runs"))).data.length, 1);
  }));

test("a delivery is one run after a kill -9, by its key and by its message id", () =>
  withUpstream([{ kind: "hang" }], async (gateway, upstream) => {
    const deliver = async (key: string, message: string) => {
      const body = { message, message_id: "m1" };
      const reply = await gateway.call("/v1/webhook/default?wait=1", keyed(key, body));
      return { status: reply.status, ...await jsonOf(reply) };
    };
    const first = deliver("k", "Hi").then(() => "answered", () => "cut off");
    await until(() => turnsOf(upstream).length === 1);
    await gateway.kill();
    assert.equal(await first, "cut off");
    upstream.script({ kind: "text", chunks: ["heard"] });
    await gateway.restart();
    assert.equal((await deliver("k", "Ho")).error.code, "idempotency_conflict");
    const replies = await Promise.all([deliver("k", "Hi"), deliver("k", "Hi"), deliver("k2", "Hi")]);
    assert.deepEqual(replies.map(({ status, reply }) => [status, reply]), Array(3).fill([200, "heard"]));
    assert.equal(new Set(replies.map(({ run_id: id }) => id)).size, 1);
    assert.equal((await jsonOf(gateway.call("/v1/runs"))).data.length, 1);
  }));

test("a tool call that was cut off is not made again: its outcome is said to be unknown", () =>
  withUpstream([], async (gateway) => {
    const path = "/v1/tools/shell/call";
    const request = keyed("tool", { input: { command: countingCommand(30) } });
    const first = gateway.call(path, request).then(() => assert.fail("answered"), () => "cut off");
    await until(() => gateway.counted() === 1);
    await gateway.kill();
    assert.equal(await first, "cut off");
    await gateway.restart();
    for (let i = 0; i < 3; i++) {
      const again = await gateway.call(path, request);
      assert.deepEqual([again.status, again.headers.get("x-should-retry")], [409, "false"]);
      assert.equal((await jsonOf(again)).error.code, "conflict");
    }
    assert.equal(gateway.counted(), 1);
  }));

/** The chunks of a completions stream: text, and the error at its end. */
function readChunks(text: string) {
  const { data } = readSse(text);
  assert.equal(data.at(-1), "[DONE]");
  const chunks = data.slice(0, -1).map((event) => JSON.parse(event));
  return {
    text: chunks.map((chunk) => chunk.choices?.[0]?.delta.content ?? "").join(""),
    error: chunks.at(-1).error,
  };
}

/** Reads a stream until its text holds this. */
async function readUntil(reply: Response, wanted: string): Promise<void> {
  const reader = reply.body?.getReader() ?? assert.fail("no body");
  const decoder = new TextDecoder();
  for (let text = ""; !text.includes(wanted);) {
    const { done, value } = await reader.read();
    if (done) assert.fail(`the stream ended before "${wanted}"`);
    text += decoder.decode(value, { stream: true });
  }
  // The connection stays open; the kill breaks it
  reader.closed.catch(() => {});
}

test("a completions stream whose text was cut off ends with run_interrupted, and the run has the whole answer", () =>
  withUpstream([COUNT, { kind: "stall", chunks: ["half an "] }], async (gateway, upstream) => {
    const path = "/v1/chat/completions";
    const request = keyed("stream", { messages: MESSAGES, stream: true });
    await readUntil(await gateway.call(path, request), "half an ");
    await gateway.kill();
    upstream.script({ kind: "text", chunks: ["the ", "answer"] });
    await gateway.restart();
    const texts = await Promise.all([1, 2, 3].map(async () => await (await gateway.call(path, request)).text()));
    assert.equal(new Set(texts).size, 1);
    const { text, error } = readChunks(texts[0] ?? "");
    assert.deepEqual([text, error?.code], ["", "run_interrupted"]);
    const [run] = (await jsonOf(gateway.call("/v1/runs"))).data;
    await until(async () => (await jsonOf(gateway.call(`/v1/runs/${run.id}`))).status === "completed");
    assert.equal((await jsonOf(gateway.call(`/v1/runs/${run.id}`))).result, "the answer");
    assert.ok(texts[0]?.includes(run.id.replace("run_", "chatcmpl-")), "the stream's id leads to the run");
    assert.equal(gateway.counted(), 1);
  }));

test("a completions stream of which no text had been sent is whole after a kill -9", () =>
  withUpstream([COUNT, { kind: "hang" }], async (gateway, upstream) => {
    const path = "/v1/chat/completions";
    const request = keyed("stream", { messages: MESSAGES, stream: true });
    const first = gateway.call(path, request).then((reply) => reply.text()).catch(() => "cut off");
    await until(() => turnsOf(upstream).length === 2);
    await gateway.kill();
    assert.equal(await first, "cut off");
    upstream.script({ kind: "text", chunks: ["the ", "answer"] });
    await gateway.restart();
    const { text, error } = readChunks(await (await gateway.call(path, request)).text());
    assert.deepEqual([text, error], ["the answer", undefined]);
    assert.equal(gateway.counted(), 1);
  }));

test("a run's events go on after a kill -9: with turn_restart applied they are the stored result, over HTTP and WebSocket", () =>
  withUpstream([COUNT, { kind: "stall", chunks: ["half ", "an "] }], async (gateway, upstream) => {
    const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Hi" } }));
    const reply = await gateway.call(`/v1/runs/${id}/events`);
    const reader = reply.body?.getReader() ?? assert.fail("no body");
    const decoder = new TextDecoder();
    let text = "";
    // To the end of the event, which may come in pieces
    while (!/"an ".*\n\n/.test(text)) text += decoder.decode((await reader.read()).value, { stream: true });
    reader.closed.catch(() => {});
    const seen = readSse(text).data.map((data) => JSON.parse(data) as AgentEvent);
    await gateway.kill();
    upstream.script({ kind: "text", chunks: ["the ", "answer"] });
    await gateway.restart();
    const after = seen.at(-1)?.seq ?? 0;

    const rest = await (await gateway.call(`/v1/runs/${id}/events`, { headers: { "last-event-id": String(after) } }))
      .text();
    const later = readSse(rest).data.map((data) => JSON.parse(data) as AgentEvent);
    const all = [...seen, ...later];
    const { result, status } = await jsonOf(gateway.call(`/v1/runs/${id}`));
    assert.deepEqual([status, result], ["completed", "the answer"]);
    assert.equal(later[0]?.type, "turn_restart");
    assert.equal(appliedText(all), result);
    assert.ok(
      all.every(({ seq }, index) => index === 0 || seq > (all[index - 1]?.seq ?? 0)),
      "no position is used twice",
    );

    const client = await gateway.chat();
    client.send({ type: "hello", events: true });
    client.send({ type: "resume", run_id: id, after });
    const frames = await client.readReply();
    await client.leave();
    assert.deepEqual(frames.map(({ run_id: _, ...event }) => event), later);
    assert.equal(gateway.counted(), 1);
  }));

test("a reply in a chat goes on after a kill -9, wherever it was: what is shown is what is stored", () =>
  withUpstream([], async (gateway, upstream) => {
    const answer = { kind: "text", chunks: ["the ", "answer"] } as const;
    const stations: readonly (readonly [before: readonly UpstreamReply[], after: readonly UpstreamReply[]])[] = [
      [[{ kind: "hang" }], [COUNT, answer]],
      [[COUNT, { kind: "hang" }], [answer]],
      [[COUNT, { kind: "stall", chunks: ["half ", "an "] }], [answer]],
    ];
    for (const [index, [before, after]] of stations.entries()) {
      const talk = `talk-${index}`;
      const turns = turnsOf(upstream).length;
      upstream.script(...before);
      const client = await gateway.chat();
      client.send({ type: "hello", events: true });
      client.send({ type: "message", text: "Count once", conversation_id: talk });
      // A turn is shown once the end of the call before it is on disk
      await client.readUntil(({ type, turn }) => index === 2 ? type === "text_delta" : turn === index + 1);
      await until(() => turnsOf(upstream).length === turns + before.length);
      await gateway.kill();
      await client.closed;
      const seen = client.frames.map((frame) => frame as unknown as AgentEvent); // the socket has sent events alone
      upstream.script(...after);
      await gateway.restart();

      const next = await gateway.chat();
      next.send({ type: "hello", events: true });
      next.send({ type: "resume", run_id: client.frames[0]?.["run_id"], after: seen.at(-1)?.seq ?? 0 });
      const rest = await next.readReply();
      await next.leave();
      const { messages, run_id: now } = await jsonOf(gateway.call(`/v1/conversations/${talk}`));
      const all = [...seen, ...rest as unknown as readonly AgentEvent[]]; // as above
      assert.deepEqual([rest.at(-1)?.type, now], ["done", null], talk);
      assert.equal(messages.data.at(-1).content, "the answer");
      assert.equal(appliedText(all), "the answer", talk);
      assert.ok(all.every(({ seq }, at) => at === 0 || seq > (all[at - 1]?.seq ?? 0)), "no position is used twice");
      assert.equal(gateway.counted(), index + 1);
    }
  }));

test("a call that was cut off in a run leaves the run to a person, and goes on as the person says", () => {
  const call = JSON.stringify({ command: countingCommand(30) });
  return withUpstream([{ kind: "tool_call", name: "shell", arguments: [call] }], async (gateway, upstream) => {
    const path = "/v1/chat/completions";
    const request = keyed("review", { messages: MESSAGES });
    const first = gateway.call(path, request).then(() => "answered", () => "cut off");
    await until(() => gateway.counted() === 1);
    await gateway.kill();
    assert.equal(await first, "cut off");
    upstream.script({ kind: "text", chunks: ["as ", "you say"] });
    await gateway.restart();
    const refused = await gateway.call(path, request);
    assert.deepEqual([refused.status, refused.headers.get("x-should-retry")], [409, "false"]);
    assert.equal((await jsonOf(refused)).error.code, "needs_review");
    const [run] = (await jsonOf(gateway.call("/v1/runs?status=needs_review"))).data;
    const resolve = (body: unknown) => gateway.call(`/v1/runs/${run.id}/resolve`, { body });
    assert.equal((await jsonOf(resolve({ action: "go on" }))).error.param, "action");
    const cancelled = await gateway.call(`/v1/runs/${run.id}/cancel`, { method: "POST" });
    assert.match(
      (await jsonOf(cancelled)).error.message,
      /waits for a person; close it with "postern run resolve run_\w+ close" or POST .*\/resolve/,
    );
    assert.equal((await resolve({ action: "resume", outcome: "done", note: "I saw the line" })).status, 200);
    const answer = await jsonOf(gateway.call(path, request));
    assert.equal(answer.choices[0].message.content, "as you say");
    const told = turnsOf(upstream).at(-1)?.text ?? "";
    assert.match(told, /I saw the line/);
    assert.equal((await resolve({ action: "close" })).status, 409);
    assert.equal(gateway.counted(), 1);
  });
});

test("a file that a killed gateway was writing is gone with the next start", () =>
  withWorld(async (world) => {
    const folder = await world.folder();
    const dataDir = join(folder, "data");
    mkdirSync(dataDir, { mode: 0o700 });
    const { pid } = spawnSync(process.execPath, ["--version"]);
    const unfinished = join(dataDir, `.postern-${pid}-${"0".repeat(24)}.tmp`);
    writeFileSync(unfinished, "half of it");
    await world.gateway({ dataDir });
    assert.equal(existsSync(unfinished), false);
  }));
