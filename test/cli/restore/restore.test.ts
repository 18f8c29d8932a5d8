import assert from "node:assert/strict";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { backUpAll } from "../../../cli/restore/back_up_all.ts";
import { holdOpenWork } from "../../../cli/restore/hold_open_work.ts";
import { restoreBackup } from "../../../cli/restore/restore_backup.ts";
import { promiseOf } from "../../../lib/automation/channels/delivery_record.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createCrashingStore, Killed } from "../../support/crashing_store.ts";
import { jsonOf } from "../../support/json_of.ts";
import { type RunningGateway, type RunningGatewayOptions, withRunningGateway } from "../../support/running_gateway.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";
import { withWorkspace } from "../../support/workspace.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const KEY = new Uint8Array(32).fill(7);
const CONFIG = { cron: { enabled: true }, autonomy: { level: "full" }, channels: { mail: {} } };
const PROCEDURE = `name = "Ship"
[[steps]]
id = "touch"
title = "Ship it"
requires_approval = true
tool = "memory_store"
input = { key = "shipped", value = "yes" }
`;

/** Runs `use` with a data directory, a backup made while a run, a procedure, a delivery and a schedule were open, and a gateway on it. */
function withOpenWork(
  use: (made: {
    readonly dataDir: string;
    readonly file: string;
    readonly token: string;
    readonly withGateway: (use: (gateway: RunningGateway) => Promise<void>) => Promise<void>;
  }) => Promise<void>,
): Promise<void> {
  return withWorkspace({ ".postern/sops/ship.toml": PROCEDURE }, (workspace) =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      const file = join(folder, "kept.db");
      const options: RunningGatewayOptions = { config: CONFIG, dataDir, workspace };
      let token = "";
      await withRunningGateway({ ...options, script: [{ hang: "before" }] }, async ({ services, call }) => {
        token = (await services.tokens.issue({ scopes: ["chat"], label: "one" })).token;
        await services.pairing.createCode();
        writeFileSync(join(dataDir, "agents_ipc.key"), KEY, { mode: 0o600 });
        const run = await jsonOf(await call("/v1/runs", { body: { message: "Work" } }));
        assert.equal(run.object, "run", JSON.stringify(run));
        const added = await call("/v1/tools/cron_add/call", {
          body: { input: { id: "daily", schedule: "0 0 * * *", prompt: "x" } },
        });
        assert.equal((await jsonOf(added)).is_error, false);
        const asked = await call("/v1/tools/sop_execute/call", { body: { input: { sop: "ship" } } });
        const { is_error, output } = await jsonOf(asked);
        assert.equal(is_error, false, output);
        await until(async () => await services.store.count("open_approvals") > 0);
        await dateBack(services.store);
        await services.store.batch(promiseOf(DELIVERY));
        await backUpAll(dataDir, file, { isInUse: true });
      });
      await use({
        dataDir,
        file,
        token,
        withGateway: (use) => withRunningGateway({ ...options, script: [] }, use),
      });
    }));
}

const DELIVERY = {
  v: 1,
  run_id: "run_gone",
  channel: "mail",
  sender: null,
  message_id: null,
  status: "waiting",
  accepted_at: "2026-01-01T00:00:00.000Z",
  attempts: 0,
  next_attempt_at: null,
  last_error: null,
  ended_at: null,
} as const;

/** The schedule was due an hour ago. */
async function dateBack(store: Store): Promise<void> {
  const stored = await store.get("schedules", "daily");
  const body = { ...stored?.body as object, next_at: systemClock.now() - 3_600_000 };
  await store.batch([{ op: "put", collection: "schedules", key: "daily", body }]);
}

test("an old backup repeats nothing: all that was open in it waits for a person, and tokens are revoked", () =>
  withOpenWork(async ({ dataDir, file, token, withGateway }) => {
    const earlier = readFileSync(join(dataDir, "postern.db"));
    const { before, held } = await restoreBackup({ file, dataDir, keepTokens: false, clock: systemClock });
    assert.deepEqual(held, { runs: 1, procedures: 1, deliveries: 1, schedules: 1, approvals: 1, tokens: 1 });
    assert.match(before ?? "", /data\.before-restore-/);
    assert.deepEqual(readFileSync(join(before ?? "", "postern.db")), earlier);
    assert.deepEqual(new Uint8Array(readFileSync(join(dataDir, "agents_ipc.key"))), KEY);
    for (const name of ["postern.db", "agents_ipc.key"]) {
      assert.equal(statSync(join(dataDir, name)).mode & 0o777, 0o600);
    }
    assert.equal(statSync(dataDir).mode & 0o777, 0o700);
    await withGateway(async ({ call, url, provider, services }) => {
      const { data: runs } = await jsonOf(await call("/v1/runs"));
      assert.deepEqual(runs.map(({ status }: { status: string }) => status), ["needs_review"]);
      assert.deepEqual((await jsonOf(await call("/v1/deliveries"))).data[0].status, "held");
      const { data: [schedule] } = await jsonOf(await call("/v1/schedules"));
      assert.ok(Date.parse(schedule.next_at) > systemClock.now() && schedule.last === null);
      const refused = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
      assert.equal(refused.status, 401);
      // The procedure asks before it goes on
      await until(async () => await services.store.count("open_approvals") > 0);
      const { data: questions } = await jsonOf(await call("/v1/approvals?status=pending"));
      assert.match(questions[0].reason, /backup that was restored.*"Ship it"/);
      assert.equal(await services.store.count("memory"), 0, "the step is not done");
      assert.equal(provider.requests.length, 0, "no model is asked");
      assert.equal((await jsonOf(await call("/v1/audit/verify"))).ok, true);
      assert.equal((await jsonOf(await call("/health"))).status, "ok");
    });
  }));

test("holding open work that dies at any write is made up by the next call, and holds the same", () =>
  withOpenWork(async ({ dataDir }) => {
    const held = async (store: Store) => {
      const where = { field: "status", value: "held" };
      const { next_at } = (await store.get("schedules", "daily"))?.body as { readonly next_at: number };
      const [{ body: execution } = {}] = await store.scan("sop_executions", { limit: 1 });
      const { gate } = execution as { readonly gate: unknown };
      return {
        needsReview: await store.count("runs", { field: "run.status", value: "needs_review" }),
        open: await Promise.all(
          ["open_runs", "open_approvals", "open_deliveries", "tokens", "pairing_codes"].map((name) =>
            store.count(name)
          ),
        ),
        deliveries: await store.count("deliveries", where),
        isDue: next_at <= systemClock.now(),
        gate,
        approvals: (await store.scan("approvals", { limit: 9 })).map(({ body }) => (body as { status: string }).status),
      };
    };
    const options = { clock: systemClock, keepTokens: false };
    await withTemporaryFolder(async (folder) => {
      for (let [crashAt, wanted] = [0, undefined as unknown];; crashAt++) {
        for (const when of ["before", "after"] as const) {
          const path = join(folder, `${crashAt}${when}.db`);
          copyFileSync(join(dataDir, "postern.db"), path);
          const store = await openSqliteStore({ path, clock: systemClock });
          const crashing = createCrashingStore(store, { crashAt: crashAt === 0 ? Infinity : crashAt, when });
          const isDead = await holdOpenWork({ ...options, store: crashing }).then(() => false, (error) => {
            assert.ok(error instanceof Killed, String(error));
            return true;
          });
          if (isDead) await holdOpenWork({ ...options, store });
          const now = await held(store);
          await store.close();
          wanted ??= now;
          const { needsReview, open, deliveries, isDue } = now;
          assert.deepEqual({ needsReview, open, deliveries, isDue }, {
            ...{ needsReview: 1, open: [0, 0, 0, 0, 0], deliveries: 1, isDue: false },
          });
          assert.deepEqual(now, wanted, `write ${crashAt}, ${when}`);
          if (crashAt > 0 && !isDead) return;
        }
      }
    });
  }));

test("--keep-tokens keeps the tokens of the backup", () =>
  withOpenWork(async ({ dataDir, file, token, withGateway }) => {
    const { held } = await restoreBackup({ file, dataDir, keepTokens: true, clock: systemClock });
    assert.equal(held.tokens, 0);
    await withGateway(async ({ url }) => {
      const reply = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
      assert.equal(reply.status, 200);
    });
  }));

test("restore refuses what is no backup, and changes nothing then", () =>
  onMachine(async ({ dataDir, cwd, run }) => {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    writeFileSync(join(cwd, "other.db"), "no database at all, whatever it is called");
    const rows = [["none.db", /there is no such file/], ["other.db", /not a database/], [
      ".",
      /it is no file/,
    ]] as const;
    for (const [file, reason] of rows) {
      const { code, stderr } = await run(["restore", file]);
      assert.equal(code, 78);
      assert.match(stderr, reason);
    }
    assert.deepEqual(readdirSync(dataDir), []);
  }));

test("restore is refused while a gateway runs, and works after it", () =>
  onMachine(async (machine) => {
    await machine.withGateway([], async () => {
      assert.equal((await machine.run(["backup", "kept.db"])).code, 0);
      const { code, stderr } = await machine.run(["restore", "kept.db"]);
      assert.equal(code, 78);
      assert.match(stderr, /a gateway or node uses it/);
    });
    const { code, stdout, stderr } = await machine.run(["restore", "kept.db", "--json"]);
    assert.equal(code, 0, stderr);
    assert.match(JSON.parse(stdout).before, /\.before-restore-/);
    assert.match(stderr, /holds no procedures, quarantine, logs and accepted configurations/);
    assert.equal((await machine.run(["token", "list"])).code, 0);
  }));

test("a restore that was killed between its two renames begins no new database; another restore ends it", () =>
  onMachine(async (machine) => {
    const { dataDir } = machine;
    await machine.run(["pair"]);
    assert.equal((await machine.run(["backup", "kept.db"])).code, 0);
    const time = "2026-01-01T00-00-00.000Z";
    renameSync(dataDir, `${dataDir}.before-restore-${time}`);
    mkdirSync(`${dataDir}.restoring-${time}`);
    for (const argv of [["gateway", "--port", "0"], ["pair"], ["audit", "show"]]) {
      const { code, stderr } = await machine.run(argv);
      assert.equal(code, 78, argv[0]);
      assert.match(
        stderr,
        /restoring-2026-01-01T00-00-00.000Z" says that a restore was cut off; run postern restore <file> again, or remove/,
      );
      assert.ok(!existsSync(join(dataDir, "postern.db")), argv[0]);
    }
    const [{ state, fix }] = await findingsOn(machine);
    assert.deepEqual([state, /^postern restore <file>, again; to go back, rm -r /.test(fix)], ["failure", true]);
    // Another program's folder, whose name is no time
    mkdirSync(`${dataDir}.restoring-notes`);
    const restored = await machine.run(["restore", "kept.db"]);
    assert.equal(restored.code, 0, restored.stderr);
    assert.match(
      restored.stderr,
      /Removed .*restoring-2026.*before it is in .*before-restore-2026-01-01T00-00-00.000Z\n/,
    );
    assert.ok(!existsSync(`${dataDir}.restoring-${time}`) && existsSync(`${dataDir}.restoring-notes`));
    assert.equal((await machine.run(["audit", "show"])).code, 0);
  }));

test("doctor names the folder of a restore that was killed before its renames, and the next restore removes it", () =>
  onMachine(async (machine) => {
    await machine.run(["pair"]);
    assert.equal((await machine.run(["backup", "kept.db"])).code, 0);
    const left = `${machine.dataDir}.restoring-2026-01-01T00-00-00.000Z`;
    mkdirSync(left);
    writeFileSync(join(left, "postern.db"), "half a copy");
    const [{ state, message, fix }] = await findingsOn(machine);
    assert.deepEqual([state, fix], ["warning", `rm -r "${left}"`]);
    assert.match(message, /a restore that was cut off/);
    // A restore that fails removes nothing that is not its own
    assert.equal((await machine.run(["restore", "none.db"])).code, 78);
    assert.ok(existsSync(left));
    assert.equal((await machine.run(["restore", "kept.db"])).code, 0);
    assert.ok(!existsSync(left));
  }));

/** Returns doctor's findings about the data directory. */
async function findingsOn({ run }: Machine) {
  const { checks } = JSON.parse((await run(["doctor", "--json"])).stdout);
  return checks.filter(({ name }: { name: string }) => name === "data directory");
}
