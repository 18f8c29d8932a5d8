import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import process from "node:process";
import { describe, test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { Watchdog } from "../../../lib/system/process/watchdog.ts";
import { until } from "../../support/until.ts";

/** Starts a program as a gateway with a marker does. */
async function withMarked(
  use: (child: ChildProcess, watchdog: Watchdog, marker: string) => Promise<void>,
): Promise<void> {
  const marker = `gateway_${randomBytes(6).toString("hex")}`;
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn("sleep", ["60"], { env: { PATH, POSTERN_GATEWAY: marker }, stdio: "ignore", detached: true });
  const watchdog = new Watchdog({ marker, env: { PATH, HOME }, log: SILENT });
  try {
    await use(child, watchdog, marker);
  } finally {
    watchdog.stop();
    child.kill("SIGKILL");
  }
}

describe("the watchdog", { skip: process.platform === "linux" ? false : "programs are found on Linux alone" }, () => {
  test("kills the programs once no heartbeat has come in time, and not before", async () => {
    await withMarked(async (child, watchdog) => {
      for (let beat = 0; beat < 8; beat++) {
        watchdog.beat(2_000);
        await systemClock.sleep(50);
      }
      assert.equal(child.signalCode, null);
      watchdog.beat(100);
      await until(() => child.signalCode !== null);
      assert.equal(child.signalCode, "SIGKILL");
    });
  });

  test("leaves the programs alone when the gateway ends the watch", async () => {
    await withMarked(async (child, watchdog) => {
      watchdog.beat(300);
      await systemClock.sleep(20);
      watchdog.stop();
      await systemClock.sleep(600);
      assert.equal(child.signalCode, null);
    });
  });

  test("kills the programs when the gateway is gone", async () => {
    await withMarked(async (child, _watchdog, marker) => {
      const file = JSON.stringify(new URL("../../../lib/system/process/watchdog.ts", import.meta.url).href);
      const { PATH = "", HOME = "" } = process.env;
      const options = `{ marker: "${marker}", env: ${JSON.stringify({ PATH, HOME })}, log: { error() {} } }`;
      const program = `import(${file}).then(({ Watchdog }) => {
        new Watchdog(${options}).beat(60000);
        setInterval(() => console.log("at work"), 20);
      });`;
      const args = "Deno" in globalThis ? ["eval", program] : ["--no-warnings", "-e", program];
      const gateway = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
      let beats = 0;
      gateway.stdout.on("data", () => beats++);
      try {
        // Time in which the watchdog starts
        await until(() => beats > 20);
        assert.equal(child.signalCode, null);
      } finally {
        gateway.kill("SIGKILL");
      }
      await until(() => child.signalCode !== null);
    });
  });
});
