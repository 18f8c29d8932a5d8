import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import type { Clock } from "../lib/base/clock.ts";
import { ConfigError } from "../lib/base/errors.ts";
import { createServices } from "../lib/gateway.ts";
import type { ServicesOptions } from "../lib/services.ts";
import { takeGatewayLock } from "../lib/storage/gateway_lock.ts";
import { createFakeClock } from "./support/fake_clock.ts";
import { openHandles } from "./support/open_handles.ts";
import { configOf } from "./support/running_gateway.ts";
import { createSeededRandom } from "./support/seeded_random.ts";
import { withTemporaryFolder } from "./support/temporary_folder.ts";

/** Error that a step of the start fails with. */
class StepError extends Error {
  override readonly name = "StepError";
}

/** Counts the calls of every method, and fails in one of them. */
function failingAt(step: number) {
  let calls = 0;
  let ended = false;
  const wrap = <T extends object>(thing: T): T =>
    new Proxy(thing, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== "function") return value;
        return (...given: unknown[]): unknown => {
          if (!ended && ++calls === step) throw new StepError(`Call ${step}, of ${String(name)}, fails`);
          return value.apply(target, given);
        };
      },
    });
  return { wrap, calls: () => calls, end: () => void (ended = true) };
}

/** Names what a gateway in this folder still holds. */
function heldIn(dataDir: string, clock: { pending(): number }): readonly string[] {
  const held = clock.pending() === 0 ? [] : [`${clock.pending()} timers`];
  if (process.platform === "linux") held.push(...openHandles(dataDir));
  const lock = takeGatewayLock(dataDir);
  if (lock === undefined) held.push("the lock of the data directory");
  lock?.release();
  return held;
}

function optionsOf(folder: string, kit: ServicesOptions["kit"]): ServicesOptions {
  return {
    config: configOf({ provider: { kind: "offline" } }),
    folders: { dataDir: join(folder, "data"), workspaceRoot: folder, home: folder },
    about: { version: "0.0.0" },
    log: { sink: () => {} },
    environment: {},
    models: { localServers: [] },
    kit,
  };
}

test("a start that fails at any of its steps leaves nothing open", async () => {
  let failed = 0;
  for (let step = 1, isLast = false; !isLast; step++) {
    await withTemporaryFolder(async (folder) => {
      await mkdir(join(folder, "data"), { mode: 0o700 });
      const fault = failingAt(step);
      const clock = createFakeClock();
      const options = optionsOf(folder, {
        clock: fault.wrap<Clock>(clock),
        random: fault.wrap(createSeededRandom(1)),
      });
      const services = await createServices(options).catch((error: unknown) => {
        assert.ok(error instanceof StepError, String(error));
        failed++;
        return undefined;
      });
      fault.end();
      isLast = fault.calls() < step;
      await services?.drain(0);
      await services?.close();
      assert.deepEqual(heldIn(options.folders.dataDir, clock), [], `after a failure at call ${step}`);
    });
  }
  assert.ok(failed >= 10, `${failed} calls failed`);
});

test("a gateway that cannot have its data directory leaves it to the one that has it", async () => {
  await withTemporaryFolder(async (folder) => {
    const options = optionsOf(folder, { clock: createFakeClock(), random: createSeededRandom(1) });
    const first = await createServices(options);
    await assert.rejects(createServices(options), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.equal(error.code, "data_dir_locked");
      return true;
    });
    assert.equal(first.facts.health().status, "ok");
    assert.equal(takeGatewayLock(options.folders.dataDir), undefined);
    await first.close();
  });
});

test("a start removes pictures of the screen that a killed gateway left", () =>
  withTemporaryFolder(async (folder) => {
    const left = join(folder, "data", "screen", "take-1");
    await mkdir(left, { recursive: true, mode: 0o700 });
    await writeFile(join(left, "screen.png"), "private");
    const clock = createFakeClock();
    const services = await createServices(optionsOf(folder, { clock, random: createSeededRandom() }));
    await services.close();
    assert.equal(existsSync(join(folder, "data", "screen")), false);
  }));
