import assert from "node:assert/strict";
import { test } from "node:test";
import { firstPairingCode, type PairingServices } from "../../../cli/serve/first_pairing_code.ts";
import { HttpError } from "../../../lib/base/errors.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

const AWAY = new HttpError("storage_unavailable", "Cannot use the database", { status: 503, type: "api_error" });

function servicesThatFail(times: number) {
  const clock = createFakeClock();
  const asked: number[] = [];
  const warnings: string[] = [];
  const services: PairingServices = {
    clock,
    log: { ...SILENT, warn: (text) => void warnings.push(text) },
    tokens: { count: () => Promise.resolve(0) },
    pairing: {
      isPending: () => Promise.resolve(false),
      createCode() {
        asked.push(clock.monotonic());
        return asked.length <= times
          ? Promise.reject(AWAY)
          : Promise.resolve({ code: "123456", expiresInSeconds: 600 });
      },
    },
  };
  return { clock, asked, warnings, services };
}

test("firstPairingCode() asks again while the database does not answer", async () => {
  const { clock, asked, warnings, services } = servicesThatFail(2);
  const code = firstPairingCode(services);
  await clock.advance(1_000);
  assert.equal(await code, "123456");
  assert.deepEqual([asked.length, warnings], [3, []]);
});

test("firstPairingCode() lets a gateway go on without a code after 30 seconds", async () => {
  const { clock, warnings, services } = servicesThatFail(Infinity);
  const code = firstPairingCode(services);
  for (let second = 0; second < 31; second++) await clock.advance(1_000);
  assert.equal(await code, undefined);
  assert.match(warnings.join(), /postern pair/);
});
