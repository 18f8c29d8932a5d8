import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf, readRefusal, readSse, type RunningGateway, until, withWorld } from "../support/world.ts";

const HI = [{ role: "user", content: "Hi" }];

const send = (gateway: RunningGateway, path: string, body: unknown, key: string) =>
  gateway.call(path, { body, headers: { "idempotency-key": key } });

const numbered = (_request: unknown, turn: number) => `answer ${turn}`;

test("a repeat gets the first reply again, byte for byte, and the model is asked once", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: numbered });
    const requests: readonly (readonly [string, unknown])[] = [
      ["/v1/chat/completions", { messages: HI }],
      ["/v1/chat/completions", { messages: HI, stream: true }],
      ["/v1/messages", { messages: HI }],
      ["/v1/messages", { messages: HI, stream: true }],
      ["/v1/responses", { input: "Hi" }],
      ["/v1/responses", { input: "Hi", stream: true }],
      ["/api/chat", { message: "Hi" }],
      ["/webhook", { message: "Hi" }],
      ["/v1/webhook/default?wait=1", { message: "Hi" }],
      ["/v1/ping", { message: "Hi" }],
      ["/v1/tools/glob_search/call", { input: { pattern: "*" } }],
    ];
    for (const [index, [path, body]] of requests.entries()) {
      const asked = gateway.provider.requests.length;
      const first = await send(gateway, path, body, `key-${index}`);
      assert.ok(first.ok, path);
      assert.equal(first.headers.get("idempotency-replayed"), null);
      const text = await first.text();
      const onceMore = gateway.provider.requests.length;
      assert.ok(onceMore <= asked + 1);
      const repeat = await send(gateway, path, body, `key-${index}`);
      assert.equal(repeat.status, first.status);
      assert.equal(repeat.headers.get("idempotency-replayed"), "true");
      assert.equal(await repeat.text(), text, path);
      assert.equal(repeat.headers.get("content-type"), first.headers.get("content-type"));
      assert.notEqual(repeat.headers.get("x-request-id"), first.headers.get("x-request-id"));
      assert.equal(gateway.provider.requests.length, onceMore, path);
    }
  }));

test("the first client's leaving does not end work that has a key: a repeat finds it", () =>
  withWorld(async (world) => {
    const script = () => ({ text: ["one ", "two ", "three"], chunkDelayMs: 30 });
    const gateway = await world.gateway({ script });
    const client = new AbortController();
    const headers = { "idempotency-key": "k" };
    const body = { messages: HI };
    const first = gateway.call("/v1/chat/completions", { body, headers, signal: client.signal });
    await until(() => gateway.provider.active > 0);
    client.abort();
    await assert.rejects(first);
    const repeat = await jsonOf(send(gateway, "/v1/chat/completions", body, "k"));
    assert.equal(repeat.choices[0].message.content, "one two three");
    assert.equal(gateway.provider.requests.length, 1);
  }));

test("a shutdown suspends work that has a key: a repeat at the next start gets its answer, or why a stream cannot go on", () =>
  withWorld(async (world) => {
    const dataDir = await world.folder();
    const json = { messages: HI };
    const streamed = { messages: HI, stream: true };
    await world.during(
      world.gateway({ dataDir, script: () => ({ text: ["half "], hang: "after" }) }),
      async (gateway) => {
        const whole = send(gateway, "/v1/chat/completions", json, "json");
        const { body } = await send(gateway, "/v1/chat/completions", streamed, "stream");
        const reader = body?.pipeThrough(new TextDecoderStream()).getReader() ?? assert.fail("no body");
        let text = "";
        while (!text.includes("half ")) text += (await reader.read()).value;
        await until(() => gateway.provider.active >= 2);
        await gateway.drain(0);
        for (let step = await reader.read(); !step.done; step = await reader.read()) text += step.value;
        const refused = await readRefusal(await whole);
        assert.deepEqual([refused.status, refused.code], [503, "shutting_down"]);
        assert.match(text, /half .*shutting_down/s);
      },
    );
    await world.during(world.gateway({ dataDir, script: () => "the whole answer" }), async (gateway) => {
      const answer = await jsonOf(send(gateway, "/v1/chat/completions", json, "json"));
      assert.equal(answer.choices[0].message.content, "the whole answer");
      const { data } = readSse(await (await send(gateway, "/v1/chat/completions", streamed, "stream")).text());
      assert.equal(JSON.parse(data.at(-2) ?? "").error.code, "run_interrupted");
      assert.equal((await jsonOf(gateway.call("/v1/runs"))).data.length, 2);
    });
  }));

test("a delivery that is repeated while its run is at work waits for the one reply", () =>
  withWorld(async (world) => {
    const script = () => ({ text: ["one ", "two"], chunkDelayMs: 30 });
    const gateway = await world.gateway({ script });
    const deliver = (query: string) =>
      jsonOf(gateway.call(`/v1/webhook/default${query}`, { body: { message: "Hi", message_id: "m1" } }));
    const { run_id: runId, reply } = await deliver("");
    assert.equal(reply, undefined);
    const repeats = await Promise.all([deliver("?wait=1"), deliver("?wait=1")]);
    assert.deepEqual(repeats.map((each) => [each.run_id, each.reply]), [[runId, "one two"], [runId, "one two"]]);
    assert.equal(gateway.provider.requests.length, 1);
  }));
