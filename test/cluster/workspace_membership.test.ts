import assert from "node:assert/strict";
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { canonicalDigest } from "../../lib/base/json.ts";
import { createProofFiles, newFolderId, PROOF_FOLDER, type ProofFiles } from "../../lib/cluster/workspace_proof.ts";
import { WORKSPACE_MEMBERS, WORKSPACES } from "../../lib/cluster/cluster_records.ts";
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
import { createSeededRandom } from "../support/seeded_random.ts";
import { ask } from "../support/supervised.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const LOCAL = [{ name: "work", local: true }];
const proven = ({ cluster }: ClusteredGateway) => cluster.ownership.membership()?.proven();
const refusal = ({ cluster }: ClusteredGateway) => cluster.ownership.membership()?.refusal();

function joinGateway(database: SharedDatabase, script: Script, options: ClusteredOptions) {
  return joinAny(database, script, { workspace: "shared", ...options });
}

/** Ends a gateway as a crash does. */
function kill({ link, cluster }: ClusteredGateway): void {
  link.isCut = true;
  cluster.lease.abandon();
}

const BY = { via: "http", tokenId: "tok_1" } as const;

/** Forgets the folder of a workspace, as a person does at any gateway. */
async function forget({ cluster }: ClusteredGateway, workspace = "shared"): Promise<boolean> {
  return (await cluster.overview.forgetFolder(workspace, { by: BY })).isForgotten;
}

async function recordOf({ store }: SharedDatabase, workspace = "shared") {
  const stored = await store.get(WORKSPACES.name, workspace);
  return stored === undefined ? undefined : WORKSPACES.parse(stored.body);
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
    assert.equal(await database.store.count(WORKSPACE_MEMBERS.name), 0, "a gateway that leaves takes its record away");
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
    await database.store.batch([{ op: "put", collection: WORKSPACE_MEMBERS.name, key, body: { v: 7 } }]);
    a.link.isCut = true;
    const joining = joinSlowly(database, [], { seed: 2 });
    await database.clock.advance(500);
    assert.deepEqual((await database.store.get(WORKSPACE_MEMBERS.name, key))?.body, { v: 7 });
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

  for (
    const [what, isMembers] of [["the answer of a member", true], ["the record of one that comes in", false]] as const
  ) {
    test(`${what} is written again when the database was down for one write`, async () => {
      const database = createSharedDatabase();
      const first = await joinGateway(database, [], { seed: 1 });
      let failures = 0;
      const failOnce = (writes: readonly Write[], make: () => Promise<boolean>) => {
        const isRecord = writes.some((write) => write.op === "put" && write.collection === WORKSPACE_MEMBERS.name);
        return isRecord && failures++ === 0 ? Promise.reject(awayError()) : make();
      };
      const link = database.link();
      (isMembers ? first.link : link).onBatch = failOnce;
      const second = await joinSlowly({ ...database, link: () => link }, [], { seed: 2 });
      for (let ms = 0; ms < 10_000; ms += 250) await database.clock.advance(250);
      assert.ok(failures > 1);
      assert.deepEqual([proven(first), proven(second)], ["shared", "shared"]);
      await Promise.all([first.close(), second.close()]);
    });
  }

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
    const isAnswer = (write: Write) => "collection" in write && write.collection === WORKSPACE_MEMBERS.name;
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
    assert.equal(await forget(other), true);
    const b = await joinSlowly(database, [], { seed: 2, folder: "two" });
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
    await forget(other);
    const b = await joinSlowly(database, [], { seed: 2, folder: "two" });
    a.link.isCut = false;
    for (let passed = 0; refusal(a) === undefined; passed += 250) {
      assert.ok(passed < 60_000);
      await database.clock.advance(250);
    }
    await b.close();
    await database.clock.advance(2_000);
    assert.equal(proven(a), null, "the workspace is the folder of B, whether B is there or not");
    await forget(other);
    for (let passed = 0; proven(a) === null; passed += 250) {
      assert.ok(passed < 120_000);
      await database.clock.advance(250);
    }
    assert.equal(refusal(a), undefined);
    await Promise.all([other.close(), a.close()]);
  });
});

describe("the folder of a workspace whose gateways are all gone", () => {
  const MISMATCH = { code: "workspace_mismatch" };

  test("is the only one in which a gateway starts, however they ended, and the refusal names it", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1, folder: "right" });
    kill(a);
    await assert.rejects(joinSlowly(database, [], { seed: 2, folder: "wrong" }), (error: Error) => {
      assert.equal((error as Error & { code: string }).code, "workspace_mismatch");
      assert.match(
        error.message,
        /\/home\/wrong, is not the one .* as "shared" before, in \/home\/right on test .*postern cluster forget-folder shared$/,
      );
      return true;
    });
    const b = await joinSlowly(database, [], { seed: 3, folder: "right" });
    assert.equal(proven(b), "shared");
    await b.close();
    await assert.rejects(joinSlowly(database, [], { seed: 4, folder: "wrong" }), MISMATCH);
    const wrong = database.proofFiles("wrong");
    await wrong.nameFolder("another");
    await assert.rejects(joinSlowly(database, [], { seed: 5, folder: "wrong" }), /it has another id/);
  });

  test("counts for one that was fenced off too", async () => {
    const database = createSharedDatabase();
    const other = await joinGateway(database, [], { seed: 3, workspace: "elsewhere" });
    const a = await joinGateway(database, [], { seed: 1, folder: "right" });
    a.link.isCut = true;
    await database.clock.advance(5 * LEASE_MS);
    await forget(other);
    const b = await joinSlowly(database, [], { seed: 2, folder: "new" });
    kill(b);
    await database.clock.advance(5 * LEASE_MS);
    a.link.isCut = false;
    for (let passed = 0; refusal(a) === undefined; passed += 250) {
      assert.ok(passed < 60_000);
      await database.clock.advance(250);
    }
    await Promise.all([other.close(), a.close()]);
  });

  test("is seen late on a slow file system, which refuses nobody", async () => {
    const database = createSharedDatabase();
    await (await joinGateway(database, [], { seed: 1 })).close();
    const begun = database.clock.now();
    const files = database.proofFiles("shared");
    const late: ProofFiles = {
      ...files,
      folderId: async () => database.clock.now() < begun + 3_000 ? undefined : await files.folderId(),
    };
    const b = await joinSlowly({ ...database, proofFiles: () => late }, [], { seed: 2 });
    assert.equal(proven(b), "shared");
    await b.close();
  });

  test("that cannot be written has no id: one gateway works in it, and says so", async () => {
    const database = createSharedDatabase();
    const fails = () => Promise.reject(new Error("EROFS"));
    const readOnly: ProofFiles = { ...database.proofFiles("shared"), write: fails, nameFolder: fails };
    const a = await joinSlowly({ ...database, proofFiles: () => readOnly }, [], { seed: 1 });
    assert.equal(proven(a), "shared");
    assert.ok(a.clusterLog.some(({ message }) => /nothing tells it from another folder/.test(message)));
    assert.equal((await recordOf(database))?.folder_digest, undefined);
    await a.close();
  });

  test("is in no record of an earlier version: the next gateway that is let in says it, and keeps what it does not know", async () => {
    const database = createSharedDatabase();
    const body = { v: 1, from_the_future: { a: 1 } };
    await database.store.batch([{ op: "put", collection: WORKSPACES.name, key: "shared", body }]);
    await (await joinGateway(database, [], { seed: 1 })).close();
    const stored = (await database.store.get(WORKSPACES.name, "shared"))?.body as Record<string, unknown>;
    assert.deepEqual(stored["from_the_future"], { a: 1 });
    assert.deepEqual(stored["last_gateway"], { host: "test", folder: "/home/shared", data_dir: "/data/1" });
    const id = await database.proofFiles("shared").folderId() ?? "";
    assert.equal(stored["folder_digest"], canonicalDigest(id));
    await assert.rejects(joinSlowly(database, [], { seed: 2, folder: "wrong" }), MISMATCH);
  });

  test("is said again by a gateway that is in, when one of an earlier version was let in", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1 });
    const b = await joinGateway(database, [], { seed: 2 });
    const before = await recordOf(database);
    await database.store.batch([{ op: "put", collection: WORKSPACES.name, key: "shared", body: { v: 1 } }]);
    await b.close();
    await database.clock.advance(2_000);
    assert.equal((await recordOf(database))?.folder_digest, before?.folder_digest);
    await a.close();
  });

  test("is nobody's while its record cannot be read, unless a gateway is in", async () => {
    const database = createSharedDatabase();
    const damage = () =>
      database.store.batch([{
        op: "put",
        collection: WORKSPACES.name,
        key: "shared",
        body: { v: 1, folder_digest: 7 },
      }]);
    const a = await joinGateway(database, [], { seed: 1 });
    await damage();
    const b = await joinSlowly(database, [], { seed: 2 });
    assert.equal(proven(b), "shared");
    await Promise.all([a.close(), b.close()]);
    await damage();
    const other = await joinGateway(database, [], { seed: 3, workspace: "elsewhere" });
    await assert.rejects(joinSlowly(database, [], { seed: 4 }), /cannot be read.*forget-folder shared/s);
    assert.equal(await forget(other), true);
    const c = await joinSlowly(database, [], { seed: 5 });
    assert.equal(proven(c), "shared");
    await Promise.all([other.close(), c.close()]);
  });

  test("makes no difference where the id of the workspace has the folder", async () => {
    const database = createSharedDatabase();
    const workspace = "ws_0123.abc";
    await (await joinGateway(database, [], { seed: 1, workspace, folder: "one" })).close();
    const record = await recordOf(database, workspace);
    assert.deepEqual([record?.folder_digest, record?.last_gateway?.folder], [undefined, "/home/one"]);
    await (await joinGateway(database, [], { seed: 2, workspace, folder: "two" })).close();
    assert.equal(await database.proofFiles("two").folderId(), undefined);
  });

  test("survives a crash at each step of the first gateway", async () => {
    for (const isAfter of [false, true]) {
      for (let step = 1;; step++) {
        const { database, isCrashed } = await crashAt(step, isAfter);
        if (!isCrashed) break;
        const name = `step ${step}, ${isAfter ? "after" : "before"} it`;
        const record = await recordOf(database);
        assert.equal(record === undefined, record?.folder_digest === undefined, `${name}: let in without a folder`);
        const wrong = joinSlowly(database, [], { seed: 2, folder: "wrong" });
        if (record !== undefined) await assert.rejects(wrong, MISMATCH, name);
        else await (await wrong).close();
        const right = joinSlowly(database, [], { seed: 3, folder: "right" });
        if (record === undefined) await assert.rejects(right, MISMATCH, name);
        else await (await right).close();
      }
    }
  });
});

/** Runs a first gateway in the folder "right" that dies before or after its operation number `step` on files or database. */
async function crashAt(step: number, isAfter: boolean): Promise<{ database: SharedDatabase; isCrashed: boolean }> {
  const database = createSharedDatabase();
  const link = database.link();
  let steps = 0;
  const dead = () => Promise.reject(awayError());
  const stepOf = async <T>(work: () => Promise<T>): Promise<T> => {
    if (link.isCut) return await dead();
    const isLast = ++steps === step;
    if (isLast && !isAfter) link.isCut = true;
    if (link.isCut) return await dead();
    const result = await work();
    if (isLast) link.isCut = true;
    return link.isCut ? await dead() : result;
  };
  const files = database.proofFiles("right");
  link.onBatch = (_, make) => stepOf(make);
  const dying: ProofFiles = {
    ...files,
    write: (gateway, content) => stepOf(() => files.write(gateway, content)),
    folderId: () => stepOf(() => files.folderId()).catch(() => undefined),
    nameFolder: (id) => stepOf(() => files.nameFolder(id)),
    keepFolderId: (id) => stepOf(() => files.keepFolderId(id)).catch(() => {}),
    remove: () => Promise.resolve(),
  };
  const joining = joinSlowly({ ...database, link: () => link, proofFiles: () => dying }, [], { seed: 1 });
  const joined = await joining.catch(() => undefined);
  const isCrashed = link.isCut;
  if (joined !== undefined) {
    kill(joined);
    await database.clock.advance(5 * LEASE_MS);
  }
  return { database, isCrashed };
}

describe("forgetting the folder of a workspace", () => {
  test("lets the next gateway say which it is, which waits for that", async () => {
    const database = createSharedDatabase();
    const other = await joinGateway(database, [], { seed: 3, workspace: "elsewhere" });
    await (await joinGateway(database, [], { seed: 1, folder: "old" })).close();
    const joining = joinSlowly(database, [], { seed: 2, folder: "new" });
    await database.clock.advance(2_000);
    assert.equal(await forget(other), true, "one that was not let in is in nobody's way");
    const b = await joining;
    assert.equal(proven(b), "shared");
    await b.close();
    await assert.rejects(joinSlowly(database, [], { seed: 4, folder: "old" }), { code: "workspace_mismatch" });
    await other.close();
  });

  test("is refused while a gateway of it has a lease, and not for longer", async () => {
    const database = createSharedDatabase();
    const other = await joinGateway(database, [], { seed: 3, workspace: "elsewhere" });
    const a = await joinGateway(database, [], { seed: 1 });
    await assert.rejects(forget(other), (error: Error) => {
      assert.match(
        error.message,
        new RegExp(`the gateway ${a.cluster.id} on test works in it, with a lease for 1.0 s`),
      );
      return true;
    });
    const key = `shared/${a.cluster.id}`;
    a.link.isCut = true;
    await database.store.batch([{ op: "put", collection: WORKSPACE_MEMBERS.name, key, body: { v: 7 } }]);
    await assert.rejects(forget(other), { code: "conflict" }, "a record that cannot be read does not tell");
    await database.clock.advance(5 * LEASE_MS);
    assert.equal(await forget(other), true);
    assert.equal(await forget(other), false);
    await other.close();
  });

  test("tells what it cannot forget", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1 });
    await assert.rejects(forget(a, "nowhere"), /Cannot find the workspace "nowhere".*there are shared$/);
    await assert.rejects(forget(a, "ws_1.2"), { code: "conflict" });
    await a.close();
  });

  test("has no effect when a gateway is let in at the same moment", async () => {
    const database = createSharedDatabase();
    const other = await joinGateway(database, [], { seed: 3, workspace: "elsewhere" });
    await (await joinGateway(database, [], { seed: 1 })).close();
    let b: ClusteredGateway | undefined;
    other.link.onBatch = async (writes, make) => {
      const isForget = writes.some((write) => "collection" in write && write.collection === WORKSPACES.name);
      if (isForget && b === undefined) b = await joinGateway(database, [], { seed: 2 });
      return await make();
    };
    await assert.rejects(forget(other), { code: "conflict" });
    assert.ok((await recordOf(database))?.folder_digest);
    await Promise.all([other.close(), b?.close()]);
  });
});

describe("the id of a folder", () => {
  const ID = newFolderId(createSeededRandom(1));
  const OTHER = newFolderId(createSeededRandom(2));
  const pathIn = (root: string) => join(root, PROOF_FOLDER, "folder_id");

  test("is made once, whoever comes at the same moment, and with it nothing else", () =>
    withTemporaryFolder(async (root) => {
      const [one, two] = [createProofFiles(root), createProofFiles(root)];
      assert.equal(await one.folderId(), undefined);
      const [first, second] = await Promise.all([one.nameFolder(ID), two.nameFolder(OTHER)]);
      assert.equal(first, second);
      assert.equal(await two.folderId(), first);
      assert.deepEqual(readdirSync(join(root, PROOF_FOLDER)).sort(), [".gitignore", "folder_id"]);
    }));

  test("that a crash has cut off at any byte is made again", () =>
    withTemporaryFolder(async (root) => {
      await createProofFiles(root).nameFolder(ID);
      const whole = readFileSync(pathIn(root), "utf8");
      for (let bytes = 0; bytes < whole.length; bytes++) {
        const files = createProofFiles(root);
        writeFileSync(pathIn(root), whole.slice(0, bytes));
        assert.equal(await files.folderId(), undefined, `${bytes} bytes`);
        assert.equal(await files.nameFolder(OTHER), OTHER, `${bytes} bytes`);
      }
    }));

  test("is made once on a file system without hard links too", () =>
    withTemporaryFolder(async (root) => {
      const link = () => Promise.reject(Object.assign(new Error("no links"), { code: "EPERM" }));
      const [one, two] = [createProofFiles(root, { link }), createProofFiles(root, { link })];
      assert.equal(await one.nameFolder(ID), ID);
      assert.equal(await two.nameFolder(OTHER), ID);
    }));

  test("comes back when somebody removes it, and never into another folder at the same place", () =>
    withTemporaryFolder(async (parent) => {
      const root = join(parent, "work");
      mkdirSync(root);
      const files = createProofFiles(root);
      await files.keepFolderId(ID);
      assert.equal(await files.folderId(), undefined, "a gateway that never found it does not write it");
      await files.nameFolder(ID);
      rmSync(join(root, PROOF_FOLDER), { recursive: true });
      await files.keepFolderId(ID);
      assert.equal(await files.folderId(), ID);
      renameSync(root, join(parent, "away"));
      mkdirSync(root);
      await files.keepFolderId(ID);
      assert.equal(await files.folderId(), undefined);
    }));

  test("is read from a plain file alone, and what is left of making one goes after an hour", () =>
    withTemporaryFolder(async (root) => {
      const files = createProofFiles(root);
      await files.nameFolder(ID);
      await files.write("gw_own", "own");
      const temporary = join(root, PROOF_FOLDER, `.postern-1-${"a".repeat(24)}.tmp`);
      writeFileSync(temporary, "");
      await files.tidy("gw_own", new Set());
      assert.ok(statSync(temporary));
      const old = new Date(Date.now() - 2 * 60 * 60 * 1000);
      for (const path of [temporary, pathIn(root)]) utimesSync(path, old, old);
      await files.tidy("gw_own", new Set());
      assert.deepEqual(readdirSync(join(root, PROOF_FOLDER)).sort(), [".gitignore", "folder_id", "gw_own"]);
      renameSync(pathIn(root), join(root, "elsewhere"));
      symlinkSync(join(root, "elsewhere"), pathIn(root));
      assert.equal(await files.folderId(), undefined);
    }));
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
