import assert from "node:assert/strict";
import { mkdirSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createProofFiles, PROOF_FOLDER } from "../../lib/cluster/workspace_proof.ts";
import { WORKSPACE_MEMBERS } from "../../lib/cluster/cluster_records.ts";
import type { Write } from "../../lib/storage/store.ts";
import {
  awayError,
  type ClusteredGateway,
  type ClusteredOptions,
  createSharedDatabase,
  joinGateway as joinAny,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import type { Script } from "../../fixtures/scripted_provider.ts";
import { ask } from "../support/supervised.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const LOCAL = [{ name: "work", local: true }];
const proven = ({ cluster }: ClusteredGateway) => cluster.ownership.membership()?.proven();
const refusal = ({ cluster }: ClusteredGateway) => cluster.ownership.membership()?.refusal();

function joinGateway(database: SharedDatabase, script: Script, options: ClusteredOptions) {
  return joinAny(database, script, { workspace: "shared", ...options });
}

/** Joins while the time goes on. */
async function joinSlowly(...given: Parameters<typeof joinGateway>): Promise<ClusteredGateway> {
  const [{ clock }] = given;
  let isOver = false;
  const joining = joinGateway(...given).finally(() => isOver = true);
  joining.catch(() => {});
  while (!isOver) await clock.advance(250);
  return await joining;
}

describe("gateways of one workspace", () => {
  test("see each other's files before the second one claims, at once", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1 });
    assert.equal(proven(a), "shared");
    const b = await joinGateway(database, [], { seed: 2 });
    assert.equal(proven(b), "shared");
    await b.close();
    await a.close();
    assert.equal(await database.store.count(WORKSPACE_MEMBERS), 0, "a gateway that leaves takes its record away");
  });

  test("one with another folder does not start, and disturbs nobody", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1 });
    await assert.rejects(joinSlowly(database, [], { seed: 2, folder: "other" }), (error) => {
      assert.match(String(error), /not the one that others have as "shared".*another \[cluster\] workspace_id/s);
      return true;
    });
    assert.equal(proven(a), "shared");
    await a.close();
  });

  test("one whose folder is a copy does not start: nobody finds its file", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1 });
    const copy = database.proofFiles("copy");
    const content = await database.proofFiles("shared").read(a.cluster.id);
    await copy.write(a.cluster.id, content ?? "");
    await assert.rejects(joinSlowly(database, [], { seed: 2, folder: "copy" }), /does not find its file/);
    await a.close();
  });

  test("a record that cannot be read keeps others out until its gateway has written it again", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1 });
    const key = `shared/${a.cluster.id}`;
    await database.store.batch([{ op: "put", collection: WORKSPACE_MEMBERS, key, body: { v: 7 } }]);
    a.link.isCut = true;
    const joining = joinSlowly(database, [], { seed: 2 });
    await database.clock.advance(500);
    assert.deepEqual((await database.store.get(WORKSPACE_MEMBERS, key))?.body, { v: 7 });
    a.link.isCut = false;
    const b = await joining;
    assert.equal(proven(b), "shared");
    await Promise.all([a.close(), b.close()]);
  });

  test("two that come at the same moment with different folders are not both let in", async () => {
    const database = createSharedDatabase();
    const joined = await Promise.allSettled([
      joinSlowly(database, [], { seed: 1, folder: "one" }),
      joinSlowly(database, [], { seed: 2, folder: "two" }),
    ]);
    const inside = joined.flatMap((one) => one.status === "fulfilled" ? [one.value] : []);
    assert.deepEqual(inside.map(proven), ["shared"]);
    for (const one of inside) await one.close();
  });

  test("a slow file system delays, and does not refuse", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1 });
    // B's folder shows the files of others three seconds late
    const begun = database.clock.now();
    const files = database.proofFiles("shared");
    const late = {
      ...files,
      read: async (id: string) => database.clock.now() < begun + 3_000 ? undefined : files.read(id),
    };
    const slow = { ...database, proofFiles: () => late };
    const b = await joinSlowly(slow, [], { seed: 2 });
    assert.equal(proven(b), "shared");
    await Promise.all([a.close(), b.close()]);
  });

  test("one that answers nobody holds the next one up until its lease has run out, and the runs of the next one wait", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1, tools: LOCAL });
    const isAnswer = (write: Write) => "collection" in write && write.collection === WORKSPACE_MEMBERS;
    a.link.onBatch = (writes, make) => writes.some(isAnswer) ? Promise.reject(awayError()) : make();
    const long = 20 * LEASE_MS;
    const b = await joinSlowly(database, ["from B"], { seed: 2, tools: LOCAL });
    const { id } = await b.runs.start(ask("go", { durable: true }));
    const why = b.cluster.ownership.membership()?.whyUnproven();
    assert.equal(
      why,
      `the gateway ${a.cluster.id} on test has not said yet that it finds this gateway's file in the workspace`,
    );
    a.link.isCut = true;
    let passed = 0;
    for (; (await b.runs.get(id))?.status !== "completed"; passed += 50) {
      assert.ok(passed < long);
      await database.clock.advance(50);
    }
    assert.ok(passed > LEASE_MS / 2);
    assert.equal(proven(b), "shared");
    await b.close();
  });

  test("one that is gone holds no start up for longer than its lease", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1, tools: LOCAL });
    a.link.isCut = true;
    const b = await joinSlowly(database, [], { seed: 2, tools: LOCAL });
    assert.equal(proven(b), "shared");
    await b.close();
  });

  test("one that was fenced off, and finds another folder in its place, claims nothing and says so", async () => {
    const database = createSharedDatabase();
    const other = await joinGateway(database, [], { seed: 3, workspace: "elsewhere" });
    const a = await joinGateway(database, ["from A"], { seed: 1, tools: LOCAL, folder: "one" });
    a.link.isCut = true;
    await database.clock.advance(5 * LEASE_MS);
    const b = await joinGateway(database, [], { seed: 2, folder: "two" });
    assert.equal(proven(b), "shared");
    a.link.isCut = false;
    await database.clock.advance(2_000);
    assert.equal(proven(a), null);
    for (let passed = 0; refusal(a) === undefined; passed += 250) {
      assert.ok(passed < 30_000);
      await database.clock.advance(250);
    }
    await assert.rejects(a.runs.start(ask("go", { durable: true })), { code: "workspace_unavailable" });
    await Promise.all([other.close(), a.close(), b.close()]);
  });

  test("the other folder is mended: the gateway comes in", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1, folder: "one" });
    a.link.isCut = true;
    const other = await joinGateway(database, [], { seed: 3, workspace: "elsewhere" });
    await database.clock.advance(5 * LEASE_MS);
    const b = await joinGateway(database, [], { seed: 2, folder: "two" });
    a.link.isCut = false;
    for (let passed = 0; refusal(a) === undefined; passed += 250) await database.clock.advance(250);
    await b.close();
    for (let passed = 0; proven(a) === null; passed += 250) {
      assert.ok(passed < 120_000);
      await database.clock.advance(250);
    }
    assert.equal(refusal(a), undefined);
    await Promise.all([other.close(), a.close()]);
  });
});

describe("proof files", () => {
  test("are read as written, and go with their gateway", () =>
    withTemporaryFolder(async (root) => {
      const files = createProofFiles(root);
      const digest = await files.write("gw_a", "secret\n");
      assert.equal(await files.read("gw_a"), digest);
      assert.equal(await files.read("gw_b"), undefined);
      await files.remove("gw_a");
      assert.equal(await files.read("gw_a"), undefined);
      assert.deepEqual(readdirSync(join(root, PROOF_FOLDER)), [".gitignore"]);
    }));

  test("a link, a folder, a long file and a strange name are no proof", () =>
    withTemporaryFolder(async (root) => {
      const files = createProofFiles(root);
      await files.write("gw_a", "secret\n");
      mkdirSync(join(root, PROOF_FOLDER, "gw_folder"));
      writeFileSync(join(root, PROOF_FOLDER, "gw_long"), "x".repeat(1_000));
      for (const name of ["gw_folder", "gw_long", "../gw_a", "gw_../a", ""]) {
        assert.equal(await files.read(name), undefined, name);
      }
    }));

  test("those of gateways that are gone are removed after an hour, those of others stay", () =>
    withTemporaryFolder(async (root) => {
      const files = createProofFiles(root);
      for (const name of ["gw_own", "gw_there", "gw_gone", "gw_new"]) await files.write(name, name);
      const old = new Date(Date.now() - 2 * 60 * 60 * 1000);
      for (const name of ["gw_there", "gw_gone"]) utimesSync(join(root, PROOF_FOLDER, name), old, old);
      await files.tidy("gw_own", new Set(["gw_there"]));
      assert.deepEqual(readdirSync(join(root, PROOF_FOLDER)).sort(), [".gitignore", "gw_new", "gw_own", "gw_there"]);
      rmSync(join(root, PROOF_FOLDER), { recursive: true });
      await files.tidy("gw_own", new Set());
    }));
});
