import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import { createLogger, type LogRecord } from "../../lib/base/telemetry/log.ts";
import type { Config } from "../../lib/config/config.ts";
import { createReloads } from "../../lib/config/create_reloads.ts";
import { configOf } from "../support/running_gateway.ts";
import { createFakeClock } from "../support/fake_clock.ts";

function setUp(tables: Readonly<Record<string, unknown>> = {}) {
  const clock = createFakeClock();
  const logged: LogRecord[] = [];
  let running = configOf(tables);
  const prepared: { config: Config; always: boolean }[] = [];
  const reloads = createReloads({
    clock,
    log: createLogger({
      level: "info",
      now: clock.now,
      sink: (line) => void logged.push(line),
      redact: (text) => text,
    }),
    running: () => running,
    prepare(config, { always }) {
      prepared.push({ config, always });
      return Promise.resolve(() => void (running = config));
    },
  });
  const load = (next: Readonly<Record<string, unknown>>) => () => Promise.resolve(configOf(next));
  return { clock, logged, prepared, reloads, load, running: () => running };
}

const messages = (logged: readonly LogRecord[]) => logged.map(({ level, message }) => `${level}: ${message}`);

test("a change is applied, told by its keys without their values, and remembered", async () => {
  const { clock, logged, reloads, load, running } = setUp();
  const startedAt = new Date(clock.now()).toISOString();
  assert.deepEqual(reloads.status(), { loaded_at: startedAt, needs_restart: [], last_reload: null });
  await clock.advance(5000);
  await reloads.reload(load({ agent: { system_prompt: "Be brief." } }));
  assert.equal(running().agent.system_prompt, "Be brief.");
  assert.deepEqual(messages(logged), ["info: Reloaded the configuration: agent.system_prompt"]);
  assert.ok(!JSON.stringify(logged).includes("Be brief."));
  const at = new Date(clock.now()).toISOString();
  const last = { at, outcome: "applied", problem: null };
  assert.deepEqual(reloads.status(), { loaded_at: at, needs_restart: [], last_reload: last });
});

test("what needs a restart is named, and stays named until it is taken back", async () => {
  const { logged, reloads, load, running } = setUp({ gateway: { port: 1 } });
  await reloads.reload(load({ gateway: { port: 2 }, storage: { driver: "memory" } }));
  assert.equal(running().gateway.port, 1);
  assert.deepEqual(messages(logged), [
    "warn: A change of the configuration needs a restart: gateway.port, storage.driver",
  ]);
  assert.deepEqual(reloads.status().needs_restart, ["gateway.port", "storage.driver"]);
  await reloads.reload(load({ gateway: { port: 1 } }));
  assert.deepEqual(reloads.status().needs_restart, []);
});

test("a bad file changes nothing and is told with file, line and key, each problem by itself", async () => {
  const { logged, reloads, load, running } = setUp();
  const before = running();
  const problem = (key: string, line: number) => ({ message: `Cannot use "${key}" (f:${line})`, key, file: "f", line });
  const problems = [problem("agent.a", 2), problem("runs.b", 5)];
  await reloads.reload(() => Promise.reject(new ConfigError("config_invalid", "both", { problems })));
  assert.equal(running(), before);
  assert.deepEqual(logged.map(({ level, fields: { file, line, key } }) => [level, file, line, key]), [
    ["error", "f", 2, "agent.a"],
    ["error", "f", 5, "runs.b"],
  ]);
  assert.match(logged[0]?.message ?? "", /the running one stays: Cannot use "agent\.a" \(f:2\)$/);
  assert.deepEqual([reloads.status().last_reload?.outcome, reloads.status().last_reload?.problem], ["refused", "both"]);
  await reloads.reload(load({ agent: { max_iterations: 3 } }));
  assert.equal(reloads.status().last_reload?.outcome, "applied");
});

test("an error that is a bug is logged, and its text not shown", async () => {
  const { logged, reloads, running } = setUp();
  const before = running();
  await reloads.reload(() => Promise.reject(new TypeError("x is not a function")));
  assert.equal(running(), before);
  assert.equal(logged[0]?.level, "error");
  assert.equal(reloads.status().last_reload?.problem, "an internal error, which the log has");
});

test("where nothing changed nothing is made ready, unless it is asked for", async () => {
  const { prepared, reloads, load, logged } = setUp();
  await reloads.reload(load({}));
  assert.deepEqual([prepared.length, reloads.status().last_reload?.outcome], [0, "unchanged"]);
  await reloads.reload(load({}), { always: true });
  assert.deepEqual(prepared.map(({ always }) => always), [true]);
  assert.match(logged.at(-1)?.message ?? "", /nothing in it has changed/);
});

test("two at a time are taken one after the other", async () => {
  const { reloads, load, running } = setUp();
  const slow = Promise.withResolvers<Config>();
  const first = reloads.reload(() => slow.promise);
  const second = reloads.reload(load({ agent: { max_iterations: 2 } }));
  slow.resolve(configOf({ agent: { max_iterations: 1 } }));
  await Promise.all([first, second]);
  assert.equal(running().agent.max_iterations, 2);
});
