import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import {
  type FakeServer,
  type GatewayProcess,
  type RunningGateway,
  until,
  withWorld,
  type World,
} from "../support/world.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

// A day that began in the middle of a test would have a budget of its own
beforeEach(async () => {
  const left = DAY_MS - systemClock.now() % DAY_MS;
  if (left < MINUTE_MS) await systemClock.sleep(left);
});

interface PricedBody {
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[];
  readonly max_tokens?: number;
  readonly stream: boolean;
}

/** A model that charges: one token for each byte of its input, and as much output as it may say. */
interface Priced extends FakeServer {
  readonly charged: () => number;
  readonly calls: () => number;
}

/**
 * @param outputOf the share of the allowed output that is used
 * @param breaksOff charges for the call and gives no reply
 */
async function startPriced(
  world: World,
  outputOf: (allowed: number) => number,
  breaksOff: (call: number) => boolean = () => false,
): Promise<Priced> {
  let charged = 0;
  let calls = 0;
  const random = createSeededRandom(7);
  const server = await world.server(({ json }, response) => {
    // A gateway that is killed may leave half a request
    if (json === undefined) return void response.destroy();
    const { messages, tools, max_tokens, stream } = json as PricedBody;
    if (max_tokens === undefined || max_tokens < 1) return void response.writeHead(400).end("no limit");
    const prompt = Buffer.byteLength(JSON.stringify(messages)) + Buffer.byteLength(JSON.stringify(tools ?? []));
    const completion = outputOf(max_tokens);
    charged += prompt + completion;
    const call = ++calls;
    const usage = { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
    const [delay = 0] = random.bytes(1);
    setTimeout(() => {
      if (breaksOff(call)) return void response.destroy();
      const choice = stream
        ? { index: 0, delta: { role: "assistant", content: "ok" }, finish_reason: "stop" }
        : { index: 0, message: { role: "assistant", content: "ok" }, finish_reason: "stop" };
      const reply = { id: "c", object: "chat.completion", model: "priced", choices: [choice], usage };
      response.writeHead(200, { "content-type": stream ? "text/event-stream" : "application/json" });
      response.end(stream ? `data: ${JSON.stringify(reply)}\n\ndata: [DONE]\n\n` : JSON.stringify(reply));
    }, delay / 8);
  });
  return { ...server, connections: 0, charged: () => charged, calls: () => calls };
}

const configOf = (origin: string, budget: Readonly<Record<string, number>>) => ({
  provider: { kind: "openai_compatible", base_url: `${origin}/v1`, model: "priced" },
  gateway: { rate_limit_max: 0 },
  budget,
});

/** The ways in, in turn. */
function ask(gateway: RunningGateway, i: number): Promise<Response> {
  const messages = [{ role: "user", content: `Question ${i} ${"x".repeat(i * 7 % 200)}` }];
  switch (i % 4) {
    case 0:
      return gateway.call("/v1/chat/completions", { headers: { "x-postern-tools": "none" }, body: { messages } });
    case 1:
      return gateway.call("/v1/chat/completions", {
        headers: { "x-postern-tools": "none" },
        body: { messages, stream: true, max_tokens: 50 },
      });
    case 2:
      return gateway.call("/v1/chat/completions", {
        headers: { "x-postern-tools": "none", "idempotency-key": `key-${i}` },
        body: { messages },
      });
    default:
      return gateway.call("/api/chat", { body: { message: `Question ${i}` } });
  }
}

for (const [name, share] of [["all it may", 1], ["a tenth of what it may", 0.1]] as const) {
  test(`200 runs at once against a model that says ${name} overshoot tokens_per_day by zero`, () =>
    withWorld(async (world) => {
      const limit = 200_000;
      const priced = await startPriced(world, (allowed) => Math.ceil(allowed * share));
      const gateway = await world.gateway({ config: configOf(priced.origin, { tokens_per_day: limit }) });
      const replies = await Promise.all(Array.from({ length: 200 }, (_, i) => ask(gateway, i)));
      const bodies = await Promise.all(replies.map((reply) => reply.text()));
      const statuses = replies.map(({ status }) => status);
      assert.ok(priced.charged() <= limit, `${priced.charged()} of ${limit}`);
      assert.equal(statuses.filter((status) => status === 200).length, priced.calls());
      assert.ok(statuses.every((status) => status === 200 || status === 429), statuses.join());
      const refused = statuses.indexOf(429);
      if (refused >= 0) {
        const { error } = JSON.parse(bodies[refused] ?? "");
        assert.deepEqual([error.code, error.type], ["rate_limited", "rate_limit_error"]);
        assert.match(error.message, /tokens_per_day in \[budget\]/);
        assert.equal(replies[refused]?.headers.get("x-should-retry"), "false");
      }
      // Nothing is lost either: what was not used can be used later
      const [day] = await gateway.services.store.scan("budget_days", { limit: 1 });
      assert.equal((day?.body as { tokens: number }).tokens, priced.charged());
      assert.ok(share < 1 || priced.charged() > limit * 0.9, `${priced.charged()} of ${limit}`);
    }));
}

test("a call that is charged and never answered counts in full, and so does asking again", () =>
  withWorld(async (world) => {
    const limit = 60_000;
    const priced = await startPriced(world, (allowed) => allowed, (call) => call % 2 === 1);
    const gateway = await world.gateway({ config: configOf(priced.origin, { tokens_per_day: limit }) });
    const replies = await Promise.all(Array.from({ length: 20 }, () => ask(gateway, 0)));
    await Promise.all(replies.map((reply) => reply.text()));
    assert.ok(priced.charged() <= limit, `${priced.charged()} of ${limit}`);
    assert.ok(priced.charged() > limit * 0.8, `${priced.charged()} of ${limit}`);
    assert.ok(replies.some(({ status }) => status === 200) && replies.some(({ status }) => status === 429));
  }));

test("a stream that its reader leaves counts what came of it, and one that breaks off counts in full", () =>
  withWorld(async (world) => {
    const text = "word ".repeat(100);
    const server = await world.server(({ json }, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const delta = { id: "c", model: "m", choices: [{ index: 0, delta: { content: text }, finish_reason: null }] };
      const isBroken = JSON.stringify(json).includes("break off");
      response.write(`data: ${JSON.stringify(delta)}\n\n`, () => isBroken && response.destroy());
    });
    const gateway = await world.gateway({ config: configOf(server.origin, { tokens_per_day: 60_000 }) });
    const used = async () => {
      const [day] = await gateway.services.store.scan("budget_days", { limit: 1 });
      return (day?.body as { tokens: number } | undefined)?.tokens ?? 0;
    };
    const stream = async (content: string) => {
      const left = new AbortController();
      const body = { messages: [{ role: "user", content }], stream: true, max_tokens: 4000 };
      const headers = { "x-postern-tools": "none" };
      const reply = await gateway.call("/v1/chat/completions", { headers, body, signal: left.signal });
      const reader = reply.body?.getReader();
      for (let seen = ""; !seen.includes("word");) seen += Buffer.from((await reader?.read())?.value ?? []).toString();
      return { left, reader };
    };
    const { left, reader } = await stream("Hello");
    left.abort();
    await reader?.cancel().catch(() => {});
    let once = 0;
    await until(async () => {
      once = await used();
      return once > 0 && once < 4000;
    }, "the day counts what came");
    assert.ok(once >= 100 && once < 300, `${once}`);
    const cut = await stream("break off");
    for (;;) if ((await cut.reader?.read())?.done ?? true) break;
    await until(() => /postern_runs_active 0\n/.test(gateway.services.metrics.render()));
    assert.ok(await used() > once + 4000, `what broke off counts in full: ${await used()}`);
  }));

test("what was set aside when the process was killed counts as used after the next start", () =>
  withWorld(async (world) => {
    const folder = await world.folder();
    const priced = await startPriced(world, (allowed) => allowed, () => false);
    const silent = await world.server();
    const served = (origin: string) => ({
      folder,
      config:
        `[provider]\nkind = "openai_compatible"\nbase_url = "${origin}/v1"\nmodel = "m"\n[budget]\ntokens_per_day = 6000`,
      flags: ["--new-pairing"],
    });
    const complete = async (gateway: GatewayProcess) => {
      await gateway.pair();
      return await gateway.call("/v1/chat/completions", {
        headers: { "x-postern-tools": "none" },
        body: { messages: [{ role: "user", content: "x".repeat(2500) }] },
      });
    };
    await world.during(world.gatewayProcess(served(silent.origin)), async (gateway) => {
      const reply = complete(gateway).catch(() => {});
      // Not the look at what the model takes, which comes by itself after the start
      await until(() => silent.requests.some(({ path }) => path.endsWith("/completions")));
      // Left here, the process is killed with SIGKILL
      void reply;
    });
    const gateway = await world.gatewayProcess(served(priced.origin));
    const refused = await complete(gateway);
    assert.equal(refused.status, 429);
    assert.match(await refused.text(), /tokens_per_day in \[budget\]/);
    assert.equal(priced.calls(), 0);
  }));

test("the day's budget is kept over a restart, and its refusal says when it ends", () =>
  withWorld(async (world) => {
    const priced = await startPriced(world, (allowed) => allowed);
    const config = configOf(priced.origin, { tokens_per_day: 6000 });
    const first = await world.gateway({ config });
    assert.equal((await ask(first, 0)).status, 200);
    const charged = priced.charged();
    assert.ok(charged > 4000 && charged < 6000);
    const { dataDir, workspace } = first;
    await first.drain(0);
    await first.services.close();
    const second = await world.gateway({ config, dataDir, workspace });
    assert.equal((await ask(second, 4)).status, 200);
    assert.ok(priced.charged() > 5900 && priced.charged() <= 6000, String(priced.charged()));
    const refused = await ask(second, 8);
    assert.equal(refused.status, 429);
    assert.match(await refused.text(), /wait \d+ (h|min) for the next day \(UTC\)/);
    assert.equal(priced.calls(), 2);
  }));
