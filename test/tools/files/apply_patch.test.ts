import assert from "node:assert/strict";
import { chmodSync, existsSync, readdirSync, readFileSync, statSync, symlinkSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";
import { triesOf } from "../../support/seeded_random.ts";

const ON = { write_file: { enabled: true }, autonomy: { level: "full" } } as const;
const NATIVE = createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] }).variant;
const VARIANTS = NATIVE === "handles" ? ["handles", "checked"] as const : ["checked"] as const;
const patch = (...lines: readonly string[]) => ["*** Begin Patch", ...lines, "*** End Patch"].join("\n");

for (const variant of VARIANTS) {
  test(`${variant}: adds, deletes, updates and moves files`, () =>
    withWorkspace({ "old.txt": "old", "a.txt": "one\r\ntwo\r\n", "run.sh": "echo 1\n" }, async ({ root, path }) => {
      chmodSync(path("run.sh"), 0o755);
      const { call } = createToolBench({ root, config: ON, variant });
      const { result } = await call(
        "apply_patch",
        patch(
          "*** Add File: src/new.txt",
          "+hello",
          "*** Delete File: old.txt",
          "*** Update File: a.txt",
          "@@",
          " one",
          "-two",
          "+2",
          "*** Update File: run.sh",
          "*** Move to: bin/run",
          "@@",
          "-echo 1",
          "+echo 2",
        ),
      );
      assert.equal(result.output, "dry_run=false files=4\nA src/new.txt\nD old.txt\nM a.txt\nR run.sh -> bin/run");
      assert.deepEqual(result.data, {
        dry_run: false,
        files: [
          { kind: "add", path: "src/new.txt" },
          { kind: "delete", path: "old.txt" },
          { kind: "update", path: "a.txt" },
          { kind: "move", path: "bin/run", from: "run.sh" },
        ],
      });
      assert.deepEqual(readdirSync(root).sort(), ["a.txt", "bin", "src"]);
      assert.equal(readFileSync(path("src/new.txt"), "utf8"), "hello\n");
      assert.equal(readFileSync(path("a.txt"), "utf8"), "one\r\n2\r\n");
      assert.equal(readFileSync(path("bin/run"), "utf8"), "echo 2\n");
      assert.equal(statSync(path("bin/run")).mode & 0o777, 0o755);
    }));

  test(`${variant}: one wrong section leaves the tree as it was`, () =>
    withWorkspace({ "a.txt": "one\n", "b.txt": "b\n", "bin": new Uint8Array([65, 0]) }, async ({ root, path }) => {
      const { call } = createToolBench({ root, config: ON, variant });
      symlinkSync(".", path("self"));
      const good = ["*** Add File: new/n.txt", "+n", "*** Update File: a.txt", "@@", "-one", "+1"];
      const wrong: readonly (readonly [lines: readonly string[], message: RegExp])[] = [
        [["*** Update File: b.txt", "-c"], /hunk 1: "c" is not in the file/],
        [["*** Update File: none", "-c"], /^Cannot edit "none": it does not exist$/],
        [["*** Delete File: none"], /^Cannot delete "none": it does not exist$/],
        [["*** Add File: b.txt", "+b"], /^Cannot add "b\.txt": it exists/],
        [["*** Update File: b.txt", "*** Move to: bin"], /^Cannot add "bin": it exists/],
        [["*** Update File: bin", "-A"], /is not UTF-8 text/],
        [["*** Update File: a.txt", "+x"], /names the file "a\.txt" twice/],
        [["*** Update File: self/a.txt", "+x"], /names the file "self\/a\.txt" twice/],
        [["*** Update File: ../outside/secret.txt", "+x"], /"\.\." is not allowed/],
        [["*** Add File: .git/hooks/pre-commit", "+x"], /not for the file tools/],
        [["*** Add File: .env", "+x"], /allow_sensitive_file_writes/],
        [["*** Add File: a.txt/x", "+x"], /it is not a folder/],
        [["*** Add File: new/n.txt/x", "+x"], /it is not a regular file/],
        [["*** Add File: big", `+${"x".repeat(70_000)}`], /it would have 70001 bytes/],
        [["*** Rename File: a.txt"], /^Cannot read the patch: line 8/],
      ];
      for (const [lines, message] of wrong) {
        const { result } = await call("apply_patch", { patch: patch(...good, ...lines) });
        assert.equal(result.isError, true, String(message));
        assert.match(result.output, message);
        assert.equal(readFileSync(path("a.txt"), "utf8"), "one\n");
        assert.deepEqual(readdirSync(root).sort(), ["a.txt", "b.txt", "bin", "self"], String(message));
      }
    }));
}

test("a hunk that fits several places writes nothing, and the model reads which and what to add", () =>
  withWorkspace({ "a.txt": "x\ny\nx\n" }, async ({ root, path }) => {
    const { call } = createToolBench({ root, config: ON });
    const { result } = await call("apply_patch", patch("*** Update File: a.txt", "@@", "-x", "+z"));
    assert.equal(result.isError, true);
    assert.match(result.output, /"a\.txt": hunk 1: "x" fits 2 places: lines 1, 3; add lines of context, an @@ line/);
    assert.equal(readFileSync(path("a.txt"), "utf8"), "x\ny\nx\n");
    await call("apply_patch", patch("*** Update File: a.txt", "@@ -3 +3 @@", "-x", "+z"));
    assert.equal(readFileSync(path("a.txt"), "utf8"), "x\ny\nz\n");
  }));

test("a patch that deletes a file and adds it again replaces it, in the form that it had", () =>
  withWorkspace({ "a.txt": "\ufeffone\r\ntwo\r\n", "b.txt": "b\n" }, async ({ root, path }) => {
    const { call } = createToolBench({ root, config: ON });
    const patch = (...lines: readonly string[]) => ["*** Begin Patch", ...lines, "*** End Patch"].join("\n");
    const rewrite = patch("*** Delete File: a.txt", "*** Delete File: b.txt", "*** Add File: a.txt", "+1");
    const { result } = await call("apply_patch", { patch: rewrite });
    assert.equal(result.output, "dry_run=false files=2\nD b.txt\nM a.txt");
    assert.equal(readFileSync(path("a.txt"), "utf8"), "\ufeff1\r\n");
    const again = await call("apply_patch", { patch: patch("*** Add File: a.txt", "+2", "*** Delete File: a.txt") });
    assert.match(again.result.output, /it exists/);
    const gone = await call("apply_patch", { patch: patch("*** Delete File: b.txt", "*** Add File: b.txt", "+2") });
    assert.match(gone.result.output, /Cannot delete "b\.txt": it does not exist/);
  }));

test("a dry run says the same and writes nothing", () =>
  withWorkspace({ "a.txt": "one\n" }, async ({ root, path }) => {
    const { call } = createToolBench({ root, config: ON });
    const text = patch("*** Add File: n/n.txt", "+n", "*** Update File: a.txt", "-one", "+1");
    const dry = await call("apply_patch", { patch: text, dry_run: true });
    assert.equal(dry.result.output, "dry_run=true files=2\nA n/n.txt\nM a.txt");
    assert.deepEqual([existsSync(path("n")), readFileSync(path("a.txt"), "utf8")], [false, "one\n"]);
  }));

test("a malformed patch is bad input: nobody is asked, nothing runs", () =>
  withWorkspace({}, async ({ root }) => {
    const { call, configure } = createToolBench({ root, config: ON });
    configure({ write_file: { enabled: true }, autonomy: { level: "supervised" } });
    const { ran, result } = await call("apply_patch", "no patch", { approver: () => assert.fail("nobody is asked") });
    assert.equal(ran, false);
    assert.match(result.output, /line 1: it must be "\*\*\* Begin Patch"/);
  }));

test("every path of the patch is the policy's to see, and the level holds", () =>
  withWorkspace({ "a.txt": "a\n", "b.txt": "b\n" }, async ({ root, path }) => {
    const { call, configure } = createToolBench({ root });
    const move = patch("*** Update File: a.txt", "*** Move to: no/a.txt");
    assert.match((await call("apply_patch", move)).result.output, /\[security\.write_file\] enabled = true/);
    for (const level of ["supervised", "read_only"] as const) {
      configure({ write_file: { enabled: true }, autonomy: { level } });
      const { ran, result } = await call("apply_patch", move);
      assert.deepEqual([ran, result.isError], [false, true], level);
    }
    configure({ write_file: { enabled: true }, autonomy: { level: "full", forbidden_paths: ["no"] } });
    const denied = await call("apply_patch", move);
    assert.equal(denied.ran, false);
    assert.match(denied.result.output, /forbidden path/);
    assert.deepEqual(readdirSync(root).sort(), ["a.txt", "b.txt"]);
    assert.equal(readFileSync(path("a.txt"), "utf8"), "a\n");
  }));

test("applying a generated patch to files equals making its changes", async () => {
  const name = fc.constantFrom("a", "b/c", "d", "e/f/g", "h i");
  const lines = fc.array(fc.constantFrom("x", "", " y", "+z", "ü"), { minLength: 1, maxLength: 4 });
  const change = fc.record({ kind: fc.constantFrom("add", "delete", "update", "move"), before: lines, after: lines });
  await fc.assert(
    fc.asyncProperty(fc.dictionary(name, change, { minKeys: 1 }), async (changes) => {
      const entries = Object.entries(changes);
      const text = (part: readonly string[]) => part.map((line) => `${line}\n`).join("");
      const start = Object.fromEntries(
        entries.filter(([, { kind }]) => kind !== "add").map(([path, { before }]) => [path, text(before)]),
      );
      const sections = entries.flatMap(([path, { kind, before, after }]) => {
        if (kind === "add") return [`*** Add File: ${path}`, ...after.map((line) => `+${line}`)];
        if (kind === "delete") return [`*** Delete File: ${path}`];
        return [
          `*** Update File: ${path}`,
          ...(kind === "move" ? [`*** Move to: moved/${path}`] : []),
          "@@",
          ...before.map((line) => `-${line}`),
          ...after.map((line) => `+${line}`),
        ];
      });
      await withWorkspace(start, async ({ root, path: inRoot }) => {
        const { call } = createToolBench({ root, config: ON });
        const { result } = await call("apply_patch", patch(...sections));
        assert.equal(result.isError, false, result.output);
        for (const [path, { kind, after }] of entries) {
          const at = kind === "move" ? `moved/${path}` : path;
          assert.equal(existsSync(inRoot(path)), kind === "add" || kind === "update");
          if (kind !== "delete") assert.equal(readFileSync(inRoot(at), "utf8"), text(after));
        }
      });
    }),
    { numRuns: triesOf(15) },
  );
});
