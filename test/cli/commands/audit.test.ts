import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { takeGatewayLock } from "../../../lib/storage/gateway_lock.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

/** Leaves two records of refused credentials, each after that of a pairing code, by two runs of the gateway. */
async function leaveRecords({ withGateway }: Machine): Promise<void> {
  for (const token of ["wrong", "worse"]) {
    const { code } = await withGateway([], async ({ address }) => {
      await fetch(`${address}v1/tools`, { headers: { authorization: `Bearer ${token}` } });
    });
    assert.equal(code, 0);
  }
}

test("where a node holds the data directory, or a gateway that is silent, the audit says so and how to go on", async () => {
  await onMachine(async (machine) => {
    await leaveRecords(machine);
    const lock = takeGatewayLock(machine.dataDir);
    const { code, stderr } = await machine.run(["audit", "show"]);
    lock?.release();
    assert.equal(code, 1);
    assert.match(
      stderr,
      /: a node or another command uses it, or a gateway that does not answer; end it, or give --data-dir$/m,
    );
  });
});

test("audit verify and show read the database directly while no gateway runs", async () => {
  await onMachine(async (machine) => {
    await leaveRecords(machine);
    const verified = await machine.run(["audit", "verify", "--json"]);
    const report = JSON.parse(verified.stdout);
    assert.deepEqual([verified.code, report.ok, report.records], [0, true, 4]);
    const text = await machine.run(["audit", "verify"]);
    assert.match(text.stdout, /^intact: 4 records, 1 to 4\nhead 4:[0-9a-f]{64}\n$/);

    const shown = await machine.run(["audit", "show"]);
    assert.equal(shown.code, 0);
    assert.match(
      shown.stdout,
      /^SEQ +TIME .*\n1 .*pairing +code_made\n2 .*access_failures +127\.0\.0\.1 +auth_invalid=1\n3 /,
    );
    const { records } = JSON.parse((await machine.run(["audit", "show", "--limit", "1", "--json"])).stdout);
    assert.deepEqual(records.map(({ seq }: { seq: number }) => seq), [4]);
  });
});

test("audit show spells out what would turn a line around or hide in it", async () => {
  await onMachine(async (machine) => {
    const made = await machine.run(["token", "create", "--label", "kept\u202egnp\u200b.txt"]);
    assert.equal(made.code, 0, made.stderr);
    for (const argv of [["audit", "show"], ["token", "list"]]) {
      const { stdout } = await machine.run(argv);
      assert.ok(stdout.includes("kept\\u202egnp\\u200b.txt"), stdout);
      assert.doesNotMatch(stdout, /[\u202e\u200b]/u);
    }
  });
});

test("audit verify asks the running gateway, and a kept head is compared", async () => {
  await onMachine(async (machine) => {
    await leaveRecords(machine);
    const { stdout } = await machine.run(["audit", "verify"]);
    const head = /head (\S+)/.exec(stdout)?.[1] ?? "";
    await machine.withGateway([], async () => {
      const running = await machine.run(["audit", "verify", "--head", head]);
      assert.equal(running.code, 0, running.stderr);
      assert.match(running.stdout, /^intact/);
      const other = await machine.run(["audit", "verify", "--head", `1:${"0".repeat(64)}`]);
      assert.equal(other.code, 1);
      assert.match(other.stdout, /^CHANGED/);
      assert.match(other.stdout, /Record 1 is not the one of the given head/);
    });
  });
});

test("audit verify exits 1 and names the record that was changed in the database", async () => {
  await onMachine(async (machine) => {
    await leaveRecords(machine);
    const database = new DatabaseSync(join(machine.dataDir, "postern.db"));
    database.exec(
      "UPDATE records SET body = replace(body, '127.0.0.1', '10.1.1.1') WHERE collection = 'audit' AND key LIKE '%2'",
    );
    database.close();
    const { code, stdout } = await machine.run(["audit", "verify"]);
    assert.equal(code, 1);
    assert.match(stdout, /^CHANGED: 4 records, 1 to 4\n(.*\n)*Record 2 was altered/);
    const { problems } = JSON.parse((await machine.run(["audit", "verify", "--json"])).stdout);
    assert.deepEqual(problems.map(({ seq, code }: { seq: number; code: string }) => [seq, code]), [[2, "altered"]]);
  });
});

test("a wrong command line is exit 2, a wrong filter is told by the gateway", async () => {
  await onMachine(async ({ run }) => {
    assert.equal((await run(["audit", "verify", "--head", "x"])).code, 2);
    assert.equal((await run(["audit", "verify", "extra"])).code, 2);
    const { code, stderr } = await run(["audit", "show", "--type", "nothing"]);
    assert.equal(code, 1);
    assert.match(stderr, /"type".*decision/);
    assert.match((await run(["audit", "show"])).stdout, /No audit record fits/);
  });
});

test("an audit that is switched off says so, and keeps nothing", async () => {
  await onMachine(async (machine) => {
    const env = { POSTERN__SECURITY__AUDIT__ENABLED: "false" };
    await machine.withGateway([], async ({ address }) => {
      await fetch(`${address}v1/tools`, { headers: { authorization: "Bearer wrong" } });
    }, { env });
    const { code, stdout, stderr } = await machine.run(["audit", "show"], { env });
    assert.equal(code, 0);
    assert.match(stdout, /No audit record fits/);
    assert.match(stderr, /\[security\.audit\] enabled is false/);
  });
});
