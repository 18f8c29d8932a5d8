import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { systemClock } from "../../lib/base/clock.ts";
import { withRunningGateway } from "../support/running_gateway.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { until } from "../support/until.ts";

const TOTAL = 20_000;
const CLIENTS = 32;
/** Growth of a process that also holds the clients; a leak of 1 KiB a request would show */
const MAX_GROWTH_BYTES = 10 * 1024 * 1024;

/** Bytes in use after a collection: resident memory of a young process says more of the collector's laziness. */
function heapInUse(): number {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  return process.memoryUsage().heapUsed;
}

test("20,000 completions, one in ten left by its client, in flat memory", async () => {
  const random = createSeededRandom(7);
  const byte = () => random.bytes(1)[0] ?? 0;
  const config = { gateway: { rate_limit_max: 0 }, logging: { level: "error" } };
  const script = () => ({ text: ["one ", "two ", "three"] });
  await withRunningGateway({ config, script }, async (gateway) => {
    let asked = 0;
    let answered = 0;
    let left = 0;
    const body = { messages: [{ role: "user", content: "Hi" }] };
    const client = async (until: number) => {
      while (asked < until) {
        asked++;
        const stream = byte() < 128;
        const leaving = byte() < 26 ? new AbortController() : undefined;
        if (leaving !== undefined) systemClock.after(byte() % 4, () => leaving.abort());
        try {
          const reply = await gateway.call("/v1/chat/completions", {
            body: { ...body, stream },
            headers: { "x-postern-tools": "none" },
            ...(leaving === undefined ? {} : { signal: leaving.signal }),
          });
          const text = await reply.text();
          assert.equal(reply.status, 200);
          assert.match(text, stream ? /\[DONE\]\n\n$/ : /one two three/);
          answered++;
        } catch (error) {
          if (leaving === undefined) throw error;
          left++;
        }
        // A script keeps every request it was sent
        (gateway.provider.requests as unknown[]).length = 0;
      }
    };
    const run = (until: number) => Promise.all(Array.from({ length: CLIENTS }, () => client(until)));
    const settled = async () => {
      await until(() => /postern_runs_active 0\n/.test(gateway.services.metrics.render()));
      return heapInUse();
    };
    await run(TOTAL / 2);
    const half = await settled();
    await run(TOTAL);
    const growth = await settled() - half;
    assert.equal(answered + left, asked);
    assert.ok(left > 100, `${left} clients left`);
    assert.equal(gateway.provider.active, 0);
    assert.deepEqual(gateway.log, []);
    assert.ok(growth < MAX_GROWTH_BYTES, `the second half grew by ${growth} bytes`);
  });
});
