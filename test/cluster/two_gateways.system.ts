import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { type ClusterMember, endMember, startMember } from "../support/cluster_member.ts";
import { createSharedDatabase, LEASE_MS, type SharedDatabase } from "../support/clustered.ts";
import { ask } from "../support/supervised.ts";
import { until } from "../support/until.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

async function passUntil(database: SharedDatabase, holds: () => Promise<boolean>): Promise<void> {
  for (let passed = 0; !await holds(); passed += 50) {
    assert.ok(passed < 30_000, "it did not come to pass");
    await database.clock.advance(50);
  }
}

const WRITE = { toolCalls: [{ name: "write_file", arguments: { path: "a.txt", content: "hello" } }] };

/** Whoever begins the work may approve what it asks. */
const APPROVER = { via: "http", tokenId: "tok_1", scopes: ["chat", "approve"] } as const;

test("two gateways in one process: an approval at one lets the other's run go on, and survives the other's death", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const a = await startMember(database, join(folder, "a"), { script: [WRITE, "from A", WRITE, "from A", WRITE] });
    const b = await startMember(database, join(folder, "b"), { script: ["from B"] });
    await database.clock.advance(2 * LEASE_MS);
    const runOf = (id: string) => async () => await b.services.agent?.runs.get(id);
    const hasStatus = (id: string, status: string) => async () => (await runOf(id)())?.status === status;

    // Answered at B while A waits
    const first = await a.services.agent?.runs.start(ask("write", { durable: true, caller: APPROVER }));
    assert.ok(first);
    await passUntil(database, hasStatus(first.id, "waiting_for_approval"));
    const approve = async (member: ClusterMember) => {
      const { approvals: [approval] } = await member.services.approvals.list({ status: "pending", limit: 1 });
      assert.ok(approval);
      await member.services.approvals.answer(approval.id, {
        decision: "approve",
        by: { via: "http", tokenId: "tok_2" },
      });
    };
    await approve(b);
    // The clock stands still: the note of the answer alone wakes the owner
    await until(hasStatus(first.id, "completed"));
    assert.equal((await runOf(first.id)())?.result, "from A");

    // The note of the answer is lost: the owner looks once a second
    const mute = await a.services.agent?.runs.start(ask("write", { durable: true, caller: APPROVER }));
    assert.ok(mute);
    await passUntil(database, hasStatus(mute.id, "waiting_for_approval"));
    database.isMute = true;
    await approve(b);
    await database.clock.advance(1_000);
    await until(hasStatus(mute.id, "completed"));
    database.isMute = false;

    // A dies while its run waits: B takes the run over, asks nobody again, and makes the call once it is answered
    const second = await a.services.agent?.runs.start(ask("write", { durable: true, caller: APPROVER }));
    assert.ok(second);
    await passUntil(
      database,
      async () => (await a.services.approvals.list({ status: "pending", limit: 2 })).approvals.length === 1,
    );
    a.link.isCut = true;
    await database.clock.advance(2 * LEASE_MS + 1_000);
    assert.equal((await b.services.approvals.list({ status: "pending", limit: 2 })).approvals.length, 1);
    await approve(b);
    await until(hasStatus(second.id, "completed"));
    assert.equal((await runOf(second.id)())?.result, "from B");
    await b.services.drain(0);
    await b.services.close();
    a.link.isCut = false;
    const drained = a.services.drain(0);
    await database.clock.advance(5_000);
    await drained;
    await a.services.close();
    assert.equal(database.clock.pending(), 0, "no timer is left");
  });
});

/** Seconds of a program that no other test starts. */
const SLEEP = `6${process.pid}`;

/** Tells whether the program of the test below is there. */
function isRunning(): boolean {
  const wanted = `sleep\0${SLEEP}\0`;
  return readdirSync("/proc").some((id) => {
    try {
      return /^\d+$/.test(id) && readFileSync(`/proc/${id}/cmdline`, "utf8").endsWith(wanted);
    } catch {
      return false;
    }
  });
}

/**
 * Runs a program at a gateway whose heartbeats stop, and waits for its end.
 * @returns false when the program began so late that the lease may have been over
 */
async function losesItsProgram(folder: string, leaseSecs: number): Promise<boolean> {
  const database = createSharedDatabase();
  const call = { toolCalls: [{ name: "shell", arguments: { command: `sleep ${SLEEP}` } }] };
  const begun = systemClock.monotonic();
  const a = await startMember(database, join(folder, "a"), {
    script: [call, "ended"],
    config: {
      autonomy: { level: "full" },
      security: { allowed_commands: ["sleep"] },
      cluster: { lease_secs: leaseSecs, workspace_id: "shared" },
    },
  });
  const run = await a.services.agent?.runs.start(ask("sleep", { durable: true }));
  assert.ok(run);
  // A program that begins after the lease is killed before anybody sees it
  await until(() => isRunning() || systemClock.monotonic() - begun > leaseSecs * 1000);
  const isLate = systemClock.monotonic() - begun > leaseSecs * 500;
  if (isLate) await a.services.agent?.runs.cancel(run.id, "cancelled");
  // The join is the only heartbeat: the clock of the gateway stands still, and that of the watchdog goes on
  await until(() => !isRunning());
  const wanted = isLate ? "cancelled" : "completed";
  await passUntil(database, async () => (await a.services.agent?.runs.get(run.id))?.status === wanted);
  await endMember(database, a);
  return !isLate;
}

test("a gateway whose heartbeats stop has its programs killed", {
  skip: process.platform === "linux" ? false : "programs are found on Linux alone",
}, async () => {
  // A busy machine takes seconds to start a program
  for (const leaseSecs of [4, 20, 100]) {
    let isDone = false;
    await withTemporaryFolder(async (folder) => void (isDone = await losesItsProgram(folder, leaseSecs)));
    if (isDone) return;
  }
  assert.fail("the program began too late each time");
});
