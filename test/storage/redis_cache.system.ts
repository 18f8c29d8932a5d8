import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import type { Driver } from "unstorage";
import { createGateway } from "../../handlers/mod.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createDocuments } from "../../lib/storage/documents.ts";
import { readCacheDriver } from "../../lib/storage/sealed_cache.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";
import { systemTools } from "../scripts/system_tools.ts";

const noServer = "Deno" in globalThis
  ? "the driver is a package of Node"
  : spawnSync("redis-server", ["--version"]).status === 0
  ? false
  : "no redis-server was found: install Debian's package";
const tools = noServer === false ? await systemTools("tools").catch(String) : "";
const skip = noServer ||
  (tools.endsWith("node_modules") ? false : `npm could not bring the client of Redis: ${tools}`);

/** Runs `use` with a Redis at a socket in a folder, and the driver of unstorage for it. */
async function withRedis(
  use: (
    parts: { readonly driver: Driver; readonly stop: (signal: NodeJS.Signals) => void; readonly folder: string },
  ) => Promise<
    void
  >,
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "redis.sock");
    const server = spawn("redis-server", ["--port", "0", "--unixsocket", path, "--save", "", "--dir", folder], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    for (const stream of [server.stdout, server.stderr]) stream.on("data", (data) => void (said += String(data)));
    const over = once(server, "exit");
    // The package of the tests has no types here; unstorage says what a driver is
    const { default: redisDriver } = await import(pathToFileURL(join(tools, "unstorage/drivers/redis.mjs")).href) as {
      readonly default: (options: object) => Driver;
    };
    const driver = redisDriver({ path, base: "cache" });
    try {
      await until(() => /eady to accept connections/.test(said) || server.exitCode !== null, () => said);
      await use({ driver, folder, stop: (signal) => void server.kill(signal) });
    } finally {
      await driver.dispose?.();
      server.kill("SIGKILL");
      await over;
    }
  });
}

test(
  "a cache in Redis outlives a gateway, and its values say nothing there",
  { skip },
  () =>
    withRedis(async ({ driver, folder }) => {
      let isAway = false;
      const model = {
        models: () => {
          if (isAway) throw new Error("away");
          return ["secret-model"];
        },
        async *stream() {},
      };
      const models = async () => {
        const gateway = await createGateway({
          ...{ dataDir: join(folder, "data"), workspace: folder, providers: { model }, cache: driver },
          environment: { POSTERN_TOKEN: "a-token-of-a-test-that-is-long-enough" },
        });
        try {
          const headers = { authorization: "Bearer a-token-of-a-test-that-is-long-enough" };
          const { data } = await (await gateway.request("/v1/models", { headers })).json() as {
            data: { id: string }[];
          };
          return data.some(({ id }) => id.endsWith("secret-model"));
        } finally {
          await gateway.close();
        }
      };
      assert.ok(await models());
      isAway = true;
      assert.ok(await models(), "the list of the first gateway");
      const keys = await driver.getKeys("", {});
      assert.ok(keys.length > 0);
      for (const key of keys) assert.doesNotMatch(`${key} ${await driver.getItem(key)}`, /model/);
      await driver.clear?.("", {});
      assert.ok(!await models(), "whoever empties the cache takes the values");
    }),
);

test(
  "a Redis that hangs or is gone costs one wait, and what was put back there does not open",
  { skip },
  () =>
    withRedis(async ({ driver, stop }) => {
      const clock = createFakeClock();
      const lines: string[] = [];
      const log = { warn: (line: string) => void lines.push(line) };
      const documents = createDocuments({
        store: createMemoryStore(),
        cache: { driver: readCacheDriver(driver), clock, random: createSystemRandom(), log },
      });
      await documents.set("pages/1", ["first"]);
      const [key = ""] = await driver.getKeys("", {});
      const first = await driver.getItem(key) as string;
      await documents.set("pages/1", ["second"]);
      const second = await driver.getItem(key) as string;
      assert.deepEqual(await documents.get("pages/1"), ["second"]);
      await driver.setItem?.(key, first, {});
      assert.equal(await documents.get("pages/1"), undefined);
      await driver.setItem?.(key, second, {});
      for (const [signal, count] of [["SIGSTOP", 1], ["SIGCONT", 1], ["SIGKILL", 2]] as const) {
        stop(signal);
        if (signal === "SIGCONT") {
          await clock.advance(30_000);
          assert.deepEqual(await documents.get("pages/1"), ["second"]);
        } else {
          const found = documents.get("pages/1");
          await clock.advance(1_000);
          assert.deepEqual([await found, await documents.get("pages/1")], [undefined, undefined], signal);
        }
        assert.equal(lines.length, count, signal);
      }
    }),
);
