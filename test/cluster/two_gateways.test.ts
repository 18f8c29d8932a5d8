import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders, type Script } from "../../fixtures/scripted_provider.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { createSharedDatabase, type DatabaseLink, LEASE_MS, type SharedDatabase } from "../support/clustered.ts";
import { toConfig } from "../support/config_edits.ts";
import { ask } from "../support/supervised.ts";
import { until } from "../support/until.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

interface Member {
  readonly services: GatewayServices;
  readonly link: DatabaseLink;
}

/** Starts a whole gateway of its own data directory and workspace over a shared database, without a socket. */
async function startMember(database: SharedDatabase, folder: string, script: Script): Promise<Member> {
  const link = database.link();
  const { clock } = database;
  const workspaceRoot = join(folder, "work");
  mkdirSync(workspaceRoot, { recursive: true });
  const services = await createServices({
    config: toConfig({
      storage: { driver: "memory" },
      cluster: { lease_secs: LEASE_MS / 1_000 },
      autonomy: { level: "supervised" },
      security: { write_file: { enabled: true } },
    }),
    dataDir: join(folder, "data"),
    workspaceRoot,
    home: folder,
    environment: {},
    version: "0.0.0-test",
    logSink: () => {},
    clock,
    database: link,
    providers: createScriptedProviders(createScriptedProvider(script, { clock })),
  });
  return { services, link };
}

async function passUntil(database: SharedDatabase, holds: () => Promise<boolean>): Promise<void> {
  for (let passed = 0; !await holds(); passed += 50) {
    assert.ok(passed < 30_000, "it did not come to pass");
    await database.clock.advance(50);
  }
}

const WRITE = { toolCalls: [{ name: "write_file", arguments: { path: "a.txt", content: "hello" } }] };

test("two gateways in one process: an approval at one lets the other's run go on, and survives the other's death", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const a = await startMember(database, join(folder, "a"), [WRITE, "from A", WRITE]);
    const b = await startMember(database, join(folder, "b"), ["from B"]);
    await database.clock.advance(2 * LEASE_MS);
    const runOf = (id: string) => async () => await b.services.agent?.runs.get(id);
    const hasStatus = (id: string, status: string) => async () => (await runOf(id)())?.status === status;

    // Answered at B while A waits
    const first = await a.services.agent?.runs.start(ask("write", { durable: true }));
    assert.ok(first);
    await passUntil(database, hasStatus(first.id, "waiting_for_approval"));
    const approve = async (member: Member) => {
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

    // A dies while its run waits: B takes the run over, asks nobody again, and makes the call once it is answered
    const second = await a.services.agent?.runs.start(ask("write", { durable: true }));
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
