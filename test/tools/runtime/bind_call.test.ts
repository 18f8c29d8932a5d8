import assert from "node:assert/strict";
import { readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { systemClock } from "../../../lib/base/clock.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import { defaultConfig } from "../../../lib/config/config.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { Processes } from "../../../lib/system/process/processes.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import type { Files } from "../../../lib/system/files/files.ts";
import { writeFile } from "../../../lib/tools/files/write_file.ts";
import { bindCall } from "../../../lib/tools/runtime/bind_call.ts";
import type { BoundParts, Tool } from "../../../lib/tools/runtime/tool.ts";
import { withWorkspace } from "../../support/workspace.ts";
import { triesOf } from "../../support/seeded_random.ts";

const FILES = createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] });

interface Circumstances {
  readonly files?: Files;
  readonly tool?: Tool;
  readonly allowedRoot?: string;
  readonly signal?: AbortSignal;
  /** Parts that the tool itself is bound to. Default: none */
  readonly parts?: BoundParts;
}

function bind(root: string, input: Readonly<Record<string, unknown>>, more: Circumstances = {}) {
  const { files = FILES, tool = writeFile, allowedRoot = ".", signal = new AbortController().signal } = more;
  const config = defaultConfig();
  const { security } = config;
  const prepared = writeFile.prepare(JSON.stringify(input));
  const { parts = { shown: [], throughFiles: true } } = more;
  return bindCall(tool, { ...prepared, bind: () => Promise.resolve(parts) }, {
    services: {
      files,
      commands: { find: () => Promise.resolve(undefined), identify: () => Promise.resolve(undefined) },
      processes: new Processes({
        commands: createCommandLookup(),
        clock: systemClock,
        home: "/home/nobody",
        ownPaths: [],
        quarantine: { folder: "/nonexistent/quarantine" },
        notes: "/nonexistent/commands",
        marker: "test",
      }),
    },
    workspaceRoot: root,
    config: { ...config, security: { ...security, write_file: { ...security.write_file, allowed_root: allowedRoot } } },
    // Only a tool's own binding looks at it
    context: undefined as never,
    signal,
  });
}

test("any bit of the file or the input makes another digest, and the same ones the same", () =>
  withWorkspace({ "a.bin": "x" }, async ({ root, path }) => {
    const bytes = fc.uint8Array({ minLength: 1, maxLength: 200 });
    await fc.assert(
      fc.asyncProperty(bytes, fc.nat(), fc.integer({ min: 0, max: 7 }), fc.string(), async (content, at, bit, text) => {
        writeFileSync(path("a.bin"), content);
        const input = { path: "a.bin", content: text };
        const { digest } = await bind(root, input);
        assert.equal((await bind(root, { content: text, path: "a.bin" })).digest, digest);
        assert.notEqual((await bind(root, { ...input, content: `${text}!` })).digest, digest);
        assert.notEqual((await bind(root, { ...input, overwrite: false })).digest, digest);
        const flipped = content.slice();
        const index = at % flipped.length;
        flipped[index] = (flipped[index] ?? 0) ^ (1 << bit);
        writeFileSync(path("a.bin"), flipped);
        assert.notEqual((await bind(root, input)).digest, digest);
      }),
      { numRuns: triesOf(15) },
    );
  }));

test("the folder that paths are relative to counts, though neither file is there", () =>
  withWorkspace({ "sub/x": "" }, async ({ root }) => {
    const input = { path: "new.txt", content: "" };
    assert.notEqual((await bind(root, input)).digest, (await bind(root, input, { allowedRoot: "sub" })).digest);
  }));

test("a file that changes while it is read is read again, and one that never stops is not asked about", () =>
  withWorkspace({ "a.txt": "0" }, async ({ root, path }) => {
    let reads = 0;
    const restless = (changes: number): Files => ({
      ...FILES,
      async open(name, scope) {
        const file = await FILES.open(name, scope);
        if (reads++ < changes) writeFileSync(path("a.txt"), `${readFileSync(path("a.txt"), "utf8")}${reads}`);
        return file;
      },
    });
    const input = { path: "a.txt", content: "" };
    const { digest } = await bind(root, input, { files: restless(1) });
    assert.equal(digest, (await bind(root, input)).digest);
    reads = 0;
    await assert.rejects(bind(root, input, { files: restless(100) }), { code: "path_changed" });
  }));

test("a file is not bound to the content of another that had its name while it was opened", () =>
  withWorkspace({ "a.txt": "mine", "b.txt": "theirs" }, async ({ root, path }) => {
    const exchange = () => {
      renameSync(path("a.txt"), path("c.txt"));
      renameSync(path("b.txt"), path("a.txt"));
      renameSync(path("c.txt"), path("b.txt"));
    };
    const swapped = (times: number): Files => ({
      ...FILES,
      async open(name, scope) {
        if (times-- <= 0) return await FILES.open(name, scope);
        const { mtimeMs } = statSync(path("a.txt"));
        exchange();
        const file = await FILES.open(name, scope);
        exchange();
        assert.equal(statSync(path("a.txt")).mtimeMs, mtimeMs);
        return file;
      },
      // As where a clock's step is longer than the exchange
      async inspect(...look) {
        const found = await FILES.inspect(...look);
        const { file } = found;
        return file === undefined
          ? found
          : { ...found, file: { ...file, version: file.version.replace(/:\d+$/, ":0") } };
      },
    });
    const input = { path: "a.txt", content: "" };
    const { files } = await bind(root, input);
    assert.deepEqual((await bind(root, input, { files: swapped(1) })).files, files);
    await assert.rejects(bind(root, input, { files: swapped(100) }), { code: "path_changed" });
  }));

test("a file that lies elsewhere at the second look is looked at again", () =>
  withWorkspace({ "a.txt": "0" }, async ({ root }) => {
    let looks = 0;
    const files: Files = {
      ...FILES,
      async inspect(...look) {
        const found = await FILES.inspect(...look);
        return looks++ === 0 ? { ...found, path: "elsewhere/a.txt" } : found;
      },
    };
    assert.equal((await bind(root, { path: "a.txt", content: "" }, { files })).folder, root);
  }));

test("a tool that reaches its paths by other means is bound to what they are: a folder, or nothing", () =>
  withWorkspace({ "src/a.ts": "" }, async ({ root }) => {
    const tool: Tool = { ...writeFile, needs: [] };
    const input = { path: "src", content: "" };
    assert.deepEqual((await bind(root, input, { tool })).files, [{ path: "src", sha256: "unread:not_a_file" }]);
    await assert.rejects(bind(root, input), { code: "not_a_file" });
  }));

test("what a tool binds itself counts, shown or not, and its folder is the one of the call", () =>
  withWorkspace({ "sub/x": "" }, async ({ root, path }) => {
    const bound = async (parts: BoundParts) => (await bind(root, { path: "a.txt", content: "" }, { parts })).digest;
    const shown = [{ kind: "file" as const, name: "a", sha256: "1" }];
    const digest = await bound({ shown, more: "1" });
    assert.equal(await bound({ shown: [{ kind: "file" as const, name: "a", sha256: "1" }], more: "1" }), digest);
    assert.notEqual(await bound({ shown: [{ kind: "file" as const, name: "a", sha256: "2" }], more: "1" }), digest);
    assert.notEqual(await bound({ shown, more: "2" }), digest);
    const folderOf = async (parts: BoundParts) => (await bind(root, { path: "a.txt", content: "" }, { parts })).folder;
    assert.deepEqual([await folderOf({ shown, folder: "sub" }), await folderOf({ shown })], [path("sub"), undefined]);
  }));

test("a cancelled call is not read on for", () =>
  withWorkspace({ "a.txt": "x" }, async ({ root }) => {
    const signal = AbortSignal.abort(new CancelError("client_gone"));
    await assert.rejects(bind(root, { path: "a.txt", content: "" }, { signal }), { reason: "client_gone" });
  }));
