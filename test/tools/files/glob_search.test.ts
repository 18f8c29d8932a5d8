import assert from "node:assert/strict";
import { rmSync, symlinkSync } from "node:fs";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const FILES = {
  "a.ts": "",
  "src/b.ts": "",
  "src/deep/c.ts": "",
  "src/d.js": "",
  "node_modules/x/e.ts": "",
  ".gitignore": "node_modules/\n",
  ".github/ci.yml": "",
  ".env": "",
  "src/.env.local": "",
  "key.pem": "",
};

test("finds files by glob, sorted, without ignored and sensitive ones", () =>
  withWorkspace(FILES, async ({ root }) => {
    const { call } = createToolBench({ root });
    const output = async (input: unknown) => (await call("glob_search", input)).result.output;
    assert.equal(await output("**/*.ts"), "a.ts\nsrc/b.ts\nsrc/deep/c.ts");
    assert.equal(await output("*.ts"), "a.ts");
    assert.equal(await output("**/*.{js,yml}"), ".github/ci.yml\nsrc/d.js");
    assert.equal(await output({ pattern: "*.ts", path: "src" }), "src/b.ts");
    assert.equal(await output({ pattern: "**/*.ts", path: "src" }), "src/b.ts\nsrc/deep/c.ts");
    for (const pattern of ["**/*", "**/.*", "**/*.pem", ".env*"]) {
      const { data } = (await call("glob_search", pattern)).result;
      assert.doesNotMatch(JSON.stringify(data), /\.env|pem/, pattern);
    }
  }));

test("says when there is nothing, when there is more, and how to search deeper", () =>
  withWorkspace(FILES, async ({ root }) => {
    const { call } = createToolBench({ root });
    const none = (await call("glob_search", "*.js")).result;
    assert.deepEqual(none, {
      output: "No file matches; **/*.js also searches the folders below",
      isError: false,
      data: { paths: [], truncated: false },
    });
    const some = (await call("glob_search", { pattern: "**/*.ts", limit: 2 })).result;
    assert.equal(some.output, "a.ts\nsrc/b.ts\n[The first 2 of 3 files: narrow the pattern or raise limit]");
    assert.deepEqual(some.data, { paths: ["a.ts", "src/b.ts"], truncated: true });
  }));

test("finds the same on both sides of the number of files that a thread is started for", () => {
  const names = Array.from({ length: 510 }, (_, i) => `f${String(i).padStart(4, "0")}.ts`);
  return withWorkspace(Object.fromEntries(names.map((name) => [name, ""])), async ({ root, path }) => {
    const { call } = createToolBench({ root });
    const search = async () => (await call("glob_search", { pattern: "*.ts", limit: 2000 })).result.data;
    for (const count of [510, 501, 500, 499]) {
      for (const name of names.splice(count)) rmSync(path(name));
      assert.deepEqual(await search(), { paths: names, truncated: false }, String(count));
    }
    assert.match((await call("glob_search", { pattern: "*", path: "none" })).result.output, /it does not exist$/);
  });
});

test("neither pattern nor path leads outside", () =>
  withWorkspace(FILES, async ({ root, outside, path }) => {
    symlinkSync(outside, path("out"));
    const { call } = createToolBench({ root });
    for (
      const input of ["/etc/*", "../**", "src/../../**", { pattern: "*", path: ".." }, { pattern: "*", path: "/etc" }, {
        pattern: "*",
        path: "out",
      }, { pattern: "*", path: "none" }]
    ) {
      assert.equal((await call("glob_search", input)).result.isError, true, JSON.stringify(input));
    }
    assert.doesNotMatch((await call("glob_search", "**/*")).result.output, /secret/);
  }));

test("a name with a line break is one line of output", () =>
  withWorkspace({ "a\nb.ts": "" }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const { output, data } = (await call("glob_search", "*.ts")).result;
    assert.equal(output, '"a\\nb.ts"');
    assert.deepEqual(data, { paths: ["a\nb.ts"], truncated: false });
  }));

test("hears a cancellation among names that a hostile .gitignore makes slow to match", () => {
  const rules = `*${"a".repeat(120)}b\n`.repeat(2000);
  const names = Array.from({ length: 200 }, (_, i) => [`${"a".repeat(240)}${i}`, ""] as const);
  return withWorkspace({ ".gitignore": rules, ...Object.fromEntries(names) }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const controller = new AbortController();
    const started = systemClock.monotonic();
    const calling = call("glob_search", "*", { signal: controller.signal });
    systemClock.after(20, () => controller.abort(new CancelError("client_gone")));
    await assert.rejects(calling, { reason: "client_gone" });
    assert.ok(systemClock.monotonic() - started < 10_000);
  });
});
