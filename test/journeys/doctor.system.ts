import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import type { Finding } from "../../cli/doctor/finding.ts";
import { type CliMachine, withCliMachine } from "../support/cli_process.ts";
import { isGone } from "../support/is_gone.ts";
import { until } from "../support/world.ts";

const skip = process.platform === "win32" ? "there is no daemon on Windows" : false;

interface Examined {
  readonly code: number | null;
  of(name: string): string;
}

/** Once more where a check gave no result in time, as doctor itself says then. */
async function examine(machine: CliMachine): Promise<Examined> {
  let seen = await examineOnce(machine);
  await until(async () => {
    if (!/No result within|does not answer/.test(seen.all)) return true;
    seen = await examineOnce(machine);
    return false;
  }, () => `it has never time enough: ${seen.all}`);
  return seen;
}

async function examineOnce({ run }: CliMachine): Promise<Examined & { readonly all: string }> {
  const { code, stdout, stderr } = await run(["doctor", "--json"]);
  assert.equal(stderr, "");
  const { checks } = JSON.parse(stdout) as { checks: readonly Finding[] };
  return {
    code,
    all: stdout,
    of: (name) =>
      checks.filter((check) => check.name === name).map(({ state, message }) => `${state}: ${message}`).join(),
  };
}

test(
  "doctor through the life of a daemon: none, at work, killed, at work again, stopped",
  { skip },
  () =>
    withCliMachine(async (machine) => {
      const config = join(machine.home, ".config/postern/postern.toml");
      mkdirSync(dirname(config), { recursive: true, mode: 0o700 });
      writeFileSync(config, "[gateway]\nport = 0\n", { mode: 0o600 });
      const fresh = await examine(machine);
      assert.equal(fresh.code, 0);
      assert.match(fresh.of("gateway"), /^ok: None runs/);
      assert.match(fresh.of("database"), /^ok: No database yet/);

      assert.equal((await machine.run(["daemon", "start"])).code, 0);
      const running = await examine(machine);
      assert.equal(running.code, 0);
      assert.match(running.of("gateway"), /^ok: The daemon runs at http:/);
      assert.match(running.of("database"), /^ok: In use by the running gateway/);
      assert.match(running.of("log"), /^ok: .*daemon\.log, /);
      assert.match(running.of("data directory"), /^ok/);

      const [pid = ""] = readFileSync(join(machine.dataDir, "daemon.pid"), "utf8").split("\n");
      process.kill(Number(pid), "SIGKILL");
      assert.ok(await isGone(pid));
      const killed = await examine(machine);
      assert.equal(killed.code, 0, "a warning is no failure");
      assert.match(killed.of("gateway"), /^warning: The daemon was killed/);
      assert.match(killed.of("database"), /^ok: Version \d+, .* undamaged/);

      assert.equal((await machine.run(["daemon", "start"])).code, 0);
      assert.match((await examine(machine)).of("gateway"), /^ok: The daemon runs/);
      assert.equal((await machine.run(["daemon", "stop"])).code, 0);
      assert.match((await examine(machine)).of("gateway"), /^ok: None runs/);
    }),
);
