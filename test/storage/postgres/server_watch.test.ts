import assert from "node:assert/strict";
import { test } from "node:test";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { DatabaseAwayError } from "../../../lib/storage/postgres/database_errors.ts";
import { ServerWatch } from "../../../lib/storage/postgres/server_watch.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

test("a server that is down is looked for with pauses that double, and that differ between gateways", async () => {
  const looksWith = async (byte: number): Promise<readonly number[]> => {
    const clock = createFakeClock();
    const begun = clock.monotonic();
    const looks: number[] = [];
    const database = {
      name: "x",
      query: () => {
        looks.push(clock.monotonic() - begun);
        return Promise.reject(new DatabaseAwayError("away", { wasSent: false, cause: undefined }));
      },
    };
    const random = { bytes: (count: number) => new Uint8Array(count).fill(byte), id: () => "id" };
    const watch = new ServerWatch(database, { clock, random, log: SILENT });
    watch.refusalOf(new DatabaseAwayError("away", { wasSent: false, cause: undefined }));
    for (let passed = 0; passed < 20_000; passed += 25) await clock.advance(25);
    watch.stop();
    return looks;
  };
  assert.deepEqual(await looksWith(255), [100, 300, 700, 1_500, 3_100, 6_300, 11_300, 16_300]);
  assert.deepEqual((await looksWith(0)).slice(0, 7), [50, 150, 350, 750, 1_550, 3_150, 5_650]);
});
