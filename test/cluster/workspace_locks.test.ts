import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { CancelError } from "../../lib/base/cancel.ts";
import { FILE_LOCKS } from "../../lib/cluster/cluster_records.ts";
import { createProofFiles, PROOF_FOLDER } from "../../lib/cluster/workspace_proof.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import type { FileChange, Files, FileScope } from "../../lib/system/files/files.ts";
import { UnknownWriteError } from "../../lib/storage/read_records.ts";
import {
  awayError,
  type ClusterLink,
  createSharedDatabase,
  joinLink,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

interface Member extends ClusterLink {
  readonly files: Files;
}

async function join2(database: SharedDatabase, root: string, seed: number): Promise<Member> {
  const member = await joinLink(database, { seed, workspace: "shared" });
  const locks = member.cluster.fileLocks;
  return { ...member, files: createFiles({ clock: database.clock, home: root, ownPaths: [], locks }) };
}

const scopeOf = (root: string): FileScope => ({
  workspaceRoot: root,
  allowedRoot: ".",
  forbiddenPaths: [],
  allowSensitive: false,
});

/** Returns the change of a file from what it is now. */
async function changeOf(files: Files, root: string, text: string): Promise<FileChange> {
  const { file } = await files.inspect("a.txt", scopeOf(root), { maxBytes: undefined });
  return { kind: "write", path: "a.txt", content: new TextEncoder().encode(text), expected: file?.version };
}

const signal = () => new AbortController().signal;

async function withTwo(
  work: (world: {
    readonly root: string;
    readonly database: SharedDatabase;
    readonly a: Member;
    readonly b: Member;
  }) => Promise<void>,
): Promise<void> {
  await withTemporaryFolder(async (root) => {
    const database = createSharedDatabase();
    writeFileSync(join(root, "a.txt"), "old");
    const a = await join2(database, root, 1);
    const b = await join2(database, root, 2);
    // A looks, and knows B
    await database.clock.advance(1_000);
    await work({ root, database, a, b });
    await Promise.all([a.close(), b.close()]);
  });
}

/** Takes the lock of a file at a gateway until the returned function is called. */
async function holdAt({ cluster }: Member, root: string): Promise<() => Promise<void>> {
  const held = Promise.withResolvers<void>();
  const taken = Promise.withResolvers<void>();
  const work = cluster.fileLocks?.hold([join(root, "a.txt")], { workspaceRoot: root, signal: signal() }, async () => {
    taken.resolve();
    await held.promise;
  });
  await taken.promise;
  return async () => {
    held.resolve();
    await work;
  };
}

describe("changes of files of one workspace by two gateways", () => {
  test("are made one after the other: of two from the same state one is refused, and no lock is left", () =>
    withTwo(async ({ root, database, a, b }) => {
      const changes = [await changeOf(a.files, root, "from A"), await changeOf(b.files, root, "from B")] as const;
      const work = Promise.allSettled([
        a.files.change([changes[0]], scopeOf(root), { signal: signal() }),
        b.files.change([changes[1]], scopeOf(root), { signal: signal() }),
      ]);
      let isOver = false;
      void work.then(() => isOver = true);
      await until(async () => {
        await database.clock.advance(5);
        return isOver;
      });
      const made = await work;
      assert.deepEqual(made.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
      const refused = made.find((one) => one.status === "rejected");
      assert.equal(refused?.status === "rejected" && (refused.reason as { code?: string }).code, "path_changed");
      assert.equal(readFileSync(join(root, "a.txt"), "utf8"), made[0].status === "fulfilled" ? "from A" : "from B");
      assert.equal(await database.store.count(FILE_LOCKS.name), 0);
    }));

  test("wait for a lock for a bounded time, and can be cancelled", () =>
    withTwo(async ({ root, database, a, b }) => {
      const giveBack = await holdAt(a, root);
      const controller = new AbortController();
      const change = await changeOf(b.files, root, "from B");
      const cancelled = b.files.change([change], scopeOf(root), { signal: controller.signal });
      cancelled.catch(() => {});
      await database.clock.advance(1_000);
      controller.abort(new CancelError("cancelled"));
      await assert.rejects(cancelled, CancelError);
      const late = b.files.change([change], scopeOf(root), { signal: signal() });
      let code: unknown;
      late.catch((error: { code?: string }) => code = error.code);
      await until(async () => {
        await database.clock.advance(500);
        return code !== undefined;
      });
      assert.equal(code, "file_locked");
      assert.equal(readFileSync(join(root, "a.txt"), "utf8"), "old");
      await giveBack();
      await b.files.change([change], scopeOf(root), { signal: signal() });
      assert.equal(readFileSync(join(root, "a.txt"), "utf8"), "from B");
    }));

  test("go on when the gateway that has the lock is gone, and that one changes nothing any more", () =>
    withTwo(async ({ root, database, a, b }) => {
      await database.clock.advance(2 * LEASE_MS);
      const lost = Promise.withResolvers<void>();
      const atA = a.cluster.fileLocks?.hold(
        [join(root, "a.txt")],
        { workspaceRoot: root, signal: signal() },
        async (guard) => {
          await lost.promise;
          await guard.mayChange();
        },
      );
      atA?.catch(() => {});
      await until(async () => await database.store.count(FILE_LOCKS.name) === 1);
      a.link.isCut = true;
      const change = b.files.change([await changeOf(b.files, root, "from B")], scopeOf(root), { signal: signal() });
      let isMade = false;
      void change.then(() => isMade = true);
      let isOff = false;
      b.cluster.onTakeover(() => isOff = true);
      for (let passed = 0; !isOff; passed += 100) {
        assert.ok(passed < 5 * LEASE_MS);
        await database.clock.advance(100);
      }
      await until(async () => {
        await database.clock.advance(5);
        return isMade;
      });
      lost.resolve();
      a.link.isCut = false;
      await database.clock.advance(2 * LEASE_MS);
      await assert.rejects(atA ?? Promise.resolve(), CancelError);
      assert.equal(readFileSync(join(root, "a.txt"), "utf8"), "from B");
    }));

  for (const made of [true, false]) {
    test(`a lock whose answer was lost, and that was ${made ? "taken" : "not taken"}, holds nobody up and deletes no other`, () =>
      withTwo(async ({ root, database, a, b }) => {
        const at = { workspaceRoot: root, signal: signal() };
        const paths = [join(root, "a.txt")];
        const unknown = Promise.withResolvers<void>();
        a.link.onBatch = async (writes, make) => {
          if (!writes.some((write) => "collection" in write && write.collection === FILE_LOCKS.name)) {
            return await make();
          }
          if (made) await make();
          a.link.onBatch = (_, again) => again();
          await unknown.promise;
          throw new UnknownWriteError(awayError());
        };
        const lost = a.cluster.fileLocks?.hold(paths, at, async () => assert.fail()) ?? assert.fail();
        lost.catch(() => {});
        await database.clock.advance(10);
        const giveBack = made ? undefined : await holdAt(b, root);
        unknown.resolve();
        await assert.rejects(lost, UnknownWriteError);
        await database.clock.advance(5_000);
        assert.equal(await database.store.count(FILE_LOCKS.name), made ? 0 : 1);
        await giveBack?.();
        await (await holdAt(b, root))();
      }));
  }

  test("a lock that is given back late is not that of a later change", () =>
    withTwo(async ({ root, database, a, b }) => {
      const first = await holdAt(a, root);
      a.link.onBatch = () => Promise.reject(awayError());
      await first();
      a.link.onBatch = (_, make) => make();
      const second = await holdAt(a, root);
      await database.clock.advance(5_000);
      let isTaken = false;
      const next = holdAt(b, root).finally(() => isTaken = true);
      await database.clock.advance(1_000);
      assert.equal(isTaken, false, "two gateways change one file");
      await second();
      await database.clock.advance(1_000);
      await (await next)();
      assert.equal(await database.store.count(FILE_LOCKS.name), 0);
    }));

  test("a lock that could not be given back is given back later", () =>
    withTwo(async ({ root, database, a }) => {
      const giveBack = await holdAt(a, root);
      a.link.onBatch = () => Promise.reject(awayError());
      await giveBack();
      a.link.onBatch = (_, make) => make();
      await database.clock.advance(2_000);
      assert.equal(await database.store.count(FILE_LOCKS.name), 0);
    }));

  test("a gateway that has the workspace for itself writes no record", async () => {
    await withTemporaryFolder(async (root) => {
      const database = createSharedDatabase();
      writeFileSync(join(root, "a.txt"), "old");
      const a = await join2(database, root, 1);
      const other = await joinLink(database, { seed: 2, workspace: "other" });
      let written = 0;
      database.onResult = async (operation) => void (operation === "batch" && written++);
      await a.files.change([await changeOf(a.files, root, "new")], scopeOf(root), { signal: signal() });
      assert.equal(written, 0);
      assert.equal(readFileSync(join(root, "a.txt"), "utf8"), "new");
      await Promise.all([a.close(), other.close()]);
    });
  });
});

test("no tool reads or writes the proofs", async () => {
  await withTemporaryFolder(async (root) => {
    await createProofFiles(root).write("gw_a", "secret");
    const { clock } = createSharedDatabase();
    const files = createFiles({ clock, home: root, ownPaths: [join(root, PROOF_FOLDER)] });
    const path = `${PROOF_FOLDER}/gw_a`;
    await assert.rejects(files.open(path, scopeOf(root)), { code: "path_forbidden" });
    await assert.rejects(files.inspect(path, scopeOf(root), { maxBytes: 10 }), { code: "path_forbidden" });
  });
});
