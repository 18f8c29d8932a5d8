import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { configOf } from "../support/running_gateway.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

const BASE = { provider: { kind: "offline" } };

const WRITE = { path: "a.txt", content: "a" };

const reload = ({ services }: RunningGateway, tables: Readonly<Record<string, unknown>>) =>
  services.reload(() => Promise.resolve(configOf({ ...BASE, ...tables })));

async function ask({ call }: RunningGateway, model?: string): Promise<{ status: number; text: string }> {
  const reply = await call("/v1/chat/completions", {
    body: { messages: [{ role: "user", content: "Hello" }], ...(model === undefined ? {} : { model }) },
  });
  return { status: reply.status, text: await reply.text() };
}

test("a tool that a reload turns on can be called, and one that it turns off cannot", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: { ...BASE, autonomy: { level: "full" } } });
    const write = async () => {
      const reply = await gateway.call("/v1/tools/write_file/call", {
        body: { input: { path: "a.txt", content: "a" } },
      });
      return (await reply.json() as { is_error: boolean }).is_error;
    };
    assert.equal(await write(), true);
    await reload(gateway, { autonomy: { level: "full" }, security: { write_file: { enabled: true } } });
    assert.equal(await write(), false);
    await reload(gateway, { autonomy: { level: "full" } });
    assert.equal(await write(), true);
    await reload(gateway, { autonomy: { level: "read_only" }, security: { write_file: { enabled: true } } });
    assert.equal(await write(), true);
  }));

test("a channel that a reload adds is answered, one that it removes is not", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: BASE });
    const status = async () => (await gateway.call("/v1/webhook/orders", { body: { message: "Hello" } })).status;
    assert.equal(await status(), 404);
    await reload(gateway, { channels: { orders: {} } });
    assert.equal(await status(), 202);
    await reload(gateway, {});
    assert.equal(await status(), 404);
  }));

test("a change of the time zone of schedules names those that keep another one", () =>
  withWorld(async (world) => {
    const cron = { enabled: true, timezone: "Europe/Zurich" };
    const gateway = await world.gateway({ config: { ...BASE, autonomy: { level: "full" }, cron } });
    const add = async (tool: string, input: Readonly<Record<string, unknown>>) => {
      const reply = await gateway.call(`/v1/tools/${tool}/call`, { body: { input: { prompt: "Look", ...input } } });
      assert.equal((await reply.json() as { is_error: boolean }).is_error, false);
    };
    await add("cron_add", { id: "report", schedule: "every day at 9:00" });
    await add("cron_add", { id: "abroad", schedule: "every day at 9:00", timezone: "Asia/Tokyo" });
    await add("cron_add", { id: "often", schedule: "every 90 minutes" });
    await add("schedule", { id: "once", in: "2h" });
    const kept = () => gateway.log.filter(({ message }) => message.includes("counts for new schedules"));
    await reload(gateway, { autonomy: { level: "full" }, cron: { ...cron, max_tasks: 50 } });
    await reload(gateway, { autonomy: { level: "full" }, cron: { ...cron, timezone: "Asia/Tokyo" } });
    await until(() => kept().length > 0, "the change is not told");
    assert.deepEqual(kept().map(({ message }) => message), [
      "The time zone Asia/Tokyo of [cron] counts for new schedules; these keep theirs: report (Europe/Zurich); " +
      'cron_update with "timezone" changes it',
    ]);
    await add("cron_add", { id: "new", schedule: "every day at 9:00" });
    const { data } = await (await gateway.call("/v1/schedules")).json() as {
      readonly data: readonly { readonly id: string; readonly timezone: string }[];
    };
    const zoneOf = (id: string) => data.find((schedule) => schedule.id === id)?.timezone;
    assert.deepEqual([zoneOf("report"), zoneOf("new")], ["Europe/Zurich", "Asia/Tokyo"]);
  }));

test("a time zone that changed while no gateway ran is told at the start, once", () =>
  withWorld(async (world) => {
    const dataDir = await world.folder();
    const kept = async (timezone: string, use: (gateway: RunningGateway) => Promise<void>) => {
      const told: string[] = [];
      const config = { ...BASE, autonomy: { level: "full" }, cron: { enabled: true, timezone } };
      await world.during(world.gateway({ config, dataDir }), async (gateway) => {
        await use(gateway);
        // The list waits for the start of the schedules
        assert.equal((await gateway.call("/v1/schedules")).status, 200);
        for (const { message } of gateway.log) if (message.includes("counts for new schedules")) told.push(message);
      });
      return told;
    };
    const nothing = () => Promise.resolve();
    const first = await kept("Europe/Zurich", async (gateway) => {
      const input = { id: "report", schedule: "every day at 9:00", prompt: "Look" };
      await jsonOf(gateway.call("/v1/tools/cron_add/call", { body: { input } }));
    });
    assert.deepEqual(first, []);
    assert.deepEqual(await kept("Europe/Zurich", nothing), []);
    const [told, ...more] = await kept("Asia/Tokyo", nothing);
    assert.match(told ?? "", /^The time zone Asia\/Tokyo of \[cron\] .*: report \(Europe\/Zurich\); /);
    assert.deepEqual(more, []);
    assert.deepEqual(await kept("Asia/Tokyo", nothing), []);
  }));

test("limits of requests and the level of the log follow a reload", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: BASE });
    const limit = async () => (await gateway.call("/v1/models")).headers.get("x-ratelimit-limit-requests");
    assert.equal(await limit(), "600");
    await reload(gateway, { gateway: { rate_limit_max: 50 }, logging: { level: "error" } });
    assert.equal(await limit(), "50");
    assert.equal(gateway.services.log.shows("info"), false);
    assert.equal(gateway.services.log.child({}).shows("warn"), false);
  }));

test("another provider answers after a reload, and one that cannot be opened leaves everything as it was", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const gateway = await world.gateway({ config: BASE });
    assert.doesNotMatch((await ask(gateway)).text, /Hello from upstream/);
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model" };
    await reload(gateway, { provider });
    assert.match((await ask(gateway)).text, /Hello from upstream/);
    await reload(gateway, { provider: { kind: "openai", api_key_env: "NOT_THERE" }, agent: { max_iterations: 3 } });
    assert.match((await ask(gateway)).text, /Hello from upstream/);
    const { config: { last_reload: last } } = await gateway.services.facts.status();
    assert.equal(last?.outcome, "refused");
    assert.match(last?.problem ?? "", /NOT_THERE/);
    assert.notEqual(gateway.services.config().agent.max_iterations, 3);
  }));

test("a key file is read again at SIGHUP, also where nothing else changed, and its key is masked", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const folder = await world.folder();
    const file = join(folder, "key");
    await writeFile(file, "sk-first-key-0123456789\n");
    const provider = {
      kind: "openai_compatible",
      base_url: upstream.baseUrl,
      model: "upstream-model",
      api_key_file: file,
    };
    const gateway = await world.gateway({ config: { provider } });
    const { services, log } = gateway;
    const sent = async () => {
      await ask(gateway);
      return upstream.requests.at(-1)?.headers["authorization"];
    };
    assert.equal(await sent(), "Bearer sk-first-key-0123456789");
    await writeFile(file, "sk-second-key-0123456789\n");
    await services.reload(() => Promise.resolve(configOf({ provider })), { always: true });
    assert.equal(await sent(), "Bearer sk-second-key-0123456789");
    services.log.warn("It is sk-second-key-0123456789");
    assert.doesNotMatch(log.at(-1)?.message ?? "", /sk-second/);
  }));

test("what needs a restart keeps its running value and is told by name, in the status and the log", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: BASE });
    await reload(gateway, { gateway: { require_pairing: false, host: "0.0.0.0" } });
    assert.equal(gateway.services.config().gateway.require_pairing, true);
    const refused = await fetch(`${gateway.url}/v1/models`);
    assert.equal(refused.status, 401);
    assert.deepEqual((await gateway.services.facts.status()).config.needs_restart, [
      "gateway.host",
      "gateway.require_pairing",
    ]);
    assert.ok(
      gateway.log.some(({ level, message }) => level === "warn" && message.includes("gateway.require_pairing")),
    );
  }));

test("the public routes tell nothing of the configuration", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: BASE });
    await reload(gateway, { gateway: { host: "0.0.0.0" } });
    await gateway.services.reload(() => Promise.reject(new TypeError("secret-detail")));
    for (const path of ["/health", "/health/live", "/metrics", "/"]) {
      const text = await (await fetch(gateway.url + path)).text();
      assert.doesNotMatch(text, /secret-detail|0\.0\.0\.0|gateway\.host/);
    }
  }));

test("a run keeps the prompt and the tools of its start, while what is allowed and on is the newest", () =>
  withWorld(async (world) => {
    const held = Promise.withResolvers<void>();
    const script = [
      { text: ["Let me", " see"], holdUntil: held.promise, toolCalls: [{ name: "write_file", arguments: WRITE }] },
      "done",
      "another",
    ];
    const before = {
      agent: { system_prompt: "You are the first." },
      autonomy: { level: "full" },
      security: { write_file: { enabled: true } },
    };
    const after = {
      agent: { system_prompt: "You are the second.", tools: ["read_file"] },
      autonomy: { level: "full" },
    };
    const gateway = await world.gateway({ config: { ...BASE, ...before }, script });
    const { provider, services } = gateway;
    const reply = ask(gateway);
    await until(() => provider.requests.length > 0);
    await reload(gateway, after);
    held.resolve();
    assert.match((await reply).text, /done/);
    const [first, second] = provider.requests;
    assert.deepEqual(second?.tools, first?.tools);
    assert.deepEqual(second?.messages[0], first?.messages[0]);
    assert.match(JSON.stringify(second?.messages.at(-1)), /Cannot call \\"write_file\\": it is off/);
    await ask(gateway);
    assert.match(JSON.stringify(provider.requests[2]?.messages[0]), /You are the second\./);
    assert.deepEqual(provider.requests[2]?.tools.map(({ name }) => name), ["read_file"]);
    assert.equal(services.config().agent.system_prompt, "You are the second.");
  }));
