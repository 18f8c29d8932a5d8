import assert from "node:assert/strict";
import { test } from "node:test";
import { firstPairingCode, type PairingServices } from "../../../cli/serve/first_pairing_code.ts";
import { refuse } from "../../../lib/base/errors.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

const AWAY = refuse("storage_unavailable", "Cannot use the database");

function servicesThatFail(times: number) {
  const clock = createFakeClock();
  const asked: number[] = [];
  const warnings: string[] = [];
  const services: PairingServices = {
    clock,
    cluster: {},
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
  assert.deepEqual(await code, { code: "123456" });
  assert.deepEqual([asked.length, warnings], [3, []]);
});

test("firstPairingCode() lets a gateway go on without a code after 30 seconds", async () => {
  const { clock, warnings, services } = servicesThatFail(Infinity);
  const code = firstPairingCode(services);
  for (let second = 0; second < 31; second++) await clock.advance(1_000);
  assert.deepEqual(await code, { code: null, reason: "No code is shown, since the database does not answer" });
  assert.match(warnings.join(), /postern pair/);
});

test("firstPairingCode() lets the code stand that another gateway of the cluster has shown", async () => {
  const { services } = servicesThatFail(0);
  const gateways = (...ids: readonly string[]) => ({
    shown: { overview: { status: () => Promise.resolve({ gateways: ids }) } },
  });
  const pending = { ...services.pairing, isPending: () => Promise.resolve(true) };
  const started = (ids: readonly string[], pairing: PairingServices["pairing"]) =>
    firstPairingCode({ ...services, pairing, cluster: gateways(...ids) });
  const { code, ...rest } = await started(["gw_a", "gw_b"], pending);
  assert.equal(code, null);
  assert.match(JSON.stringify(rest), /Another gateway of the cluster has shown a pairing code/);
  assert.deepEqual(await started(["gw_a"], pending), { code: "123456" }, "its own code may be out of sight");
  assert.deepEqual(await started(["gw_a", "gw_b"], services.pairing), { code: "123456" });
});
