import assert from "node:assert/strict";
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { MAX_TAINTED_FILES, StoredTaintedFiles, TAINTED_FILES } from "../../lib/guard/tainted_files.ts";
import { MAX_MARKED_AT_ONCE } from "../../lib/guard/tainted_places.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { triesOf } from "../support/seeded_random.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const BY = { via: "http", tokenId: "tok_1" } as const;
const TAINT = ["web_fetch example.com"];

function setUp(root: string, store = createMemoryStore()) {
  const audit = createFakeAudit(store);
  const clock = createFakeClock();
  const files = new StoredTaintedFiles({ store, clock, audit: audit.append });
  const at = (name: string) => join(root, name);
  return {
    store,
    audit,
    clock,
    files,
    at,
    of: (...names: readonly string[]) => files.of(names.map(at)),
    async write(name: string, taint: readonly string[] = TAINT) {
      await files.mark([at(name)], { taint, root });
      writeFileSync(at(name), "text");
      await files.written([at(name)]);
    },
  };
}

test("a marked file is known by its path, through a link, in its folder, and where it is moved to", () =>
  withTemporaryFolder(async (root) => {
    const { of, write, at } = setUp(root);
    mkdirSync(at("docs"));
    writeFileSync(at("other"), "text");
    assert.deepEqual(await of("docs", "other"), []);
    await write("docs/page.md");
    symlinkSync("docs/page.md", at("link"));
    symlinkSync("docs", at("folder"));
    for (const name of ["docs/page.md", "./docs/../docs/page.md", "link", "folder/page.md", "docs", "."]) {
      assert.deepEqual(await of(name), TAINT, name);
    }
    for (const name of ["other", "docs/none", "docs/page.md2"]) assert.deepEqual(await of(name), [], name);
    renameSync(at("docs/page.md"), at("moved"));
    assert.deepEqual(await of("moved"), TAINT);
  }));

test("a marked file is known by the same name in other code points, as the file tools open it", () =>
  withTemporaryFolder(async (root) => {
    const { files, of, write, at } = setUp(root);
    mkdirSync(at("Cafe\u0301"));
    await write("Cafe\u0301/e\u0301te\u0301");
    assert.deepEqual(await of("Caf\u00e9/\u00e9t\u00e9"), TAINT);
    await files.mark([at("Caf\u00e9/\u00e9t\u00e9")], { taint: ["webhook news"], root });
    assert.deepEqual(await of("Cafe\u0301/e\u0301te\u0301"), [...TAINT, "webhook news"]);
  }));

test("the mark is there before the write, and stays over a restart", () =>
  withTemporaryFolder(async (root) => {
    const { files, at, store } = setUp(root);
    await files.mark([at("new/page.md")], { taint: TAINT, root });
    mkdirSync(at("new"));
    writeFileSync(at("new/page.md"), "text");
    const { of, write } = setUp(root, store);
    assert.deepEqual(await of("new/page.md"), TAINT);
    renameSync(at("new/page.md"), at("new/moved.md"));
    assert.deepEqual(await of("new/moved.md"), TAINT, "moved after a write that nobody saw the end of");
    renameSync(at("new/moved.md"), at("new/page.md"));
    await write("new/page.md", ["webhook news"]);
    assert.deepEqual(await of("new/page.md"), [...TAINT, "webhook news"]);
  }));

test("a person vouches for a file or a folder, and the audit says so", () =>
  withTemporaryFolder(async (root) => {
    const { files, of, write, at, audit } = setUp(root);
    mkdirSync(at("docs"));
    for (const name of ["docs/a", "docs/b", "c"]) await write(name);
    assert.equal(await files.clear(at("docs"), BY), 2);
    assert.equal(await files.clear(at("docs"), BY), 0);
    assert.deepEqual([await of("docs"), await of("c")], [[], TAINT]);
    assert.deepEqual((await files.list()).map(({ path }) => path), [at("c")]);
    const told = audit.events.map((event) => event.type === "trust" ? [event.subject, event.name] : []);
    assert.deepEqual(told, [["tainted_file", at("docs/a")], ["tainted_file", at("docs/b")]]);
  }));

test("a mark ends with its file, and follows a file that was only moved", () =>
  withTemporaryFolder(async (root) => {
    const { files, of, write, at, clock, store } = setUp(root);
    await write("page");
    rmSync(at("page"));
    await files.written([at("page")]);
    assert.deepEqual(await files.list(), []);
    writeFileSync(at("page"), "by a person");
    assert.deepEqual(await of("page"), [], "it is another file");

    await write("other");
    renameSync(at("other"), at("moved"));
    await files.list();
    writeFileSync(at("other"), "by a person");
    assert.deepEqual([await of("other"), await of("moved")], [[], TAINT]);
    renameSync(at("moved"), at("other"));
    assert.deepEqual((await files.list()).map(({ path }) => path), [at("other")], "it is back");
    assert.deepEqual(await of("other"), TAINT);

    writeFileSync(at("new"), "by an editor");
    renameSync(at("new"), at("other"));
    assert.deepEqual(await of("other"), TAINT, "nobody saw it gone");

    await write("page");
    assert.deepEqual(await of("page"), TAINT, "it is written again");
    rmSync(at("page"));
    await files.list();
    await clock.advance(31 * 24 * 3_600_000);
    await files.list();
    assert.deepEqual((await setUp(root, store).files.list()).map(({ path }) => path), [at("other")]);
  }));

test("a marked file that is gone is known by its content when it is brought back, here or elsewhere", () =>
  withTemporaryFolder(async (root) => {
    const { files, of, write, at, store } = setUp(root);
    const lose = async (name: string) => {
      rmSync(at(name));
      await files.list();
    };
    mkdirSync(at("docs"));
    await write("docs/page");
    writeFileSync(at("docs/page"), "second text");
    await files.written([at("docs/page")]);
    for (const content of ["text", "second text"]) {
      await lose("docs/page");
      writeFileSync(at("docs/page"), "by a person");
      assert.deepEqual(await of("docs/page"), []);
      writeFileSync(at("docs/page"), content);
      assert.deepEqual(await of("docs"), TAINT, `${content}: a folder of it`);
      assert.deepEqual(await of("docs/page"), TAINT, content);
    }
    await lose("docs/page");
    writeFileSync(at("copy"), "second text");
    const again = setUp(root, store);
    assert.deepEqual(await again.of("copy"), TAINT, "under another name, after a restart");
    assert.deepEqual((await again.files.list()).map(({ path }) => path), [at("copy")]);
    await again.files.clear(at("copy"), BY);
    assert.deepEqual(await again.of("copy"), [], "a person vouches for the content");

    await write("empty");
    writeFileSync(at("empty"), "");
    await files.written([at("empty")]);
    await lose("empty");
    writeFileSync(at("other"), "");
    assert.deepEqual(await of("other"), [], "nothing is nobody's");
  }));

test("a mark whose write has not come yet stays for an hour, and makes room then", () =>
  withTemporaryFolder(async (root) => {
    const { files, of, at, clock } = setUp(root);
    await files.mark([at("slow")], { taint: TAINT, root });
    await files.written([at("slow")]);
    assert.equal((await files.list()).length, 1);
    writeFileSync(at("slow"), "late");
    assert.deepEqual(await of("slow"), TAINT);
    await files.mark([at("never")], { taint: TAINT, root });
    await clock.advance(2 * 3_600_000);
    assert.deepEqual((await files.list()).map(({ path }) => path), [at("slow")]);
  }));

test("with more files than are kept the whole folder is marked", () =>
  withTemporaryFolder(async (root) => {
    const store = createMemoryStore();
    // Marks of another workspace, where nobody looks here: each of them counts
    const body = {
      ...{ v: 1 as const, taint: [...TAINT], identity: "1:2:3", workspace: "ws_2" },
      marked_at: "2026-01-01T00:00:00.000Z",
    };
    const puts = Array.from({ length: MAX_TAINTED_FILES }, (_, at) => {
      const record = { ...body, path: join(root, "gone", `${at}`) };
      return TAINTED_FILES.put(`${at}`, record);
    });
    await store.batch(puts);
    const { of, write, at } = setUp(root, store);
    writeFileSync(at("other"), "text");
    assert.deepEqual(await of("other"), []);
    await write("one more");
    assert.deepEqual(await of("other"), TAINT);
  }));

test("of many files that one command wrote, the folder with most of them is marked", () =>
  withTemporaryFolder(async (root) => {
    const { files, of, at } = setUp(root);
    for (const folder of ["gen", "src"]) mkdirSync(at(folder));
    for (const name of ["gen/old", "src/old", "src/new", "one"]) writeFileSync(at(name), "text");
    const many = Array.from({ length: MAX_MARKED_AT_ONCE + 100 }, (_, index) => at(`gen/deep/${index}`));
    await files.markWritten([at("src/new"), at("one"), ...many], { taint: TAINT, root });
    assert.deepEqual((await files.list()).map(({ path }) => path), [at("gen"), at("one"), at("src/new")]);
    assert.deepEqual([await of("gen/old"), await of("src/old")], [TAINT, []]);
    const everywhere = Array.from({ length: MAX_MARKED_AT_ONCE + 1 }, (_, index) => at(`${index}`));
    await files.markWritten(everywhere, { taint: TAINT, root });
    assert.deepEqual(await of("src/old"), TAINT, "more than enough lie in the folder itself");
  }));

test("a name that is no plain word counts in a listing, also where a folder stands for its file", () =>
  withTemporaryFolder(async (root) => {
    const { files, at } = setUp(root);
    const listed = (...names: readonly string[]) => files.namesIn(names.map(at), root);
    const written = (folder: string, ...names: readonly string[]) => {
      const all = [...names, ...Array.from({ length: MAX_MARKED_AT_ONCE }, (_, index) => `f${index}`)];
      return files.markWritten(all.map((name) => at(join(folder, name))), { taint: TAINT, root });
    };
    await written("plain");
    assert.deepEqual(await listed(".", "plain", "plain/f1"), []);
    await written("odd", "Do as I say");
    for (const name of [".", "odd", "odd/Do as I say"]) assert.deepEqual(await listed(name), TAINT, name);
    assert.deepEqual(await listed("plain"), []);
  }));

test("a damaged record stands for every file", () =>
  withTemporaryFolder(async (root) => {
    const store = createMemoryStore();
    await store.batch([{ op: "put", collection: TAINTED_FILES.name, key: "x", body: { v: 1, path: 5 } }]);
    const { of, at } = setUp(root, store);
    writeFileSync(at("any"), "text");
    assert.deepEqual(await of("any"), ["a damaged record"]);
  }));

test("marks of files that are gone hold up no call, however many a run has left", () =>
  withTemporaryFolder(async (root) => {
    const { of, at, store, clock } = setUp(root);
    const digests = Array.from({ length: 8 }, (_, index) => String(index).repeat(64));
    const now = new Date(clock.now()).toISOString();
    const gone = Array.from({ length: triesOf(300) }, (_, index) => ({
      ...{
        v: 1 as const,
        path: join(root, `gone_${index}`),
        taint: [...TAINT],
        identity: "1:2:3",
        marked_at: now,
        gone_at: now,
      },
      contents: digests,
    }));
    await store.batch(gone.map((body) => TAINTED_FILES.put(body.path, body)));
    await of("none");
    // Each place is looked at once, and compared by a table: to compare each with all marks would look into 90,000 lists
    const compared = await searchesIn(async () => assert.deepEqual(await of("."), []));
    assert.ok(compared <= gone.length, `${compared} searches for ${gone.length} marks`);
    writeFileSync(at("gone_1"), "another text");
    assert.deepEqual(await of("gone_1"), []);
  }));

/** Returns how many lists are searched for a value while `work` runs. */
async function searchesIn(work: () => Promise<void>): Promise<number> {
  const { includes } = Array.prototype;
  let count = 0;
  Array.prototype.includes = function (this: unknown[], value: unknown, from?: number) {
    count++;
    return includes.call(this, value, from);
  };
  try {
    await work();
  } finally {
    Array.prototype.includes = includes;
  }
  return count;
}
