import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import type { Approver } from "../../../lib/tools/runtime/tool_call.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const ON = { write_file: { enabled: true }, autonomy: { level: "full" } } as const;

test("writes a file and answers with one line", () =>
  withWorkspace({}, async ({ root, path }) => {
    const { call } = createToolBench({ root, config: ON });
    const outcome = await call("write_file", { path: "a/b.txt", content: "zwölf\r\n" });
    assert.deepEqual(outcome, {
      result: {
        output: "dry_run=false path=a/b.txt bytes=8 overwrite=false",
        isError: false,
        data: { dry_run: false, path: "a/b.txt", bytes: 8, overwrite: false, created: true },
      },
      ran: true,
      access: "write",
    });
    assert.equal(readFileSync(path("a/b.txt"), "utf8"), "zwölf\r\n");
    const odd = await call("write_file", { path: "line\nbreak", content: "" });
    assert.equal(odd.result.output, 'dry_run=false path="line\\nbreak" bytes=0 overwrite=false');
  }));

test("an existing file is replaced only with overwrite, in a dry run too", () =>
  withWorkspace({ "a.txt": "old" }, async ({ root, path }) => {
    const { call } = createToolBench({ root, config: ON });
    for (const dry_run of [true, false]) {
      const { result } = await call("write_file", { path: "a.txt", content: "new", dry_run });
      assert.match(result.output, /^Cannot write "a\.txt": it exists; "overwrite": true replaces it/);
      assert.equal(result.isError, true);
    }
    const dry = await call("write_file", { path: "a.txt", content: "new", overwrite: true, dry_run: true });
    assert.equal(dry.result.output, "dry_run=true path=a.txt bytes=3 overwrite=true");
    assert.equal(readFileSync(path("a.txt"), "utf8"), "old");
    await call("write_file", { path: "a.txt", content: "new", overwrite: true });
    assert.equal(readFileSync(path("a.txt"), "utf8"), "new");
    await call("write_file", { path: "deep/er/b.txt", content: "new", dry_run: true });
    assert.equal(existsSync(path("deep")), false);
  }));

test("a file that is replaced keeps its byte order mark and its line ends, and the question has the final bytes", () =>
  withWorkspace({
    "both.txt": "\ufeffone\r\ntwo\r\n",
    "mixed.txt": "one\r\ntwo\n",
    "mark.txt": "\ufeffone\n",
    "crlf.txt": "one\r\n",
    "bin": new Uint8Array([0xef, 0xbb, 0xbf, 0]),
  }, async ({ root, path }) => {
    const { call, configure } = createToolBench({ root, config: ON });
    const written = async (name: string, content: string) => {
      const { result } = await call("write_file", { path: name, content, overwrite: true });
      return [readFileSync(path(name), "utf8"), result.output.split("\n")[1] ?? ""];
    };
    const kept = "[Kept of the file: the byte order mark and the CRLF line ends]";
    assert.deepEqual(await written("both.txt", "1\n2\n"), ["\ufeff1\r\n2\r\n", kept]);
    assert.deepEqual(await written("both.txt", "\ufeff1\n2\r\n"), ["\ufeff1\n2\r\n", ""]);
    assert.deepEqual(await written("mark.txt", "1\n"), ["\ufeff1\n", "[Kept of the file: the byte order mark]"]);
    assert.deepEqual(await written("crlf.txt", "1\n"), ["1\r\n", "[Kept of the file: the CRLF line ends]"]);
    assert.deepEqual(await written("crlf.txt", "1"), ["1", ""]);
    assert.deepEqual(await written("mixed.txt", "1\n2\n"), ["1\n2\n", ""]);
    assert.deepEqual(await written("bin", "1\n"), ["1\n", ""]);
    writeFileSync(path("both.txt"), "\ufeffone\r\n");
    configure({ write_file: { enabled: true } });
    let bound: unknown;
    const approver: Approver = async (request) => {
      bound = request.binding.bound;
      return { decision: "approve", reason: "" };
    };
    const input = { path: "both.txt", content: "1\n2\n", overwrite: true };
    const { result } = await call("write_file", input, { approver });
    assert.match(result.output, /bytes=9/);
    const sha256 = hash("sha256", "\ufeff1\r\n2\r\n");
    assert.deepEqual(bound, [{ kind: "file", name: "both.txt as it will be written, 9 bytes", sha256 }]);
    configure({ ...ON, write_file: { enabled: true, max_write_bytes: 6 } });
    assert.match((await call("write_file", { ...input, content: "1\n2" })).result.output, /it would have 7 bytes/);
  }));

test("holds to max_write_bytes, in bytes", () =>
  withWorkspace({}, async ({ root }) => {
    const { call } = createToolBench({ root, config: { ...ON, write_file: { enabled: true, max_write_bytes: 4 } } });
    assert.equal((await call("write_file", { path: "a", content: "éé" })).result.isError, false);
    const { result } = await call("write_file", { path: "b", content: "ééé", dry_run: true });
    assert.match(result.output, /it would have 6 bytes; \[security\.write_file\] max_write_bytes allows 4$/);
    assert.match((await call("write_file", '{"path":"c","content":"\\ud800"}')).result.output, /half a character/);
    assert.deepEqual(readdirSync(root), ["a"]);
  }));

test("is off by default, denied for readers, asks under supervised, runs under full", () =>
  withWorkspace({}, async ({ root }) => {
    const { call, configure, executor } = createToolBench({ root });
    const input = { path: "a.txt", content: "text" };
    const outcome = async (level: string, more: Parameters<typeof call>[2] = {}) => {
      configure({ write_file: { enabled: true }, autonomy: { level } as { level: "full" } });
      const { ran, result } = await call("write_file", input, more);
      return [ran, result.isError, result.output] as const;
    };
    assert.match((await call("write_file", input)).result.output, /set \[security\.write_file\] enabled = true/);
    assert.equal(executor.get("write_file")?.enabled, false);
    const [, , readOnly] = await outcome("read_only", { approver: () => assert.fail("nobody is asked") });
    assert.match(readOnly, /which level "read_only" never allows/);
    const [ran, , supervised] = await outcome("supervised");
    assert.equal(ran, false);
    assert.match(supervised, /without approval: .*auto_approve to allow it/);
    assert.deepEqual(readdirSync(root), []);
    const approver = async () => ({ decision: "approve", reason: "" }) as const;
    assert.deepEqual((await outcome("supervised", { approver })).slice(0, 2), [true, false]);
    assert.match((await outcome("full"))[2], /it exists/);
  }));

test("refusals name the way out", () =>
  withWorkspace({ "docs/a": "", "b": "" }, async ({ root, path }) => {
    const { call, configure } = createToolBench({ root, config: ON });
    const output = async (name: string) =>
      (await call("write_file", { path: name, content: "x", overwrite: true })).result.output;
    assert.match(await output(".env"), /allow_sensitive_file_writes = true opens them$/);
    assert.match(
      await output(".git/hooks/post-checkout"),
      /not for the file tools to change; a person can, in an editor$/,
    );
    assert.match(await output("../x"), /^Cannot write "\.\.\/x": "\.\." is not allowed/);
    assert.match(await output("docs"), /it is not a regular file$/);
    configure({ ...ON, autonomy: { level: "full", allow_sensitive_file_writes: true } });
    assert.match(await output(".env"), /^dry_run=false/);
    configure({ ...ON, autonomy: { level: "full", forbidden_paths: ["docs"] } });
    const denied = await call("write_file", { path: "docs/a", content: "x", overwrite: true });
    assert.equal(denied.ran, false);
    configure({ ...ON, write_file: { enabled: true, allowed_root: "docs" } });
    await output("new");
    assert.equal(readFileSync(path("docs/new"), "utf8"), "x");
  }));
