import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import { countingCommand } from "../support/killable_gateway.ts";
import { jsonOf, readRefusal, readSse, type RunningGateway, until, withWorld } from "../support/world.ts";

const HI = [{ role: "user", content: "Hi" }];

const openSocket = (gateway: RunningGateway) => gateway.chat();

const stream = (gateway: RunningGateway) =>
  gateway.call("/v1/chat/completions", { body: { messages: HI, stream: true } });

test("work under way finishes within the grace by every door, with a clean end", () =>
  withWorld(async (world) => {
    // Every reply is held half said until the drain has begun, however slow the machine
    const draining = Promise.withResolvers<void>();
    const script = () => ({ text: ["one ", "two ", "three"], holdUntil: draining.promise });
    const gateway = await world.gateway({ script });
    const socket = await openSocket(gateway);
    const idle = await openSocket(gateway);
    socket.send("Hi");
    const sse = await stream(gateway);
    const json = gateway.call("/v1/chat/completions", { body: { messages: HI } });
    const chat = gateway.call("/api/chat", { body: { message: "Hi" } });
    await socket.readUntil(({ type }) => type === "delta");
    await until(() => gateway.provider.active >= 4);
    const drained = gateway.drain(30_000);
    assert.deepEqual((await idle.closed).code, 1001);
    draining.resolve();
    const { data } = readSse(await sse.text());
    assert.equal(data.at(-1), "[DONE]");
    assert.equal(JSON.parse(data.at(-2) ?? "").choices[0].finish_reason, "stop");
    const whole = await json;
    assert.equal(whole.headers.get("connection"), "close");
    assert.equal((await jsonOf(whole)).choices[0].message.content, "one two three");
    assert.equal((await jsonOf(chat)).message, "one two three");
    assert.equal((await socket.readReply()).at(-1)?.type, "done");
    assert.equal((await socket.closed).code, 1001);
    await drained;
    assert.equal(gateway.provider.aborted, 0);
  }));

test("work that outlives the grace is cancelled with a final event by every door", () =>
  withWorld(async (world) => {
    const script = () => ({ text: "start", hang: "after" as const });
    const gateway = await world.gateway({ script });
    const socket = await openSocket(gateway);
    socket.send("Hi");
    const sse = await stream(gateway);
    const json = gateway.call("/v1/chat/completions", { body: { messages: HI } });
    const chat = gateway.call("/api/chat", { body: { message: "Hi" } });
    await until(() => gateway.provider.active >= 4);
    const drained = gateway.drain(30);
    const { data } = readSse(await sse.text());
    assert.equal(data.at(-1), "[DONE]");
    assert.equal(JSON.parse(data.at(-2) ?? "").error.code, "shutting_down");
    for (const reply of [await json, await chat]) {
      const { status, code, headers } = await readRefusal(reply);
      assert.deepEqual([status, code], [503, "shutting_down"]);
      assert.ok(Number(headers.get("retry-after")) > 0);
    }
    const [plain, kept] = [await json, await chat].map(({ headers }) => headers);
    assert.equal(plain?.get("x-should-retry"), null);
    assert.equal(kept?.get("x-should-retry"), "false", "a repeat would be a second run beside the one that goes on");
    const run = await gateway.services.agent?.runs.get(kept?.get("x-postern-run") ?? "");
    assert.equal(run?.status, "running", "its journal is open for the next start");
    assert.equal((await socket.readReply()).at(-1)?.type, "error");
    assert.equal((await socket.closed).code, 1001);
    await drained;
    assert.equal(gateway.provider.active, 0);
    assert.match(gateway.services.metrics.render(), /postern_runs_active 0\n/);
  }));

test("new work during the drain is refused with 503, and /health says draining", () =>
  withWorld(async (world) => {
    const asked = Promise.withResolvers<void>();
    const script = () => ({ text: ["a", "b", "c"], holdUntil: asked.promise });
    const gateway = await world.gateway({ script });
    // Connections that were open before the drain, with a request begun so that they are not idle
    const requests = [
      ["GET", "/health", 503],
      ["POST", "/v1/chat/completions", 503],
      ["POST", "/api/chat", 503],
      ["POST", "/v1/webhook/default", 503],
    ] as const;
    const waiting = await Promise.all(requests.map(async ([method, path]) => {
      const raw = await gateway.rawSocket();
      raw.write(`${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n`);
      return raw;
    }));
    const running = await stream(gateway);
    const drained = gateway.drain(30_000);
    for (const [index, [method]] of requests.entries()) {
      const body = JSON.stringify({ message: "Hi", messages: HI });
      waiting[index]?.write(
        `Authorization: Bearer ${gateway.token}\r\n` +
          (method === "POST" ? `Content-Length: ${body.length}\r\n\r\n${body}` : "\r\n"),
      );
    }
    for (const [index, [_method, path, status]] of requests.entries()) {
      const answer = await waiting[index]?.read(/\r\n\r\n.*\}$/s) ?? "";
      waiting[index]?.destroy();
      assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `), `${path}: ${answer}`);
      assert.match(answer, /connection: close/i);
      assert.match(answer, path === "/health" ? /"status":"draining"/ : /"code":"shutting_down"/);
    }
    asked.resolve();
    assert.match(await running.text(), /\[DONE\]/);
    await drained;
  }));

test("connections that a browser opened ahead do not hold the drain up", () =>
  withWorld(async (world) => {
    // Waits of a second or more never end, such as the one for idle connections: the drain can end only because these are closed
    const never = new Promise<void>(() => {});
    const clock: Clock = { ...systemClock, sleep: (ms, signal) => (ms < 1000 ? systemClock.sleep(ms, signal) : never) };
    const gateway = await world.gateway({ script: () => "ok", clock });
    const silent = await gateway.rawSocket();
    const used = await gateway.rawSocket();
    used.write("GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    await used.read(/"ok":true/);
    let isDrained = false;
    void gateway.drain(5000).then(() => (isDrained = true));
    await until(() => isDrained, "the drain waits for them");
    for (const raw of [silent, used]) raw.destroy();
  }));

const FREE_SHELL = {
  autonomy: { level: "full" },
  security: { allowed_commands: ["sh"], shell: { sandbox: "off" } },
};
const onWindows = process.platform === "win32" ? "there are no commands on Windows" : false;

test(
  "a call of a tool has the whole grace too, and its final answer after it",
  { skip: onWindows },
  () =>
    withWorld(async (world) => {
      const call = (gateway: RunningGateway, seconds: number) =>
        gateway.call("/v1/tools/shell/call", { body: { input: { command: countingCommand(seconds) } } });
      const atWork = ({ workspace }: RunningGateway) => until(() => existsSync(workspace.path("counter")));
      await world.during(world.gateway({ config: FREE_SHELL }), async (gateway) => {
        // Longer than connections get once nothing is at work
        const running = call(gateway, 2.3);
        await atWork(gateway);
        await gateway.drain(20_000);
        assert.match((await jsonOf(running)).output, /^status=0/);
      });
      await world.during(world.gateway({ config: FREE_SHELL }), async (gateway) => {
        const running = call(gateway, 60);
        await atWork(gateway);
        await gateway.drain(30);
        const { status, code, headers } = await readRefusal(await running);
        assert.deepEqual([status, code], [503, "shutting_down"]);
        assert.equal(headers.get("x-should-retry"), "false", "it had an effect");
      });
    }),
);
